//! From mutations to the bytes of a log.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::BytesMut;

use crate::op::{Body, Change, Group, Mark, RecordedOp, Restated};
use crate::tree::{Tree, root};
use crate::{
    Applied, Author, Fnode, Fsm, FsmError, FsmHints, Inode, Kind, Liveness, Mode, Mutation,
    OpExtent, SizeChange, Timestamp,
};

mod emit;
mod plan;

use emit::Context;
pub use plan::{DIRECTORY_RENAME_LINKS_MAX, EXPANSION_BYTES_MAX, Mismatch, Refusal, WriteError};
use plan::{Planner, Step};

/// Bytes that any op takes, apart from its names, values and content: the frame's header, numbers,
/// times and an inode.
const OP_BYTES_MAX: usize = 192;

/// Reads a backing file from an offset on, and returns how many bytes it had; fewer than asked for
/// at its end only.
pub type ReadContent<'a> = dyn FnMut(u64, &mut [u8]) -> usize + 'a;

/// Turns mutations into framed ops, appended to a batch's buffer.
///
/// A batch is what one append to the log will hold. The buffer is the caller's; it must be empty for
/// the first op of a batch, and only the writer appends to it. [`seal`](Self::seal) ends a batch.
/// Batches are acknowledged in the order in which they were sealed.
///
/// [`tree`](Self::tree) is the state that was recorded, [`fsm`](Self::fsm) the state that was
/// acknowledged: hints are built from the latter, so that they never name an op that the log does
/// not have, and always know its exact offsets.
#[derive(Debug)]
pub struct OpWriter {
    mode: Mode,
    author: Author,
    log: Arc<str>,
    fsm: Fsm,
    /// What is live of what was acknowledged. Only of `native` logs, and only if all of the log that
    /// is live went through it.
    liveness: Option<Liveness>,
    tree: Tree,
    next_seq_no: i64,
    next_checksum: u32,
    last_time: Option<Timestamp>,
    sealed: VecDeque<Vec<PendingOp>>,
    open: Vec<PendingOp>,
}

/// An op that is not acknowledged.
#[derive(Debug)]
struct PendingOp {
    op: RecordedOp,
    next_checksum: u32,
    /// In its batch.
    begin: usize,
    frame_end: usize,
    end: usize,
}

/// What a mutation became.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The fnode of the file that was created.
    pub fnode: Option<Fnode>,
    /// The file that another fnode stands for from now on, and that fnode.
    pub replaced: Option<(Fnode, Fnode)>,
    /// The sequence numbers of its ops. `None` if nothing had to be recorded, which is so for files
    /// that have lost their last name.
    pub seq_nos: Option<RangeInclusive<i64>>,
}

/// Why a writer cannot start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Hinted segments were not read, or hinted files did not come to be.
    #[error("the state is not complete: hints were not used")]
    UnusedHints,
    /// The tree is of another mode.
    #[error("the tree is of another mode than the log")]
    Mode,
}

/// Why an acknowledgement is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AcknowledgeError {
    /// No batch is waiting.
    #[error("no batch waits for an acknowledgement")]
    NoBatch,
    /// The ops do not chain: the writer has a defect.
    #[error("recorded ops do not chain: {0}")]
    Chain(#[from] FsmError),
}

impl OpWriter {
    /// Goes on from a state that was recovered, or from a fresh one. The next op must become the
    /// log's next op.
    pub fn new(
        mode: Mode,
        author: Author,
        log: &str,
        fsm: Fsm,
        tree: Tree,
    ) -> Result<Self, StartError> {
        if !fsm.hinted_segments().is_empty() || fsm.hinted_fnodes().next().is_some() {
            return Err(StartError::UnusedHints);
        }
        if tree.mode() != mode {
            return Err(StartError::Mode);
        }
        let is_new = mode == Mode::Native && fsm.next_seq_no() == 1;
        Ok(Self {
            mode,
            author,
            log: log.into(),
            liveness: is_new.then(Liveness::new),
            next_seq_no: fsm.next_seq_no(),
            next_checksum: fsm.next_checksum(),
            last_time: fsm.last_time(),
            fsm,
            tree,
            sealed: VecDeque::new(),
            open: Vec::new(),
        })
    }

