//! Which ops of a log count, in what order, and what is live after them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::op::{Body, Change, LinkName, Mark, Mode, RecordedOp, Restated};
use crate::{
    Author, Fnode, FnodeSegments, FsmHints, Property, Segment, SegmentError, SegmentSet, Timestamp,
};

mod hinted;
mod resume;

use hinted::{flatten, is_birth, is_gap, unborn};
pub use resume::{Rest, ResumeError};

/// The state of a log after the ops that were applied.
///
/// An op is applied if it has the next sequence number and checksum. With hints only their segments
/// are, by their authors, and only the files that they name are tracked; after them, again, whatever
/// chains first.
#[derive(Debug, Clone)]
pub struct Fsm {
    log: Arc<str>,
    last_log: Arc<str>,
    mode: Option<Mode>,
    last_time: Option<Timestamp>,
    next_seq_no: i64,
    next_checksum: u32,
    live_nodes: BTreeMap<Fnode, LiveNode>,
    links: BTreeMap<LinkName, Fnode>,
    properties: BTreeMap<Bytes, Bytes>,
    hinted_segments: SegmentSet,
    /// The hinted files that did not come to be yet, by the op that will make them.
    hinted_births: BTreeMap<i64, Fnode>,
    /// Those of them that come to be by an op that says them again: their content is before it.
    unborn: BTreeMap<Fnode, LiveNode>,
    /// How often ops are skipped between hinted segments from here on.
    hinted_gaps: usize,
    /// The first op since ops were skipped last.
    run_first: i64,
    /// That op, if it is not about a live file any more, still has to be found: what follows upon it
    /// leads to the log's head.
    run: Option<Segment>,
}

/// A file with a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LiveNode {
    links: u32,
    birth: i64,
    segments: Vec<Segment>,
}

impl LiveNode {
    /// Returns how many names the file has.
    pub fn links(&self) -> u32 {
        self.links
    }

    /// Returns the sequence number of the op by which it came to be: that of its fnode, or of a
    /// later one that said all about it again.
    pub fn birth(&self) -> i64 {
        self.birth
    }

    /// Returns the segments that hold its ops.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

/// Where an op lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpExtent<'a> {
    /// The log.
    pub log: &'a Arc<str>,
    /// Where its frame begins.
    pub begin: i64,
    /// Where its content ends.
    pub end: i64,
}

/// What applying an op did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It took effect.
    Applied,
    /// It is part of the chain, but is about a file that is not tracked: unknown, without a name, or
    /// not hinted. It has no effect on files, and its content is skipped.
    NotTracked,
}

/// Why an op is no part of the chain. The state stays as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FsmError {
    /// Another author is hinted.
    #[error("op is by author {actual}, but author {hinted} is hinted")]
    NotHintedAuthor {
        /// The hinted author.
        hinted: u32,
        /// The op's author.
        actual: u32,
    },
    /// It has another sequence number.
    #[error("op has sequence number {actual}, but {expected} is next")]
    WrongSeqNo {
        /// The next one.
        expected: i64,
        /// The op's.
        actual: i64,
    },
    /// It has another checksum.
    #[error("op has checksum {actual:08x}, but {expected:08x} is next")]
    ChecksumMismatch {
        /// The next one.
        expected: u32,
        /// The op's.
        actual: u32,
    },
    /// It creates no file, although hints say so.
    #[error("op creates no file, but a file is hinted")]
    ExpectedHintedFnode,
    /// Its path is a link already.
    #[error("link exists")]
    LinkExists,
    /// Its path is a property.
    #[error("property exists")]
    PropertyExists,
    /// The file has no such link.
    #[error("file has no such link")]
    NoSuchLink,
}

/// Why hints do not make a state.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FromHintsError {
    /// No log is named.
    #[error("hints name no log")]
    NoLog,
    /// Files are not in ascending order.
    #[error("hinted files are not in order: {0} is before {1}")]
    FnodeOrder(Fnode, Fnode),
    /// A file's first segment does not begin with its Create.
    #[error("hinted segments of file {0} do not begin with its first op")]
    FnodeSegments(Fnode),
    /// The op by which a file comes to be is in no segment, before the file, or another file's.
    #[error("hinted file {0} comes to be by an op that is not hinted")]
    Birth(Fnode),
    /// A segment does not fit.
    #[error("hinted segment: {0}")]
    Segment(#[from] SegmentError),
    /// The last segment is in another log than the hints are of.
    #[error("the last hinted segment is in log {last}, but the hints are of log {log}")]
    LastLog {
        /// The hints' log.
        log: Arc<str>,
        /// The last segment's.
        last: Arc<str>,
    },
}

