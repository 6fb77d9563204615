use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::{BoxRead, Content, Listed, Operation, Store, StoreError, StoreErrorKind};

/// Wraps a store, and lets its calls fail as a test says.
///
/// Faults of [`FaultyStore::script`] apply to one call each, in order; when there are none left, that of
/// [`FaultyStore::always`] applies.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    script: Mutex<Script>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// The call fails without having done anything.
    Fail(StoreErrorKind),
    /// The call is done, but fails: the answer was lost.
    LoseAnswer(StoreErrorKind),
    /// A put or remove says that it is done, without having done anything.
    Skip,
    /// The call begins this much later.
    Delay(Duration),
    /// The call never ends.
    Hang,
    /// A listing shows only its first objects, as from a store that is slow to show new ones.
    ListOnly(usize),
}

#[derive(Debug, Default)]
struct Script {
    once: BTreeMap<Operation, VecDeque<Fault>>,
    always: BTreeMap<Operation, Fault>,
    calls: BTreeMap<Operation, usize>,
}

impl FaultyStore {
    /// Wraps a store, without faults.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            script: Mutex::default(),
        }
    }

    /// Adds faults for the next calls of `operation`, one for each call.
    pub fn script(&self, operation: Operation, faults: impl IntoIterator<Item = Fault>) {
        let mut script = self.locked();
        script.once.entry(operation).or_default().extend(faults);
    }

    /// Sets what happens to calls of `operation` that have no scripted fault.
    pub fn always(&self, operation: Operation, fault: Fault) {
        self.locked().always.insert(operation, fault);
    }

    /// Takes all faults back.
    pub fn heal(&self) {
        let mut script = self.locked();
        script.once.clear();
        script.always.clear();
    }

    /// Returns how many calls of `operation` there were.
    pub fn calls(&self, operation: Operation) -> usize {
        self.locked().calls.get(&operation).copied().unwrap_or(0)
    }

    fn locked(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, operation: Operation) -> Fault {
        let mut script = self.locked();
        *script.calls.entry(operation).or_default() += 1;
        let scripted = script
            .once
            .get_mut(&operation)
            .and_then(VecDeque::pop_front);
        scripted
            .or_else(|| script.always.get(&operation).copied())
            .unwrap_or(Fault::Pass)
    }

    async fn call<T>(
        &self,
        operation: Operation,
        path: &str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        Self::perform(operation, path, call, self.next(operation)).await
    }

    async fn perform<T>(
        operation: Operation,
        path: &str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
        fault: Fault,
    ) -> Result<T, StoreError> {
        let failure =
            |kind| StoreError::new(kind, operation.name(), path, "the test wants it to fail");
        match fault {
            Fault::Pass | Fault::ListOnly(_) | Fault::Skip => {}
            Fault::Fail(kind) => return Err(failure(kind)),
            Fault::Delay(delay) => tokio::time::sleep(delay).await,
            Fault::Hang => std::future::pending().await,
            Fault::LoseAnswer(kind) => {
                drop(call.await?);
                return Err(failure(kind));
            }
        }
        call.await
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn provider(&self) -> &'static str {
        self.inner.provider()
    }

    async fn exists(&self, path: &str) -> Result<bool, StoreError> {
        let call = self.inner.exists(path);
        self.call(Operation::Exists, path, call).await
    }

    async fn get(&self, path: &str) -> Result<BoxRead, StoreError> {
        let call = self.inner.get(path);
        self.call(Operation::Get, path, call).await
    }

    async fn get_range(&self, path: &str, begin: u64, end: u64) -> Result<BoxRead, StoreError> {
        let call = self.inner.get_range(path, begin, end);
        self.call(Operation::Get, path, call).await
    }

    async fn put(
        &self,
        path: &str,
        content: Arc<dyn Content>,
        content_encoding: Option<&str>,
    ) -> Result<(), StoreError> {
        let fault = self.next(Operation::Put);
        if fault == Fault::Skip {
            return Ok(());
        }
        let call = self.inner.put(path, content, content_encoding);
        Self::perform(Operation::Put, path, call, fault).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let call = self.inner.list(prefix);
        let fault = self.next(Operation::List);
        let mut listed = Self::perform(Operation::List, prefix, call, fault).await?;
        if let Fault::ListOnly(count) = fault {
            listed.truncate(count);
        }
        Ok(listed)
    }

    async fn remove(&self, path: &str) -> Result<(), StoreError> {
        let fault = self.next(Operation::Remove);
        if fault == Fault::Skip {
            return Ok(());
        }
        let call = self.inner.remove(path);
        Self::perform(Operation::Remove, path, call, fault).await
    }

    async fn sign_get(&self, path: &str, ttl: Duration) -> Result<String, StoreError> {
        let call = self.inner.sign_get(path, ttl);
        self.call(Operation::SignGet, path, call).await
    }

    fn is_auth_error(&self, error: &StoreError) -> bool {
        self.inner.is_auth_error(error)
    }
}

#[cfg(test)]
mod tests;
