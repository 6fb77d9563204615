//! Plays the bytes of logs: ops into a state of names and attributes, content into staged files.

use std::sync::Arc;

use bytes::Bytes;
use gazette_recoverylog_fsm::{
    Applied, Body, Change, DecodedOp, Event, Fnode, Fsm, FsmError, FsmHints, Mark, Mode, OpError,
    OpExtent, OpReader, RecordedOp, SizeChange, Timestamp, Tree, Unfinished,
};

use super::{
    branches::{Branches, Verdict},
    detach::detached,
    error::{Damage, DamageCause, HintsFault, RecoverError},
    reached::{Met, Reached, Skipped, Standing},
};
use crate::image::{BuildOptions, Built, Image, ImageError};

/// State of a playback.
#[derive(Debug)]
pub(crate) struct Playback {
    pub(super) fsm: Fsm,
    pub(super) tree: Tree,
    /// Where content goes; a look at the history has none.
    pub(super) image: Option<Image>,
    pub(super) progress: Reached,
    reader: OpReader,
    branches: Branches,
    log: Arc<str>,
    /// Ops that end behind it are not applied.
    limit: i64,
    /// The limit is the end of the log, so that what is cut there is cut for good.
    limit_is_head: bool,
    /// Ops of later appends are not applied.
    until: Option<Timestamp>,
    /// Whether the content that comes is of a tracked file.
    writing: bool,
    /// A record at the end of the log is cut short; what is behind its first bytes is looked through.
    torn: Option<i64>,
    /// A frame that holds no op, behind whose magic word the reading went on. The next op of the chain shows
    /// that nothing is missing.
    broken: Option<(i64, OpError)>,
    /// File of the latest op, which a damage may affect that shows at the next one.
    latest: Option<Fnode>,
    is_first: bool,
    /// Time of the append that was not applied, as it is later than wanted.
    pub(super) first_later: Option<Timestamp>,
    /// Ops that were met since it was looked at, if anybody looks.
    met: Option<Vec<Met>>,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Feed the bytes that follow.
    Feed,
    /// Go back, and feed from this offset on.
    Rewind(i64),
    /// The point is reached.
    Stop,
}

impl Playback {
    pub(crate) fn new(
        hints: &FsmHints,
        mode: Option<Mode>,
        image: Option<Image>,
    ) -> Result<Self, HintsFault> {
        let fsm = Fsm::new(hints)?;
        let mut branches = Branches::default();
        // Ops of earlier owners may lie in what hints leave out.
        if let Some(last) = fsm.hinted_segments().last() {
            for segment in fsm.hinted_segments().iter() {
                if segment.author != last.author {
                    branches.pass(segment.author);
                }
            }
        }
        let tree = Tree::new(hints.mode.or(mode).unwrap_or(Mode::Compat));
        Ok(Self {
            log: Arc::clone(fsm.log()),
            fsm,
            tree,
            image,
            progress: Reached::default(),
            reader: OpReader::new(0),
            branches,
            limit: i64::MAX,
            limit_is_head: false,
            until: None,
            writing: false,
            torn: None,
            broken: None,
            latest: None,
            is_first: true,
            first_later: None,
            met: None,
        })
    }

    /// Sets where to stop: at an offset, which may be the end of the log, and at a time.
    pub(crate) fn set_limit(&mut self, limit: i64, is_head: bool, until: Option<Timestamp>) {
        self.limit = limit;
        self.limit_is_head = is_head;
        self.until = until;
    }

    /// Goes on behind the end of the log that was reached, without a limit: what was cut short there stays so.
    pub(crate) fn go_on(&mut self, offset: i64) {
        self.set_limit(i64::MAX, false, None);
        self.torn = None;
        self.rewind(offset);
    }

    /// Whether what was played is a moment of the directory: it does not end within an op, or a group of ops.
    pub(crate) fn is_settled(&self) -> bool {
        self.progress.open_group.is_none()
            && matches!(self.reader.unfinished(), Unfinished::Nothing)
    }

    /// Keeps the ops that are met from now on, for [`take_met`](Self::take_met).
    pub(crate) fn keep_met(&mut self) {
        self.met = Some(Vec::new());
    }

