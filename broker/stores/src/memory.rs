use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{BoxRead, Content, Listed, Store, StoreError, StoreErrorKind, key};

/// Keeps objects in memory, for tests and for brokers whose data may go with them.
///
/// It has no clock: objects carry the time that was last [set](MemoryStore::set_time).
#[derive(Debug)]
pub struct MemoryStore {
    objects: Mutex<BTreeMap<String, Object>>,
    now: AtomicI64,
}

#[derive(Debug, Clone)]
struct Object {
    content: Bytes,
    content_encoding: Option<String>,
    mod_time: i64,
}

impl MemoryStore {
    /// Makes an empty store, whose time is second 1 of the Unix epoch.
    pub fn new() -> Self {
        Self {
            objects: Mutex::default(),
            now: AtomicI64::new(1),
        }
    }

    /// Sets the time, in seconds since the Unix epoch, that objects get when they are put from now on.
    pub fn set_time(&self, unix_seconds: i64) {
        self.now.store(unix_seconds.max(1), Ordering::Relaxed);
    }

    /// Returns the bytes of the object at `path` and the content encoding with which it was put.
    pub fn object(&self, path: &str) -> Option<(Bytes, Option<String>)> {
        let objects = self.objects();
        let object = objects.get(path)?;
        Some((object.content.clone(), object.content_encoding.clone()))
    }

    /// Returns the paths of all objects.
    pub fn paths(&self) -> Vec<String> {
        self.objects().keys().cloned().collect()
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        // No code that can panic runs under the lock.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn content(&self, path: &str) -> Result<Bytes, StoreError> {
        let path = canonical("get", path)?;
        match self.objects().get(&path) {
            Some(object) => Ok(object.content.clone()),
            None => Err(StoreError::new(
                StoreErrorKind::NotFound,
                "get",
                path,
                "no such object",
            )),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn provider(&self) -> &'static str {
        "memory"
    }

    async fn exists(&self, path: &str) -> Result<bool, StoreError> {
        let path = canonical("exists", path)?;
        Ok(self.objects().contains_key(&path))
    }

    async fn get(&self, path: &str) -> Result<BoxRead, StoreError> {
        Ok(Box::new(Cursor::new(self.content(path)?)))
    }

    async fn get_range(&self, path: &str, begin: u64, end: u64) -> Result<BoxRead, StoreError> {
        let content = self.content(path)?;
        let length = content.len() as u64;
        let (begin, end) = clip_range(path, begin, end, length)?;
        let at = |offset: u64| usize::try_from(offset).unwrap_or(content.len());
        Ok(Box::new(Cursor::new(content.slice(at(begin)..at(end)))))
    }

    async fn put(
        &self,
        path: &str,
        content: Arc<dyn Content>,
        content_encoding: Option<&str>,
    ) -> Result<(), StoreError> {
        let path = canonical("put", path)?;
        let mut bytes = Vec::new();
        content
            .open()
            .and_then(|mut reader| reader.read_to_end(&mut bytes))
            .map_err(|error| StoreError::from_io("put", &path, &error))?;
        check_length(&path, content.len(), bytes.len() as u64)?;

        let object = Object {
            content: bytes.into(),
            content_encoding: content_encoding.map(str::to_owned),
            mod_time: self.now.load(Ordering::Relaxed),
        };
        self.objects().insert(path, object);
        Ok(())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let (mut parts, name_prefix) = key::prefix(prefix)?;
        parts.push(name_prefix);
        let prefix = parts.join("/");

        let objects = self.objects();
        let listed = objects
            .range(prefix.clone()..)
            .map_while(|(path, object)| Some((path.strip_prefix(prefix.as_str())?, object)))
            .map(|(path, object)| Listed {
                path: path.to_owned(),
                mod_time: object.mod_time,
                size: object.content.len() as u64,
            })
            .collect();
        Ok(listed)
    }

    async fn remove(&self, path: &str) -> Result<(), StoreError> {
        let path = canonical("remove", path)?;
        self.objects().remove(&path);
        Ok(())
    }

    async fn sign_get(&self, path: &str, _ttl: Duration) -> Result<String, StoreError> {
        let path = canonical("signget", path)?;
        Ok(format!("memory:///{}", key::percent_encode(&path)))
    }
}

fn canonical(operation: &'static str, path: &str) -> Result<String, StoreError> {
    Ok(key::parts(operation, path)?.join("/"))
}

/// Cuts the range of a read at the end of an object of `length` bytes.
pub(crate) fn clip_range(
    path: &str,
    begin: u64,
    end: u64,
    length: u64,
) -> Result<(u64, u64), StoreError> {
    let end = end.min(length);
    if begin > end {
        let cause = format!("range starts at {begin} and ends at {end}, of {length} bytes");
        return Err(StoreError::new(StoreErrorKind::Invalid, "get", path, cause));
    }
    Ok((begin, end))
}

/// Checks that content had as many bytes as it said.
pub(crate) fn check_length(path: &str, expected: u64, actual: u64) -> Result<(), StoreError> {
    if expected == actual {
        return Ok(());
    }
    let cause = format!("content has {actual} bytes where it promised {expected}");
    Err(StoreError::new(StoreErrorKind::Corrupt, "put", path, cause))
}

#[cfg(test)]
mod tests;
