//! Calls that wait for the log or for the disk.
//!
//! The kernel tells of the first signal that a waiting thread got, but not of those after it, so
//! somebody looks after each.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::Builder,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use crate::{
    fuse::Request,
    journals::Caller,
    recorded::{Call, FsError, Patience},
};

/// Who made a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who {
    unique: u64,
    uid: u32,
    gid: u32,
    caller: Caller,
}

impl Who {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            unique: request.unique,
            uid: request.uid,
            gid: request.gid,
            caller: Caller::new(request.pid),
        }
    }

    /// A call that does not wait.
    pub(super) fn call(&self) -> Call<'static> {
        self.call_with(Patience::None)
    }

    /// Makes a call that waits until there is room, or its program is killed.
    pub(super) fn wait<T>(&self, work: impl FnOnce(&Call<'_>) -> T) -> T {
        let started = Instant::now();
        let looked = AtomicU64::new(0);
        let is_killed = || {
            // The log may ask as often as it likes.
            let now = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            let then = looked.load(Ordering::Relaxed);
            if now < then.saturating_add(LOOK_MILLIS) {
                return false;
            }
            looked.store(now, Ordering::Relaxed);
            self.caller.is_killed()
        };
        work(&self.call_with(Patience::Until(&is_killed)))
    }

    fn call_with<'a>(&self, patience: Patience<'a>) -> Call<'a> {
        Call {
            uid: self.uid,
            gid: self.gid,
            umask: 0,
            patience,
        }
    }
}

/// Looks after calls that wait, and reads what is not in memory.
#[derive(Debug)]
pub(super) struct Waiting {
    watched: Arc<Watched>,
    reads: mpsc::Sender<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

type Answer = Box<dyn FnOnce(Result<(), FsError>) + Send>;

#[derive(Debug, Default)]
struct Watched {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    last: u64,
    calls: HashMap<u64, Watch>,
    /// The thread sleeps until there are calls.
    is_parked: bool,
    is_ended: bool,
}

/// A call that waits.
struct Watch {
    unique: u64,
    caller: Caller,
    since: Instant,
    answer: Answer,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let calls = self.calls.len();
        f.debug_struct("State")
            .field("calls", &calls)
            .finish_non_exhaustive()
    }
}

impl Waiting {
    pub(super) fn start() -> io::Result<Self> {
        let watched = Arc::<Watched>::default();
        let watching = Arc::clone(&watched);
        Builder::new()
            .name("fuse-watch".to_owned())
            .spawn(move || watching.run())?;
        let (reads, jobs) = mpsc::channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..READERS {
            let jobs = Arc::clone(&jobs);
            let run = move || {
                loop {
                    let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = job else { return };
                    job();
                }
            };
            Builder::new().name("fuse-read".to_owned()).spawn(run)?;
        }
        Ok(Self { watched, reads })
    }

    /// Reads what is not in memory.
    pub(super) fn read(&self, job: impl FnOnce() + Send + 'static) {
        // Readers live as long as this.
        let _sent = self.reads.send(Box::new(job));
    }

    /// Returns what answers a call, which is answered without it when its program is killed. If that is
    /// dropped instead, so is the answer: nobody would ever give it.
    pub(super) fn until_killed(
        &self,
        who: &Who,
        answer: impl FnOnce(Result<(), FsError>) + Send + 'static,
    ) -> impl FnOnce(Result<(), FsError>) + Send + 'static {
        let id = {
            let mut state = self.watched.lock();
            state.last += 1;
            let id = state.last;
            let watch = Watch {
                unique: who.unique,
                caller: who.caller,
                since: Instant::now(),
                answer: Box::new(answer),
            };
            state.calls.insert(id, watch);
            if state.is_parked {
                self.watched.wake.notify_one();
            }
            id
        };
        let ticket = Ticket {
            watched: Arc::clone(&self.watched),
            id,
        };
        move |done| ticket.watched.end(ticket.id, done)
    }

    /// Looks after a call now, as its program got a signal.
    pub(super) fn look_at(&self, unique: u64) {
        let found = {
            let state = self.watched.lock();
            let mut calls = state.calls.iter();
            let found = calls.find(|(_, call)| call.unique == unique);
            found.map(|(id, call)| (*id, call.caller))
        };
        if let Some((id, caller)) = found {
            self.watched.end_if_killed(id, caller);
        }
    }
}

/// Takes a call away that nobody will answer any more.
struct Ticket {
    watched: Arc<Watched>,
    id: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // What answers it is dropped after the lock.
        let _unanswered = self.watched.take(self.id);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.watched.lock().is_ended = true;
        self.watched.wake.notify_one();
    }
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut idle_looks = 0;
        let mut state = self.lock();
        while !state.is_ended {
            // Most calls end soon: it goes on looking for a while, so that they need not wake it.
            state = if state.calls.is_empty() && idle_looks >= IDLE_LOOKS {
                state.is_parked = true;
                let mut state = self
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.is_parked = false;
                idle_looks = 0;
                state
            } else {
                idle_looks += 1;
                self.wake
                    .wait_timeout(state, LOOK_INTERVAL)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            };
            if !state.calls.is_empty() {
                idle_looks = 0;
            }
            let old: Vec<_> = state
                .calls
                .iter()
                .filter(|(_, call)| call.since.elapsed() >= LOOK_INTERVAL)
                .map(|(id, call)| (*id, call.caller))
                .collect();
            drop(state);
            for (id, caller) in old {
                self.end_if_killed(id, caller);
            }
            state = self.lock();
        }
    }

    fn end_if_killed(&self, id: u64, caller: Caller) {
        if caller.is_killed() {
            self.end(id, Err(Errno::INTR.into()));
        }
    }

    /// Answers a call, if nobody has.
    fn end(&self, id: u64, done: Result<(), FsError>) {
        if let Some(call) = self.take(id) {
            (call.answer)(done);
        }
    }

    fn take(&self, id: u64) -> Option<Watch> {
        self.lock().calls.remove(&id)
    }
}

/// Does something in a thread of its own.
pub(super) fn spawn(work: impl FnOnce() + Send + 'static) {
    let spawned = Builder::new()
        .name("fuse-wait".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(work);
    // What answers the call was dropped with it, which answers it with an error.
    if let Err(error) = spawned {
        tracing::error!(err = %error, "no thread for a call that waits");
    }
}

/// How long it may go unnoticed that a program was killed. The promise is that a call ends within
/// 200 ms.
const LOOK_INTERVAL: Duration = Duration::from_millis(LOOK_MILLIS);

const LOOK_MILLIS: u64 = 50;

const IDLE_LOOKS: u32 = 40;

const READERS: usize = 4;

const STACK_BYTES: usize = 512 << 10;

#[cfg(test)]
mod tests;
