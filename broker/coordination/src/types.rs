//! Requests and responses.

use std::fmt;

use bytes::Bytes;

/// Names a lease. Zero is no lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl LeaseId {
    /// Attached to no lease.
    pub const NONE: Self = Self(0);

    /// Whether this names a lease at all.
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A key, its value, and when it changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value; empty where only keys were asked for, and in delete events.
    pub value: Bytes,
    /// Revision at which the key came into being; zero in delete events.
    pub create_revision: i64,
    /// Revision of the latest change.
    pub mod_revision: i64,
    /// Number of puts since the key came into being: 1 for a new key, zero in delete events.
    pub version: i64,
    /// Lease that the key is attached to.
    pub lease: LeaseId,
}

/// Who answered, and the revision of the store at that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHeader {
    /// Identity of the store, stable over restarts. Not zero.
    pub cluster_id: u64,
    /// Member of the store that answered. Not zero.
    pub member_id: u64,
    /// Revision of the store after the request.
    pub revision: i64,
    /// Leader term of the store; for an embedded one, the number of times that it was opened.
    pub raft_term: u64,
}

/// Keys that a request covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeKey {
    /// This key only.
    Key(Bytes),
    /// Every key that begins with these bytes; all keys if there are none.
    Prefix(Bytes),
}

impl RangeKey {
    /// Whether `key` is covered.
    pub fn covers(&self, key: &[u8]) -> bool {
        match self {
            Self::Key(only) => only.as_ref() == key,
            Self::Prefix(prefix) => key.starts_with(prefix),
        }
    }

    /// The first key that may be covered.
    pub fn start(&self) -> &Bytes {
        match self {
            Self::Key(start) | Self::Prefix(start) => start,
        }
    }
}

/// Asks for keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    /// Keys to read.
    pub key: RangeKey,
    /// First key to return, to continue a limited range.
    pub from: Option<Bytes>,
    /// Revision to read at; the latest if `None`.
    pub revision: Option<i64>,
    /// Greatest number of keys to return; zero is no limit.
    pub limit: usize,
    /// Leave values out.
    pub keys_only: bool,
    /// Return the count only.
    pub count_only: bool,
}

impl RangeRequest {
    /// Reads one key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self::new(RangeKey::Key(key.into()))
    }

    /// Reads all keys that begin with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        Self::new(RangeKey::Prefix(prefix.into()))
    }

    fn new(key: RangeKey) -> Self {
        Self {
            key,
            from: None,
            revision: None,
            limit: 0,
            keys_only: false,
            count_only: false,
        }
    }

    /// Reads at `revision`.
    #[must_use]
    pub fn at(mut self, revision: i64) -> Self {
        self.revision = Some(revision);
        self
    }

    /// Returns at most `limit` keys.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Starts at `from`, where an earlier limited range ended.
    #[must_use]
    pub fn from(mut self, from: impl Into<Bytes>) -> Self {
        self.from = Some(from.into());
        self
    }
}

/// Keys that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeResponse {
    /// Header at the time of the read; its revision is the store's latest, not the one read at.
    pub header: ResponseHeader,
    /// The keys, ascending.
    pub kvs: Vec<KeyValue>,
    /// Whether the limit left keys out.
    pub more: bool,
    /// Number of keys without the limit.
    pub count: usize,
}

/// What a compare looks at. A key that does not exist has revisions, version and lease zero, and
/// no value: each compare of its value is false.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareTarget {
    /// Revision of the latest change.
    ModRevision(i64),
    /// Revision at which the key came into being.
    CreateRevision(i64),
    /// Number of puts since.
    Version(i64),
    /// The value.
    Value(Bytes),
    /// The lease.
    Lease(LeaseId),
}

/// How what is stored must relate to what is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOrder {
    /// Stored equals given.
    Equal,
    /// Stored differs from given.
    NotEqual,
    /// Stored is less than given.
    Less,
    /// Stored is greater than given.
    Greater,
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// Key to look at.
    pub key: Bytes,
    /// How stored and given must relate.
    pub order: CompareOrder,
    /// What to compare, and with what.
    pub target: CompareTarget,
}

