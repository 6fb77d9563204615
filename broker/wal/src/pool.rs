//! Helpers of the writer: threads for what may take long and must not hold up the commits.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    journal::JournalLog,
    shared::{Event, Shared, Waiter},
    spool::{SpoolFile, lock},
};

/// Threads. Syncs mostly wait, and a file system merges those that run side by side.
pub(crate) const THREADS: usize = 8;

/// Threads that leave background jobs alone, so that an append never waits behind them.
pub(crate) const URGENT_THREADS: usize = 3;

/// A file that is not used for this long, twice at most, is closed.
const IDLE: Duration = Duration::from_secs(5);

/// Something for a helper.
#[derive(Debug)]
pub(crate) enum Job {
    /// Sync the spools of appends that wait in a journal.
    SyncJournal(JournalLog),
    /// Sync spools, so that a segment can be used again.
    SyncSpools(Vec<SpoolFile>),
    /// Remove dropped spools, and answer then.
    Unlink(Vec<SpoolFile>, Waiter),
    /// Make a segment file.
    MakeSegment { path: PathBuf, length: u64 },
}

#[derive(Debug, Default)]
struct Jobs {
    urgent: VecDeque<Job>,
    background: VecDeque<Job>,
    /// When to look for idle files; nothing while somebody does.
    idle_at: Option<Instant>,
    closed: bool,
}

/// The jobs that wait.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    jobs: Mutex<Jobs>,
    wake_urgent: Condvar,
    wake_other: Condvar,
}

impl Pool {
    /// Adds a job for which an append waits.
    pub(crate) fn urgent(&self, job: Job) {
        lock(&self.jobs).urgent.push_back(job);
        // Whoever comes first does it.
        self.wake_urgent.notify_one();
        self.wake_other.notify_one();
    }

    /// Adds a job that can wait a little.
    pub(crate) fn background(&self, job: Job) {
        lock(&self.jobs).background.push_back(job);
        self.wake_other.notify_one();
    }

    /// Ends the threads when there are no more jobs.
    pub(crate) fn close(&self) {
        lock(&self.jobs).closed = true;
        self.wake_urgent.notify_all();
        self.wake_other.notify_all();
    }

    /// Takes a job, if there is one.
    pub(crate) fn try_take(&self, urgent_only: bool) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        let job = jobs.urgent.pop_front();
        job.or_else(|| {
            if urgent_only {
                None
            } else {
                jobs.background.pop_front()
            }
        })
    }
}

/// Runs jobs until the pool is closed.
pub(crate) fn run(shared: &Arc<Shared>, urgent_only: bool) {
    loop {
        if let Some(job) = shared.pool.try_take(urgent_only) {
            perform(shared, job);
            continue;
        }
        let pool = &shared.pool;
        let mut jobs = lock(&pool.jobs);
        let nothing = jobs.urgent.is_empty() && (urgent_only || jobs.background.is_empty());
        if !nothing {
            continue;
        }
        if jobs.closed {
            return;
        }
        if urgent_only {
            drop(
                pool.wake_urgent
                    .wait(jobs)
                    .unwrap_or_else(PoisonError::into_inner),
            );
            continue;
        }
        let now = Instant::now();
        match jobs.idle_at {
            Some(at) if at <= now => {
                jobs.idle_at = Some(now + IDLE);
                drop(jobs);
                close_idle(shared);
            }
            at => {
                let wait = at.map_or(IDLE, |at| at - now);
                jobs.idle_at = Some(now + wait);
                let waited = pool.wake_other.wait_timeout(jobs, wait);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

/// Closes idle files.
pub(crate) fn close_idle(shared: &Shared) {
    if let Err(err) = shared.folder.close_idle() {
        shared.fail("sync idle spool in", shared.folder.dir.clone(), err);
    }
}

/// Does one job.
pub(crate) fn perform(shared: &Shared, job: Job) {
    match job {
        Job::SyncJournal(journal) => journal.sync_waiting(),
        Job::SyncSpools(spools) => {
            for spool in spools {
                if let Err(err) = spool.sync() {
                    shared.fail("sync spool", spool.path().to_path_buf(), err);
                    return;
                }
            }
            shared.tell(Event::SpoolsSynced);
        }
        Job::Unlink(spools, waiter) => {
            for spool in spools {
                if let Err(err) = spool.unlink() {
                    // It is recorded as dropped, so the next open removes it.
                    let path = spool.path().display();
                    tracing::warn!(%path, %err, "dropped spool stays until the next start");
                }
            }
            let broken = shared.is_broken();
            let result = if broken {
                Err(shared.failure())
            } else {
                Ok(())
            };
            shared.answer([waiter], &result);
        }
        Job::MakeSegment { path, length } => {
            let disk = &shared.folder.disk;
            let made = disk
                .create_zeroed(&path, length)
                .and_then(|()| path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir)));
            shared.tell(Event::SegmentMade(path, made));
        }
    }
}
