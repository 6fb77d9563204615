//! Uploads what replicas have closed, as the schedule says.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use gazette_journal::fragment::{
    persist::{Output, PersistId, PersistSchedule, Role, Settled, Tried},
    spool::Completed,
};
use gazette_process::TaskGroup;
use gazette_stores::{StoreErrorKind, Stores};
use gazette_wal::SpoolFile;
use tokio::{sync::mpsc, time::sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::SPOOL_PERSISTED_TOTAL,
    replica::Replica,
    storage::{UploadError, upload},
};

/// A fragment that was closed, is in the log, and was acknowledged.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) replica: Arc<Replica>,
    pub(crate) completed: Completed,
    pub(crate) file: SpoolFile,
    pub(crate) is_primary: bool,
}

/// Queues fragments for their stores. A clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct Persister {
    events: mpsc::UnboundedSender<Event>,
}

/// The task behind a [`Persister`].
#[derive(Debug)]
pub(crate) struct PersisterTask {
    events: mpsc::UnboundedReceiver<Event>,
    sender: mpsc::WeakUnboundedSender<Event>,
    stores: Arc<Stores>,
    scratch: PathBuf,
    tasks: TaskGroup,
    schedule: PersistSchedule,
    items: BTreeMap<PersistId, Item>,
}

#[derive(Debug)]
enum Event {
    Finished(Box<Finished>),
    Tried(PersistId, Tried),
    Wake,
}

#[derive(Debug, Clone)]
struct Item {
    replica: Arc<Replica>,
    file: SpoolFile,
}

impl Persister {
    /// Makes a persister, and the task that must run for it.
    pub(crate) fn new(
        stores: Arc<Stores>,
        scratch: PathBuf,
        tasks: TaskGroup,
    ) -> (Self, PersisterTask) {
        let (events, receiver) = mpsc::unbounded_channel();
        let task = PersisterTask {
            events: receiver,
            sender: events.downgrade(),
            stores,
            scratch,
            tasks,
            schedule: PersistSchedule::new(),
            items: BTreeMap::new(),
        };
        (Self { events }, task)
    }

    /// Stores a fragment. It is tried until it is stored, or its journal is gone.
    pub(crate) fn queue(&self, finished: Finished) {
        // A broker that ends keeps it in its log, and stores it after its next start.
        drop(self.events.send(Event::Finished(Box::new(finished))));
    }

    /// Something changed that may let a try succeed.
    pub(crate) fn wake(&self) {
        drop(self.events.send(Event::Wake));
    }
}

impl PersisterTask {
    /// Runs until `stop`; then what is under way has `grace` to end.
    pub(crate) async fn run(mut self, stop: CancellationToken, grace: Duration) {
        let mut exits = false;
        loop {
            let now = tokio::time::Instant::now();
            while let Some(output) = self.schedule.poll_output(now.into_std()) {
                self.perform(output);
            }
            if exits && self.schedule.is_empty() {
                return;
            }
            let next = self
                .schedule
                .next_timeout()
                .map(tokio::time::Instant::from_std);
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(event) => self.handle(event),
                    None => return,
                },
                () = stop.cancelled(), if !exits => {
                    exits = true;
                    let now = now.into_std();
                    self.schedule.handle_exit(now, now + grace);
                }
                () = at(next) => {}
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let now = tokio::time::Instant::now().into_std();
        match event {
            Event::Finished(finished) => {
                let Finished {
                    replica,
                    completed,
                    file,
                    is_primary,
                } = *finished;
                let role = if is_primary {
                    Role::Primary
                } else {
                    Role::Replica
                };
                let end = completed.fragment.end;
                let id = self.schedule.handle_completed(now, completed, role, end);
                self.items.insert(id, Item { replica, file });
            }
            Event::Tried(id, tried) => self.schedule.handle_tried(now, id, tried),
            Event::Wake => self.schedule.handle_wake(now),
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Try {
                id,
                completed,
                store,
            } => self.start(id, *completed, store),
            Output::Settled { id, settled, .. } => {
                let Some(item) = self.items.remove(&id) else {
                    return;
                };
                match settled {
                    Settled::Stored => {
                        ::metrics::counter!(SPOOL_PERSISTED_TOTAL).increment(1);
                        item.replica.stored();
                    }
                    Settled::Dropped => {
                        // The replica forgets all of its spools with its journal.
                    }
                    Settled::Kept => {
                        tracing::info!(
                            journal = item.replica.name(),
                            "a fragment stays on this disk, to be stored after the next start"
                        );
                    }
                }
            }
        }
    }

    fn start(&self, id: PersistId, completed: Completed, store: usize) {
        let Some(item) = self.items.get(&id).cloned() else {
            return;
        };
        let Some(events) = self.sender.upgrade() else {
            return;
        };
        let stores = Arc::clone(&self.stores);
        let scratch = self.scratch.clone();
        self.tasks.spawn("store a fragment", async move {
            let tried = try_once(&stores, &scratch, &item, &completed, store).await;
            drop(events.send(Event::Tried(id, tried)));
            Ok(())
        });
    }
}

async fn try_once(
    stores: &Stores,
    scratch: &std::path::Path,
    item: &Item,
    completed: &Completed,
    store: usize,
) -> Tried {
    let _uploading = item.replica.uploading().await;
    let Some(spec) = item.replica.spec() else {
        return Tried::NoJournal;
    };
    let Some(url) = spec.fragment.stores.get(store) else {
        return Tried::NoStore;
    };
    let store = stores.get(url);
    match upload(&store, &spec, completed, &item.file, scratch).await {
        Ok(stored) => {
            tracing::debug!(
                journal = spec.name,
                path = stored.content_path(),
                "stored a fragment"
            );
            Tried::Stored
        }
        Err(error) => {
            tracing::warn!(journal = spec.name, store = url, err = %error, "cannot store a fragment");
            let is_denied = matches!(
                &error,
                UploadError::Store(error) if error.kind() == StoreErrorKind::Denied
            );
            if is_denied {
                Tried::Denied
            } else {
                Tried::Failed
            }
        }
    }
}

/// Sleeps until then; for ever if there is no such time.
async fn at(until: Option<tokio::time::Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
