#![doc = include_str!("../README.md")]

#[cfg(feature = "test-util")]
pub mod conformance;
mod embedded;
pub mod engine;
mod error;
mod types;

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;

pub use embedded::{Embedded, EmbeddedOptions, OpenCause, OpenError};
pub use error::{CoordinationError, ErrorKind, InvalidRequest};
pub use types::{
    Compare, CompareOrder, CompareTarget, Event, EventKind, KeyValue, LeaseId, Op, OpResponse, Put,
    RangeKey, RangeRequest, RangeResponse, ResponseHeader, Txn, TxnResponse, WatchRequest,
    WatchResponse,
};

/// A store of keys with etcd's semantics.
///
/// Every change of the store happens at a revision, one greater than that of the change before.
/// All changes of a transaction share one revision. A successful answer to a change means that
/// the change is durable, as far as the implementation has durability to give.
#[async_trait]
pub trait Coordination: Send + Sync + Debug {
    /// Reads keys in ascending order, as of now or as of an older revision.
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CoordinationError>;

    /// Applies one of two lists of operations, atomically.
    ///
    /// An error of kind [`ErrorKind::Retry`] leaves open whether the transaction was applied;
    /// with every other error it was not.
    async fn txn(&self, txn: Txn) -> Result<TxnResponse, CoordinationError>;

    /// Follows the changes of a prefix.
    async fn watch(&self, request: WatchRequest) -> Result<WatchStream, CoordinationError>;

    /// Creates a lease that ends when it has not been kept alive for `ttl`.
    async fn grant_lease(&self, ttl: Duration) -> Result<LeaseId, CoordinationError>;

    /// Restarts the time to live of a lease, and returns it.
    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, CoordinationError>;

    /// Ends a lease and deletes the keys attached to it, in one revision.
    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), CoordinationError>;

    /// Forgets what was before `revision`: reads and watches of older revisions fail.
    async fn compact(&self, revision: i64) -> Result<(), CoordinationError>;

    /// Greatest number of compares, and of operations in each list, that a transaction may have.
    fn max_txn_ops(&self) -> usize {
        128
    }
}

/// The responses of one watch.
pub type WatchStream = Box<dyn Watch>;

/// The receiving end of a watch.
#[async_trait]
pub trait Watch: Send + Debug {
    /// Waits for the next response. It holds all events, under the prefix, of one or more whole
    /// revisions; or none, to tell that everything up to the header's revision was delivered.
    ///
    /// Dropping the future loses nothing. After an error the watch has ended.
    async fn next(&mut self) -> Result<WatchResponse, CoordinationError>;
}
