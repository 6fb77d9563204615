//! Why nothing is recorded.

use std::{io, path::PathBuf};

use gazette_client::ErrorKind;
use gazette_recoverylog::{
    SourceError, journals::JournalsError, notices::NoticesError, player::RecoverError,
    recorder::RecorderError, standby::StandbyError,
};
use thiserror::Error;

use super::seed::SeedError;
use crate::{mount::MountError, recorded::StartError, work_dir::WorkDirError};

/// Why nothing is recorded.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// It cannot be mounted where it should be.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The folder cannot be used.
    #[error(transparent)]
    WorkDir(#[from] WorkDirError),
    /// The log cannot be made or used.
    #[error(transparent)]
    Journals(Box<JournalsError>),
    /// The log cannot be played.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The log cannot be taken over.
    #[error(transparent)]
    Recorder(Box<RecorderError>),
    /// The backing files cannot be used.
    #[error(transparent)]
    Files(#[from] StartError),
    /// The tree cannot be taken over.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The system refused.
    #[error("{what} {}: {cause}; next: look at its owner, its mode and the disk", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// The log has another mode than is asked for.
    #[error("record in {log}: it is a {found} log; next: leave --mode out")]
    OtherMode {
        /// The log.
        log: String,
        /// What it is.
        found: &'static str,
    },
    /// A tree that is taken over and where it goes overlap.
    #[error(
        "take over {}: it overlaps with {}; next: choose directories of which none lies in the other",
        .from.display(), .other.display()
    )]
    SeedOverlaps {
        /// The tree.
        from: PathBuf,
        /// Where it goes.
        other: PathBuf,
    },
    /// Somebody else is at work.
    #[error(
        "record in {log}: its owner is {owner}, since {since}; next: end that one, hand the log over \
         (gazfs handoff), stand by (gazfs standby), or take it from him by --take-over"
    )]
    Owned {
        /// The log.
        log: String,
        /// Who owns it, as he says.
        owner: String,
        /// Since when.
        since: String,
    },
    /// Nobody can be told, or heard.
    #[error(transparent)]
    Notices(#[from] NoticesError),
    /// The standby could not take over.
    #[error(transparent)]
    Standby(#[from] StandbyError),
    /// The end was asked for before it began.
    #[error("record in {log}: cut short; next: start again")]
    Cancelled {
        /// The log.
        log: String,
    },
    /// The log was taken over, or failed, while it was seeded.
    #[error("record in {log}: {cause}")]
    Lost {
        /// The log.
        log: String,
        /// How.
        cause: String,
    },
}

impl RecordingError {
    pub(super) fn io(what: &'static str, path: impl Into<PathBuf>, cause: io::Error) -> Self {
        let path = path.into();
        Self::Io { what, path, cause }
    }

    /// Says whether the same may succeed later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Cancelled { .. })
            || matches!(self, Self::Recover(error) if is_recovery_temporary(error))
            || matches!(self, Self::Journals(error) if are_journals_away(error))
            || matches!(self, Self::Recorder(error) if is_broker_away(error))
            || matches!(
                self,
                Self::Notices(_) | Self::Standby(StandbyError::Claim { .. })
            )
            || matches!(self, Self::Standby(StandbyError::Recover(error)) if is_recovery_temporary(error))
    }
}

fn are_journals_away(error: &JournalsError) -> bool {
    matches!(error, JournalsError::Client(error) if error.kind() == ErrorKind::Retry)
}

/// Says whether a log could not be taken over as the broker went away at this moment.
fn is_broker_away(error: &RecorderError) -> bool {
    matches!(error, RecorderError::Journals(error) if are_journals_away(error))
        || matches!(error, RecorderError::Append(error) if error.kind() == ErrorKind::Retry)
}

/// Says whether the same recovery may succeed later.
pub fn is_recovery_temporary(error: &RecoverError) -> bool {
    let retry = |kind| kind == ErrorKind::Retry;
    matches!(error, RecoverError::Cancelled { .. })
        || matches!(error, RecoverError::Source(SourceError::Client(error)) if retry(error.kind()))
}

impl From<JournalsError> for RecordingError {
    fn from(error: JournalsError) -> Self {
        Self::Journals(Box::new(error))
    }
}

impl From<RecorderError> for RecordingError {
    fn from(error: RecorderError) -> Self {
        Self::Recorder(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gazette_client::{Client, ClientOptions};
    use gazette_recoverylog::journals::find_log;

    use super::*;

    #[tokio::test]
    async fn a_log_whose_broker_is_away_may_be_taken_over_later() {
        let options = ClientOptions {
            call_timeout: Duration::from_millis(300),
            ..ClientOptions::default()
        };
        let client = Client::connect("http://127.0.0.1:1", options).expect("an endpoint");
        let away = find_log(&client, "recovery/app").await;
        let away = RecorderError::Journals(Box::new(away.expect_err("nobody listens")));
        assert!(RecordingError::from(away).is_temporary());
        let log = "recovery/app".to_owned();
        assert!(!RecordingError::from(RecorderError::NoLog { log }).is_temporary());
    }
}