impl Fsm {
    /// Starts from hints. Hints without files start at the beginning of the log.
    pub fn new(hints: &FsmHints) -> Result<Self, FromHintsError> {
        if hints.log.is_empty() {
            return Err(FromHintsError::NoLog);
        }
        let (hinted_segments, hinted_births) = flatten(hints)?;
        let pairs = hinted_segments.iter().zip(hinted_segments.iter().skip(1));
        let hinted_gaps = pairs.filter(|(a, b)| is_gap(a, b.first_seq_no)).count();
        let mut fsm = Self {
            log: Arc::clone(&hints.log),
            last_log: Arc::clone(&hints.log),
            mode: hints.mode,
            last_time: hints.time,
            next_seq_no: 1,
            next_checksum: 0,
            live_nodes: BTreeMap::new(),
            links: BTreeMap::new(),
            properties: BTreeMap::new(),
            hinted_segments,
            unborn: unborn(&hinted_births),
            hinted_births,
            hinted_gaps,
            run_first: 1,
            run: None,
        };
        if let Some(last) = fsm.hinted_segments.last()
            && last.log != hints.log
        {
            let (log, last) = (Arc::clone(&hints.log), Arc::clone(&last.log));
            return Err(FromHintsError::LastLog { log, last });
        }
        if let Some(first) = fsm.hinted_segments.first() {
            fsm.next_seq_no = first.first_seq_no;
            fsm.next_checksum = first.first_checksum;
            fsm.run_first = first.first_seq_no;
        }
        for Property { path, content } in &hints.properties {
            fsm.properties.insert(path.clone(), content.clone());
        }
        Ok(fsm)
    }

    /// Starts at the beginning of a log.
    pub fn of_log(log: &str) -> Result<Self, FromHintsError> {
        Self::new(&FsmHints::of_log(log))
    }

    /// Applies an op. `next_checksum` is the chain's checksum after it, as [`crate::chain`] gives it
    /// for the op's own checksum.
    pub fn apply(
        &mut self,
        op: &RecordedOp,
        next_checksum: u32,
        extent: OpExtent<'_>,
    ) -> Result<Applied, FsmError> {
        if let Some(hinted) = self.hinted_segments.first().map(|segment| segment.author)
            && hinted != op.author
        {
            return Err(FsmError::NotHintedAuthor {
                hinted,
                actual: op.author,
            });
        }
        if op.seq_no != self.next_seq_no {
            let (expected, actual) = (self.next_seq_no, op.seq_no);
            return Err(FsmError::WrongSeqNo { expected, actual });
        }
        if op.checksum != self.next_checksum {
            let (expected, actual) = (self.next_checksum, op.checksum);
            return Err(FsmError::ChecksumMismatch { expected, actual });
        }
        if let Some((&birth, &fnode)) = self.hinted_births.first_key_value()
            && birth == op.seq_no
            && !is_birth(op, fnode)
        {
            return Err(FsmError::ExpectedHintedFnode);
        }
        let applied = self.act(op, extent)?;
        if op.seq_no == self.run_first && op.seq_no > 1 {
            self.run = Some(segment_of(op, extent));
        }
        self.mode = op.mode.or(self.mode);
        self.last_time = self.last_time.max(op.time);
        self.last_log = Arc::clone(extent.log);
        // Sequence numbers count ops, of which there are fewer than 2^63.
        self.next_seq_no = op.seq_no.saturating_add(1);
        self.next_checksum = next_checksum;
        if let Some(segment) = self.hinted_segments.first()
            && segment.last_seq_no < self.next_seq_no
        {
            let passed = self.hinted_segments.pop_first();
            if let Some(next) = self.hinted_segments.first() {
                if passed.is_some_and(|passed| is_gap(&passed, next.first_seq_no)) {
                    self.hinted_gaps -= 1;
                    self.run_first = next.first_seq_no;
                }
                self.next_seq_no = next.first_seq_no;
                self.next_checksum = next.first_checksum;
            }
        }
        Ok(applied)
    }

