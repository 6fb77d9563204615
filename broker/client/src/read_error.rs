//! Why a read ended before its end.

use std::{sync::Arc, time::Duration};

use gazette_protocol::{ReadResponse, Status, ValidationError};

use crate::{
    FragmentReaderError,
    error::{ErrorKind, kind_next, rpc_kind, rpc_text, status_kind, status_next, status_text},
};

/// Why a read ended before its end.
#[derive(Debug, Clone, thiserror::Error)]
#[error("read {journal} at {offset}: {cause}; next: {}", self.next())]
pub struct ReadError {
    journal: String,
    offset: i64,
    cause: Box<ReadCause>,
}

/// The cause within a [`ReadError`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadCause {
    /// The broker could not be reached, refused the RPC, or broke off.
    #[error("{}", rpc_text(.0))]
    Rpc(tonic::Status),
    /// The broker answered with a status other than OK.
    #[error("{}", status_text(*status))]
    Status {
        /// The status.
        status: Status,
        /// The whole answer, which has the write head if the status is `OFFSET_NOT_YET_AVAILABLE`.
        response: Box<ReadResponse>,
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
    /// A fragment could not be read from its store.
    #[error(transparent)]
    Fragment(FragmentReaderError),
    /// A new attempt was made again and again, in vain.
    #[error("gave up after {:.1} s: {}", .after.as_secs_f32(), .last.cause)]
    GaveUp {
        /// How long it went on.
        after: Duration,
        /// The error of the last attempt.
        last: Arc<ReadError>,
    },
}

impl ReadError {
    pub(crate) fn new(journal: &str, offset: i64, cause: ReadCause) -> Self {
        Self {
            journal: journal.to_owned(),
            offset,
            cause: Box::new(cause),
        }
    }

    /// What failed.
    pub fn cause(&self) -> &ReadCause {
        &self.cause
    }

    pub(crate) fn into_cause(self) -> ReadCause {
        *self.cause
    }

    /// The offset that could not be read.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// The status that the broker answered with, if it did answer.
    pub fn status(&self) -> Option<Status> {
        match &*self.cause {
            ReadCause::Status { status, .. } => Some(*status),
            ReadCause::GaveUp { last, .. } => last.status(),
            ReadCause::Rpc(_)
            | ReadCause::Request(_)
            | ReadCause::Answer(_)
            | ReadCause::Protocol(_)
            | ReadCause::Fragment(_) => None,
        }
    }

    /// The write head, if the read ended because there is nothing more to read.
    pub fn write_head(&self) -> Option<i64> {
        match &*self.cause {
            ReadCause::Status {
                status: Status::OffsetNotYetAvailable,
                response,
            } => Some(response.write_head),
            ReadCause::Status { .. }
            | ReadCause::Rpc(_)
            | ReadCause::Request(_)
            | ReadCause::Answer(_)
            | ReadCause::Protocol(_)
            | ReadCause::Fragment(_)
            | ReadCause::GaveUp { .. } => None,
        }
    }

    /// Returns the broker's answer if its status is `wanted`.
    pub(crate) fn into_response(self, wanted: Status) -> Result<ReadResponse, Self> {
        if self.status() == Some(wanted)
            && let ReadCause::Status { response, .. } = *self.cause
        {
            return Ok(*response);
        }
        Err(self)
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match &*self.cause {
            ReadCause::Rpc(status) => rpc_kind(status),
            ReadCause::Status { status, .. } => status_kind(*status),
            ReadCause::Request(_) => ErrorKind::Invalid,
            ReadCause::Answer(_) | ReadCause::Protocol(_) => ErrorKind::Internal,
            ReadCause::Fragment(error) => error.kind(),
            ReadCause::GaveUp { last, .. } => last.kind(),
        }
    }

    fn next(&self) -> &'static str {
        match &*self.cause {
            ReadCause::Status { status, .. } => status_next(*status),
            ReadCause::GaveUp { last, .. } => last.next(),
            ReadCause::Rpc(_)
            | ReadCause::Request(_)
            | ReadCause::Answer(_)
            | ReadCause::Protocol(_)
            | ReadCause::Fragment(_) => kind_next(self.kind()),
        }
    }
}
