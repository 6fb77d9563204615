//! What goes into the machine, and what comes out of it.

use std::{sync::Arc, time::Duration};

use gazette_recoverylog_fsm::Author;

use crate::recorder::outcome::{Acked, Fault};

/// A moment: how long after some moment that the caller chose.
pub(crate) type Now = Duration;

/// Bounds and times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most bytes that wait, unless a single group of ops is larger.
    pub(crate) max_pending_bytes: u64,
    /// Bytes above that which mutations that free space may use.
    pub(crate) shrink_reserve_bytes: u64,
    /// Bytes at which a batch takes no further ops.
    pub(crate) max_batch_bytes: u64,
    /// How long a barrier waits, and how old what is pending may be while there is no room.
    pub(crate) fail_after: Option<Duration>,
    /// How long the log is left alone before it is looked at whether it is still ours.
    pub(crate) idle: Option<Duration>,
    /// Bytes after which hints are published.
    pub(crate) hints_every_bytes: u64,
    /// Time after which hints are published, if anything was recorded.
    pub(crate) hints_every: Duration,
    /// How long the end waits for what is pending.
    pub(crate) stop_within: Duration,
}

/// Names a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BarrierId(pub(crate) u64);

/// What an append asks of the author register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// That it still is what was read before; it becomes ours.
    Claim,
    /// That it is ours.
    Own,
    /// That it is ours, or that there is none, as the brokers lost it; it becomes ours again.
    Reassert,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// Append the oldest batch, to which nothing is added any more. Report with
    /// [`super::Machine::handle_outcome`].
    Send {
        /// Where it must land.
        offset: i64,
        /// What of the register.
        check: Check,
    },
    /// Append nothing, only to learn whether the log is still ours. Report as above.
    Probe {
        /// Where the log must end.
        offset: i64,
    },
    /// Look whether the log still ends where it did, without appending. Report with
    /// [`super::Machine::handle_looked`]. Another output that makes an RPC may come before that; then
    /// nobody waits for it any more.
    Look {
        /// Names it in the report.
        number: u64,
    },
    /// Find out what the log has at this offset. Report with [`super::Machine::handle_found`].
    ReadBack {
        /// The offset.
        offset: i64,
    },
    /// Forget the oldest batch: the log has it.
    Release {
        /// Where.
        begin: i64,
    },
    /// Tell the waiter of a barrier.
    Answer {
        /// Which.
        barrier: BarrierId,
        /// What.
        result: Result<(), Fault>,
    },
    /// Record a mark, as the register is lost and can be set only together with content.
    Mark,
    /// Record an idle mark: somebody watches for signs of life.
    IdleMark,
    /// Publish hints of all that is acknowledged now. Report with [`super::Machine::handle_hints_published`].
    PublishHints,
    /// Tell people that recording has failed for good.
    Report(Fault),
    /// The recorder has ended.
    Ended(Result<Acked, Fault>),
}

/// What became of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done.
    Landed {
        /// Offset of its first byte.
        begin: i64,
        /// Offset after its last byte.
        end: i64,
        /// The author register after it, as far as the broker tells.
        register: Register,
    },
    /// It is certainly not done, and may be tried again.
    NotDone {
        /// Whether there was no space.
        no_space: bool,
        /// Why.
        error: Arc<str>,
    },
    /// It may be done, or come to be done.
    Unknown {
        /// Why.
        error: Arc<str>,
    },
    /// The log does not end where it was expected to. It is not done, but an earlier try may be.
    WrongOffset,
    /// The register is not what was asked for. It is not done, but an earlier try may be.
    Mismatch {
        /// The register.
        register: Register,
    },
}

/// The author register of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Register {
    /// The broker does not tell, or what it tells is no author.
    Unknown,
    /// There is none.
    Empty,
    /// This author.
    Author(Author),
}

/// Where the log ends, as a read says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Offset after its last byte.
    pub(crate) head: i64,
    /// Whether everything is in it that was acknowledged to anybody: it is not where another replica
    /// than the one that was asked may have more.
    pub(crate) is_exact: bool,
}

/// What the log has at an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// The batch that was sent.
    Own {
        /// Offset after it.
        end: i64,
    },
    /// Nothing: it ends there. What was sent may yet land, unless it is sent again.
    Nothing,
    /// Something else.
    Other {
        /// The author of it.
        author: Option<Author>,
    },
    /// It ends before that.
    Shorter {
        /// Where it ends.
        head: i64,
    },
    /// It could not be found out.
    Failed {
        /// Why.
        error: Arc<str>,
    },
}
