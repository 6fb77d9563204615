//! The one place where errors become gRPC statuses.

use gazette_coordination::CoordinationError;
use gazette_journal::{
    append::AppendError,
    pipeline::{LocalFailure, PipelineError},
    resolve::ResolveError,
};
use gazette_protocol::ValidationError;
use gazette_stores::StoreError;

/// A request that breaks a rule. UNKNOWN is what the reference answers.
pub(crate) fn invalid(error: &ValidationError) -> tonic::Status {
    tonic::Status::unknown(error.to_string())
}

/// The coordination store did not answer, or refused.
pub(crate) fn coordination(operation: &str, error: &CoordinationError) -> tonic::Status {
    use gazette_coordination::ErrorKind;
    let text = format!("{operation}: {error}");
    match error.kind() {
        ErrorKind::Invalid => tonic::Status::invalid_argument(text),
        ErrorKind::NoSpace => tonic::Status::resource_exhausted(text),
        ErrorKind::Retry => tonic::Status::unavailable(text),
        ErrorKind::NotFound | ErrorKind::Compacted | ErrorKind::Closed => {
            tonic::Status::unknown(text)
        }
    }
}

/// A store failed a request that needs it.
pub(crate) fn store(error: &StoreError) -> tonic::Status {
    tonic::Status::unknown(error.to_string())
}

/// A journal could not be resolved.
pub(crate) fn resolve(journal: &str, error: &ResolveError) -> tonic::Status {
    let text = format!("resolve {journal}: {error}");
    if matches!(error, ResolveError::Stopped) {
        tonic::Status::unavailable(text)
    } else if matches!(error, ResolveError::RevisionNotReached { .. }) {
        tonic::Status::deadline_exceeded(text)
    } else {
        // What the reference answers to a request that was meant for somebody else.
        tonic::Status::unknown(text)
    }
}

/// An append failed. `RESOURCE_EXHAUSTED` says that the disk is full and nothing was written,
/// `UNAVAILABLE` that it is certain that nothing was written and a retry may help.
pub(crate) fn append(journal: &str, error: &AppendError) -> tonic::Status {
    let text = format!("append {journal}: {error}");
    let is_full = matches!(
        error,
        AppendError::Local(LocalFailure::NoSpace)
            | AppendError::Replication(PipelineError::Local(LocalFailure::NoSpace))
    );
    if is_full {
        tonic::Status::resource_exhausted(text)
    } else if matches!(error, AppendError::Resolve(ResolveError::Stopped)) {
        tonic::Status::unavailable(text)
    } else if matches!(error, AppendError::Cancelled) {
        tonic::Status::cancelled(text)
    } else if matches!(error, AppendError::TimedOut { .. }) && error.is_certain() {
        tonic::Status::deadline_exceeded(text)
    } else {
        tonic::Status::unknown(text)
    }
}
