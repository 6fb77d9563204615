use std::fmt;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::AsyncRead;

use crate::{StoreError, StoreErrorKind};

/// The bytes of an object, or of a part of it.
pub type BoxRead = Box<dyn AsyncRead + Send + Unpin>;

/// Keeps objects under paths.
///
/// A path is relative to the place that the store's URL names, has `/` between its parts, and no part is
/// `..`. All implementations behave alike, as `conformance` (feature `test-util`) checks.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// Returns the scheme of the URLs of such stores.
    fn provider(&self) -> &'static str;

    /// Tells whether there is an object at `path`, which then also survives a loss of power.
    async fn exists(&self, path: &str) -> Result<bool, StoreError>;

    /// Opens the object at `path`.
    async fn get(&self, path: &str) -> Result<BoxRead, StoreError>;

    /// Opens the bytes `[begin, end)` of the object at `path`. They are fewer if the object ends before
    /// `end`; it is an error if it ends before `begin`.
    async fn get_range(&self, path: &str, begin: u64, end: u64) -> Result<BoxRead, StoreError>;

    /// Stores `content` at `path`, in place of what is there. No reader ever sees a part of it, and once this
    /// returns `Ok` it survives a loss of power.
    async fn put(
        &self,
        path: &str,
        content: Arc<dyn Content>,
        content_encoding: Option<&str>,
    ) -> Result<(), StoreError>;

    /// Lists the objects whose paths start with `prefix`, in the order of their paths. Not finding any is no
    /// error.
    async fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError>;

    /// Removes the object at `path`. If there is none, that is fine.
    async fn remove(&self, path: &str) -> Result<(), StoreError>;

    /// Returns a URL under which the object at `path` can be read without this store, for `ttl`.
    async fn sign_get(&self, path: &str, ttl: Duration) -> Result<String, StoreError>;

    /// Tells whether `error` means that this process may not use the store, so that another store is worth a
    /// try.
    fn is_auth_error(&self, error: &StoreError) -> bool {
        error.kind() == StoreErrorKind::Denied
    }
}

/// What is put into a store. It can be read again and again, so that a put can be repeated.
pub trait Content: Send + Sync {
    /// Returns the number of bytes.
    fn len(&self) -> u64;

    /// Tells whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Opens the bytes from the start. Reading them may block.
    fn open(&self) -> io::Result<Box<dyn Read + Send + '_>>;
}

impl Content for Bytes {
    fn len(&self) -> u64 {
        Self::len(self) as u64
    }

    fn open(&self) -> io::Result<Box<dyn Read + Send + '_>> {
        Ok(Box::new(Cursor::new(self.as_ref())))
    }
}

impl Content for Vec<u8> {
    fn len(&self) -> u64 {
        Self::len(self) as u64
    }

    fn open(&self) -> io::Result<Box<dyn Read + Send + '_>> {
        Ok(Box::new(self.as_slice()))
    }
}

/// An object that a listing found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Path of the object without the prefix that was listed.
    pub path: String,
    /// Time at which it was stored, in seconds since the Unix epoch; at least 1.
    pub mod_time: i64,
    /// Length of the object in bytes, as stored.
    pub size: u64,
}

/// The operations of a [`Store`], by the names they have in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// [`Store::exists`]
    Exists,
    /// [`Store::get`] and [`Store::get_range`]
    Get,
    /// [`Store::put`]
    Put,
    /// [`Store::list`]
    List,
    /// [`Store::remove`]
    Remove,
    /// [`Store::sign_get`]
    SignGet,
}

impl Operation {
    /// Returns the name in metrics and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exists => "exists",
            Self::Get => "get",
            Self::Put => "put",
            Self::List => "list",
            Self::Remove => "remove",
            Self::SignGet => "signget",
        }
    }
}
