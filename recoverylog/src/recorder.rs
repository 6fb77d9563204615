//! Puts what happened to files into a log, in order, and tells when the log has it.
//!
//! A mutation of files goes through three steps: [`Recorder::reserve`] makes sure that there is room and
//! that the log is ours; the caller applies it to his files; [`Recorder::record`] gives it its place in
//! the log, and cannot fail. [`Recorder::barrier`] tells when the log has all that was recorded before.
//!
//! What is sent when, and what an answer means, is decided by a machine without I/O; a task makes one RPC
//! at a time. Callers need no runtime, and wait only where they ask for it.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use gazette_client::Client;
use gazette_recoverylog_fsm::{Author, Fnode, Fsm, Mark, Mode, Mutation, OpWriter, Tree};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

mod driver;
mod error;
mod machine;
mod options;
mod outcome;
mod rpc;
mod shared;

pub use error::RecorderError;
pub(crate) use machine::Register;
use machine::{Machine, Now};
#[cfg(any(test, feature = "test-util"))]
pub use options::Planted;
pub use options::{RecorderOptions, Start};
pub use outcome::{Acked, Fault, Fence, Hold, RecorderStatus, Room, State};
use rpc::Rpcs;
use shared::Shared;

use crate::{
    claim::ownership,
    hints::{HintsHome, JournalHints},
    journals::find_log,
};

/// Records into one log. Cheap to clone; clones are the same recorder. It ends with
/// [`stop`](Self::stop); what is pending when its last clone is dropped is not sent.
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    options: RecorderOptions,
    /// Ends by itself when the recorder does.
    _task: JoinHandle<()>,
}

/// Room for one mutation. It is given back when dropped.
#[derive(Debug)]
#[must_use = "what is not recorded is given back"]
pub struct Reservation {
    shared: Arc<Shared>,
    bytes: u64,
}

/// Mutations that become one append. It ends when dropped.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Group {
    shared: Arc<Shared>,
}

