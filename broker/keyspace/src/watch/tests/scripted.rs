//! A store whose watches break when told to.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use gazette_coordination::{
    Coordination, CoordinationError, Embedded, LeaseId, Op, RangeRequest, RangeResponse, Txn,
    TxnResponse, Watch, WatchRequest, WatchResponse, WatchStream,
};
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug)]
pub(super) enum WatchFault {
    AtStart,
    AtNext,
    AfterEvents,
}

#[derive(Debug)]
pub(super) struct Scripted {
    inner: Mutex<Embedded>,
    faults: Mutex<VecDeque<WatchFault>>,
    broken: Arc<Notify>,
    at_range: Mutex<Option<(&'static str, &'static str)>>,
}

impl Scripted {
    pub(super) fn new(inner: Embedded) -> Self {
        Self {
            inner: Mutex::new(inner),
            faults: Mutex::default(),
            broken: Arc::default(),
            at_range: Mutex::default(),
        }
    }

    pub(super) fn inner(&self) -> Embedded {
        self.inner.lock().unwrap().clone()
    }

    pub(super) fn replace(&self, store: Embedded) {
        *self.inner.lock().unwrap() = store;
    }

    /// The next watches fail.
    pub(super) fn fail_watches(&self, faults: impl IntoIterator<Item = WatchFault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    pub(super) fn faults_left(&self) -> usize {
        self.faults.lock().unwrap().len()
    }

    /// Breaks the watches that wait now.
    pub(super) fn break_watches(&self) {
        self.broken.notify_waiters();
    }

    /// Puts a value after each range.
    pub(super) fn write_at_each_range(&self, key: &'static str, value: &'static str) {
        *self.at_range.lock().unwrap() = Some((key, value));
    }
}

fn unavailable() -> CoordinationError {
    CoordinationError::Unavailable {
        cause: "scripted".to_owned(),
    }
}

#[async_trait]
impl Coordination for Scripted {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CoordinationError> {
        let response = self.inner().range(request).await?;
        let write = *self.at_range.lock().unwrap();
        if let Some((key, value)) = write {
            self.txn(Txn::new(vec![], vec![Op::put(key, value)]))
                .await?;
        }
        Ok(response)
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResponse, CoordinationError> {
        self.inner().txn(txn).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream, CoordinationError> {
        let fault = self.faults.lock().unwrap().pop_front();
        if let Some(WatchFault::AtStart) = fault {
            return Err(unavailable());
        }
        let inner = self.inner().watch(request).await?;
        Ok(Box::new(ScriptedWatch {
            inner,
            fault,
            broken: Arc::clone(&self.broken),
        }))
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<LeaseId, CoordinationError> {
        self.inner().grant_lease(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, CoordinationError> {
        self.inner().keep_alive(lease).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), CoordinationError> {
        self.inner().revoke_lease(lease).await
    }

    async fn compact(&self, revision: i64) -> Result<(), CoordinationError> {
        self.inner().compact(revision).await
    }
}

#[derive(Debug)]
struct ScriptedWatch {
    inner: WatchStream,
    fault: Option<WatchFault>,
    broken: Arc<Notify>,
}

#[async_trait]
impl Watch for ScriptedWatch {
    async fn next(&mut self) -> Result<WatchResponse, CoordinationError> {
        match self.fault {
            Some(WatchFault::AtNext) => return Err(unavailable()),
            Some(WatchFault::AfterEvents) => {
                self.fault = Some(WatchFault::AtNext);
                return self.inner.next().await;
            }
            Some(WatchFault::AtStart) | None => {}
        }
        tokio::select! {
            biased;
            () = self.broken.notified() => Err(unavailable()),
            response = self.inner.next() => response,
        }
    }
}
