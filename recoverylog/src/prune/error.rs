//! Why a log was not pruned.

use gazette_client::ClientError;
use gazette_stores::StoreError;

use crate::{
    hints::{HintsHomeError, PinError, RecordError},
    journals::JournalsError,
};

/// Why a log was not pruned. What was removed before is gone.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// There is no such log.
    #[error("prune {log}: it does not exist; next: check the name and the broker's address")]
    NoLog {
        /// The log.
        log: String,
    },
    /// Gazette may play it.
    #[error(
        "prune {log}: it is of mode compat, and what a process of Gazette would need of it is not known here; next: \
         prune it with Gazette's gazctl, or say --no-gazette if none will play it"
    )]
    Compat {
        /// The log.
        log: String,
    },
    /// Something that must stay cannot be read.
    #[error(
        "prune: the record at {offset} of {journal} cannot be read ({cause}), so nobody knows what it keeps; next: \
         restore the journal's fragments"
    )]
    Damaged {
        /// The journal of the hints.
        journal: String,
        /// Where the record begins.
        offset: i64,
        /// What is wrong with it.
        cause: RecordError,
    },
    /// The journals of the log could not be asked for.
    #[error("prune: {0}")]
    Journals(#[from] JournalsError),
    /// What must stay could not be read.
    #[error("prune: {0}")]
    Hints(#[from] HintsHomeError),
    /// That it is to be pruned could not be noted.
    #[error("prune: {0}")]
    Note(#[from] PinError),
    /// The fragments could not be listed.
    #[error("prune: {0}")]
    Client(#[from] ClientError),
    /// A fragment could not be removed.
    #[error("prune: {0}")]
    Store(#[from] StoreError),
}
