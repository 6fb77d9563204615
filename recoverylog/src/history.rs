//! What a log says, for people: operations, files, marks and authors, with offsets and times.

use std::collections::VecDeque;

use bytes::Bytes;
use gazette_recoverylog_fsm::{Body, Change, Fnode, Mark, SizeChange, Timestamp};
use tokio::{runtime::Handle, sync::mpsc};

use crate::{
    Source,
    hints::{HintsPoint, newest_hints},
    player::{
        Drive, HintsChoice, Met, Playback, Point, RecoverError, Skipped, Standing, find_start,
        first_hints,
    },
};

/// An offset or a time of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// An offset.
    Offset(i64),
    /// A time.
    Time(Timestamp),
}

/// Which entries of a history are wanted.
#[derive(Debug, Clone, Default)]
pub struct HistoryFilter {
    /// Entries about this path, or what is below it. Marks have no path.
    pub path: Option<Bytes>,
    /// Entries that begin here or later.
    pub from: Option<Moment>,
    /// Entries that end here or before.
    pub until: Option<Moment>,
    /// Also entries of dead branches, and repeated ones.
    pub with_dead: bool,
}

/// An entry of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryEntry {
    /// Where it begins in the log.
    pub offset: i64,
    /// Where it ends. A recovery as of there has it.
    pub end: i64,
    /// Time of the append that it is part of.
    pub time: Option<Timestamp>,
    /// Number of its author; zero if it has none.
    pub author: u32,
    /// Sequence number of its first op; zero if it has none.
    pub seq_no: i64,
    /// What happened.
    pub event: HistoryEvent,
    /// The paths that it is about: for a rename the old one and the new one.
    pub paths: Vec<Bytes>,
    /// Whether it counts.
    pub standing: HistoryStanding,
}

/// What an entry tells.
#[derive(Debug, Clone, PartialEq)]
pub enum HistoryEvent {
    /// An op.
    Op(Body),
    /// A file got another name in place of one that it had.
    Rename {
        /// The file.
        fnode: Fnode,
    },
    /// Bytes that hold no op.
    Skipped {
        /// They are the end of the log, where an author died.
        is_tail: bool,
    },
}

/// Whether an entry counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryStanding {
    /// It took effect.
    Live,
    /// It is about a file that had no name any more.
    Nameless,
    /// It is of a dead branch, or repeats an earlier op.
    Dead,
}

impl HistoryEvent {
    /// Whether it says again what the log had said before, so that the earlier op may go: no program did it.
    pub fn is_repeat(&self) -> bool {
        matches!(self, Self::Op(body) if body.is_repeat())
    }

    /// Returns the word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rename { .. } => "rename",
            Self::Skipped { is_tail: true } => "torn",
            Self::Skipped { is_tail: false } => "junk",
            Self::Op(body) => match body {
                Body::NoOp { mark } => match mark {
                    None => "no-op",
                    Some(Mark::Claim) => "claim",
                    Some(Mark::Idle) => "idle",
                    Some(Mark::Checkpoint(_)) => "checkpoint",
                    Some(Mark::SnapshotBegin) => "snapshot-begin",
                    Some(Mark::SnapshotEnd) => "snapshot-end",
                    Some(Mark::SeedBegin) => "seed-begin",
                    Some(Mark::SeedEnd) => "seed-end",
                    Some(Mark::Text(_)) => "text",
                    Some(Mark::Other { .. }) => "mark",
                },
                Body::Create { .. } => "create",
                Body::Link { .. } => "link",
                Body::Unlink { .. } => "unlink",
                Body::Write(_) => "write",
                Body::Change { change, .. } => match change {
                    Change::Attributes(_) => "attributes",
                    Change::SetXattr { .. } => "set-xattr",
                    Change::RemoveXattr { .. } => "remove-xattr",
                    Change::Restated(_) => "restated",
                    Change::Size(SizeChange::Truncate { .. }) => "truncate",
                    Change::Size(SizeChange::Punch { .. }) => "punch",
                    Change::Size(SizeChange::Zero { .. }) => "zero",
                },
                Body::Property { .. } => "property",
            },
        }
    }

    /// Returns the mark, if it is one.
    pub fn mark(&self) -> Option<&Mark> {
        match self {
            Self::Op(Body::NoOp { mark }) => mark.as_ref(),
            Self::Op(_) | Self::Rename { .. } | Self::Skipped { .. } => None,
        }
    }
}

