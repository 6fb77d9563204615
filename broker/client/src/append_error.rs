//! Why an append failed, and whether it took place.

use std::{io, sync::Arc, time::Duration};

use gazette_protocol::{AppendResponse, LabelSet, Status, ValidationError};

use tonic::Code;

use crate::error::{
    ErrorKind, detail_text, kind_next, rpc_kind, rpc_text, status_kind, status_next, status_text,
};

/// Whether the content of a failed append is in the journal.
///
/// An append *without* an expected offset that ends as [`Unknown`](Self::Unknown) cannot be resolved:
/// who repeats it gets "at least once". An append *with* an expected offset can: it can take place only
/// once, and [`crate::Client::resolve_append`] finds out whether it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Certainly not, and it never will be. It may be repeated.
    NotDone,
    /// Perhaps. It may even come to be there later, if a broker is still at it.
    Unknown,
    /// Yes. Only the answer was not what it should be.
    Done,
}

/// Why an append failed, and whether it took place.
#[derive(Debug, Clone, thiserror::Error)]
#[error("append {journal}: {cause}{}; next: {}", outcome_text(*outcome), self.next())]
pub struct AppendError {
    journal: Arc<str>,
    outcome: Outcome,
    cause: Box<AppendCause>,
}

/// The cause within an [`AppendError`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendCause {
    /// The broker could not be reached, refused the RPC, or broke off.
    #[error("{}", rpc_text(.0))]
    Rpc(tonic::Status),
    /// The broker answered with a status other than OK.
    #[error("{}{}", status_text(*status), detail_text(&response.store_health_error))]
    Status {
        /// The status.
        status: Status,
        /// The whole answer, which has the registers if the status is `REGISTER_MISMATCH`.
        response: Arc<AppendResponse>,
    },
    /// The request breaks a rule and was not sent.
    #[error("the request is not valid: {0}")]
    Request(ValidationError),
    /// The answer breaks a rule.
    #[error("the broker's answer is not valid: {0}")]
    Answer(ValidationError),
    /// The messages are not ones that an append can have.
    #[error("the protocol was broken: {0}")]
    Protocol(&'static str),
    /// The content could not be read. What had been sent of it was rolled back.
    #[error("the content could not be read: {0}")]
    Content(Arc<io::Error>),
    /// No answer came in time.
    #[error("no answer within {:.1} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// It was tried again and again, in vain.
    #[error("gave up after {:.1} s: {}", .after.as_secs_f32(), .last.cause)]
    GaveUp {
        /// How long it went on.
        after: Duration,
        /// The error of the last attempt.
        last: Arc<AppendError>,
    },
    /// The append service was dropped before the append was sent.
    #[error("the append service ended")]
    Closed,
}

impl AppendError {
    pub(crate) fn new(journal: impl Into<Arc<str>>, outcome: Outcome, cause: AppendCause) -> Self {
        Self {
            journal: journal.into(),
            outcome,
            cause: Box::new(cause),
        }
    }

    /// The error of an answer that is not OK. All of these are given before the commit.
    pub(crate) fn of_status(journal: &str, status: Status, response: AppendResponse) -> Self {
        let cause = AppendCause::Status {
            status,
            response: Arc::new(response),
        };
        Self::new(journal, Outcome::NotDone, cause)
    }

    /// The error of a failed RPC. `committed` tells whether the request to commit may have left.
    pub(crate) fn of_rpc(journal: &str, status: tonic::Status, committed: bool) -> Self {
        // A broker says these before it does anything. Made by this side, they say less.
        let refused = !crate::error::is_local(&status)
            && matches!(
                status.code(),
                Code::Unauthenticated
                    | Code::PermissionDenied
                    | Code::InvalidArgument
                    | Code::FailedPrecondition
                    | Code::NotFound
                    | Code::ResourceExhausted
            );
        let outcome = if committed && !refused {
            Outcome::Unknown
        } else {
            Outcome::NotDone
        };
        Self::new(journal, outcome, AppendCause::Rpc(status))
    }

    /// The journal.
    pub fn journal(&self) -> &str {
        &self.journal
    }

    /// Whether the content is in the journal.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether it is unknown if the content is in the journal.
    pub fn is_ambiguous(&self) -> bool {
        self.outcome == Outcome::Unknown
    }

    /// Whether the write head was not at the expected offset.
    pub fn is_wrong_append_offset(&self) -> bool {
        self.status() == Some(Status::WrongAppendOffset)
    }

    /// What failed.
    pub fn cause(&self) -> &AppendCause {
        &self.cause
    }

    /// The status that the broker answered with, if it did answer.
    pub fn status(&self) -> Option<Status> {
        self.answer().map(|(status, _)| status)
    }

    /// The registers of the journal, if the append failed because they do not match.
    pub fn registers(&self) -> Option<&LabelSet> {
        self.answer()
            .and_then(|(_, response)| response.registers.as_ref())
    }

    fn answer(&self) -> Option<(Status, &AppendResponse)> {
        match &*self.cause {
            AppendCause::Status { status, response } => Some((*status, response)),
            AppendCause::GaveUp { last, .. } => last.answer(),
            AppendCause::Rpc(_)
            | AppendCause::Request(_)
            | AppendCause::Answer(_)
            | AppendCause::Protocol(_)
            | AppendCause::Content(_)
            | AppendCause::Timeout(_)
            | AppendCause::Closed => None,
        }
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match &*self.cause {
            AppendCause::Rpc(status) => rpc_kind(status),
            AppendCause::Status { status, .. } => status_kind(*status),
            AppendCause::Request(_) => ErrorKind::Invalid,
            AppendCause::Answer(_) | AppendCause::Protocol(_) => ErrorKind::Internal,
            AppendCause::Content(_) | AppendCause::Closed => ErrorKind::Cancelled,
            AppendCause::Timeout(_) => ErrorKind::Retry,
            AppendCause::GaveUp { last, .. } => last.kind(),
        }
    }

    fn next(&self) -> &'static str {
        match (self.outcome, &*self.cause) {
            (Outcome::Unknown, _) => "look whether the content is there before repeating it",
            (_, AppendCause::GaveUp { last, .. }) => last.next(),
            (_, AppendCause::Status { status, .. }) => status_next(*status),
            (
                _,
                AppendCause::Rpc(_)
                | AppendCause::Request(_)
                | AppendCause::Answer(_)
                | AppendCause::Protocol(_)
                | AppendCause::Content(_)
                | AppendCause::Timeout(_)
                | AppendCause::Closed,
            ) => kind_next(self.kind()),
        }
    }
}

fn outcome_text(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::NotDone => "",
        Outcome::Unknown => " (it may have taken place)",
        Outcome::Done => " (it did take place)",
    }
}
