//! What the callers of a recorder and its task share.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::BytesMut;
use gazette_recoverylog_fsm::{Author, Mark, Mutation, OpWriter, Timestamp};
use tokio::sync::{Notify, watch};

use super::{
    Recorded,
    machine::{BarrierId, Check, Machine, Now, Output},
    outcome::{Acked, Fault, Hold, State},
    rpc::Content,
};
use crate::hints::PublishedHints;

pub(super) type Callback = Box<dyn FnOnce(Result<(), Fault>) + Send>;

/// State of a recorder.
pub(super) struct Shared {
    pub(super) author: Author,
    pub(super) log: Arc<str>,
    /// Moment that the machine's times count from.
    base: Instant,
    core: Mutex<Core>,
    /// Told when there may be room again, or none for ever.
    room: Condvar,
    /// Told when the task has something to do.
    pub(super) wake: Notify,
    pub(super) state: watch::Sender<State>,
    pub(super) ended: watch::Sender<Option<Result<Acked, Fault>>>,
}

pub(super) struct Core {
    pub(super) machine: Machine,
    pub(super) writer: OpWriter,
    /// Bytes of the batches that are not acknowledged, oldest first.
    batches: VecDeque<Batch>,
    barriers: BTreeMap<BarrierId, Callback>,
    /// The RPC that the task is to make.
    pub(super) call: Option<Call>,
    /// Hints that the task is to publish.
    pub(super) publish: Option<PublishedHints>,
    /// Until when the task sleeps; `None` if it does not.
    pub(super) sleeps_until: Option<Now>,
    /// What was told last by `Shared::state`.
    told: State,
    #[cfg(any(test, feature = "test-util"))]
    pub(super) waits: bool,
}

enum Batch {
    Open(BytesMut),
    Sent(Content),
}

/// An RPC.
#[derive(Debug)]
pub(super) enum Call {
    Append {
        offset: i64,
        check: Check,
        content: Content,
    },
    Probe {
        offset: i64,
    },
    Look {
        number: u64,
    },
    ReadBack {
        offset: i64,
        sent: Option<Content>,
    },
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("author", &self.author)
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

/// What is to be done after the lock was released.
#[derive(Default)]
pub(super) struct After {
    answers: Vec<(Callback, Result<(), Fault>)>,
    wakes: bool,
    frees: bool,
    state: Option<State>,
    ended: Option<Result<Acked, Fault>>,
}

impl Shared {
    pub(super) fn new(log: &str, author: Author, machine: Machine, writer: OpWriter) -> Self {
        Self {
            author,
            log: log.into(),
            base: Instant::now(),
            core: Mutex::new(Core {
                machine,
                writer,
                batches: VecDeque::new(),
                barriers: BTreeMap::new(),
                call: None,
                publish: None,
                sleeps_until: None,
                told: State::Recording,
                #[cfg(any(test, feature = "test-util"))]
                waits: true,
            }),
            room: Condvar::new(),
            wake: Notify::new(),
            state: watch::Sender::new(State::Recording),
            ended: watch::Sender::new(None),
        }
    }

    pub(super) fn now(&self) -> Now {
        self.base.elapsed()
    }

    /// The moment of a time of the machine.
    pub(super) fn instant(&self, at: Now) -> Option<Instant> {
        self.base.checked_add(at)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the core, and does what comes of it: answers barriers, wakes whoever waits.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut Core, Now) -> R) -> R {
        let now = self.now();
        let mut core = self.lock();
        let result = change(&mut core, now);
        let after = core.perform(now, &self.log);
        drop(core);
        self.finish(after);
        result
    }

    fn finish(&self, after: After) {
        if after.wakes {
            self.wake.notify_one();
        }
        for (callback, result) in after.answers {
            callback(result);
        }
        if after.frees {
            self.room.notify_all();
        }
        if let Some(state) = after.state {
            self.state.send_replace(state);
        }
        if let Some(result) = after.ended {
            self.ended.send_replace(Some(result));
        }
    }

    /// Waits for room, at most for `limit`.
    pub(super) fn wait_for_room(&self, limit: Duration) {
        let core = self.lock();
        drop(self.room.wait_timeout(core, limit));
    }

