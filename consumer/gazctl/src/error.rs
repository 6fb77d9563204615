//! What the exit code says about an error.

use std::{fmt, io};

use gazette_client::{AppendError, ClientError, ErrorKind, Outcome, ReadError};
use gazette_process::ExitStatus;

/// Arguments that make no sense together, found after they were parsed.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Returns a usage error as `anyhow` has it.
pub(crate) fn usage(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(UsageError(text.into()))
}

/// Returns the exit status for `error`: one that asks to try later, if all it takes is time.
pub(crate) fn exit_status(error: &anyhow::Error) -> ExitStatus {
    if error.is::<UsageError>() {
        return ExitStatus::Usage;
    }
    let mut appends = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<AppendError>());
    if appends.any(|append| append.outcome() != Outcome::NotDone) {
        // Trying it again may do it twice.
        return ExitStatus::Failed;
    }
    match kind(error) {
        Some(ErrorKind::Retry | ErrorKind::NoSpace) => ExitStatus::TryLater,
        Some(
            ErrorKind::NotFound
            | ErrorKind::Denied
            | ErrorKind::Invalid
            | ErrorKind::Fenced
            | ErrorKind::Corrupt
            | ErrorKind::Cancelled
            | ErrorKind::Internal,
        )
        | None => ExitStatus::Failed,
    }
}

/// Returns what a caller could do about `error`, if it is one of the client's.
pub(crate) fn kind(error: &anyhow::Error) -> Option<ErrorKind> {
    error.chain().find_map(|cause| {
        let client = cause.downcast_ref::<ClientError>().map(ClientError::kind);
        let read = || cause.downcast_ref::<ReadError>().map(ReadError::kind);
        let append = || cause.downcast_ref::<AppendError>().map(AppendError::kind);
        client.or_else(read).or_else(append)
    })
}

/// Reports whether the reader of standard output is gone, which is no failure of this program.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