    fn act(&mut self, op: &RecordedOp, extent: OpExtent<'_>) -> Result<Applied, FsmError> {
        match &op.body {
            Body::NoOp { .. } => Ok(Applied::Applied),
            Body::Create { at, .. } => self.create(op, at, extent),
            Body::Link { fnode, at } => {
                self.check_free(at)?;
                if !self.extend(*fnode, op, extent) {
                    return Ok(Applied::NotTracked);
                }
                if let Some(node) = self.live_nodes.get_mut(fnode) {
                    node.links += 1;
                }
                self.links.insert(at.clone(), *fnode);
                Ok(Applied::Applied)
            }
            Body::Unlink { fnode, at } => {
                if !self.live_nodes.contains_key(fnode) {
                    return Ok(Applied::NotTracked);
                }
                if self.links.get(at) != Some(fnode) {
                    return Err(FsmError::NoSuchLink);
                }
                self.links.remove(at);
                self.extend(*fnode, op, extent);
                if let Some(node) = self.live_nodes.get_mut(fnode) {
                    node.links -= 1;
                    if node.links == 0 {
                        self.live_nodes.remove(fnode);
                    }
                }
                Ok(Applied::Applied)
            }
            Body::Write(write) => Ok(self.touch_content(write.fnode, op, extent)),
            Body::Change { fnode, change, .. } => match change {
                Change::Size(_) => Ok(self.touch_content(*fnode, op, extent)),
                Change::Restated(restated) => self.restate(*fnode, restated, op, extent),
                Change::Attributes(_) | Change::SetXattr { .. } | Change::RemoveXattr { .. } => {
                    Ok(self.touch(*fnode, op, extent))
                }
            },
            Body::Property { path, content } => {
                let at = LinkName {
                    parent: Fnode::ROOT,
                    path: path.clone(),
                };
                if self.links.contains_key(&at) {
                    return Err(FsmError::LinkExists);
                }
                self.properties.insert(path.clone(), content.clone());
                Ok(Applied::Applied)
            }
        }
    }

    fn create(
        &mut self,
        op: &RecordedOp,
        at: &LinkName,
        extent: OpExtent<'_>,
    ) -> Result<Applied, FsmError> {
        self.check_free(at)?;
        let fnode = Fnode(op.seq_no);
        if self.hinted_births.get(&op.seq_no) == Some(&fnode) {
            self.hinted_births.remove(&op.seq_no);
        } else if !self.hinted_births.is_empty() || self.hinted_gaps > 0 {
            // The file was dead when the hints were made. If ops will be skipped, the one by which
            // it lost its last name may be among them.
            return Ok(Applied::NotTracked);
        }
        self.live_nodes.insert(
            fnode,
            LiveNode {
                links: 1,
                birth: op.seq_no,
                segments: Vec::new(),
            },
        );
        self.links.insert(at.clone(), fnode);
        self.extend(fnode, op, extent);
        Ok(Applied::Applied)
    }

    /// A live file is as it is said to be. A hinted one comes to be by it, if that is its birth.
    fn restate(
        &mut self,
        fnode: Fnode,
        restated: &Restated,
        op: &RecordedOp,
        extent: OpExtent<'_>,
    ) -> Result<Applied, FsmError> {
        if self.hinted_births.get(&op.seq_no) != Some(&fnode) {
            return Ok(self.touch(fnode, op, extent));
        }
        if restated.links.is_empty() {
            return Err(FsmError::NoSuchLink);
        }
        let mut names = BTreeSet::new();
        for at in &restated.links {
            self.check_free(at)?;
            if !names.insert(at) {
                return Err(FsmError::LinkExists);
            }
        }
        self.hinted_births.remove(&op.seq_no);
        let mut node = self.unborn.remove(&fnode).unwrap_or_default();
        node.birth = op.seq_no;
        node.links = u32::try_from(restated.links.len()).unwrap_or(u32::MAX);
        self.live_nodes.insert(fnode, node);
        for at in &restated.links {
            self.links.insert(at.clone(), fnode);
        }
        Ok(self.touch(fnode, op, extent))
    }

    fn check_free(&self, at: &LinkName) -> Result<(), FsmError> {
        if self.links.contains_key(at) {
            return Err(FsmError::LinkExists);
        }
        if at.parent == Fnode::ROOT && self.properties.contains_key(&at.path) {
            return Err(FsmError::PropertyExists);
        }
        Ok(())
    }

    fn touch(&mut self, fnode: Fnode, op: &RecordedOp, extent: OpExtent<'_>) -> Applied {
        if self.extend(fnode, op, extent) {
            Applied::Applied
        } else {
            Applied::NotTracked
        }
    }

    /// As [`touch`](Self::touch), but the content of a file may be before its birth.
    fn touch_content(&mut self, fnode: Fnode, op: &RecordedOp, extent: OpExtent<'_>) -> Applied {
        match self.unborn.get_mut(&fnode) {
            Some(node) => {
                extend(node, self.run_first, op, extent);
                Applied::Applied
            }
            None => self.touch(fnode, op, extent),
        }
    }