    pub(super) fn free(&self, bytes: u64) {
        self.lock().machine.release(bytes);
        self.room.notify_all();
    }
}

impl Core {
    pub(super) fn reserve(&mut self, now: Now, mutation: &Mutation<'_>) -> Result<u64, Hold> {
        let cost = self.writer.cost(mutation).map_err(Hold::Refused)?;
        let bytes = (cost as u64).saturating_add(OVERHEAD_BYTES);
        self.machine.reserve(now, bytes, shrinks(mutation))?;
        Ok(bytes)
    }

    /// Records a mutation that was applied.
    pub(super) fn record(
        &mut self,
        now: Now,
        reserved: u64,
        mutation: &Mutation<'_>,
        content: &mut dyn FnMut(u64, &mut [u8]) -> usize,
    ) -> Recorded {
        self.machine.release(reserved);
        let time = wall_clock();
        let written = self.encode(now, |writer, out| {
            writer.write(mutation, time, content, out)
        });
        match written {
            Ok(written) => Recorded {
                fnode: written.fnode,
                replaced: written.replaced,
                seq_no: self.machine.recorded_seq_no(),
            },
            Err(error) => {
                self.machine.handle_diverged(error.to_string().into());
                Recorded {
                    fnode: None,
                    replaced: None,
                    seq_no: self.machine.recorded_seq_no(),
                }
            }
        }
    }

    pub(super) fn mark(&mut self, now: Now, mark: Mark) -> i64 {
        let time = wall_clock();
        self.encode(now, |writer, out| writer.mark(mark, time, out))
    }

    /// Lets the writer add ops to the open batch, and tells the machine.
    pub(super) fn encode<R>(
        &mut self,
        now: Now,
        write: impl FnOnce(&mut OpWriter, &mut BytesMut) -> R,
    ) -> R {
        if self.machine.begins_batch() {
            // The one before, if it was not sent yet, is full: then this one may become so too, and grows
            // without being copied.
            let capacity = self
                .seal_open()
                .map_or(0, |length| length + BATCH_SLACK_BYTES);
            self.batches
                .push_back(Batch::Open(BytesMut::with_capacity(capacity)));
        }
        let mut scratch = BytesMut::new();
        let out = match self.batches.back_mut() {
            Some(Batch::Open(out)) => out,
            Some(Batch::Sent(_)) | None => &mut scratch,
        };
        let before = out.len();
        let result = write(&mut self.writer, out);
        let added = out.len().saturating_sub(before) as u64;
        let seq_no = self.writer.next_seq_no() - 1;
        if added > 0 {
            self.machine.handle_recorded(now, seq_no, added);
        } else if before == 0 {
            // Nothing had to be recorded.
            self.batches.pop_back();
        }
        result
    }

    /// Ends the open batch, if there is one, and returns its length.
    fn seal_open(&mut self) -> Option<usize> {
        let batch = self.batches.back_mut()?;
        let Batch::Open(out) = batch else { return None };
        let out = std::mem::take(out);
        let length = out.len();
        // The writer ends a batch where its ops were cut.
        self.writer.seal();
        *batch = Batch::Sent(content_of(out));
        Some(length)
    }

    fn front(&mut self) -> Option<Content> {
        // If it is open, it is the only one.
        if matches!(self.batches.front(), Some(Batch::Open(_))) {
            self.seal_open();
        }
        match self.batches.front() {
            Some(Batch::Sent(content)) => Some(content.clone()),
            Some(Batch::Open(_)) | None => None,
        }
    }

    pub(super) fn barrier(&mut self, now: Now, callback: Callback) -> Option<Callback> {
        #[cfg(any(test, feature = "test-util"))]
        if !self.waits {
            return Some(callback);
        }
        let id = self.machine.handle_barrier(now);
        self.barriers.insert(id, callback);
        None
    }

