//! What can go wrong, in words that say what to do.

use std::time::Duration;

use gazette_protocol::{Status, ValidationError};
use tonic::Code;

/// Says what a caller should do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Try again later: a broker is away, or a route is changing.
    Retry,
    /// There is no such journal.
    NotFound,
    /// The journal or the broker does not allow it.
    Denied,
    /// The request itself is wrong and stays wrong.
    Invalid,
    /// Somebody else was first: an offset, register or revision is no longer what was expected.
    Fenced,
    /// Stored content is not what it should be. An operator has to look.
    Corrupt,
    /// The operation was given up by this side.
    Cancelled,
    /// The disk of a broker is full. Nothing was written.
    NoSpace,
    /// A bug, or something that no other kind covers.
    Internal,
}

/// Why an operation that changes no content of a journal failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{operation} {object}: {cause}; next: {}", self.cause.next())]
pub struct ClientError {
    operation: &'static str,
    object: String,
    cause: Cause,
}

/// The cause within a [`ClientError`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum Cause {
    /// The RPC failed: the broker could not be reached, refused it, or broke off.
    #[error("{}", rpc_text(.0))]
    Rpc(tonic::Status),
    /// The broker answered with a status other than OK.
    #[error("{}{}", status_text(*status), detail_text(detail))]
    Status {
        /// The status.
        status: Status,
        /// What the broker says about it, if anything.
        detail: String,
    },
    /// The request breaks a rule and was not sent.
    #[error("the request is not valid: {0}")]
    Request(ValidationError),
    /// The answer breaks a rule.
    #[error("the broker's answer is not valid: {0}")]
    Answer(ValidationError),
    /// The answer is not one that this request can have.
    #[error("the broker's answer breaks the protocol: {0}")]
    Protocol(&'static str),
    /// No answer came in time.
    #[error("no answer within {:.1} s", .0.as_secs_f32())]
    Timeout(Duration),
}

impl ClientError {
    pub(crate) fn new(operation: &'static str, object: impl Into<String>, cause: Cause) -> Self {
        Self {
            operation,
            object: object.into(),
            cause,
        }
    }

    /// What failed.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// The status that the broker answered with, if it did answer.
    pub fn status(&self) -> Option<Status> {
        match &self.cause {
            Cause::Status { status, .. } => Some(*status),
            Cause::Rpc(_)
            | Cause::Request(_)
            | Cause::Answer(_)
            | Cause::Protocol(_)
            | Cause::Timeout(_) => None,
        }
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.cause.kind()
    }
}

impl Cause {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Rpc(status) => rpc_kind(status),
            Self::Status { status, .. } => status_kind(*status),
            Self::Request(_) => ErrorKind::Invalid,
            Self::Answer(_) | Self::Protocol(_) => ErrorKind::Internal,
            Self::Timeout(_) => ErrorKind::Retry,
        }
    }

    fn next(&self) -> &'static str {
        match self {
            Self::Status { status, .. } => status_next(*status),
            Self::Rpc(_)
            | Self::Request(_)
            | Self::Answer(_)
            | Self::Protocol(_)
            | Self::Timeout(_) => kind_next(self.kind()),
        }
    }
}

/// Whether this side made the error, because a connection failed, rather than the broker.
pub(crate) fn is_local(status: &tonic::Status) -> bool {
    std::error::Error::source(status).is_some()
}

pub(crate) fn rpc_kind(status: &tonic::Status) -> ErrorKind {
    if is_local(status) && status.code() != Code::OutOfRange {
        return ErrorKind::Retry;
    }
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Aborted => ErrorKind::Retry,
        Code::NotFound => ErrorKind::NotFound,
        Code::Unauthenticated | Code::PermissionDenied => ErrorKind::Denied,
        Code::InvalidArgument
        | Code::OutOfRange
        | Code::FailedPrecondition
        | Code::Unimplemented => ErrorKind::Invalid,
        Code::ResourceExhausted => ErrorKind::NoSpace,
        Code::DataLoss => ErrorKind::Corrupt,
        Code::Cancelled => ErrorKind::Cancelled,
        Code::Ok | Code::Unknown | Code::Internal | Code::AlreadyExists => ErrorKind::Internal,
    }
}

