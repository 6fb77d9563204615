//! Entries of a key space and how they change.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use gazette_coordination::KeyValue;

/// A stored key with its decoded value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<V> {
    /// The key as stored. Its value is the encoded form of `decoded`.
    pub raw: KeyValue,
    /// What the decoder made of it.
    pub decoded: V,
}

/// Turns a stored key into a value. It must be a function of the key and value only.
pub type Decoder<V> = Arc<dyn Fn(&KeyValue) -> Result<V, DecodeError> + Send + Sync>;

/// A key or value that the decoder refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(Box<str>);

impl DecodeError {
    /// Returns an error that reads as `cause`.
    pub fn new(cause: impl fmt::Display) -> Self {
        Self(cause.to_string().into())
    }
}

/// A change of one key. `before` and `after` differ, and one of them is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<V> {
    /// The entry before the change; `None` if it was inserted.
    pub before: Option<Arc<Entry<V>>>,
    /// The entry after the change; `None` if it was deleted.
    pub after: Option<Arc<Entry<V>>>,
}

impl<V> Change<V> {
    /// The latest entry that there is: after the change, or before it if it was a deletion.
    pub fn entry(&self) -> &Arc<Entry<V>> {
        self.after
            .as_ref()
            .or(self.before.as_ref())
            .expect("a change has one side at least")
    }
}

/// A stored key that was skipped, because it does not decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The key.
    pub key: Bytes,
    /// Revision at which it was written.
    pub mod_revision: i64,
    /// What the decoder said.
    pub error: DecodeError,
}
