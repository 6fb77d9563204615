//! What callers of a recorder learn.

use std::{fmt, sync::Arc, time::Duration};

use gazette_recoverylog_fsm::{Author, Refusal};

/// Somebody else took the log over. It never becomes ours again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// Who did. `None` if what was found in the log names nobody.
    pub author: Option<Author>,
    /// Offset from which on the log is no longer ours; what it holds before is.
    pub offset: i64,
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.author {
            Some(author) => write!(f, "author {} took over at {}", author.get(), self.offset),
            None => write!(f, "somebody else wrote at {}", self.offset),
        }
    }
}

/// Why something that was recorded is not known to be in the log, and is not waited for any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Another owner has the log.
    #[error("record: {0}; next: stop this owner, and recover from the log")]
    Fenced(Fence),
    /// The log ends before what it had acknowledged.
    #[error(
        "record: the log ends at {head}, though it acknowledged everything before {acknowledged}; \
         next: look after the brokers and the fragment store, and recover"
    )]
    Lost {
        /// Offset that the log had acknowledged.
        acknowledged: i64,
        /// Where it ends now.
        head: i64,
    },
    /// What happened to the files does not fit what was recorded before.
    #[error(
        "record: the log no longer tells what is in the directory: {cause}; next: recover from the \
         log, and report this"
    )]
    Diverged {
        /// Why.
        cause: Arc<str>,
    },
    /// The wait was as long as it may be. What was recorded is still sent, and may land later.
    #[error(
        "record: not acknowledged within {:.1} s{}; next: look after the broker; recording goes on \
         by itself", .after.as_secs_f32(), because(.cause.as_deref())
    )]
    TimedOut {
        /// How long it was.
        after: Duration,
        /// The last error of the broker.
        cause: Option<Arc<str>>,
    },
    /// The recorder ended, or is ending.
    #[error("record: the recorder has ended; next: start another one")]
    Ended,
}

fn because(cause: Option<&str>) -> String {
    cause.map_or(String::new(), |cause| format!(" ({cause})"))
}

/// Why a mutation may not be applied now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Hold {
    /// So much waits for the log that there is no room. It may be tried again soon.
    #[error("record: there is no room; next: wait until the log has taken what is pending")]
    Full,
    /// Another owner has the log: this one may not change anything any more.
    #[error("record: {0}; next: stop this owner, and recover from the log")]
    Fenced(Fence),
    /// Recording failed, or was waited for as long as it may be.
    #[error(transparent)]
    Failed(Fault),
    /// The disk of the log is full, or nearly so. Mutations that free space are still taken.
    #[error("record: the disk of the log is full; next: free space there, or delete files")]
    NoSpace,
    /// The log cannot express it.
    #[error("record: {0}")]
    Refused(Refusal),
    /// The caller no longer wants it.
    #[error("record: given up by the caller; next: repeat it if it is still wanted")]
    GivenUp,
}

impl From<Fault> for Hold {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Fenced(fence) => Self::Fenced(fence),
            Fault::Lost { .. } | Fault::Diverged { .. } | Fault::TimedOut { .. } | Fault::Ended => {
                Self::Failed(fault)
            }
        }
    }
}

/// How recording is going.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Well.
    Recording,
    /// The broker does not take what is recorded. It is tried again and again.
    Stalled {
        /// For how long, as of the last attempt.
        lasting: Duration,
        /// Error of the last attempt.
        error: Arc<str>,
    },
    /// The log lost what it had acknowledged, or the recorder ended.
    Failed(Fault),
    /// Another owner has the log.
    Fenced(Fence),
}

/// What the log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acked {
    /// Offset after the last op that is acknowledged.
    pub offset: i64,
    /// Sequence number of that op.
    pub seq_no: i64,
}

/// Room for the log, as its owner knows it from the disk of an embedded broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes of the file system.
    pub total: u64,
    /// Bytes that are free.
    pub available: u64,
    /// Bytes that only mutations which free space may use.
    pub reserve: u64,
}

impl Room {
    /// Whether only mutations that free space are taken.
    pub fn is_low(&self) -> bool {
        self.available <= self.reserve
    }
}

/// A view of a recorder, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecorderStatus {
    /// Its author.
    pub author: Author,
    /// Its log.
    pub log: Arc<str>,
    /// What the log has.
    pub acked: Acked,
    /// Sequence number of the last op that was recorded.
    pub recorded_seq_no: i64,
    /// Bytes that are not acknowledged.
    pub pending_bytes: u64,
    /// Age of the oldest op that is not acknowledged.
    pub oldest_pending: Option<Duration>,
    /// How it is going.
    pub state: State,
    /// The last error of the broker, also if it is cured.
    pub last_error: Option<Arc<str>>,
    /// Room for the log, if it is known.
    pub room: Option<Room>,
    /// Whether the broker refused an append for want of space.
    pub is_out_of_space: bool,
    /// Offset that the last published hints are good for.
    pub hints_offset: Option<i64>,
}