    /// Goes on with what is live of a state that was recovered. Without it, hints of a log that is not
    /// new leave nothing out, and nothing of it can be cleaned.
    #[must_use]
    pub fn with_liveness(mut self, liveness: Liveness) -> Self {
        self.liveness = (self.mode == Mode::Native).then_some(liveness);
        self
    }

    /// Makes the state ready for mutations: records the root directory's own inode if the log has
    /// none, gives an fnode to directories that only paths mention, and drops files without a name,
    /// whose process is gone.
    pub fn begin(
        &mut self,
        inode: &Inode,
        now: Timestamp,
        out: &mut BytesMut,
    ) -> Result<Written, WriteError> {
        let first = self.next_seq_no;
        let context = Context { group: None, now };
        if self.tree.root_fnode().is_none() {
            let inode = Some(Inode {
                kind: Kind::Directory,
                ..inode.clone()
            });
            let create = Body::Create {
                at: root(self.mode),
                inode,
            };
            self.put(create, context, out)?;
        }
        let implicit: Vec<Fnode> = self.tree.implicit_directories().collect();
        for directory in implicit {
            let Some((parent, name)) = self.tree.links(directory).next() else {
                continue;
            };
            let (parent, name) = (parent, name.clone());
            let at = self.tree.link_name(parent, &name, Kind::Directory);
            let at = at.ok_or(Mismatch::NoDirectory)?;
            let inode = Inode {
                kind: Kind::Directory,
                mode: 0o755,
                ..inode.clone()
            };
            self.put(
                Body::Create {
                    at,
                    inode: Some(inode),
                },
                context,
                out,
            )?;
        }
        let unnamed: Vec<Fnode> = self.tree.unnamed().collect();
        for fnode in unnamed {
            while let Some(at) = self.tree.hidden_link(fnode) {
                self.put(Body::Unlink { fnode, at }, context, out)?;
            }
        }
        Ok(Written {
            seq_nos: self.since(first),
            ..Written::default()
        })
    }

    /// Returns an upper bound of the bytes that a mutation will take, or why it cannot be recorded.
    /// It does not fail where the mutation merely does not fit the tree: the backing directory will
    /// refuse it.
    pub fn cost(&self, mutation: &Mutation<'_>) -> Result<usize, Refusal> {
        let plan = match self.planner().plan(mutation) {
            Ok(plan) => plan,
            Err(WriteError::Refused(refusal)) => return Err(refusal),
            Err(WriteError::Mismatch(_) | WriteError::Tree(_)) => return Ok(OP_BYTES_MAX),
        };
        Ok(plan
            .steps
            .iter()
            .map(step_cost)
            .fold(0, usize::saturating_add))
    }

    /// Records a mutation. `content` reads the backing file of the mutation as it is after it; a
    /// `native` log never asks.
    ///
    /// It fails only where [`cost`](Self::cost) refuses, or where the mutation contradicts what was
    /// recorded so far. Nothing was recorded then; since the mutation happened, the recorder must not
    /// go on.
    pub fn write(
        &mut self,
        mutation: &Mutation<'_>,
        now: Timestamp,
        content: &mut ReadContent<'_>,
        out: &mut BytesMut,
    ) -> Result<Written, WriteError> {
        if let Mutation::Write {
            fnode,
            offset,
            data,
            mtime,
        } = *mutation
            && let Some(seq_no) = self.merge(fnode, offset, data, mtime, out)
        {
            let seq_nos = Some(seq_no..=seq_no);
            return Ok(Written {
                seq_nos,
                ..Written::default()
            });
        }
        let plan = self.planner().plan(mutation)?;
        let first = self.next_seq_no;
        // Ops number far fewer than 2^63, but a hostile log may have begun near it.
        if first > i64::MAX - (1 << 32) {
            return Err(Mismatch::Exhausted.into());
        }
        let count = plan.steps.len();
        for (index, step) in plan.steps.into_iter().enumerate() {
            let group = (count > 1).then_some(Group {
                first,
                last: index + 1 == count,
            });
            self.put_step(step, Context { group, now }, content, out)?;
        }
        let fnode = plan.created.map(|_| Fnode(first));
        let replaced = plan.replaced.map(|old| (old, Fnode(first)));
        Ok(Written {
            fnode,
            replaced,
            seq_nos: self.since(first),
        })
    }

