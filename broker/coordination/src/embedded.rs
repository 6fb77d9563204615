//! The store inside this process: in memory, or in a `SQLite` file.

mod database;
mod file;
mod watch;

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::sync::watch as channel;

pub use database::{OpenCause, OpenError};

use crate::{
    Coordination, CoordinationError, LeaseId, RangeRequest, RangeResponse, ResponseHeader, Txn,
    TxnResponse, WatchRequest, WatchStream,
    engine::{Engine, EngineConfig, Request, Response},
};

/// Settings of an embedded store.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedOptions {
    /// Identity of a store that is created; random if `None`. An existing file keeps its own.
    pub cluster_id: Option<u64>,
    /// Greatest number of compares, and of operations, of a transaction. As etcd's default.
    pub max_txn_ops: usize,
    /// Revisions whose events are kept for watches. A watch that falls further behind fails with
    /// [`CoordinationError::Compacted`].
    pub history_revisions: usize,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            cluster_id: None,
            max_txn_ops: 128,
            history_revisions: 4096,
        }
    }
}

/// A [`Coordination`] inside this process. Clones share one store.
///
/// Leases expire by `tokio`'s clock. They are looked at with each request, and for watches when
/// they end, so no task runs in the background.
#[derive(Clone, Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backend: Backend,
    progress: channel::Sender<Progress>,
    max_txn_ops: usize,
}

#[derive(Debug)]
enum Backend {
    Memory(Mutex<Engine>),
    File(file::Worker),
}

/// What waiting watches need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    /// Latest revision that may be shown.
    revision: i64,
    next_expiry: Option<Instant>,
    closed: bool,
}

impl Progress {
    fn of(engine: &Engine) -> Self {
        let revision = engine.header().revision;
        Self {
            revision,
            next_expiry: engine.next_expiry(),
            closed: false,
        }
    }
}

impl Embedded {
    /// Creates a store that is gone when its last clone is dropped.
    pub fn in_memory() -> Self {
        Self::in_memory_with(&EmbeddedOptions::default())
    }

    /// Creates a store in memory with other settings.
    pub fn in_memory_with(options: &EmbeddedOptions) -> Self {
        let config = EngineConfig {
            cluster_id: options.cluster_id.unwrap_or_else(random_id),
            member_id: MEMBER_ID,
            raft_term: 1,
            max_txn_ops: options.max_txn_ops,
            history_revisions: options.history_revisions,
        };
        let engine = Engine::new(config, FIRST_REVISION, Vec::new());
        let (progress, _) = channel::channel(Progress::of(&engine));
        Self::new(Backend::Memory(Mutex::new(engine)), progress, options)
    }

    /// Opens the store in the file `path`, or creates it there.
    ///
    /// Each answered change is on disk before its answer. Leases of the process that had the
    /// store open before have ended, and their keys are gone. Until [`Embedded::close`], or the
    /// drop of the last clone and watch, no other process can open the file.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, EmbeddedOptions::default()).await
    }

    /// Opens a store in a file with other settings.
    pub async fn open_with(
        path: impl AsRef<Path>,
        options: EmbeddedOptions,
    ) -> Result<Self, OpenError> {
        let (worker, progress) = file::Worker::start(path.as_ref(), options).await?;
        Ok(Self::new(Backend::File(worker), progress, &options))
    }

    fn new(
        backend: Backend,
        progress: channel::Sender<Progress>,
        options: &EmbeddedOptions,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                backend,
                progress,
                max_txn_ops: options.max_txn_ops,
            }),
        }
    }

    /// Ends the store for all its clones and watches: what they ask from now on fails with
    /// [`CoordinationError::Closed`]. The file may be opened again when this returns.
    pub async fn close(&self) {
        self.shared
            .progress
            .send_modify(|progress| progress.closed = true);
        if let Backend::File(worker) = &self.shared.backend {
            worker.close().await;
        }
    }

    /// The header of an answer given now.
    pub async fn header(&self) -> Result<ResponseHeader, CoordinationError> {
        let request = RangeRequest {
            count_only: true,
            ..RangeRequest::key("\0")
        };
        Ok(self.range(request).await?.header)
    }
}

impl Shared {
    async fn call(&self, request: Request) -> Result<Response, CoordinationError> {
        if self.progress.borrow().closed {
            return Err(CoordinationError::Closed);
        }
        let now = tokio::time::Instant::now().into_std();
        match &self.backend {
            Backend::Memory(engine) => {
                let mut engine = engine.lock().expect("the engine does not panic");
                let response = engine.handle(now, request);
                engine.commit();
                publish(&self.progress, &engine);
                response
            }
            Backend::File(worker) => worker.call(now, request).await,
        }
    }
}

/// Wakes watches, if there is something new for them.
fn publish(progress: &channel::Sender<Progress>, engine: &Engine) {
    progress.send_if_modified(|progress| {
        let next = Progress {
            closed: progress.closed,
            ..Progress::of(engine)
        };
        let changed = *progress != next;
        *progress = next;
        changed
    });
}

fn random_id() -> u64 {
    rand::random::<u64>().max(1)
}

#[async_trait]
impl Coordination for Embedded {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CoordinationError> {
        let Response::Range(response) = self.shared.call(Request::Range(request)).await? else {
            unreachable!("another answer to a range");
        };
        Ok(response)
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResponse, CoordinationError> {
        let Response::Txn(response) = self.shared.call(Request::Txn(txn)).await? else {
            unreachable!("another answer to a transaction");
        };
        Ok(response)
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream, CoordinationError> {
        let watch = watch::EmbeddedWatch::start(Arc::clone(&self.shared), request).await?;
        Ok(Box::new(watch))
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<LeaseId, CoordinationError> {
        let Response::Granted(lease) = self.shared.call(Request::Grant { ttl }).await? else {
            unreachable!("another answer to a grant");
        };
        Ok(lease)
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, CoordinationError> {
        let Response::KeptAlive(ttl) = self.shared.call(Request::KeepAlive { lease }).await? else {
            unreachable!("another answer to a keep-alive");
        };
        Ok(ttl)
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), CoordinationError> {
        self.shared.call(Request::Revoke { lease }).await.map(drop)
    }

    async fn compact(&self, revision: i64) -> Result<(), CoordinationError> {
        self.shared
            .call(Request::Compact { revision })
            .await
            .map(drop)
    }

    fn max_txn_ops(&self) -> usize {
        self.shared.max_txn_ops
    }
}

/// The only member of an embedded store.
const MEMBER_ID: u64 = 1;

/// Revision of an empty store, as etcd's.
const FIRST_REVISION: i64 = 1;
