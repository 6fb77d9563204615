//! What the handles, the writer and its helpers share.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use gazette_protocol::LabelSet;
use tokio::sync::{oneshot, watch};

use crate::{
    error::{Failure, LogError},
    format::payload::{Frame, Identity},
    ledger::Committed,
    pool::Pool,
    spool::{SpoolFile, SpoolFolder, lock},
};

/// One call of a [`JournalLog`](crate::JournalLog), on its way into the log.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) change: Change,
    pub(crate) waiter: Waiter,
}

/// Who waits for an entry.
pub(crate) type Waiter = oneshot::Sender<Result<(), LogError>>;

/// What an entry does.
#[derive(Debug)]
pub(crate) enum Change {
    Commit {
        frame: Frame,
        committed: Committed,
        spool: SpoolFile,
    },
    Roll {
        journal: Arc<Identity>,
        completed: Option<u64>,
        next_begin: i64,
        registers: Arc<LabelSet>,
    },
    DropSpool {
        frame: Frame,
        journal_id: u64,
        spool: SpoolFile,
    },
    Forget {
        frame: Frame,
        journal_id: u64,
    },
}

/// What a helper tells the writer.
#[derive(Debug)]
pub(crate) enum Event {
    /// A part of the spools that were to be synced is.
    SpoolsSynced,
    /// A segment file is made, or could not be.
    SegmentMade(PathBuf, io::Result<()>),
}

/// What waits for the writer.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    pub(crate) entries: Vec<Entry>,
    pub(crate) events: Vec<Event>,
}

#[derive(Debug, Default)]
struct Queue {
    intake: Intake,
    /// The writer waits for something to do.
    sleeping: bool,
    /// There is another reason to wake up.
    nudged: bool,
}

/// What the handles, the writer and its helpers share.
#[derive(Debug)]
pub(crate) struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    pub(crate) pool: Pool,
    pub(crate) folder: Arc<SpoolFolder>,
    failed: watch::Sender<Option<Failure>>,
    /// Whether `failed` has a value.
    broken: AtomicBool,
    closing: AtomicBool,
    /// Entries that were admitted and not answered.
    pending: AtomicUsize,
    next_id: AtomicU64,
}

impl Shared {
    pub(crate) fn new(folder: Arc<SpoolFolder>, next_id: u64) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            wake: Condvar::new(),
            pool: Pool::default(),
            folder,
            failed: watch::Sender::new(None),
            broken: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            pending: AtomicUsize::new(0),
            next_id: AtomicU64::new(next_id),
        })
    }

    /// A number for a journal or a spool.
    pub(crate) fn take_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The next number that will be taken.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Whether an entry may enter. It must be answered then, through [`Self::answer`].
    pub(crate) fn admit(&self) -> Result<(), LogError> {
        if self.is_broken() {
            return Err(self.failure());
        }
        // Before the flag is looked at: either this sees that the log closes, or who closes sees
        // that there is one more.
        self.pending.fetch_add(1, Ordering::SeqCst);
        if self.closing.load(Ordering::SeqCst) {
            self.answered(1);
            return Err(LogError::Closed);
        }
        Ok(())
    }

    /// Answers entries that were admitted.
    pub(crate) fn answer(
        &self,
        waiters: impl IntoIterator<Item = Waiter>,
        result: &Result<(), LogError>,
    ) {
        let mut count = 0;
        for waiter in waiters {
            // Whoever does not wait any more does not want to know.
            drop(waiter.send(result.clone()));
            count += 1;
        }
        self.answered(count);
    }

    fn answered(&self, count: usize) {
        let before = self.pending.fetch_sub(count, Ordering::SeqCst);
        if before == count && self.closing.load(Ordering::SeqCst) {
            self.nudge();
        }
    }

    /// Hands admitted entries to the writer, in order.
    pub(crate) fn push(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut queue = lock(&self.queue);
        queue.intake.entries.extend(entries);
        self.wake(queue);
    }

    /// Tells the writer.
    pub(crate) fn tell(&self, event: Event) {
        let mut queue = lock(&self.queue);
        queue.intake.events.push(event);
        self.wake(queue);
    }

    fn nudge(&self) {
        let mut queue = lock(&self.queue);
        queue.nudged = true;
        self.wake(queue);
    }

    fn wake(&self, mut queue: std::sync::MutexGuard<'_, Queue>) {
        if std::mem::take(&mut queue.sleeping) {
            drop(queue);
            self.wake.notify_one();
        }
    }

    /// Takes what waits for the writer, after it waited until there is something, or as long as
    /// `at_most` says.
    pub(crate) fn take(&self, into: &mut Intake, at_most: Duration) {
        let mut queue = lock(&self.queue);
        let nothing = queue.intake.entries.is_empty() && queue.intake.events.is_empty();
        if nothing && !queue.nudged && !at_most.is_zero() {
            queue.sleeping = true;
            queue = self
                .wake
                .wait_timeout_while(queue, at_most, |queue| queue.sleeping)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            queue.sleeping = false;
        }
        queue.nudged = false;
        into.entries.append(&mut queue.intake.entries);
        into.events.append(&mut queue.intake.events);
    }

    /// Breaks the log: nothing is acknowledged from here on.
    pub(crate) fn fail(&self, operation: &'static str, path: PathBuf, source: io::Error) {
        let failure = Failure {
            operation,
            path,
            source: Arc::new(source),
        };
        let mut first = false;
        self.failed.send_if_modified(|failed| {
            first = failed.is_none();
            if first {
                tracing::error!(err = %failure, "write-ahead log broke");
                *failed = Some(failure);
            }
            first
        });
        self.broken.store(true, Ordering::SeqCst);
        self.nudge();
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    /// The answer to all entries of a broken log.
    pub(crate) fn failure(&self) -> LogError {
        self.failed
            .borrow()
            .clone()
            .map_or(LogError::Closed, LogError::Failed)
    }

    pub(crate) fn failed(&self) -> watch::Receiver<Option<Failure>> {
        self.failed.subscribe()
    }

    /// Admits nothing from here on.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.nudge();
    }

    /// Whether nothing was admitted that is not answered, and nothing will be.
    pub(crate) fn is_finished(&self) -> bool {
        self.closing.load(Ordering::SeqCst) && self.pending.load(Ordering::SeqCst) == 0
    }
}
