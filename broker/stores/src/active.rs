use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

use crate::registry::OpenStore;
use crate::rewrite::Rewriter;
use crate::{
    BoxRead, Content, Health, Listed, Operation, Store, StoreError, StoreErrorKind, health, metrics,
};

/// A store in use: it opens when it is first needed, rewrites paths, counts, and knows its health.
///
/// A handle works for as long as it is held. Where opening fails, each call tries to open it again, so that a
/// store that was not there yet, or whose credentials were wrong, is used once that is repaired.
#[derive(Debug)]
pub struct ActiveStore {
    url: Arc<str>,
    rewriter: Rewriter,
    open: OpenStore,
    store: OnceCell<Arc<dyn Store>>,
    health: watch::Sender<Health>,
}

impl ActiveStore {
    pub(crate) fn new(url: &str, rewriter: Rewriter, open: OpenStore) -> Self {
        Self {
            url: Arc::from(url),
            rewriter,
            open,
            store: OnceCell::new(),
            health: watch::Sender::new(Health::Unchecked),
        }
    }

    /// Returns the URL of the store, as it stands in specs.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns what the last health check found, and tells when that changes.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// Checks the health of the store now: that what is put can be read back and listed.
    pub async fn check_health(&self) -> Result<(), StoreError> {
        let check = async { health::check(self.store().await?.as_ref()).await };
        let result = within_budget("check", &self.url, check).await;

        let status = if result.is_ok() { "ok" } else { "error" };
        ::metrics::counter!(
            metrics::STORE_HEALTH_CHECK_TOTAL,
            "store" => Arc::clone(&self.url),
            "status" => status,
        )
        .increment(1);
        self.health.send_replace(match &result {
            Ok(()) => Health::Healthy,
            Err(error) => Health::Unhealthy(error.clone()),
        });
        result
    }

    /// Returns the last finding about the store's health, after a check of its own if there is none yet.
    pub async fn checked_health(&self) -> Result<(), StoreError> {
        let last = self.health.borrow().clone();
        match last {
            Health::Healthy => Ok(()),
            Health::Unhealthy(error) => Err(error),
            Health::Unchecked => self.check_health().await,
        }
    }

    /// Checks that the store lets this process remove what it put.
    pub async fn probe_delete(&self) -> Result<(), StoreError> {
        let probe = async { health::probe_delete(self.store().await?.as_ref()).await };
        within_budget("probe", &self.url, probe).await
    }

    async fn store(&self) -> Result<&Arc<dyn Store>, StoreError> {
        self.store.get_or_try_init(|| self.open.open()).await
    }

    /// Counts an operation and how long it took.
    async fn observe<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let result = call.await;

        let labels = [
            ("store", self.url.to_string()),
            ("operation", operation.name().to_owned()),
            (
                "status",
                if result.is_ok() { "success" } else { "error" }.to_owned(),
            ),
        ];
        ::metrics::counter!(metrics::STORE_OPERATION_TOTAL, &labels).increment(1);
        ::metrics::histogram!(metrics::STORE_OPERATION_DURATION_SECONDS, &labels)
            .record(begun.elapsed());
        result
    }
}

#[async_trait]
impl Store for ActiveStore {
    fn provider(&self) -> &'static str {
        self.store.get().map_or("", |store| store.provider())
    }

    async fn exists(&self, path: &str) -> Result<bool, StoreError> {
        let path = self.rewriter.rewrite(path);
        let call = async { self.store().await?.exists(&path).await };
        self.observe(Operation::Exists, call).await
    }

    async fn get(&self, path: &str) -> Result<BoxRead, StoreError> {
        let path = self.rewriter.rewrite(path);
        let call = async { self.store().await?.get(&path).await };
        self.observe(Operation::Get, call).await
    }

    async fn get_range(&self, path: &str, begin: u64, end: u64) -> Result<BoxRead, StoreError> {
        let path = self.rewriter.rewrite(path);
        let call = async { self.store().await?.get_range(&path, begin, end).await };
        self.observe(Operation::Get, call).await
    }

    async fn put(
        &self,
        path: &str,
        content: Arc<dyn Content>,
        content_encoding: Option<&str>,
    ) -> Result<(), StoreError> {
        let path = self.rewriter.rewrite(path);
        let length = content.len();
        let call = async {
            let store = self.store().await?;
            store.put(&path, content, content_encoding).await
        };
        self.observe(Operation::Put, call).await?;

        ::metrics::counter!(
            metrics::STORE_PUT_BYTES_TOTAL,
            "store" => Arc::clone(&self.url),
            "encoding" => content_encoding.unwrap_or("none").to_owned(),
        )
        .increment(length);
        Ok(())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let prefix = self.rewriter.rewrite(prefix);
        let call = async { self.store().await?.list(&prefix).await };
        let listed = self.observe(Operation::List, call).await?;

        #[expect(
            clippy::cast_precision_loss,
            reason = "a count of objects is far below 2^52"
        )]
        ::metrics::histogram!(metrics::STORE_LIST_ITEMS_COUNT, "store" => Arc::clone(&self.url))
            .record(listed.len() as f64);
        Ok(listed)
    }

    async fn remove(&self, path: &str) -> Result<(), StoreError> {
        let path = self.rewriter.rewrite(path);
        let call = async { self.store().await?.remove(&path).await };
        self.observe(Operation::Remove, call).await
    }

    async fn sign_get(&self, path: &str, ttl: Duration) -> Result<String, StoreError> {
        let path = self.rewriter.rewrite(path);
        let call = async { self.store().await?.sign_get(&path, ttl).await };
        self.observe(Operation::SignGet, call).await
    }

    fn is_auth_error(&self, error: &StoreError) -> bool {
        match self.store.get() {
            Some(store) => store.is_auth_error(error),
            // A store that does not even open is as closed to us as one that refuses us.
            None => error.operation() == "open" || error.kind() == StoreErrorKind::Denied,
        }
    }
}

async fn within_budget(
    operation: &'static str,
    url: &str,
    check: impl Future<Output = Result<(), StoreError>>,
) -> Result<(), StoreError> {
    match tokio::time::timeout(health::CHECK_BUDGET, check).await {
        Ok(result) => result,
        Err(_elapsed) => Err(StoreError::new(
            StoreErrorKind::Retry,
            operation,
            format!("store {url}"),
            format!("no end after {} seconds", health::CHECK_BUDGET.as_secs()),
        )),
    }
}

#[cfg(test)]
mod tests;