/// The entries of a log, in order, as they are read. Dropping it ends the reading.
#[derive(Debug)]
pub struct History {
    entries: mpsc::Receiver<Result<HistoryEntry, RecoverError>>,
    begins: i64,
}

impl History {
    /// Waits for the next entry. `None` is the end. An error is the last.
    pub async fn next(&mut self) -> Option<Result<HistoryEntry, RecoverError>> {
        self.entries.recv().await
    }

    /// The offset from which on the entries are complete: what was before it is pruned, or was not asked for.
    pub fn begins(&self) -> i64 {
        self.begins
    }
}

/// Reads the history of a log. Must be called in a tokio runtime.
pub async fn history(
    source: &Source,
    log: &str,
    filter: HistoryFilter,
) -> Result<History, RecoverError> {
    let point = match filter.until {
        None => Point::Head,
        Some(Moment::Offset(offset)) => Point::Offset(offset),
        Some(Moment::Time(time)) => Point::Time(time),
    };
    let wanted = match filter.from {
        None => None,
        Some(Moment::Offset(offset)) => Some(HintsPoint::Offset(offset)),
        // Hints of that very moment tell of what is wanted already.
        Some(Moment::Time(time)) => Some(HintsPoint::Time(before(time))),
    };
    let mut begins = 0;
    let mut choice = HintsChoice::Never;
    if let Some(wanted) = wanted
        && let Ok(Some(found)) = newest_hints(source, log, wanted).await
    {
        begins = found.offset;
        choice = HintsChoice::These(found.hints.into());
    }
    let start = match find_start(source, log, point, &choice).await {
        Err(RecoverError::Missing(missing)) => {
            let Some((hints, offset)) = first_hints(source, log).await? else {
                return Err(RecoverError::Missing(missing));
            };
            begins = offset;
            find_start(source, log, point, &HintsChoice::These(hints.into())).await?
        }
        start => start?,
    };
    let playback = Playback::new(&start.hints, start.mode, None);
    let mut playback = playback.map_err(|cause| RecoverError::Hints {
        log: log.to_owned(),
        cause: Box::new(cause),
    })?;
    let until = match filter.until {
        Some(Moment::Time(time)) => Some(time),
        Some(Moment::Offset(_)) | None => None,
    };
    playback.set_limit(start.limit, start.is_head, until);
    playback.keep_met();
    let mut drive = Drive::new(source, &start.surveys, &start.legs, playback);
    drive.parallel = PARALLEL;
    let (sink, entries) = mpsc::channel(ENTRIES_AHEAD);
    let mut collector = Collector {
        filter,
        begins,
        group: Vec::new(),
        sink: sink.clone(),
    };
    drive.watch = Some(Box::new(move |playback| collector.collect(playback)));
    let handle = Handle::current();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = drive.run(&handle) {
            // Nobody waits for it, if that fails.
            let _closed = sink.blocking_send(Err(error));
        }
    });
    Ok(History { entries, begins })
}

const fn before(time: Timestamp) -> Timestamp {
    match time.nanos.checked_sub(1) {
        Some(nanos) => Timestamp { nanos, ..time },
        None => Timestamp {
            seconds: time.seconds.saturating_sub(1),
            nanos: 999_999_999,
        },
    }
}

/// Makes entries of ops.
struct Collector {
    filter: HistoryFilter,
    begins: i64,
    /// Ops of a group that is not complete.
    group: Vec<Met>,
    sink: mpsc::Sender<Result<HistoryEntry, RecoverError>>,
}

