//! What can go wrong.

use bytes::Bytes;

use crate::LeaseId;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoordinationError {
    /// The revision's history is gone.
    #[error("revision {requested} was compacted; the oldest is {oldest}")]
    Compacted {
        /// Revision that was asked for.
        requested: i64,
        /// Oldest revision that can be read or watched.
        oldest: i64,
    },
    /// The revision has not happened yet.
    #[error("revision {requested} has not happened yet; the latest is {latest}")]
    FutureRevision {
        /// Revision that was asked for.
        requested: i64,
        /// Latest revision of the store.
        latest: i64,
    },
    /// The lease expired, was revoked, or never was.
    #[error("lease {lease} does not exist")]
    LeaseNotFound {
        /// The lease.
        lease: LeaseId,
    },
    /// A put that keeps a key's lease or value found no such key.
    #[error("key {} does not exist, so its lease or value cannot be kept", key.escape_ascii())]
    KeyNotFound {
        /// The key.
        key: Bytes,
    },
    /// A list of operations writes a key twice, or writes a key that it deletes.
    #[error("key {} is written twice by one transaction", key.escape_ascii())]
    DuplicateKey {
        /// The key.
        key: Bytes,
    },
    /// The transaction is too large.
    #[error("transaction has {count} compares or operations, of at most {limit}")]
    TooManyOps {
        /// Length of the longest list.
        count: usize,
        /// Greatest length.
        limit: usize,
    },
    /// The request contradicts itself.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The store's disk is full; nothing was changed.
    #[error("the disk of the coordination store is full")]
    NoSpace,
    /// The store could not be reached or written. Whether a change was applied is not known.
    #[error("the coordination store is not available: {cause}")]
    Unavailable {
        /// What the implementation said.
        cause: String,
    },
    /// The store was closed by its owner.
    #[error("the coordination store was closed")]
    Closed,
}

/// How a request contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// A key has no bytes.
    #[error("a key is empty")]
    EmptyKey,
    /// A put gives a lease and asks to keep the old one.
    #[error("a put gives a lease and asks to keep the one of the key")]
    LeaseGiven,
    /// A put gives a value and asks to keep the old one.
    #[error("a put gives a value and asks to keep the one of the key")]
    ValueGiven,
    /// A lease would end at once.
    #[error("the time to live of a lease is zero")]
    ZeroTtl,
}

/// What a caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Try again later; the outcome of this attempt is not known.
    Retry,
    /// What was asked for is not there.
    NotFound,
    /// Read everything anew, at the latest revision.
    Compacted,
    /// The request is wrong and will stay so.
    Invalid,
    /// Make room; nothing was changed.
    NoSpace,
    /// Give up.
    Closed,
}

impl CoordinationError {
    /// What a caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Compacted { .. } => ErrorKind::Compacted,
            Self::LeaseNotFound { .. } | Self::KeyNotFound { .. } => ErrorKind::NotFound,
            Self::FutureRevision { .. }
            | Self::DuplicateKey { .. }
            | Self::TooManyOps { .. }
            | Self::Invalid(_) => ErrorKind::Invalid,
            Self::NoSpace => ErrorKind::NoSpace,
            Self::Unavailable { .. } => ErrorKind::Retry,
            Self::Closed => ErrorKind::Closed,
        }
    }
}
