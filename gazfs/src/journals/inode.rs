//! What is known about one journal.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use gazette_protocol::{JournalSpec, list_response};
use tokio::sync::watch;

use super::{coverage::Coverage, error::Cause, tree::Ino};

/// One journal of one creation. A journal that is made again under the same name is another.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) ino: Ino,
    pub(super) name: String,
    pub(super) create_revision: i64,
    listed: Mutex<Arc<list_response::Journal>>,
    is_stale: AtomicBool,
    known: Mutex<Known>,
    /// Appends that were accepted, and those of them that have ended.
    accepted: AtomicU64,
    ended: watch::Sender<u64>,
}

/// What brokers said, and when.
#[derive(Debug, Clone)]
struct Known {
    /// The write head, if anybody said it. It never goes back.
    head: Option<i64>,
    /// The offset that is shown as the beginning of the file.
    origin: Option<i64>,
    mtime: SystemTime,
    /// When the write head was last seen to be another than before.
    grown: Option<Instant>,
    coverage: Option<(Instant, Arc<Coverage>)>,
    /// At this revision the journal was still the one that was created at `create_revision`.
    verified: i64,
}

impl Inode {
    pub(super) fn new(ino: Ino, listed: list_response::Journal, now: SystemTime) -> Self {
        let known = Known {
            head: None,
            origin: None,
            mtime: now,
            grown: None,
            coverage: None,
            verified: listed.create_revision,
        };
        Self {
            ino,
            name: listed.spec.name.clone(),
            create_revision: listed.create_revision,
            listed: Mutex::new(Arc::new(listed)),
            is_stale: AtomicBool::new(false),
            known: Mutex::new(known),
            accepted: AtomicU64::new(0),
            ended: watch::Sender::new(0),
        }
    }

    /// The journal as it was listed last.
    pub(super) fn listed(&self) -> Arc<list_response::Journal> {
        Arc::clone(&lock(&self.listed))
    }

    /// Takes a newer listing of the same journal.
    pub(super) fn relist(&self, listed: &list_response::Journal) {
        let mut now = lock(&self.listed);
        if listed.mod_revision >= now.mod_revision {
            *now = Arc::new(listed.clone());
        }
    }

    /// The spec as it was listed last.
    pub(super) fn with_spec<T>(&self, read: impl FnOnce(&JournalSpec) -> T) -> T {
        read(&lock(&self.listed).spec)
    }

    /// Returns an error if the journal is gone.
    pub(super) fn check(&self) -> Result<(), Cause> {
        if self.is_stale.load(Ordering::Acquire) {
            Err(Cause::Stale)
        } else {
            Ok(())
        }
    }

    /// Notes that the journal is gone.
    pub(super) fn retire(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    /// The write head as far as it is known.
    pub(super) fn head(&self) -> Option<i64> {
        lock(&self.known).head
    }

    /// Takes a write head that a broker said. Returns the greatest so far: a slow replica must not
    /// make a file shrink.
    pub(super) fn observe(&self, head: i64, now: SystemTime) -> i64 {
        let mut known = lock(&self.known);
        let before = known.head.unwrap_or(-1);
        if before >= 0 && head > before {
            known.mtime = now;
            known.grown = Some(Instant::now());
        }
        let greatest = head.max(before);
        known.head = Some(greatest);
        greatest
    }

    /// Says whether nothing is being appended, as far as it is known, and nothing was for `quiet`.
    pub(super) fn is_quiet(&self, quiet: Duration) -> bool {
        let grown = lock(&self.known).grown;
        !self.has_pending() && grown.is_none_or(|grown| grown.elapsed() >= quiet)
    }

    /// The offset that is the beginning of the file, if it was fixed.
    pub(super) fn origin(&self) -> Option<i64> {
        lock(&self.known).origin
    }

    /// Fixes the beginning of the file, if it was not. Returns it.
    pub(super) fn fix_origin(&self, origin: i64) -> i64 {
        *lock(&self.known).origin.get_or_insert(origin)
    }

    /// When the file changed last, as far as it is known.
    pub(super) fn mtime(&self) -> SystemTime {
        lock(&self.known).mtime
    }

    /// Makes it look as if the file changed last at this time.
    pub(super) fn set_mtime(&self, mtime: SystemTime) {
        lock(&self.known).mtime = mtime;
    }

    /// What is stored of the journal, unless that was asked for too long ago.
    pub(super) fn coverage(&self, oldest: Instant) -> Option<Arc<Coverage>> {
        let known = lock(&self.known);
        let (at, coverage) = known.coverage.as_ref()?;
        (*at >= oldest).then(|| Arc::clone(coverage))
    }

    /// Takes what is stored of the journal.
    pub(super) fn set_coverage(&self, coverage: Arc<Coverage>, now: Instant) {
        lock(&self.known).coverage = Some((now, coverage));
    }

    /// The revision at which it was certain that the journal is still the same.
    pub(super) fn verified(&self) -> i64 {
        lock(&self.known).verified
    }

    /// Notes that the journal was still the same at a revision.
    pub(super) fn set_verified(&self, revision: i64) {
        let mut known = lock(&self.known);
        known.verified = known.verified.max(revision);
    }

    /// Counts an append that was accepted. It must be counted by [`end`](Self::end) too.
    pub(super) fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts an append that has ended, well or not.
    pub(super) fn end(&self) {
        self.ended.send_modify(|ended| *ended += 1);
    }

    /// Says whether appends are under way.
    pub(super) fn has_pending(&self) -> bool {
        *self.ended.borrow() < self.accepted.load(Ordering::Acquire)
    }

    /// Waits as [`settled`](Self::settled) does, but only as long as appends keep ending, each
    /// within `stall` of the one before.
    pub(super) async fn settled_unless_stalled(&self, stall: Duration) {
        let mut ended = self.ended.subscribe();
        while self.has_pending() {
            match tokio::time::timeout(stall, ended.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Waits until the appends that were accepted before this call have ended.
    pub(super) async fn settled(&self) {
        let accepted = self.accepted.load(Ordering::Acquire);
        let mut ended = self.ended.subscribe();
        // The sender lives as long as this inode, so it is never closed.
        let _closed = ended.wait_for(|ended| *ended >= accepted).await;
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