/// What a mutation became in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// The file that was created.
    pub fnode: Option<Fnode>,
    /// The file that another fnode stands for from now on, and that fnode.
    pub replaced: Option<(Fnode, Fnode)>,
    /// Sequence number of its last op, or of the last one before it if it needed none.
    pub seq_no: i64,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("log", &self.inner.shared.log)
            .field("author", &self.inner.shared.author)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Claims the log, and begins to record into it. Its hints go to the journal beside it.
    ///
    /// It fails if the log has grown since it was recovered: then recover again. Must be called in a
    /// tokio runtime, which the recorder's task runs in.
    pub async fn start(
        client: Client,
        start: Start,
        options: RecorderOptions,
    ) -> Result<Self, RecorderError> {
        let home = Arc::new(JournalHints::new(client.clone(), &start.log));
        Self::start_with(client, start, options, home).await
    }

    /// As [`start`](Self::start), with another home for hints.
    pub async fn start_with(
        client: Client,
        start: Start,
        options: RecorderOptions,
        home: Arc<dyn HintsHome>,
    ) -> Result<Self, RecorderError> {
        let log = start.log.clone();
        let begun = Instant::now();
        let within = options.start_within;
        let timed_out = |cause| RecorderError::TimedOut {
            log: log.clone(),
            within: begun.elapsed().as_secs_f32(),
            cause,
        };
        let before = timeout(within, look(&client, &start));
        let before = before.await.map_err(|_| timed_out(None))??;
        let author = start.author;
        let shared = Arc::new(prepare(start, &options)?);
        let rpcs = Rpcs {
            client,
            log: Arc::clone(&shared.log),
            author,
            before,
            patience: options.answer_within,
            #[cfg(any(test, feature = "test-util"))]
            skips_checks: options.planted == Some(Planted::NoChecks),
        };
        let task = driver::run(Arc::clone(&shared), rpcs, home);
        let recorder = Self {
            inner: Arc::new(Inner {
                _task: Handle::current().spawn(task),
                shared,
                options,
            }),
        };
        let left = within.saturating_sub(begun.elapsed());
        match timeout(left, recorder.flush()).await {
            Ok(Ok(_)) => {}
            Ok(Err(fault)) => return Err(RecorderError::NotClaimed { log, fault }),
            Err(_) => return Err(timed_out(recorder.status().last_error)),
        }
        #[cfg(any(test, feature = "test-util"))]
        {
            recorder.inner.shared.lock().waits = options.planted != Some(Planted::NoWait);
        }
        Ok(recorder)
    }

    /// Reserves room for a mutation, which is not applied yet. Does not wait.
    pub fn reserve(&self, mutation: &Mutation<'_>) -> Result<Reservation, Hold> {
        let shared = &self.inner.shared;
        let now = shared.now();
        let bytes = shared.lock().reserve(now, mutation)?;
        Ok(Reservation {
            shared: Arc::clone(shared),
            bytes,
        })
    }

    /// Reserves room, and waits until there is some. `give_up` is asked about each 50 ms; the wait ends
    /// too after [`RecorderOptions::fail_after`].
    pub fn reserve_blocking(
        &self,
        mutation: &Mutation<'_>,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Reservation, Hold> {
        let begun = Instant::now();
        loop {
            match self.reserve(mutation) {
                Err(Hold::Full) => {}
                result => return result,
            }
            if give_up() {
                return Err(Hold::GivenUp);
            }
            let waited = begun.elapsed();
            if self
                .inner
                .options
                .fail_after
                .is_some_and(|limit| waited >= limit)
            {
                return Err(Hold::Failed(Fault::TimedOut {
                    after: waited,
                    cause: self.status().last_error,
                }));
            }
            self.inner.shared.wait_for_room(GIVE_UP_EVERY);
        }
    }

    /// Gives a mutation its place in the log. It was applied, at most as large as it was reserved for,
    /// and after it nothing else was done to its file yet: call it under the lock of that.
    ///
    /// `content` reads the file as it is now, from an offset on; only logs of mode `compat` ask for it. It must
    /// not call the recorder.
    pub fn record(
        &self,
        mut reservation: Reservation,
        mutation: &Mutation<'_>,
        content: &mut dyn FnMut(u64, &mut [u8]) -> usize,
    ) -> Recorded {
        let bytes = std::mem::take(&mut reservation.bytes);
        let record = |core: &mut shared::Core, now: Now| core.record(now, bytes, mutation, content);
        self.inner.shared.with(record)
    }

    /// Begins a group: all that is recorded until it ends, by whomever, goes into the log in one
    /// append, so that no recovery has a part of it. Nothing is sent meanwhile, so reserve before, and
    /// end it soon.
    pub fn group(&self) -> Group {
        let shared = Arc::clone(&self.inner.shared);
        shared.lock().machine.handle_group_begun();
        Group { shared }
    }

    /// Calls back when the log has all that was recorded so far, or when that is not waited for any
    /// more. It may be called at once, and from any thread; it must not wait.
    pub fn barrier(&self, callback: impl FnOnce(Result<(), Fault>) + Send + 'static) {
        let callback = Box::new(callback);
        let at_once = self
            .inner
            .shared
            .with(|core, now| core.barrier(now, callback));
        if let Some(callback) = at_once {
            callback(Ok(()));
        }
    }

    /// Waits until the log has all that was recorded so far. Returns what it has then.
    pub async fn flush(&self) -> Result<Acked, Fault> {
        let (tell, told) = oneshot::channel();
        self.barrier(move |result| {
            // Nobody may be waiting any more.
            drop(tell.send(result));
        });
        told.await.unwrap_or(Err(Fault::Ended))?;
        Ok(self.acked())
    }

    /// Records a mark. Returns its sequence number.
    pub fn mark(&self, mark: Mark) -> i64 {
        self.inner.shared.with(|core, now| core.mark(now, mark))
    }

    /// Returns the file that has a name, as it was recorded.
    pub fn fnode_at(&self, parent: Fnode, name: &[u8]) -> Option<Fnode> {
        self.with_tree(|tree| tree.lookup(parent, name))
    }

    /// Looks at the names and attributes that were recorded. Nothing is recorded meanwhile, so `look` must
    /// not call the recorder.
    pub fn with_tree<R>(&self, look: impl FnOnce(&Tree) -> R) -> R {
        look(self.inner.shared.lock().writer.tree())
    }

    /// Looks at the state that the log has acknowledged: what counts, and where it lies.
    pub fn with_fsm<R>(&self, look: impl FnOnce(&Fsm) -> R) -> R {
        look(self.inner.shared.lock().writer.fsm())
    }

    /// Tells whether a standby watches the log for signs of life. Then an idle owner records a mark each
    /// [`RecorderOptions::idle_mark`]; otherwise he only looks whether the log is still his.
    pub fn set_watched(&self, is_watched: bool) {
        let shared = &self.inner.shared;
        shared.with(|core, now| core.machine.handle_watched(now, is_watched));
    }

    /// Gives the log up in order: nothing more is reserved, and what is pending is waited for as
    /// [`stop`](Self::stop) does, but no hints are published, as the next owner waits. Returns what the log has.
    pub async fn release(&self) -> Result<Acked, Fault> {
        let shared = &self.inner.shared;
        shared.with(|core, now| core.machine.handle_release(now));
        driver::ended(shared).await
    }

    /// Tells how much room there is for the log, of which mutations that grow leave the reserve alone.
    pub fn set_room(&self, room: Option<Room>) {
        self.inner.shared.lock().machine.handle_room(room);
    }

    /// Returns what the log has.
    pub fn acked(&self) -> Acked {
        self.inner.shared.lock().machine.acked()
    }

    /// Returns the author.
    pub fn author(&self) -> Author {
        self.inner.shared.author
    }

    /// Returns the name of the log.
    pub fn log(&self) -> &str {
        &self.inner.shared.log
    }

    /// Returns the mode of the log.
    pub fn mode(&self) -> Mode {
        self.inner.shared.lock().writer.mode()
    }

    /// Returns a view of how it is going.
    pub fn status(&self) -> RecorderStatus {
        let shared = &self.inner.shared;
        let now = shared.now();
        let core = shared.lock();
        let machine = &core.machine;
        RecorderStatus {
            author: shared.author,
            log: Arc::clone(&shared.log),
            acked: machine.acked(),
            recorded_seq_no: machine.recorded_seq_no(),
            pending_bytes: machine.pending_bytes(),
            oldest_pending: machine.oldest_pending(now),
            state: machine.state(now),
            last_error: machine.last_error().cloned(),
            room: machine.room(),
            is_out_of_space: machine.is_out_of_space(),
            hints_offset: machine.hints_offset(),
        }
    }

    /// Follows how it is going.
    pub fn watch(&self) -> watch::Receiver<State> {
        self.inner.shared.state.subscribe()
    }

    /// Ends it: nothing more is reserved, what is pending is waited for within
    /// [`RecorderOptions::stop_within`], and the last hints are published. Returns what the log has.
    pub async fn stop(self) -> Result<Acked, Fault> {
        let shared = &self.inner.shared;
        shared.with(|core, now| core.machine.handle_stop(now));
        driver::ended(shared).await
    }
}

