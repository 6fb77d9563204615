//! Why pipelines break.

use gazette_protocol::{Status, process_spec};

/// Why a pipeline broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The stream to a peer ended or failed.
    #[error("stream to replica {}/{}: {failure}", peer.zone, peer.suffix)]
    Peer {
        /// The peer.
        peer: process_spec::Id,
        /// What happened.
        failure: PeerFailure,
    },
    /// The local replica could not make a proposal durable.
    #[error("local replica: {0}")]
    Local(LocalFailure),
    /// A peer refuses a proposal in a way that synchronisation does not mend.
    #[error("replica {}/{} answered {}", peer.zone, peer.suffix, status.as_str_name())]
    Refused {
        /// The peer.
        peer: process_spec::Id,
        /// Its answer.
        status: Status,
    },
    /// The replicas do not come to agree.
    #[error("replicas do not agree after {attempts} proposals")]
    Unsettled {
        /// Proposals that were made.
        attempts: u32,
    },
    /// The pipeline was closed.
    #[error("the pipeline was closed; next: try again")]
    Closed,
}

/// What happened to a stream to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerFailure {
    /// It could not be connected to.
    #[error("cannot connect")]
    Unreachable,
    /// It broke.
    #[error("the stream broke")]
    Broken,
    /// It ended where an answer was due.
    #[error("the stream ended before its answer")]
    Ended,
    /// An answer did not come in time.
    #[error("no answer in time")]
    TimedOut,
    /// An answer came that nothing asked for, or that makes no sense.
    #[error("an answer that nothing asked for")]
    Unexpected,
}

/// Why the local replica could not take or keep content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocalFailure {
    /// The disk is full. Nothing was written.
    #[error("the disk is full")]
    NoSpace,
    /// The disk failed.
    #[error("the disk failed")]
    Disk,
}

impl LocalFailure {
    /// What to do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NoSpace => "make room, or prune fragments, and try again",
            Self::Disk => "see the log of the broker",
        }
    }
}