    /// Does what the machine wants, as far as it needs no waiting.
    fn perform(&mut self, now: Now, log: &Arc<str>) -> After {
        let mut after = After::default();
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Send { offset, check } => {
                    self.call = self.front().map(|content| Call::Append {
                        offset,
                        check,
                        content,
                    });
                    after.wakes = true;
                }
                Output::Probe { offset } => {
                    self.call = Some(Call::Probe { offset });
                    after.wakes = true;
                }
                Output::Look { number } => {
                    self.call = Some(Call::Look { number });
                    after.wakes = true;
                }
                Output::ReadBack { offset } => {
                    let sent = match self.batches.front() {
                        Some(Batch::Sent(content)) => Some(content.clone()),
                        Some(Batch::Open(_)) | None => None,
                    };
                    self.call = Some(Call::ReadBack { offset, sent });
                    after.wakes = true;
                }
                Output::Release { begin } => {
                    self.batches.pop_front();
                    after.frees = true;
                    if let Err(error) = self.writer.acknowledged(begin) {
                        self.machine.handle_diverged(error.to_string().into());
                    }
                }
                Output::Answer { barrier, result } => {
                    if let Some(callback) = self.barriers.remove(&barrier) {
                        after.answers.push((callback, result));
                    }
                }
                Output::Mark => {
                    self.mark(now, Mark::Claim);
                }
                Output::IdleMark => {
                    self.mark(now, Mark::Idle);
                }
                Output::PublishHints => {
                    self.publish = Some(self.hints());
                    after.wakes = true;
                }
                Output::Report(fault) => {
                    tracing::error!(log = %log, author = self.writer.author().get(), err = %fault, "recording has ended");
                    after.frees = true;
                }
                Output::Ended(result) => {
                    after.ended = Some(result);
                    after.frees = true;
                    after.wakes = true;
                }
            }
        }
        let state = self.machine.state(now);
        if std::mem::discriminant(&state) != std::mem::discriminant(&self.told)
            || matches!(state, State::Fenced(_) | State::Failed(_)) && state != self.told
        {
            tell(log, &state);
            self.told = state.clone();
            after.frees = true;
            after.state = Some(state);
        }
        // It sleeps longer than it may now.
        let next = self.machine.next_timeout();
        if self
            .sleeps_until
            .zip(next)
            .is_some_and(|(until, next)| next < until)
        {
            after.wakes = true;
        }
        after
    }

    /// Hints of all that is acknowledged.
    fn hints(&self) -> PublishedHints {
        let Acked { offset, seq_no } = self.machine.acked();
        let fsm = self.writer.fsm();
        PublishedHints {
            author: self.writer.author(),
            offset,
            seq_no,
            checksum: fsm.next_checksum(),
            time: fsm.last_time().unwrap_or_default(),
            hints: self.writer.hints(),
        }
    }
}

/// What the last op may add to a batch that is nearly full: the largest write of a kernel, and its frame.
const BATCH_SLACK_BYTES: usize = (1 << 20) + 4096;
/// Counted for each mutation besides its bytes.
const OVERHEAD_BYTES: u64 = 64;

fn content_of(bytes: BytesMut) -> Content {
    let bytes = bytes.freeze();
    Content {
        length: i64::try_from(bytes.len()).unwrap_or(i64::MAX),
        pieces: [bytes].into(),
    }
}

fn tell(log: &str, state: &State) {
    match state {
        State::Recording => tracing::info!(log, "the log takes what is recorded"),
        State::Stalled { error, .. } => {
            tracing::warn!(log, err = %error, "the log does not take what is recorded; it is tried again");
        }
        // These are reported with all that is known.
        State::Failed(_) | State::Fenced(_) => {}
    }
}

/// Whether a mutation is taken although there is no space: it makes files smaller, or says so little
/// that disks take it too.
fn shrinks(mutation: &Mutation<'_>) -> bool {
    use gazette_recoverylog_fsm::SizeChange;
    match mutation {
        Mutation::Unlink { .. }
        | Mutation::Rename { .. }
        | Mutation::Attributes { .. }
        | Mutation::RemoveXattr { .. }
        | Mutation::Release { .. } => true,
        Mutation::Size { change, .. } => {
            matches!(
                change,
                SizeChange::Truncate { .. } | SizeChange::Punch { .. }
            )
        }
        Mutation::Create { .. }
        | Mutation::Link { .. }
        | Mutation::Write { .. }
        | Mutation::SetXattr { .. } => false,
    }
}

/// The time, as logs tell it.
pub(super) fn wall_clock() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: since.subsec_nanos(),
    }
}