    /// Records a mark.
    pub fn mark(&mut self, mark: Mark, now: Timestamp, out: &mut BytesMut) -> i64 {
        let seq_no = self.next_seq_no;
        let body = Body::NoOp { mark: Some(mark) };
        let op = self.next_op(body, Context { group: None, now });
        self.append(op, out);
        seq_no
    }

    /// Repeats content that the log has already, so that the earlier ops may go.
    pub fn rerecord(
        &mut self,
        fnode: Fnode,
        offset: u64,
        data: &[u8],
        now: Timestamp,
        out: &mut BytesMut,
    ) -> Result<Written, WriteError> {
        let first = self.next_seq_no;
        let context = Context { group: None, now };
        if let Some(fnode) = self.tree.recorded(fnode) {
            self.put_content(fnode, offset, data, Extra::rerecorded(), context, out)?;
        }
        Ok(Written {
            seq_nos: self.since(first),
            ..Written::default()
        })
    }

    /// Says again all that is known of a file but its content and size, so that the earlier ops may go.
    /// Nothing for files that have lost their last name, in `compat` logs, and where it takes more
    /// than a frame should hold.
    pub fn restate(
        &mut self,
        fnode: Fnode,
        now: Timestamp,
        out: &mut BytesMut,
    ) -> Result<Written, WriteError> {
        let fnode = self.tree.recorded(fnode);
        let restated = fnode.and_then(|fnode| self.tree.restated(fnode));
        self.repeat(fnode, restated.and_then(small_enough), now, out)
    }

    /// Says the size of a regular file again, so that the earlier op may go. Nothing for files that
    /// have lost their last name, and in `compat` logs.
    pub fn repeat_size(
        &mut self,
        fnode: Fnode,
        now: Timestamp,
        out: &mut BytesMut,
    ) -> Result<Written, WriteError> {
        let fnode = self.tree.recorded(fnode);
        let attributes = fnode.and_then(|fnode| self.tree.attributes(fnode));
        let regular = attributes
            .filter(|attributes| attributes.kind == Kind::Regular && self.mode == Mode::Native);
        let change = regular.map(|attributes| {
            let size = attributes.size;
            Change::Size(SizeChange::Truncate { size })
        });
        self.repeat(fnode, change, now, out)
    }

    fn repeat(
        &mut self,
        fnode: Option<Fnode>,
        change: Option<Change>,
        now: Timestamp,
        out: &mut BytesMut,
    ) -> Result<Written, WriteError> {
        let first = self.next_seq_no;
        if let (Some(fnode), Some(change)) = (fnode, change) {
            let body = Body::Change {
                fnode,
                change,
                mtime: None,
            };
            self.put(body, Context { group: None, now }, out)?;
        }
        Ok(Written {
            seq_nos: self.since(first),
            ..Written::default()
        })
    }

    /// Ends the open batch, and returns the sequence numbers of its ops; `None` if it has none.
    pub fn seal(&mut self) -> Option<RangeInclusive<i64>> {
        let first = self.open.first()?.op.seq_no;
        let last = self.open.last()?.op.seq_no;
        self.sealed.push_back(std::mem::take(&mut self.open));
        Some(first..=last)
    }

    /// Tells that the oldest sealed batch is in the log, from the offset `begin` on. Returns the
    /// sequence numbers of its ops.
    pub fn acknowledged(&mut self, begin: i64) -> Result<RangeInclusive<i64>, AcknowledgeError> {
        let batch = self.sealed.pop_front().ok_or(AcknowledgeError::NoBatch)?;
        let mut seq_nos = self.next_seq_no..=self.next_seq_no;
        for (index, pending) in batch.iter().enumerate() {
            let at = |offset: usize| begin.saturating_add_unsigned(offset as u64);
            let extent = OpExtent {
                log: &self.log,
                begin: at(pending.begin),
                end: at(pending.end),
            };
            let applied: Applied = self.fsm.apply(&pending.op, pending.next_checksum, extent)?;
            if let Some(liveness) = &mut self.liveness {
                liveness.apply(&pending.op, applied, extent);
            }
            let first = if index == 0 {
                pending.op.seq_no
            } else {
                *seq_nos.start()
            };
            seq_nos = first..=pending.op.seq_no;
        }
        Ok(seq_nos)
    }