impl Compare {
    /// The latest change of `key` was at `revision`; zero demands that the key does not exist.
    pub fn mod_revision(key: impl Into<Bytes>, revision: i64) -> Self {
        Self::equal(key, CompareTarget::ModRevision(revision))
    }

    /// `key` came into being at `revision`; zero demands that the key does not exist.
    pub fn create_revision(key: impl Into<Bytes>, revision: i64) -> Self {
        Self::equal(key, CompareTarget::CreateRevision(revision))
    }

    /// `key` does not exist.
    pub fn absent(key: impl Into<Bytes>) -> Self {
        Self::equal(key, CompareTarget::Version(0))
    }

    /// Stored equals `target`.
    pub fn equal(key: impl Into<Bytes>, target: CompareTarget) -> Self {
        Self {
            key: key.into(),
            order: CompareOrder::Equal,
            target,
        }
    }
}

/// Writes a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// Key to write.
    pub key: Bytes,
    /// Value to store.
    pub value: Bytes,
    /// Lease to attach the key to.
    pub lease: LeaseId,
    /// Keep the lease that the key has; the key must exist.
    pub ignore_lease: bool,
    /// Keep the value that the key has; the key must exist.
    pub ignore_value: bool,
}

/// An operation of a transaction. Operations see the effects of those before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes a key.
    Put(Put),
    /// Deletes keys; no key need exist.
    Delete(RangeKey),
    /// Reads keys.
    Range(RangeRequest),
}

impl Op {
    /// Puts a value without a lease. An old lease is detached.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put(Put {
            key: key.into(),
            value: value.into(),
            ..Put::default()
        })
    }

    /// Puts a value and attaches the key to `lease`.
    pub fn put_with_lease(key: impl Into<Bytes>, value: impl Into<Bytes>, lease: LeaseId) -> Self {
        Self::Put(Put {
            key: key.into(),
            value: value.into(),
            lease,
            ..Put::default()
        })
    }

    /// Puts a value of an existing key, which keeps its lease.
    pub fn put_keeping_lease(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put(Put {
            key: key.into(),
            value: value.into(),
            ignore_lease: true,
            ..Put::default()
        })
    }

    /// Deletes one key.
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Self::Delete(RangeKey::Key(key.into()))
    }
}

/// A transaction: if all compares hold, `success` is applied, else `failure`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Conditions.
    pub compares: Vec<Compare>,
    /// Operations if all conditions hold.
    pub success: Vec<Op>,
    /// Operations otherwise.
    pub failure: Vec<Op>,
}

impl Txn {
    /// Does `success` if all `compares` hold, and nothing otherwise.
    pub fn new(compares: Vec<Compare>, success: Vec<Op>) -> Self {
        Self {
            compares,
            success,
            failure: Vec::new(),
        }
    }
}

/// What an operation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResponse {
    /// The key was written.
    Put,
    /// So many keys were deleted.
    Delete {
        /// Number of deleted keys.
        deleted: usize,
    },
    /// The keys that were read.
    Range(RangeResponse),
}

/// The outcome of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnResponse {
    /// Its revision is that of the transaction if it wrote, else the store's latest.
    pub header: ResponseHeader,
    /// Whether all compares held.
    pub succeeded: bool,
    /// Answers of the operations that were applied, in order.
    pub responses: Vec<OpResponse>,
}

/// Asks for changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// Changes of keys that begin with these bytes.
    pub prefix: Bytes,
    /// First revision to deliver, also a future one; zero is the one after the latest.
    pub start_revision: i64,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was written.
    Put,
    /// It was deleted, by a transaction or by the end of its lease.
    Delete,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The key after the change. Of a delete, only the key and the mod revision are set.
    pub kv: KeyValue,
}

/// Changes of one or more whole revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchResponse {
    /// Everything under the prefix up to its revision was delivered with or before this.
    pub header: ResponseHeader,
    /// The changes, ascending on revision.
    pub events: Vec<Event>,
}
