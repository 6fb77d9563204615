//! Why a recorder does not start.

use std::sync::Arc;

use gazette_client::AppendError;
use gazette_recoverylog_fsm::{Mode, StartError, WriteError};

use super::outcome::Fault;
use crate::journals::JournalsError;

/// Why a recorder does not start.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RecorderError {
    /// There is no such journal.
    #[error("record into {log}: there is no such log; next: make it, or check the name")]
    NoLog {
        /// Its name.
        log: String,
    },
    /// The log is of another mode.
    #[error("record into {log}: the log is of another mode than {wanted:?}; next: choose its mode")]
    Mode {
        /// The log.
        log: String,
        /// The mode that was wanted.
        wanted: Mode,
    },
    /// The journals could not be looked up.
    #[error("record into a log: {0}")]
    Journals(Box<JournalsError>),
    /// The broker could not be asked where the log ends.
    #[error("record into a log: {0}")]
    Append(#[from] AppendError),
    /// The log has grown since it was read.
    #[error(
        "record into {log}: it was recovered up to {recovered}, and ends at {head} now; next: \
         recover again, as another owner may have written"
    )]
    HeadMoved {
        /// The log.
        log: String,
        /// Where it was read to.
        recovered: i64,
        /// Where it ends.
        head: i64,
    },
    /// The state cannot be gone on from.
    #[error("record into {log}: {cause}; next: recover again")]
    State {
        /// The log.
        log: String,
        /// Why.
        cause: StartError,
    },
    /// The first ops cannot be recorded.
    #[error("record into {log}: {cause}; next: recover again, and report this")]
    Begin {
        /// The log.
        log: String,
        /// Why.
        cause: WriteError,
    },
    /// The log could not be claimed: another owner was quicker, or the broker did not answer in time.
    #[error("claim {log}: {fault}")]
    NotClaimed {
        /// The log.
        log: String,
        /// Why.
        fault: Fault,
    },
    /// The log was not claimed in time.
    #[error(
        "claim {log}: not done within {within:.1} s{}; next: look after the broker, and start again",
        because(cause.as_deref())
    )]
    TimedOut {
        /// The log.
        log: String,
        /// How many seconds it was tried.
        within: f32,
        /// The last error of the broker.
        cause: Option<Arc<str>>,
    },
}

impl From<JournalsError> for RecorderError {
    fn from(error: JournalsError) -> Self {
        Self::Journals(Box::new(error))
    }
}

fn because(cause: Option<&str>) -> String {
    cause.map_or(String::new(), |cause| format!(" ({cause})"))
}
