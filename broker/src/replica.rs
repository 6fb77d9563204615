//! One replica of one journal: its spool, its pipeline, its index, and the tasks that care for it.

mod begin;
mod care;
mod lines;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gazette_allocator::{Brokers, Decoded, Keys, State};
use gazette_journal::{
    append::fsm::Held,
    fragment::{Index, index::Summary, spool::Completed},
    pipeline::{LocalFailure, Ticket},
};
use gazette_keyspace::Mirror;
use gazette_process::TaskGroup;
use gazette_protocol::{Fragment, JournalSpec};
use gazette_stores::Stores;
use gazette_wal::{Ack, JournalLog, Log, LogError, RecoveredJournal, SpoolFile};
use tokio::sync::{Notify, OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use lines::{Lines, Outcome};

use crate::persister::{Finished, Persister};

/// What all replicas of a broker share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) specs: Specs,
    pub(crate) stores: Arc<Stores>,
    pub(crate) persister: Persister,
    pub(crate) tasks: TaskGroup,
    /// Spools that are read whole at the same time, when a broker starts.
    pub(crate) verifying: Arc<tokio::sync::Semaphore>,
    /// Appends nothing to a journal, so that it synchronises and rolls without its clients.
    pub(crate) pulse: Arc<std::sync::OnceLock<Pulse>>,
}

/// See [`Context::pulse`].
pub(crate) type Pulse =
    Box<dyn Fn(String) -> futures_util::future::BoxFuture<'static, ()> + Send + Sync>;

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

/// The specs of journals, as the coordination store has them now.
#[derive(Clone)]
pub(crate) struct Specs {
    pub(crate) mirror: Mirror<Decoded<Brokers>>,
    pub(crate) keys: Keys,
}

impl Specs {
    /// The spec of an incarnation of a journal, if that is still the present one.
    pub(crate) fn get(&self, journal: &str, create_revision: i64) -> Option<JournalSpec> {
        let space = self.mirror.read();
        let item = State::new(&self.keys, &space).item(journal)?;
        (item.raw().create_revision == create_revision).then(|| item.decoded.spec.clone())
    }

    /// Whether a name is that of a journal.
    pub(crate) fn is_journal(&self, name: &str) -> bool {
        State::new(&self.keys, &self.mirror.read())
            .item(name)
            .is_some()
    }
}

/// How far a replica is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// What the log held of it is being verified.
    Starting,
    /// It serves.
    Serving,
    /// It cannot serve, for this reason.
    Failed(String),
}

/// What one append at a time holds, from its turn until it has released it.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The spool and its flow control. `None` while the append machine has them.
    pub(crate) held: Option<Box<Held>>,
    /// The file of the spool's present fragment.
    pub(crate) file: SpoolFile,
}

/// The guard of a turn. There is no turn while the replica starts, or when it failed.
pub(crate) type TurnGuard = OwnedMutexGuard<Option<Turn>>;

/// A replica of one incarnation of a journal.
#[derive(Debug)]
pub(crate) struct Replica {
    name: String,
    create_revision: i64,
    context: Context,
    log: JournalLog,
    index: Mutex<Index<SpoolFile>>,
    /// Counts changes of the index.
    index_version: watch::Sender<u64>,
    turn: Arc<tokio::sync::Mutex<Option<Turn>>>,
    lines: Mutex<Lines>,
    /// Rung when the lines changed, for those who wait for a pipeline to end.
    lines_changed: Notify,
    /// Counts changes of the journal's assignments.
    assignments: watch::Sender<u64>,
    phase: watch::Sender<Phase>,
    /// Why the last listing of the stores failed, if it did.
    listing_error: Mutex<Option<String>>,
    /// Asks for a listing of the stores now.
    refresh: Notify,
    /// Asks for a pulse now.
    pulse: Notify,
    stop: CancellationToken,
    ended: watch::Sender<bool>,
    /// Held, shared, by each upload.
    uploads: tokio::sync::RwLock<()>,
}

impl Replica {
    /// Makes a replica and the task that cares for it. `recovered` is what the log has of it.
    pub(crate) fn start(
        context: Context,
        log: &Log,
        name: &str,
        create_revision: i64,
        recovered: Option<RecoveredJournal>,
    ) -> Arc<Self> {
        let log = match &recovered {
            Some(recovered) => recovered.journal.clone(),
            None => log.open_journal(name, create_revision),
        };
        let turn = Arc::new(tokio::sync::Mutex::new(None));
        let guard = Arc::clone(&turn)
            .try_lock_owned()
            .expect("nobody else has it yet");
        let replica = Arc::new(Self {
            name: name.to_owned(),
            create_revision,
            log,
            index: Mutex::new(Index::new()),
            index_version: watch::Sender::new(0),
            turn,
            lines: Mutex::new(Lines::default()),
            lines_changed: Notify::new(),
            assignments: watch::Sender::new(0),
            phase: watch::Sender::new(Phase::Starting),
            listing_error: Mutex::new(None),
            refresh: Notify::new(),
            pulse: Notify::new(),
            stop: context.tasks.token().child_token(),
            ended: watch::Sender::new(false),
            uploads: tokio::sync::RwLock::new(()),
            context,
        });
        let task = Arc::clone(&replica);
        replica.context.tasks.spawn("replica", async move {
            task.begin(guard, recovered).await;
            task.care().await;
            Ok(())
        });
        replica
    }

    /// Name of the journal.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Revision at which this incarnation of the journal was created.
    pub(crate) fn create_revision(&self) -> i64 {
        self.create_revision
    }

    /// Its part of the write-ahead log.
    pub(crate) fn log(&self) -> &JournalLog {
        &self.log
    }

