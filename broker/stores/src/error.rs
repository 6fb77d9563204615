use std::io;

/// Says which operation on which object of a store failed, why, and what can be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {object}: {cause}; next: {next}")]
pub struct StoreError {
    kind: StoreErrorKind,
    operation: &'static str,
    object: String,
    cause: String,
    next: String,
}

/// Says what a caller should do about a [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// It may work later. Nothing is known about the outcome of a put or remove.
    Retry,
    /// There is no such object.
    NotFound,
    /// The store does not let this process do it. Another store might.
    Denied,
    /// The store is full. Nothing of the object is left behind.
    NoSpace,
    /// The request or the store's URL is wrong and stays so.
    Invalid,
    /// What was read is not what was written.
    Corrupt,
}

impl StoreError {
    /// Makes an error with the advice that goes with `kind`.
    pub fn new(
        kind: StoreErrorKind,
        operation: &'static str,
        object: impl Into<String>,
        cause: impl Into<String>,
    ) -> Self {
        let next = match kind {
            StoreErrorKind::Retry => "try again; if it goes on, look at the store",
            StoreErrorKind::NotFound => "list the store to see what it holds",
            StoreErrorKind::Denied => "let this process read and write the store",
            StoreErrorKind::NoSpace => {
                "free space in the store, or name another one first in the spec"
            }
            StoreErrorKind::Invalid => "correct the request or the spec",
            StoreErrorKind::Corrupt => "find out what changed the object, and restore it",
        };
        Self {
            kind,
            operation,
            object: object.into(),
            cause: cause.into(),
            next: next.to_owned(),
        }
    }

    /// Replaces the advice.
    #[must_use]
    pub fn with_next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// Makes an error of what the operating system said.
    pub fn from_io(operation: &'static str, object: impl Into<String>, error: &io::Error) -> Self {
        Self::new(kind_of(error.kind()), operation, object, error.to_string())
    }

    /// Returns what to do about it.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns what was attempted, such as `put`.
    pub fn operation(&self) -> &'static str {
        self.operation
    }
}

fn kind_of(kind: io::ErrorKind) -> StoreErrorKind {
    use io::ErrorKind as Io;

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the standard library adds kinds; all others may pass by themselves"
    )]
    match kind {
        Io::NotFound => StoreErrorKind::NotFound,
        Io::PermissionDenied | Io::ReadOnlyFilesystem => StoreErrorKind::Denied,
        Io::StorageFull | Io::QuotaExceeded => StoreErrorKind::NoSpace,
        Io::InvalidInput
        | Io::InvalidFilename
        | Io::IsADirectory
        | Io::NotADirectory
        | Io::AlreadyExists
        | Io::FileTooLarge
        | Io::Unsupported => StoreErrorKind::Invalid,
        Io::InvalidData | Io::UnexpectedEof => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Retry,
    }
}