    /// Adds the op to a file's segments, if the file is live.
    fn extend(&mut self, fnode: Fnode, op: &RecordedOp, extent: OpExtent<'_>) -> bool {
        let Some(node) = self.live_nodes.get_mut(&fnode) else {
            return false;
        };
        extend(node, self.run_first, op, extent);
        true
    }

    /// Builds hints of the present state, for a log that is recorded into.
    pub fn hints(&self, log: &Arc<str>) -> FsmHints {
        let blank: Arc<str> = "".into();
        let mut run = self.run.clone().filter(|run| {
            let mut segments = self.live_nodes.values().flat_map(|node| &node.segments);
            !segments.any(|segment| segment.last_seq_no >= run.first_seq_no)
        });
        let live_nodes = self.live_nodes.iter().map(|(&fnode, node)| {
            let mut segments = node.segments.clone();
            segments.extend(run.take());
            for segment in &mut segments {
                if segment.log == *log {
                    segment.log = Arc::clone(&blank);
                }
            }
            FnodeSegments {
                fnode,
                segments,
                birth: (node.birth != fnode.0).then_some(node.birth),
            }
        });
        let properties = self.properties.iter().map(|(path, content)| Property {
            path: path.clone(),
            content: content.clone(),
        });
        FsmHints {
            log: Arc::clone(log),
            live_nodes: live_nodes.collect(),
            properties: properties.collect(),
            mode: self.mode.filter(|mode| *mode == Mode::Native),
            time: self.last_time,
        }
    }

    /// Makes the no-op by which an author takes a log over: it names the next sequence number and
    /// checksum, and is appended with the author's register.
    pub fn handoff(&self, author: Author) -> RecordedOp {
        let body = Body::NoOp { mark: None };
        RecordedOp::new(self.next_seq_no, self.next_checksum, author.get(), body)
    }

    /// Makes a take-over's no-op that says what it is, and the mode of the log if it is native.
    pub fn claim(&self, author: Author, mode: Mode) -> RecordedOp {
        let mut op = self.handoff(author);
        op.body = Body::NoOp {
            mark: Some(Mark::Claim),
        };
        op.mode = (mode == Mode::Native).then_some(mode);
        op
    }

    /// Returns the log that the hints were of.
    pub fn log(&self) -> &Arc<str> {
        &self.log
    }

    /// Returns the log of the last op that was part of the chain; before any, that of the hints.
    pub fn last_log(&self) -> &Arc<str> {
        &self.last_log
    }

    /// Returns the mode that the log or the hints said last.
    pub fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// Returns the latest time that an op said.
    pub fn last_time(&self) -> Option<Timestamp> {
        self.last_time
    }

    /// Returns the sequence number that the next op must have.
    pub fn next_seq_no(&self) -> i64 {
        self.next_seq_no
    }

    /// Returns the checksum that the next op must have.
    pub fn next_checksum(&self) -> u32 {
        self.next_checksum
    }

    /// Returns the live files.
    pub fn live_nodes(&self) -> &BTreeMap<Fnode, LiveNode> {
        &self.live_nodes
    }

    /// Returns the links.
    pub fn links(&self) -> &BTreeMap<LinkName, Fnode> {
        &self.links
    }

    /// Returns the small files outside of fnodes.
    pub fn properties(&self) -> &BTreeMap<Bytes, Bytes> {
        &self.properties
    }

    /// Returns the hinted segments that are not consumed yet. A state with any is not complete.
    pub fn hinted_segments(&self) -> &SegmentSet {
        &self.hinted_segments
    }

    /// Iterates over the hinted files that are not created yet.
    pub fn hinted_fnodes(&self) -> impl Iterator<Item = Fnode> {
        self.hinted_births.values().copied()
    }
}

/// Adds an op to the segments of a file. A segment does not reach over ops that were skipped: what
/// hints left out may be gone.
fn extend(node: &mut LiveNode, run_first: i64, op: &RecordedOp, extent: OpExtent<'_>) {
    if let Some(last) = node.segments.last_mut()
        && last.author == op.author
        && last.log == *extent.log
        && last.last_seq_no >= run_first - 1
    {
        last.last_seq_no = op.seq_no;
        last.last_offset = extent.end;
        return;
    }
    node.segments.push(segment_of(op, extent));
}

fn segment_of(op: &RecordedOp, extent: OpExtent<'_>) -> Segment {
    Segment {
        author: op.author,
        first_seq_no: op.seq_no,
        first_offset: extent.begin,
        first_checksum: op.checksum,
        last_seq_no: op.seq_no,
        last_offset: extent.end,
        log: Arc::clone(extent.log),
    }
}
