//! What a recorder is started with.

use std::time::Duration;

use gazette_recoverylog_fsm::{Author, Fsm, Inode, Liveness, Mode, Tree};

use super::machine::Limits;

/// Bounds and times of a recorder.
#[derive(Debug, Clone, Copy)]
pub struct RecorderOptions {
    /// Most bytes of log that wait to be acknowledged, unless a single mutation is larger. While there is
    /// no room, mutations wait.
    pub max_pending_bytes: u64,
    /// Bytes above that which only mutations that free space may use.
    pub shrink_reserve_bytes: u64,
    /// Bytes of one append, unless a single mutation is larger.
    pub max_batch_bytes: u64,
    /// How long an op that no barrier waits for is held, so that it shares an append with what follows: it is
    /// sent within twice that time. A program that syncs right behind its writes then waits for one sync
    /// of the log's disk instead of two. Zero sends each at once.
    pub hold: Duration,
    /// Bytes at which pending ops are held no longer.
    pub hold_bytes: u64,
    /// How long barriers wait, and mutations for room, before that becomes a fault. `None` waits for as
    /// long as the broker is away. Whatever was recorded by then is still sent.
    pub fail_after: Option<Duration>,
    /// How long an idle recorder goes without asking whether the log is still its own.
    pub idle_mark: Option<Duration>,
    /// How long a broker's answer is waited for, besides the time that content takes, before it is found
    /// out what became of the append.
    pub answer_within: Duration,
    /// Bytes of log after which hints are published, at the latest. Where a quarter of the live size is less, that
    /// counts, if it is [`hints_at_least_bytes`](Self::hints_at_least_bytes).
    pub hints_every_bytes: u64,
    /// Bytes of log that are worth hints, however little is live.
    pub hints_at_least_bytes: u64,
    /// Time after which hints are published, if anything was recorded.
    pub hints_every: Duration,
    /// How long the start tries to claim the log.
    pub start_within: Duration,
    /// How long the end waits for what is pending, and then again for hints.
    pub stop_within: Duration,
    /// A fault, only to see tests fail.
    #[cfg(any(test, feature = "test-util"))]
    pub planted: Option<Planted>,
}

/// A fault that a recorder can be planted with, to see that tests find it.
#[cfg(any(test, feature = "test-util"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Appends are made without the check of the author register and without the expected offset.
    NoChecks,
    /// Barriers succeed at once.
    NoWait,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            max_pending_bytes: 64 << 20,
            shrink_reserve_bytes: 1 << 20,
            max_batch_bytes: 8 << 20,
            hold: Duration::from_millis(1),
            hold_bytes: 256 << 10,
            fail_after: None,
            idle_mark: Some(Duration::from_secs(1)),
            answer_within: Duration::from_secs(10),
            hints_every_bytes: 1 << 30,
            hints_at_least_bytes: 8 << 20,
            hints_every: Duration::from_mins(5),
            start_within: Duration::from_mins(1),
            stop_within: Duration::from_secs(30),
            #[cfg(any(test, feature = "test-util"))]
            planted: None,
        }
    }
}

impl RecorderOptions {
    pub(super) fn limits(&self) -> Limits {
        Limits {
            max_pending_bytes: self.max_pending_bytes,
            shrink_reserve_bytes: self.shrink_reserve_bytes,
            max_batch_bytes: self.max_batch_bytes,
            hold: self.hold,
            hold_bytes: self.hold_bytes,
            fail_after: self.fail_after,
            idle: self.idle_mark,
            hints_every_bytes: self.hints_every_bytes,
            hints_at_least_bytes: self.hints_at_least_bytes,
            hints_every: self.hints_every,
            stop_within: self.stop_within,
        }
    }
}

/// State that a recorder goes on from: what was recovered from the log, or nothing.
#[derive(Debug)]
pub struct Start {
    /// Name of the log's journal.
    pub log: String,
    /// Mode of the log.
    pub mode: Mode,
    /// Author of what will be recorded, drawn anew for each recorder.
    pub author: Author,
    /// State of the ops that were applied.
    pub fsm: Fsm,
    /// Names and attributes.
    pub tree: Tree,
    /// What of the log is live, if that is known. Without it, hints leave nothing out, and nothing of what
    /// is there can be cleaned.
    pub liveness: Option<Liveness>,
    /// The root directory's own inode, which is recorded where the log has none.
    pub root: Inode,
    /// Offset up to which the log was read. If the log has grown since, the start fails.
    pub write_head: i64,
}

impl Start {
    /// Returns the state of a log that holds nothing.
    pub fn fresh(
        log: &str,
        mode: Mode,
        author: Author,
        root: Inode,
    ) -> Result<Self, gazette_recoverylog_fsm::FromHintsError> {
        Ok(Self {
            log: log.to_owned(),
            mode,
            author,
            fsm: Fsm::of_log(log)?,
            tree: Tree::new(mode),
            liveness: None,
            root,
            write_head: 0,
        })
    }
}