impl Collector {
    /// Passes on what was met; says whether more is wanted.
    fn collect(&mut self, playback: &mut Playback) -> bool {
        let mut skipped: VecDeque<_> = playback.take_skipped().into();
        for met in playback.take_met() {
            while let Some(first) = skipped.front()
                && first.begin < met.decoded.begin
                && let Some(first) = skipped.pop_front()
            {
                if !self.pass(entry_of_skipped(&first)) {
                    return false;
                }
            }
            let is_end = met.standing == Standing::Dead || met.decoded.op.ends_group();
            self.group.push(met);
            if !is_end && self.group.len() < GROUP_MAX {
                continue;
            }
            for entry in entries(std::mem::take(&mut self.group)) {
                if !self.pass(entry) {
                    return false;
                }
            }
        }
        for skipped in skipped {
            if !self.pass(entry_of_skipped(&skipped)) {
                return false;
            }
        }
        !self.sink.is_closed()
    }

    fn pass(&self, entry: HistoryEntry) -> bool {
        !self.admits(&entry) || self.sink.blocking_send(Ok(entry)).is_ok()
    }

    fn admits(&self, entry: &HistoryEntry) -> bool {
        let filter = &self.filter;
        let is_late = match filter.from {
            None => true,
            Some(Moment::Offset(offset)) => entry.offset >= offset,
            Some(Moment::Time(time)) => entry.time.is_none_or(|at| at >= time),
        };
        let is_about = filter
            .path
            .as_ref()
            .is_none_or(|wanted| entry.paths.iter().any(|path| is_below(path, wanted)));
        let counts = filter.with_dead || entry.standing != HistoryStanding::Dead;
        entry.offset >= self.begins && is_late && is_about && counts
    }
}

/// Whether a path is another one, or below it.
fn is_below(path: &[u8], wanted: &[u8]) -> bool {
    let wanted = wanted.strip_suffix(b"/").unwrap_or(wanted);
    path.strip_prefix(wanted)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn entry_of_skipped(skipped: &Skipped) -> HistoryEntry {
    HistoryEntry {
        offset: skipped.begin,
        end: skipped.end,
        time: None,
        author: 0,
        seq_no: 0,
        event: HistoryEvent::Skipped {
            is_tail: skipped.is_tail,
        },
        paths: Vec::new(),
        standing: HistoryStanding::Live,
    }
}

/// Makes entries of the ops of a group. A link and an unlink of the same file are a rename.
fn entries(group: Vec<Met>) -> Vec<HistoryEntry> {
    let mut entries: Vec<HistoryEntry> = Vec::with_capacity(group.len());
    let in_group = group.len() > 1;
    for met in group {
        let entry = entry(met);
        if in_group
            && let HistoryEvent::Op(Body::Unlink { fnode, .. }) = entry.event
            && let Some(link) = entries.iter_mut().rev().find(|earlier| {
                matches!(earlier.event, HistoryEvent::Op(Body::Link { fnode: of, .. }) if of == fnode)
            })
        {
            link.paths = entry.paths.into_iter().chain(link.paths.drain(..)).collect();
            link.event = HistoryEvent::Rename { fnode };
            link.end = entry.end;
        } else {
            entries.push(entry);
        }
    }
    // No recovery ends within a group.
    let end = entries.iter().map(|entry| entry.end).max();
    for entry in &mut entries {
        entry.end = end.unwrap_or(entry.end);
    }
    entries
}

fn entry(met: Met) -> HistoryEntry {
    let op = met.decoded.op;
    HistoryEntry {
        offset: met.decoded.begin,
        end: met.decoded.end,
        time: met.time,
        author: op.author,
        seq_no: op.seq_no,
        event: HistoryEvent::Op(op.body),
        paths: met.path.into_iter().collect(),
        standing: match met.standing {
            Standing::Live => HistoryStanding::Live,
            Standing::Untracked => HistoryStanding::Nameless,
            Standing::Dead => HistoryStanding::Dead,
        },
    }
}

/// Entries that are read ahead of whoever looks at them.
const ENTRIES_AHEAD: usize = 1024;

/// Fragments that are read at once.
const PARALLEL: usize = 2;

/// Ops of a group that are held to be told as one. Renames of directories in `compat` logs are the largest.
const GROUP_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