pub(crate) fn status_kind(status: Status) -> ErrorKind {
    match status {
        Status::JournalNotFound => ErrorKind::NotFound,
        Status::NoJournalPrimaryBroker
        | Status::NotJournalPrimaryBroker
        | Status::NotJournalBroker
        | Status::InsufficientJournalBrokers
        | Status::OffsetNotYetAvailable
        | Status::WrongRoute
        | Status::Suspended
        | Status::FragmentStoreUnhealthy => ErrorKind::Retry,
        Status::EtcdTransactionFailed | Status::WrongAppendOffset | Status::RegisterMismatch => {
            ErrorKind::Fenced
        }
        Status::NotAllowed => ErrorKind::Denied,
        Status::IndexHasGreaterOffset => ErrorKind::Corrupt,
        Status::Ok | Status::ProposalMismatch => ErrorKind::Internal,
    }
}

pub(crate) fn kind_next(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Retry => "try again; check that the broker runs and can be reached",
        ErrorKind::NotFound => "check the name, or create the journal",
        ErrorKind::Denied => "check the journal's flags and your authorization",
        ErrorKind::Invalid => "correct the request",
        ErrorKind::Fenced => "read the current state and decide anew",
        ErrorKind::Corrupt => "check the fragment store",
        ErrorKind::Cancelled => "repeat it if it is still wanted",
        ErrorKind::NoSpace => "free space on the broker's disk",
        ErrorKind::Internal => "look into the broker's log",
    }
}

pub(crate) fn status_next(status: Status) -> &'static str {
    match status {
        Status::NoJournalPrimaryBroker
        | Status::NotJournalPrimaryBroker
        | Status::NotJournalBroker
        | Status::WrongRoute => "try again; the assignment of the journal is changing",
        Status::InsufficientJournalBrokers => {
            "try again; if it stays, start more brokers or lower the journal's replication"
        }
        Status::OffsetNotYetAvailable => "wait for an append, or read with blocking",
        Status::Suspended => "append to wake the journal",
        Status::FragmentStoreUnhealthy => "check the journal's fragment store",
        Status::WrongAppendOffset => "read the write head and decide anew",
        Status::RegisterMismatch => "another writer owns the journal; stop this one",
        Status::EtcdTransactionFailed => "list the present revision and apply again",
        Status::NotAllowed => "change the journal's flags",
        Status::IndexHasGreaterOffset => "run `gazctl journals reset-head` for the journal",
        Status::Ok | Status::JournalNotFound | Status::ProposalMismatch => {
            kind_next(status_kind(status))
        }
    }
}

pub(crate) fn status_text(status: Status) -> &'static str {
    match status {
        Status::Ok => "the broker answered OK",
        Status::JournalNotFound => "there is no such journal (JOURNAL_NOT_FOUND)",
        Status::NoJournalPrimaryBroker => "no broker is primary (NO_JOURNAL_PRIMARY_BROKER)",
        Status::NotJournalPrimaryBroker => "the broker is not primary (NOT_JOURNAL_PRIMARY_BROKER)",
        Status::NotJournalBroker => "the broker has no replica (NOT_JOURNAL_BROKER)",
        Status::InsufficientJournalBrokers => {
            "too few brokers have a replica (INSUFFICIENT_JOURNAL_BROKERS)"
        }
        Status::OffsetNotYetAvailable => {
            "the offset was not written yet (OFFSET_NOT_YET_AVAILABLE)"
        }
        Status::WrongRoute => "the brokers disagree about the route (WRONG_ROUTE)",
        Status::ProposalMismatch => "the replicas disagree (PROPOSAL_MISMATCH)",
        Status::EtcdTransactionFailed => {
            "a revision is not the expected one (ETCD_TRANSACTION_FAILED)"
        }
        Status::NotAllowed => "the journal does not allow it (NOT_ALLOWED)",
        Status::WrongAppendOffset => {
            "the write head is not at the expected offset (WRONG_APPEND_OFFSET)"
        }
        Status::IndexHasGreaterOffset => {
            "the fragment store is ahead of the replicas (INDEX_HAS_GREATER_OFFSET)"
        }
        Status::RegisterMismatch => "the registers do not match (REGISTER_MISMATCH)",
        Status::Suspended => "the journal is suspended (SUSPENDED)",
        Status::FragmentStoreUnhealthy => {
            "the fragment store is not healthy (FRAGMENT_STORE_UNHEALTHY)"
        }
    }
}

pub(crate) fn rpc_text(status: &tonic::Status) -> String {
    let mut text = match status.message() {
        "" => status.code().description().to_owned(),
        message => message.to_owned(),
    };
    // The library's own text of a failed connection is "transport error"; the reason is below it.
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

pub(crate) fn detail_text(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(": {detail}")
    }
}