    /// The present spec.
    pub(crate) fn spec(&self) -> Option<JournalSpec> {
        self.context.specs.get(&self.name, self.create_revision)
    }

    /// The index, locked.
    pub(crate) fn index(&self) -> MutexGuard<'_, Index<SpoolFile>> {
        lock(&self.index)
    }

    /// Tells when the index changed.
    pub(crate) fn index_changes(&self) -> watch::Receiver<u64> {
        self.index_version.subscribe()
    }

    /// The extent of the index.
    pub(crate) fn summary(&self) -> Summary {
        self.index().summary()
    }

    /// Tells of the replica's phase.
    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Why the last listing of the stores failed.
    pub(crate) fn listing_error(&self) -> Option<String> {
        lock(&self.listing_error).clone()
    }

    /// Tells when an assignment of the journal changed.
    pub(crate) fn assignment_changes(&self) -> watch::Receiver<u64> {
        self.assignments.subscribe()
    }

    /// Cancelled when the replica is not served any more.
    pub(crate) fn stopped(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The assignments changed.
    pub(crate) fn invalidate(&self) {
        self.assignments.send_modify(|count| *count += 1);
        self.pulse.notify_one();
    }

    /// The spec may have changed.
    pub(crate) fn spec_changed(&self) {
        // Its stores may be others now; whatever waits to be stored goes to the new ones.
        self.refresh.notify_one();
        self.context.persister.wake();
    }

    /// Waits for this append's turn.
    pub(crate) async fn acquire(&self) -> TurnGuard {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// The lines to the other replicas, locked.
    pub(crate) fn lines(&self) -> MutexGuard<'_, Lines> {
        lock(&self.lines)
    }

    /// Waits until something about the lines changed. Enable it before looking at them.
    pub(crate) fn lines_changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.lines_changed.notified()
    }

    /// Does what the pipeline asks for after each of its changes: publishes what all have.
    ///
    /// The index follows while the lines are locked, so that it never goes back to a shorter
    /// extent; and before those who wait hear of it, so that they read what they appended.
    pub(crate) fn follow_lines(&self, mut lines: MutexGuard<'_, Lines>) {
        let mut drained = lines.drain();
        let published = std::mem::take(&mut drained.published);
        if !published.is_empty() {
            let mut index = self.index();
            for (fragment, file) in published {
                index.commit_local(fragment, file);
            }
            drop(index);
            self.index_version.send_modify(|version| *version += 1);
        }
        drop(lines);
        drained.tell();
        self.lines_changed.notify_waiters();
    }

    /// This replica has, or has not, made a round of its pipeline durable.
    pub(crate) fn durable(&self, ticket: Ticket, result: &Result<(), LogError>) {
        let result = result.as_ref().copied().map_err(|error| {
            tracing::error!(journal = self.name, err = %error, "cannot record an append");
            LocalFailure::Disk
        });
        let mut lines = self.lines();
        if let Ok(pipeline) = lines.pipeline() {
            pipeline.handle_durable(ticket, result);
        }
        self.follow_lines(lines);
    }

    /// A fragment was closed. It is stored once its roll is in the log and all replicas have it.
    pub(crate) fn completed(self: &Arc<Self>, completed: Completed, file: SpoolFile, rolled: Ack) {
        let replica = Arc::clone(self);
        self.context.tasks.spawn("close a fragment", async move {
            if rolled.await.is_err() {
                // The log broke, and with it the broker ends.
                return Ok(());
            }
            let end = completed.fragment.end;
            loop {
                let changed = replica.lines_changed();
                if replica.lines().acknowledged() >= end {
                    break;
                }
                tokio::select! {
                    biased;
                    () = replica.stop.cancelled() => break,
                    () = changed => {}
                }
            }
            replica.persist(completed, file);
            Ok(())
        });
    }

    /// Queues a closed fragment for its store.
    fn persist(self: &Arc<Self>, completed: Completed, file: SpoolFile) {
        let is_primary = true;
        self.context.persister.queue(Finished {
            replica: Arc::clone(self),
            completed,
            file,
            is_primary,
        });
    }

    /// A fragment is in its store now, or need not be.
    pub(crate) fn stored(&self) {
        self.refresh.notify_one();
    }

    /// The stores hold something else than the last listing said.
    pub(crate) fn list_soon(&self) {
        self.refresh.notify_one();
    }

    /// Drops what the listing covers from disk.
    fn drop_spools(&self, covered: Vec<(Fragment, SpoolFile)>) {
        let mut lines = self.lines();
        for (fragment, file) in covered {
            // One that still grows is needed, whatever a store claims to have.
            if lines.is_present(fragment.begin) {
                continue;
            }
            lines.forget_file(fragment.begin);
            // The log syncs that it is dropped, and removes the file then.
            drop(self.log.drop_spool(&file));
        }
    }

    /// Ends the replica: its incarnation of the journal is deleted.
    pub(crate) fn retire(self: &Arc<Self>) {
        self.stop.cancel();
        self.invalidate();
        let replica = Arc::clone(self);
        self.context.tasks.spawn("retire a replica", async move {
            replica.wind_down().await;
            replica.ended.send_replace(true);
            Ok(())
        });
    }

    /// Holds off the end of the replica for as long as an upload needs it.
    pub(crate) async fn uploading(&self) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.uploads.read().await
    }

    /// Ends the replica as the broker ends. Its spools stay in the log.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Whether nothing of the replica runs any more.
    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until nothing of the replica runs any more.
    pub(crate) async fn ended(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives as long as the replica.
        drop(ended.wait_for(|ended| *ended).await);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
