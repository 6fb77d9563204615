//! Records again what is live and old, so that the oldest part of a log may go; and tells what a recovery reads.

use gazette_recoverylog_fsm::{
    Fnode,
    clean::{self, CleanPolicy, Repeat},
};

use super::{
    Recorder, Reservation,
    outcome::Hold,
    shared::{Core, wall_clock},
};
use crate::hints::PublishedHints;

/// What a recovery would take now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryEstimate {
    /// The live size: content that is no holes, and 512 bytes for each inode, name and extended attribute. Zero if it
    /// is not known.
    pub live_bytes: u64,
    /// Bytes of logs that a recovery would read, by the hints that are published.
    pub read_bytes: u64,
    /// Bytes of the log from the first that is needed, once hints tell it, to its head.
    pub span_bytes: u64,
    /// Where that first byte is.
    pub horizon: i64,
    /// Bytes of memory that it takes to know what is live.
    pub memory_bytes: u64,
}

impl Recorder {
    /// Tells what a recovery would take now. It looks at all parts of the log that are live.
    pub fn estimate(&self) -> RecoveryEstimate {
        let core = self.inner.shared.lock();
        let acked = core.machine.acked().offset;
        let hints_offset = core.machine.hints_offset();
        let (mut estimate, now) = match core.writer.liveness() {
            Some(liveness) => {
                let now = liveness.estimate();
                let estimate = RecoveryEstimate {
                    live_bytes: now.live_bytes,
                    read_bytes: 0,
                    span_bytes: now.span_bytes,
                    horizon: now.horizon,
                    memory_bytes: liveness.memory() as u64,
                };
                (estimate, now.read_bytes)
            }
            None => (RecoveryEstimate::default(), named(&core.writer.hints())),
        };
        let hinted = core.hinted.iter().find(|(at, _)| Some(*at) == hints_offset);
        estimate.read_bytes = match hinted {
            Some((at, bytes)) => bytes.saturating_add(acked.abs_diff(*at)),
            // Before the first of ours are published, those of the owner before are no better.
            None => now,
        };
        estimate
    }

    /// Returns by how much the log spans more than it should, if it is known what of it is live.
    pub fn debt(&self, policy: &CleanPolicy) -> u64 {
        let core = self.inner.shared.lock();
        let liveness = core.writer.liveness();
        liveness.map_or(0, |liveness| clean::debt(liveness, policy))
    }

    /// Chooses what to record again next, of at most about `budget` bytes. Ask again when all of that is
    /// acknowledged.
    pub fn choose_repeats(&self, policy: &CleanPolicy, budget: u64) -> Vec<Repeat> {
        let core = self.inner.shared.lock();
        let liveness = core.writer.liveness();
        liveness.map_or_else(Vec::new, |liveness| clean::choose(liveness, policy, budget))
    }

    /// Reserves room for something that is recorded again. Does not wait.
    pub fn reserve_repeat(&self, repeat: &Repeat) -> Result<Reservation, Hold> {
        let shared = &self.inner.shared;
        let bytes = repeat.bytes();
        let now = shared.now();
        shared.lock().machine.reserve(now, bytes, false)?;
        Ok(Reservation {
            shared: std::sync::Arc::clone(shared),
            bytes,
        })
    }

    /// Records something again. Of content, `data` is what the file holds from the offset on: call it under the lock of
    /// that file, after it was read under the same one. Nothing of it for files that lost their last name.
    pub fn repeat(&self, mut reservation: Reservation, repeat: &Repeat, data: &[u8]) {
        let bytes = std::mem::take(&mut reservation.bytes);
        self.inner.shared.with(|core, now| {
            core.machine.release(bytes);
            let time = wall_clock();
            let written = core.encode(now, |writer, out| match *repeat {
                Repeat::Content { fnode, offset, .. } => {
                    writer.rerecord(fnode, offset, data, time, out)
                }
                Repeat::Size { fnode } => writer.repeat_size(fnode, time, out),
                Repeat::Inode { fnode } => writer.restate(fnode, time, out),
            });
            if let Err(error) = written {
                core.machine.handle_diverged(error.to_string().into());
            }
        });
    }

    /// Returns a path that leads to a file from the root directory, if it has one.
    pub fn path(&self, fnode: Fnode) -> Option<Vec<Vec<u8>>> {
        self.with_tree(|tree| {
            let path = tree.path(fnode)?;
            let names = path.split(|byte| *byte == b'/');
            let names = names.filter(|name| !name.is_empty());
            Some(names.map(<[u8]>::to_vec).collect())
        })
    }
}

impl Core {
    /// Notes what a recovery by hints reads.
    pub(super) fn note_hinted(&mut self, hints: &PublishedHints) {
        // One set may be published while the next one is made.
        if self.hinted.len() >= HINTED_MAX {
            self.hinted.pop_front();
        }
        self.hinted.push_back((hints.offset, named(&hints.hints)));
    }
}

const HINTED_MAX: usize = 2;

/// How many bytes of logs hints name.
fn named(hints: &gazette_recoverylog_fsm::FsmHints) -> u64 {
    let mut ranges: Vec<(&str, i64, i64)> = hints
        .live_nodes
        .iter()
        .flat_map(|node| &node.segments)
        .map(|segment| (&*segment.log, segment.first_offset, segment.last_offset))
        .collect();
    ranges.sort_unstable();
    let (mut bytes, mut reached) = (0u64, ("", 0));
    for (log, begin, end) in ranges {
        let begin = if reached.0 == log {
            begin.max(reached.1)
        } else {
            begin
        };
        if end > begin {
            bytes = bytes.saturating_add(end.abs_diff(begin));
            reached = (log, end);
        }
    }
    bytes
}