    /// Returns the ops that were met since the last call.
    pub(crate) fn take_met(&mut self) -> Vec<Met> {
        self.met.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns ranges that were skipped since the last call.
    pub(crate) fn take_skipped(&mut self) -> Vec<Skipped> {
        std::mem::take(&mut self.progress.skipped)
    }

    /// Whether hints are not used up.
    pub(crate) fn is_hinted(&self) -> bool {
        !self.fsm.hinted_segments().is_empty()
    }

    /// Offset of the bytes that are wanted next.
    pub(crate) fn feed_offset(&self) -> i64 {
        self.reader.feed_offset()
    }

    /// Goes on at another place, which hints name. An op that was not complete is left behind, and must not be
    /// one that counts.
    pub(crate) fn seek(&mut self, log: &Arc<str>, offset: i64) -> Result<(), RecoverError> {
        if matches!(self.reader.unfinished(), Unfinished::Content { .. }) && self.writing {
            let (log, end) = (self.log.to_string(), self.reader.offset());
            return Err(self.hints_fault(HintsFault::WithinOp { log, end }));
        }
        self.log = Arc::clone(log);
        self.reader.seek(offset);
        self.writing = false;
        Ok(())
    }

    /// Goes back to an offset of the present log.
    pub(crate) fn rewind(&mut self, offset: i64) {
        self.reader.seek(offset);
        self.writing = false;
    }

    /// Plays the next bytes.
    pub(crate) fn feed(&mut self, bytes: Bytes) -> Result<Next, RecoverError> {
        self.reader.feed(bytes);
        loop {
            match self.reader.next_event() {
                Event::NeedMore => return Ok(Next::Feed),
                Event::Op(decoded) => match self.op(&detached(decoded))? {
                    Next::Feed => {}
                    next @ (Next::Rewind(_) | Next::Stop) => return Ok(next),
                },
                Event::Content {
                    fnode,
                    offset,
                    bytes,
                    ..
                } => {
                    if self.writing
                        && let Some(image) = &mut self.image
                    {
                        image.write(fnode, offset.cast_unsigned(), &bytes)?;
                    }
                }
                Event::Desync { begin, end } => {
                    let begin = match self.broken {
                        Some((broken, _)) if begin == broken + 1 => broken,
                        _ => begin,
                    };
                    self.skip(begin, end, false);
                }
                Event::Damaged {
                    begin,
                    error: error @ OpError::Content { .. },
                    ..
                } => {
                    let cause = DamageCause::Record(error);
                    return Err(self.damaged(begin, cause, self.latest));
                }
                Event::Damaged { begin, error, .. } => {
                    if self.torn.is_some() {
                        // What looks like a frame behind a cut is content.
                        return Ok(Next::Rewind(begin + 1));
                    }
                    self.broken.get_or_insert((begin, error));
                    // What it seemed to cover may be good: its length may be what is wrong.
                    return Ok(Next::Rewind(begin + 1));
                }
            }
        }
    }

    /// Plays that the bytes ended at the limit.
    pub(crate) fn end(&mut self) -> Next {
        let begin = match self.reader.unfinished() {
            Unfinished::Nothing if self.torn.is_none() => return Next::Stop,
            Unfinished::Nothing => self.reader.offset(),
            Unfinished::Junk { begin }
            | Unfinished::Frame { begin }
            | Unfinished::Content { begin, .. } => begin,
        };
        if !self.limit_is_head {
            return Next::Stop;
        }
        if matches!(
            self.reader.unfinished(),
            Unfinished::Junk { .. } | Unfinished::Nothing
        ) {
            self.tear(begin);
            return Next::Stop;
        }
        self.torn.get_or_insert(begin);
        Next::Rewind(begin + 1)
    }

    /// Plays that a range of the log is gone. Unless hints still name ops that may be behind it, that is an
    /// error, which the caller makes.
    pub(crate) fn may_miss(&self) -> bool {
        self.is_hinted()
            && !(self.writing && matches!(self.reader.unfinished(), Unfinished::Content { .. }))
    }

    fn tear(&mut self, begin: i64) {
        let begin = self.torn.map_or(begin, |torn| torn.min(begin));
        self.progress
            .skipped
            .retain(|skipped| skipped.begin < begin);
        self.skip(begin, self.limit, true);
    }

    fn skip(&mut self, begin: i64, end: i64, is_tail: bool) {
        if self.progress.skipped.len() < SKIPPED_MAX {
            self.progress.skipped.push(Skipped {
                log: self.log.to_string(),
                begin,
                end,
                is_tail,
            });
        }
    }

    fn op(&mut self, decoded: &DecodedOp) -> Result<Next, RecoverError> {
        self.writing = false;
        let DecodedOp { op, begin, end, .. } = decoded;
        let (begin, end) = (*begin, *end);
        let follows =
            (op.seq_no, op.checksum) == (self.fsm.next_seq_no(), self.fsm.next_checksum());
        if let Some(torn) = self.torn {
            if !follows {
                return self.look_behind_tear(decoded, torn);
            }
            // The log goes on, and nothing is missing: what was cut short was nothing of it.
            self.torn = None;
            self.skip(torn, begin, false);
        }
        if end > self.limit {
            if !self.limit_is_head {
                return Ok(Next::Stop);
            }
            self.torn = Some(begin);
            return Ok(Next::Rewind(begin + 1));
        }
        if follows {
            self.broken = None;
        }
        if follows
            && let (Some(until), Some(time)) = (self.until, op.time)
            && time > until
            && !self.is_hinted()
        {
            self.first_later = Some(time);
            return Ok(Next::Stop);
        }
        let log = Arc::clone(&self.log);
        let extent = OpExtent {
            log: &log,
            begin,
            end,
        };
        // As it was before the op, which may take the path away.
        let path = self.met.is_some().then(|| self.path_of(op)).flatten();
        let standing = match self.fsm.apply(op, decoded.next_checksum, extent) {
            Ok(applied) => {
                self.applied(decoded, applied)?;
                match applied {
                    Applied::Applied => Standing::Live,
                    Applied::NotTracked => Standing::Untracked,
                }
            }
            Err(error) => {
                self.refused(decoded, error)?;
                Standing::Dead
            }
        };
        if let Some(met) = &mut self.met {
            met.push(Met {
                decoded: decoded.clone(),
                standing,
                time: op.time.or(self.progress.time),
                path,
            });
        }
        Ok(Next::Feed)
    }

    /// Behind a record that is cut short, the log must not go on: then that record is damaged rather than torn.
    fn look_behind_tear(&mut self, decoded: &DecodedOp, torn: i64) -> Result<Next, RecoverError> {
        self.reader.skip_content();
        let op = &decoded.op;
        let goes_on = op.author != 0
            && op.seq_no >= self.fsm.next_seq_no()
            && op.seq_no - self.fsm.next_seq_no() <= LOST_OPS_MAX;
        if goes_on {
            return Err(self.damaged(torn, DamageCause::Cut, self.latest));
        }
        if decoded.end > self.limit {
            // Content of the torn record that looks like an op.
            return Ok(Next::Rewind(decoded.begin + 1));
        }
        Ok(Next::Feed)
    }

    fn applied(&mut self, decoded: &DecodedOp, applied: Applied) -> Result<(), RecoverError> {
        let DecodedOp { op, begin, end, .. } = decoded;
        if self.is_first
            && let Some(mode) = op.mode
        {
            self.tree = Tree::new(mode);
        }
        self.is_first = false;
        self.branches.follow(op.seq_no, op.checksum);
        self.progress.proven = self.progress.offset;
        self.progress.ops += 1;
        self.progress.author = Some(op.author);
        if op.time.is_some() {
            self.progress.time = op.time;
        }
        self.mark(decoded);
        if applied == Applied::Applied {
            if let Err(error) = self.tree.apply(op) {
                return Err(self.damaged(*begin, DamageCause::Tree(error), None));
            }
            self.latest = op.fnode();
            self.act(&op.body)?;
        }
        if !self.writing {
            self.reader.skip_content();
        }
        if op.ends_group() {
            self.progress.open_group = None;
            self.progress.offset = *end;
        } else if self.progress.open_group.is_none() {
            self.progress.open_group = Some(*begin);
        }
        Ok(())
    }

    /// The path that an op names, or one of those that the file has which it is about.
    fn path_of(&self, op: &RecordedOp) -> Option<Bytes> {
        match &op.body {
            Body::Create { at, .. } | Body::Link { at, .. } | Body::Unlink { at, .. } => {
                // Files without a name, and the root directory, have paths that are none.
                if self.tree.mode() == Mode::Compat || at.path.starts_with(b"/") {
                    return Some(at.path.clone());
                }
                let mut path = self.tree.path(at.parent)?.to_vec();
                if path != b"/" {
                    path.push(b'/');
                }
                path.extend_from_slice(&at.path);
                Some(path.into())
            }
            Body::Write(write) => self.tree.path(write.fnode),
            Body::Change { fnode, .. } => self.tree.path(*fnode),
            Body::Property { path, .. } => Some(path.clone()),
            Body::NoOp { .. } => None,
        }
    }

    fn mark(&mut self, decoded: &DecodedOp) {
        let Body::NoOp { mark: Some(mark) } = &decoded.op.body else {
            return;
        };
        match mark {
            Mark::SeedBegin => {
                let before = match self.progress.seed {
                    Some((_, before)) => before,
                    None => (self.progress.offset > 0).then_some(self.progress.offset),
                };
                self.progress.seed = Some((decoded.begin, before));
            }
            Mark::SeedEnd => self.progress.seed = None,
            Mark::Claim
            | Mark::Idle
            | Mark::Checkpoint(_)
            | Mark::SnapshotBegin
            | Mark::SnapshotEnd
            | Mark::Text(_)
            | Mark::Other { .. } => {}
        }
    }

    /// Does to staged files what an applied op did.
    fn act(&mut self, body: &Body) -> Result<(), ImageError> {
        let Some(image) = &mut self.image else {
            return Ok(());
        };
        match body {
            Body::Write(_) => self.writing = true,
            Body::Change {
                fnode,
                change: Change::Size(change),
                ..
            } => match *change {
                SizeChange::Truncate { size } => image.truncate(*fnode, size)?,
                SizeChange::Punch { offset, length } => image.punch(*fnode, offset, length)?,
                SizeChange::Zero {
                    offset,
                    length,
                    keep_size,
                } => image.zero(*fnode, offset, length, keep_size)?,
            },
            Body::Unlink { fnode, .. } => {
                if !self.fsm.live_nodes().contains_key(fnode) {
                    image.forget(*fnode)?;
                }
            }
            Body::NoOp { .. }
            | Body::Create { .. }
            | Body::Link { .. }
            | Body::Change { .. }
            | Body::Property { .. } => {}
        }
        Ok(())
    }

    fn refused(&mut self, decoded: &DecodedOp, error: FsmError) -> Result<(), RecoverError> {
        self.reader.skip_content();
        let hinted = self.is_hinted();
        match self.branches.judge(decoded, &error, hinted) {
            Verdict::Dead => {
                self.progress.dead_ops += 1;
                Ok(())
            }
            Verdict::Unfounded if self.is_first && !hinted => {
                // Nothing of the log was played: its beginning is not there.
                Err(self.damaged(
                    decoded.begin,
                    DamageCause::NoBeginning(decoded.op.seq_no),
                    None,
                ))
            }
            Verdict::Unfounded => {
                let affected = decoded.op.fnode();
                let (offset, cause) = match self.broken.take() {
                    Some((begin, error)) => (begin, DamageCause::Record(error)),
                    None => (decoded.begin, DamageCause::Chain(error)),
                };
                Err(self.damaged(offset, cause, affected))
            }
            Verdict::Contradiction => {
                let affected = decoded.op.fnode();
                Err(self.damaged(decoded.begin, DamageCause::Op(error), affected))
            }
        }
    }

    /// Makes an error of damage that shows at `offset`. The op before it is affected as well: its own damage shows
    /// only there.
    fn damaged(&self, offset: i64, cause: DamageCause, affected: Option<Fnode>) -> RecoverError {
        let mut files = Vec::new();
        for fnode in affected.into_iter().chain(self.latest) {
            files.extend(self.tree.path(fnode).map(|path| path.to_vec()));
        }
        files.sort();
        files.dedup();
        let good = match cause {
            // It follows upon the ones before it.
            DamageCause::Op(_) | DamageCause::Unreachable => self.progress.offset,
            DamageCause::Record(_)
            | DamageCause::Chain(_)
            | DamageCause::Cut
            | DamageCause::Tree(_)
            | DamageCause::NoBeginning(_) => self.progress.proven,
        };
        RecoverError::Damaged(Box::new(Damage {
            log: self.log.to_string(),
            offset,
            time: self.progress.time,
            cause,
            files,
            good,
        }))
    }

    fn hints_fault(&self, cause: HintsFault) -> RecoverError {
        RecoverError::Hints {
            log: self.fsm.log().to_string(),
            cause: Box::new(cause),
        }
    }

    /// Builds the tree, and lets it appear.
    pub(super) fn build(mut self, options: BuildOptions) -> Result<(Self, Built), RecoverError> {
        let Some(image) = self.image.take() else {
            return Ok((self, Built::default()));
        };
        if let Some(orphan) = self.tree.orphans().first() {
            let offset = self.progress.offset;
            return Err(self.damaged(offset, DamageCause::Unreachable, Some(orphan.fnode)));
        }
        let built = image.finish(&self.tree, self.fsm.properties(), options)?;
        Ok((self, built))
    }

    /// Checks that the state is one that a recovery may end with.
    pub(crate) fn check_end(&self, takes_cut_seed: bool) -> Result<(), RecoverError> {
        if let Some(segment) = self.fsm.hinted_segments().first() {
            return Err(self.hints_fault(HintsFault::Unused {
                seq_no: self.fsm.next_seq_no(),
                author: segment.author,
                end: self.reader.offset(),
            }));
        }
        if let Some((begin, error)) = &self.broken {
            let cause = DamageCause::Record(*error);
            return Err(self.damaged(*begin, cause, None));
        }
        if let Some((begin, before)) = self.progress.seed
            && !takes_cut_seed
        {
            return Err(RecoverError::SeedIncomplete {
                log: self.log.to_string(),
                begin,
                before,
            });
        }
        Ok(())
    }
}

/// More skipped ranges than anybody reads.
const SKIPPED_MAX: usize = 1000;

/// Ops that may be lost to a damage at the end of a log for the rest to be known as its own.
const LOST_OPS_MAX: i64 = 1 << 20;