/// How often a caller that waits for room is asked whether it still wants it.
const GIVE_UP_EVERY: Duration = Duration::from_millis(50);

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.shared.free(self.bytes);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.shared
            .with(|core, now| core.machine.handle_group_ended(now));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.with(|core, _| core.machine.handle_end());
    }
}

/// Looks whose the log is, and that it ends where it was read to. Returns the value of its author
/// register.
async fn look(client: &Client, start: &Start) -> Result<Option<String>, RecorderError> {
    let log = || start.log.clone();
    match find_log(client, &start.log).await? {
        None => return Err(RecorderError::NoLog { log: log() }),
        Some(mode) if mode != start.mode => {
            return Err(RecorderError::Mode {
                log: log(),
                wanted: start.mode,
            });
        }
        Some(_) => {}
    }
    let owner = ownership(client, &start.log).await?;
    if owner.head != start.write_head {
        return Err(RecorderError::HeadMoved {
            log: log(),
            recovered: start.write_head,
            head: owner.head,
        });
    }
    Ok(owner.value)
}

/// Makes the state of a recorder whose first batch, the claim, waits to be sent.
fn prepare(start: Start, options: &RecorderOptions) -> Result<Shared, RecorderError> {
    let Start {
        log,
        mode,
        author,
        fsm,
        tree,
        root,
        write_head,
    } = start;
    let writer = OpWriter::new(mode, author, &log, fsm, tree).map_err(|cause| {
        let log = log.clone();
        RecorderError::State { log, cause }
    })?;
    let acked = Acked {
        offset: write_head,
        seq_no: writer.next_seq_no() - 1,
    };
    let machine = Machine::new(author, options.limits(), acked, Now::ZERO);
    let shared = Shared::new(&log, author, machine, writer);
    let time = shared::wall_clock();
    let begun = shared.with(|core, now| {
        core.encode(now, |writer, out| {
            let begun = writer.begin(&root, time, out)?;
            writer.mark(Mark::Claim, time, out);
            Ok(begun)
        })
    });
    match begun {
        Ok(_) => Ok(shared),
        Err(cause) => Err(RecorderError::Begin { log, cause }),
    }
}
