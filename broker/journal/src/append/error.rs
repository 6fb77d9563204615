//! Why an append ended without a response.

use std::{fmt, time::Duration};

use crate::{
    pipeline::{LocalFailure, PipelineError},
    resolve::ResolveError,
};

/// Why an append ended without a response. What has a status is a response instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The client went away before it committed.
    #[error("the client went away before it committed")]
    Cancelled,
    /// The journal could not be resolved.
    #[error("resolve: {0}")]
    Resolve(ResolveError),
    /// Something did not happen in time.
    #[error("gave up {wait} after {waited:?}; next: {}", wait.remedy())]
    TimedOut {
        /// What was waited for.
        wait: Wait,
        /// For how long.
        waited: Duration,
    },
    /// The replicas could not be written to. Nothing was committed.
    #[error("replication: {0}; nothing was appended")]
    Replication(PipelineError),
    /// The commit was sent, but not every replica acknowledged it. It may take effect.
    #[error("replication: {0}; the append may have taken effect")]
    Unacknowledged(PipelineError),
    /// The local replica did not take the content.
    #[error("spool: {0}; nothing was appended; next: {remedy}", remedy = .0.remedy())]
    Local(LocalFailure),
    /// The coordination store did not take a change.
    #[error("{operation}: {failure}")]
    Coordination {
        /// What was to be changed.
        operation: Update,
        /// What the store said.
        failure: HostFailure,
    },
    /// The stream ended without the empty chunk that announces a commit.
    #[error("the stream ended before an empty chunk announced the commit; nothing was appended")]
    UnexpectedEnd,
    /// Something followed the empty chunk.
    #[error("expected the end of the stream after the empty chunk; nothing was appended")]
    ExpectedEnd,
    /// A later message was not a chunk.
    #[error("expected a chunk of content; nothing was appended")]
    ExpectedContent,
    /// Registers cannot change without content.
    #[error("a change of registers needs content; nothing was appended")]
    RegistersWithoutContent,
    /// The client sent too slowly, while others waited.
    #[error(
        "the client did not sustain {min_rate} bytes per second; nothing was appended; next: \
         have the content ready before the append begins"
    )]
    TooSlow {
        /// The least rate, in bytes per second.
        min_rate: u64,
    },
    /// The client sent nothing for long.
    #[error("the client sent nothing for {waited:?}; nothing was appended")]
    Idle {
        /// For how long.
        waited: Duration,
    },
    /// The journal is at the end of its offsets.
    #[error("the content would end beyond the greatest offset; nothing was appended")]
    OffsetOverflow,
}

/// A change of the coordination store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// Of the routes in assignments.
    Assignments,
    /// Of the suspension in the spec.
    Suspend,
}

/// Something that an append waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The key space to reach a revision.
    Resolution,
    /// Other appends to the journal.
    Pipeline,
    /// A former pipeline to end, and the new one to begin.
    PipelineStart,
    /// The replicas to agree.
    Sync,
    /// The coordination store.
    Update,
    /// Surplus replicas to leave.
    Replicas,
    /// The first listing of the stores.
    Index,
    /// The acknowledgement of replicas.
    Acknowledgement,
}

/// What the caller's side said about an operation that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostFailure(pub String);

impl AppendError {
    /// Whether it is certain that nothing was appended. Otherwise it may have been.
    pub fn is_certain(&self) -> bool {
        match self {
            Self::Unacknowledged(_)
            | Self::TimedOut {
                wait: Wait::Acknowledgement,
                ..
            } => false,
            Self::Cancelled
            | Self::Resolve(_)
            | Self::TimedOut { .. }
            | Self::Replication(_)
            | Self::Local(_)
            | Self::Coordination { .. }
            | Self::UnexpectedEnd
            | Self::ExpectedEnd
            | Self::ExpectedContent
            | Self::RegistersWithoutContent
            | Self::TooSlow { .. }
            | Self::Idle { .. }
            | Self::OffsetOverflow => true,
        }
    }
}

impl Wait {
    fn remedy(self) -> &'static str {
        match self {
            Self::Resolution | Self::Update => {
                "look whether the coordination store is reachable, and try again"
            }
            Self::Pipeline => "look for a slow or large append, and try again",
            Self::PipelineStart | Self::Sync => {
                "look whether the other brokers of the journal are reachable"
            }
            Self::Acknowledgement => {
                "look whether the disk answers, and the other brokers of the journal"
            }
            Self::Replicas => "look at the assignments of the journal, and try again",
            Self::Index => "look whether the journal's stores can be listed, and try again",
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolution => "waiting for the key space",
            Self::Pipeline => "waiting for other appends to the journal",
            Self::PipelineStart => "waiting for a pipeline to the replicas",
            Self::Sync => "waiting for the replicas to agree",
            Self::Update => "waiting for the coordination store",
            Self::Replicas => "waiting for surplus replicas to leave",
            Self::Index => "waiting for the first listing of the journal's stores",
            Self::Acknowledgement => "waiting for the replicas to acknowledge",
        })
    }
}

impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Assignments => "write the route into assignments",
            Self::Suspend => "write the suspension into the spec",
        })
    }
}
