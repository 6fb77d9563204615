use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Notify;

use crate::{
    ActiveStore, FileStore, Rewriter, Store, StoreError, StoreErrorKind, StoreUrl, metrics,
    next_check,
};

/// The stores that a process uses: one handle for each URL.
#[derive(Debug)]
pub struct Stores {
    config: Arc<StoreConfig>,
    active: Mutex<BTreeMap<String, Entry>>,
    /// Rung when a store is added, so that its health is looked after.
    added: Notify,
}

/// Says which stores a process can open.
#[derive(Debug, Default)]
pub struct StoreConfig {
    /// Folder below which `file` stores are.
    pub file_root: Option<PathBuf>,
    /// Takes every store to be `file:///`, whatever its scheme, bucket and path.
    pub file_only: bool,
    /// Opens stores of further schemes.
    pub openers: BTreeMap<String, Arc<dyn StoreOpener>>,
}

/// Opens the stores of one scheme.
#[async_trait]
pub trait StoreOpener: Send + Sync + fmt::Debug {
    /// Opens the store that `url` names. It is called again after it failed.
    async fn open(&self, url: &StoreUrl) -> Result<Arc<dyn Store>, StoreError>;
}

#[derive(Debug)]
struct Entry {
    store: Arc<ActiveStore>,
    /// It was asked for since the last sweep.
    is_marked: bool,
}

impl Stores {
    /// Makes a registry without any store.
    pub fn new(config: StoreConfig) -> Self {
        Self {
            config: Arc::new(config),
            active: Mutex::default(),
            added: Notify::new(),
        }
    }

    /// Returns the store of `url`, always the same one while anybody holds it.
    ///
    /// This cannot fail: calls of a store that cannot be opened say why.
    pub fn get(&self, url: &str) -> Arc<ActiveStore> {
        let mut active = self.active();
        if let Some(entry) = active.get_mut(url) {
            entry.is_marked = true;
            return Arc::clone(&entry.store);
        }
        let open = OpenStore::Lazy {
            config: Arc::clone(&self.config),
            url: StoreUrl::parse(url),
        };
        self.add(&mut active, url, open)
    }

    /// Uses `store` for `url` from now on. This is how a store comes in that no URL can name.
    pub fn insert(&self, url: &str, store: Arc<dyn Store>) -> Arc<ActiveStore> {
        self.add(&mut self.active(), url, OpenStore::Ready(store))
    }

    /// Forgets the stores that nobody holds and nobody asked for since the last sweep, and returns how many.
    pub fn sweep(&self) -> usize {
        let mut active = self.active();
        let before = active.len();
        active.retain(|_, entry| {
            // Handles are only made under this lock, so one that only the registry holds stays so.
            let is_held = Arc::strong_count(&entry.store) > 1;
            std::mem::take(&mut entry.is_marked) || is_held
        });
        publish_active(active.len());
        before - active.len()
    }

    /// Looks after the health of all stores, and sweeps once an hour. It runs until it is dropped.
    ///
    /// `seed` gives the jitter of the checks.
    pub async fn run(&self, seed: u64) {
        let mut seeds = StdRng::seed_from_u64(seed);
        let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
        sweeps.tick().await; // The first one comes at once, when there is nothing to sweep.

        let mut checks = FuturesUnordered::new();
        let mut checked: BTreeMap<String, Weak<ActiveStore>> = BTreeMap::new();
        loop {
            for (url, entry) in self.active().iter() {
                let store = Arc::downgrade(&entry.store);
                let is_known = checked.get(url).is_some_and(|known| known.ptr_eq(&store));
                if !is_known {
                    checked.insert(url.clone(), Weak::clone(&store));
                    checks.push(check_regularly(store, StdRng::from_rng(&mut seeds)));
                }
            }
            tokio::select! {
                biased;
                () = self.added.notified() => {}
                _ = sweeps.tick() => {
                    self.sweep();
                    checked.retain(|_, store| store.strong_count() > 0);
                }
                Some(()) = checks.next(), if !checks.is_empty() => {}
            }
        }
    }

    fn add(
        &self,
        active: &mut BTreeMap<String, Entry>,
        url: &str,
        open: OpenStore,
    ) -> Arc<ActiveStore> {
        let rewriter =
            StoreUrl::parse(url).map_or_else(|_| Rewriter::default(), |url| url.rewriter().clone());
        let store = Arc::new(ActiveStore::new(url, rewriter, open));
        let entry = Entry {
            store: Arc::clone(&store),
            is_marked: true,
        };
        active.insert(url.to_owned(), entry);
        publish_active(active.len());
        self.added.notify_one();
        store
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        // Nothing under the lock leaves the map half changed.
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks one store until nobody uses it any more.
async fn check_regularly(store: Weak<ActiveStore>, mut rng: StdRng) {
    let mut failures = 0;
    loop {
        // Held only during the check, so that it can be swept in between.
        let Some(held) = store.upgrade() else { return };
        match held.check_health().await {
            Ok(()) if failures > 0 => {
                tracing::info!(store = held.url(), failures, "store is healthy again");
                failures = 0;
            }
            Ok(()) => {}
            Err(error) => {
                failures += 1;
                tracing::warn!(store = held.url(), failures, %error, "store is not healthy");
            }
        }
        drop(held);
        tokio::time::sleep(next_check(failures, rng.random_range(-1.0..=1.0))).await;
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a count of stores is far below 2^52"
)]
fn publish_active(count: usize) {
    ::metrics::gauge!(metrics::STORE_ACTIVE).set(count as f64);
}

/// What it takes to open a store, now or later.
#[derive(Debug)]
pub(crate) enum OpenStore {
    Ready(Arc<dyn Store>),
    Lazy {
        config: Arc<StoreConfig>,
        url: Result<StoreUrl, StoreError>,
    },
}

impl OpenStore {
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        let (config, url) = match self {
            Self::Ready(store) => return Ok(Arc::clone(store)),
            Self::Lazy { config, url } => (config, url.as_ref().map_err(StoreError::clone)?),
        };
        if config.file_only {
            // Arguments of the scheme that it stands for mean nothing here.
            return open_file(config, url, "/").await;
        }
        if let Some(opener) = config.openers.get(url.scheme()) {
            return opener.open(url).await;
        }
        if url.scheme() == "file" {
            url.arguments(&[])?;
            return open_file(config, url, url.path()).await;
        }
        let cause = format!("this process opens no stores of scheme {:?}", url.scheme());
        Err(cannot_open(url, cause).with_next("use a file:/// store, or serve file stores only"))
    }
}

async fn open_file(
    config: &StoreConfig,
    url: &StoreUrl,
    path: &str,
) -> Result<Arc<dyn Store>, StoreError> {
    let Some(root) = &config.file_root else {
        let cause = "this process has no folder for file stores";
        return Err(cannot_open(url, cause).with_next("start it with a file root"));
    };
    let store = FileStore::open(url.as_str(), root, path).await?;
    Ok(Arc::new(store))
}

fn cannot_open(url: &StoreUrl, cause: impl Into<String>) -> StoreError {
    let object = format!("store {}", url.as_str());
    StoreError::new(StoreErrorKind::Invalid, "open", object, cause)
}

/// Time after which a store that nobody uses is forgotten, at least.
const SWEEP_INTERVAL: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests;