    /// Builds hints of all that is acknowledged.
    pub fn hints(&self) -> FsmHints {
        let mut hints = match &self.liveness {
            Some(liveness) => liveness.hints(&self.fsm, &self.log),
            None => self.fsm.hints(&self.log),
        };
        hints.mode = (self.mode == Mode::Native).then_some(self.mode);
        hints
    }

    /// Returns what is live of what was acknowledged, if that is known.
    pub fn liveness(&self) -> Option<&Liveness> {
        self.liveness.as_ref()
    }

    /// Returns the state that was acknowledged.
    pub fn fsm(&self) -> &Fsm {
        &self.fsm
    }

    /// Returns the names and attributes that were recorded.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Says whether all that was recorded is acknowledged, so that [`tree`](Self::tree) and
    /// [`fsm`](Self::fsm) are of the same moment.
    pub fn is_settled(&self) -> bool {
        self.open.is_empty() && self.sealed.is_empty()
    }

    /// Returns the mode of the log.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the author.
    pub fn author(&self) -> Author {
        self.author
    }

    /// Returns the sequence number of the next op.
    pub fn next_seq_no(&self) -> i64 {
        self.next_seq_no
    }

    /// Returns the checksum that the next op will have.
    pub fn next_checksum(&self) -> u32 {
        self.next_checksum
    }

    /// Returns the time of the last append that has one, which no later one comes before.
    pub fn last_time(&self) -> Option<Timestamp> {
        self.last_time
    }

    fn planner(&self) -> Planner<'_> {
        let properties = self.fsm.properties();
        Planner {
            tree: &self.tree,
            properties,
            next_seq_no: self.next_seq_no,
        }
    }

    fn since(&self, first: i64) -> Option<RangeInclusive<i64>> {
        (self.next_seq_no > first).then(|| first..=self.next_seq_no - 1)
    }
}

/// What a write carries besides content.
#[derive(Debug, Clone, Copy, Default)]
struct Extra {
    mtime: Option<Timestamp>,
    rerecorded: bool,
}

impl Extra {
    const fn rerecorded() -> Self {
        Self {
            mtime: None,
            rerecorded: true,
        }
    }

    const fn mtime(mtime: Timestamp) -> Self {
        Self {
            mtime: Some(mtime),
            rerecorded: false,
        }
    }
}

/// An op that says a file again is left out if the file has too many names and attributes.
fn small_enough(restated: Restated) -> Option<Change> {
    let names = restated.links.iter().map(|at| at.path.len() + 32);
    let xattrs = restated.xattrs.iter();
    let xattrs = xattrs.map(|(name, value)| name.len() + value.len() + 32);
    let bytes = names.chain(xattrs).sum::<usize>();
    (bytes <= crate::FRAME_BYTES_MAX as usize / 2).then(|| Change::Restated(Box::new(restated)))
}

fn step_cost(step: &Step<'_>) -> usize {
    let bytes = |length: u64| usize::try_from(length).unwrap_or(usize::MAX);
    let extra = match step {
        Step::Op(body) => match body {
            Body::Create { at, inode } => {
                at.path.len() + inode.as_ref().map_or(0, |inode| inode.target.len())
            }
            Body::Link { at, .. } | Body::Unlink { at, .. } => at.path.len(),
            Body::Change {
                change: Change::SetXattr { name, value },
                ..
            } => name.len() + value.len(),
            Body::Change {
                change: Change::RemoveXattr { name },
                ..
            } => name.len(),
            Body::Change { .. } | Body::NoOp { .. } | Body::Write(_) | Body::Property { .. } => 0,
        },
        Step::Content { data, .. } => data.len(),
        Step::Zeros { length, .. } => bytes(*length),
        // In the worst case each second block is one of zeros, and the others are ops.
        Step::Copy { length, .. } => {
            let blocks = bytes(*length / emit::BLOCK_BYTES + 1);
            bytes(*length).saturating_add(blocks.saturating_mul(OP_BYTES_MAX))
        }
        Step::Property { path, length } => path.len().saturating_add(bytes(*length)),
    };
    OP_BYTES_MAX.saturating_add(extra)
}

#[cfg(test)]
mod tests;
