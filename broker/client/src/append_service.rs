//! Appends in the background: ordered, batched, and bounded in memory.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use gazette_protocol::{AppendRequest, AppendResponse, LabelSet};
use tokio::{runtime::Handle, sync::oneshot, time::Instant};

use crate::{
    AppendCause, AppendContent, AppendError, AppendParams, Client, Outcome,
    append_queue::{AppendQueue, EntryId, Limits, QueueOutput},
};

/// Bounds and patience of an [`AppendService`].
#[derive(Debug, Clone)]
pub struct AppendServiceOptions {
    /// Most bytes of one RPC, unless a single append is larger.
    pub max_batch_bytes: usize,
    /// Most bytes held for all journals.
    pub max_pending_bytes: usize,
    /// Most bytes held for one journal.
    pub max_journal_bytes: usize,
    /// How long after it was queued an append is tried again, while it is certain that nothing was
    /// done, and waited for. `None` does not end.
    pub give_up_after: Option<Duration>,
}

impl Default for AppendServiceOptions {
    fn default() -> Self {
        Self {
            max_batch_bytes: 4 << 20,
            max_pending_bytes: 64 << 20,
            max_journal_bytes: 16 << 20,
            give_up_after: Some(Duration::from_mins(1)),
        }
    }
}

/// Shortest wait for the answer to an append that waited long in the queue.
const ANSWER_MIN: Duration = Duration::from_secs(1);

/// Appends in the background. Cheap to clone; clones are the same service.
///
/// - The acknowledged appends to a journal are in the order of the calls of
///   [`append`](Self::append). While one RPC is under way, further appends gather for the next.
/// - Each append is all or nothing, and learns its own offsets.
/// - What is certain not to be done is tried again until
///   [`give_up_after`](AppendServiceOptions::give_up_after). What may have been done is never
///   repeated, as that could double it: it fails with [`Outcome::Unknown`]. So without an expected
///   offset a caller that repeats it gets "at least once"; with one, it can find out with
///   [`Client::resolve_append`].
/// - An append that fails does not fail the ones behind it.
/// - Memory is bounded: a caller waits for room before its append is accepted.
#[derive(Clone)]
pub struct AppendService {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    options: AppendServiceOptions,
    state: Mutex<State>,
    /// The runtime of the first append, as an append may be dropped outside of any.
    runtime: OnceLock<Handle>,
}

struct State {
    queue: AppendQueue,
    entries: BTreeMap<EntryId, Entry>,
    /// First error of each journal that nobody has seen, as its ticket was dropped.
    unseen: BTreeMap<Arc<str>, AppendError>,
}

struct Entry {
    content: Bytes,
    queued_at: Instant,
    /// Told when there is room.
    admitted: Option<oneshot::Sender<()>>,
    done: oneshot::Sender<Result<Landed, AppendError>>,
    /// Told when it is settled.
    flushes: Vec<oneshot::Sender<()>>,
}

/// Where an append is in its journal.
#[derive(Debug, Clone)]
pub struct Landed {
    /// Offset of its first byte.
    pub begin: i64,
    /// Offset after its last byte.
    pub end: i64,
    /// The broker's answer, which may be about several appends.
    pub response: Arc<AppendResponse>,
}

impl Landed {
    /// The registers of the journal after the append.
    pub fn registers(&self) -> Option<&LabelSet> {
        self.response.registers.as_ref()
    }
}

/// An append that was accepted, and is sent even if this is dropped.
pub struct Queued {
    shared: Arc<Shared>,
    journal: Arc<str>,
    /// `None` once the result was taken.
    done: Option<oneshot::Receiver<Result<Landed, AppendError>>>,
}

/// RPC to be made.
struct Job {
    journal: Arc<str>,
    request: AppendRequest,
    content: AppendContent,
    queued_at: Instant,
}

impl fmt::Debug for AppendService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppendService")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queued")
            .field("journal", &self.journal)
            .finish_non_exhaustive()
    }
}

impl AppendService {
    /// Returns a service that appends with `client`.
    pub fn new(client: Client, options: AppendServiceOptions) -> Self {
        let queue = AppendQueue::new(Limits {
            max_batch_bytes: options.max_batch_bytes,
            max_pending_bytes: options.max_pending_bytes,
            max_journal_bytes: options.max_journal_bytes,
        });
        let state = Mutex::new(State {
            queue,
            entries: BTreeMap::new(),
            unseen: BTreeMap::new(),
        });
        Self {
            shared: Arc::new(Shared {
                client,
                options,
                state,
                runtime: OnceLock::new(),
            }),
        }
    }

    /// The client that it appends with.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Bytes that are held now, with a little for each append.
    pub fn pending_bytes(&self) -> usize {
        self.shared.lock().queue.pending_bytes()
    }

    /// Takes an append. Its place in the order is that of this call. The future waits for room, and
    /// takes the append back if it is dropped before that.
    ///
    /// Must be called in a tokio runtime.
    pub fn append(
        &self,
        journal: &str,
        content: Bytes,
        params: AppendParams,
    ) -> impl Future<Output = Queued> + Send + use<> {
        let journal: Arc<str> = journal.into();
        let (admit, admitted) = oneshot::channel();
        let (settle, done) = oneshot::channel();
        let id = {
            let mut state = self.shared.lock();
            let id = state.queue.handle_append(&journal, content.len(), params);
            let entry = Entry {
                content,
                queued_at: Instant::now(),
                admitted: Some(admit),
                done: settle,
                flushes: Vec::new(),
            };
            state.entries.insert(id, entry);
            self.shared.perform(&mut state, None);
            id
        };
        let shared = Arc::clone(&self.shared);
        let queued = Queued {
            shared: Arc::clone(&shared),
            journal,
            done: Some(done),
        };
        let waiting = Waiting {
            shared,
            id,
            admitted: false,
        };
        async move {
            let mut waiting = waiting;
            // An error means that the append is settled, which is as good.
            let _ = admitted.await;
            waiting.admitted = true;
            queued
        }
    }

    /// Waits until everything that was queued for `journal` so far is settled. Returns the first error
    /// that nobody has seen, because its ticket was dropped.
    pub async fn flush(&self, journal: &str) -> Result<(), AppendError> {
        let bound = self.shared.lock().queue.newest(journal, None);
        while let Some(settled) = self.settled(journal, bound) {
            // An error means that it was taken back, which settles it.
            let _ = settled.await;
        }
        self.shared
            .lock()
            .unseen
            .remove(journal)
            .map_or(Ok(()), Err)
    }

    /// Returns what tells when the newest append up to `bound` is settled, or `None` if all are.
    fn settled(&self, journal: &str, bound: Option<EntryId>) -> Option<oneshot::Receiver<()>> {
        let mut state = self.shared.lock();
        let id = state.queue.newest(journal, Some(bound?))?;
        let entry = state.entries.get_mut(&id)?;
        let (settle, settled) = oneshot::channel();
        entry.flushes.push(settle);
        Some(settled)
    }
}

impl Queued {
    /// Waits until the append is done, or has failed.
    pub async fn wait(mut self) -> Result<Landed, AppendError> {
        let Some(done) = self.done.as_mut() else {
            return Err(self.closed());
        };
        let result = done.await;
        self.done = None;
        result.unwrap_or_else(|_| Err(self.closed()))
    }

    /// The journal.
    pub fn journal(&self) -> &str {
        &self.journal
    }

    /// The runtime ended, with the append in the middle of whatever.
    fn closed(&self) -> AppendError {
        AppendError::new(
            Arc::clone(&self.journal),
            Outcome::Unknown,
            AppendCause::Closed,
        )
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let Some(mut done) = self.done.take() else {
            return;
        };
        // What comes from now on is noted by the sender.
        done.close();
        if let Ok(Err(error)) = done.try_recv() {
            let mut state = self.shared.lock();
            state
                .unseen
                .entry(Arc::clone(&self.journal))
                .or_insert(error);
        }
    }
}

/// Takes an append back if its caller does not wait for room.
struct Waiting {
    shared: Arc<Shared>,
    id: EntryId,
    admitted: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.admitted {
            return;
        }
        let mut state = self.shared.lock();
        if state.queue.handle_withdraw(self.id) {
            state.entries.remove(&self.id);
            self.shared.perform(&mut state, None);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the queue wants. `report` is the journal and the result of the RPC that the queue was
    /// just told about. RPCs are run by tasks of their own, but for the next one of that journal, which
    /// is returned.
    fn perform(
        self: &Arc<Self>,
        state: &mut State,
        report: Option<(&str, &Result<Arc<AppendResponse>, AppendError>)>,
    ) -> Option<Job> {
        let mut next = None;
        while let Some(output) = state.queue.poll_output() {
            match output {
                QueueOutput::Admitted(id) => {
                    let entry = state.entries.get_mut(&id);
                    if let Some(admitted) = entry.and_then(|entry| entry.admitted.take()) {
                        let _ = admitted.send(());
                    }
                }
                QueueOutput::Send {
                    journal,
                    params,
                    entries,
                } => {
                    let job = Self::job(state, journal, params, &entries);
                    if report.is_some_and(|(journal, _)| journal == &*job.journal) {
                        next = Some(job);
                    } else {
                        let runtime = self.runtime.get_or_init(Handle::current);
                        drop(runtime.spawn(Arc::clone(self).run(job)));
                    }
                }
                QueueOutput::Landed { entry, begin, end } => {
                    if let Some((_, Ok(response))) = report {
                        let response = Arc::clone(response);
                        state.settle(
                            entry,
                            Ok(Landed {
                                begin,
                                end,
                                response,
                            }),
                        );
                    }
                }
                QueueOutput::Failed(entry) => {
                    if let Some((_, Err(error))) = report {
                        state.settle(entry, Err(error.clone()));
                    }
                }
            }
        }
        next
    }

    fn job(state: &State, journal: Arc<str>, params: AppendParams, entries: &[EntryId]) -> Job {
        let entries: Vec<&Entry> = entries
            .iter()
            .filter_map(|id| state.entries.get(id))
            .collect();
        let content: Vec<Bytes> = entries.iter().map(|entry| entry.content.clone()).collect();
        let request = AppendRequest {
            journal: journal.to_string(),
            offset: params.offset.unwrap_or(0),
            check_registers: params.check_registers,
            union_registers: params.union_registers,
            subtract_registers: params.subtract_registers,
            suspend: params.suspend.into(),
            min_etcd_revision: params.min_etcd_revision,
            ..AppendRequest::default()
        };
        Job {
            journal,
            request,
            content: content.into(),
            queued_at: entries
                .first()
                .map_or_else(Instant::now, |entry| entry.queued_at),
        }
    }

    /// Makes the RPCs of a journal, until there is none to make.
    async fn run(self: Arc<Self>, job: Job) {
        let mut job = Some(job);
        while let Some(Job {
            journal,
            request,
            content,
            queued_at,
        }) = job
        {
            let limit = self.options.give_up_after;
            let deadline =
                limit.map(|limit| (queued_at + limit).max(Instant::now() + limit.min(ANSWER_MIN)));
            let result = self
                .client
                .append_until(&request, &content, queued_at, deadline)
                .await;
            let result = result.map(Arc::new).and_then(|response| {
                let commit = response.commit.clone().unwrap_or_default();
                if u64::try_from(commit.end.saturating_sub(commit.begin))
                    == Ok(content.len() as u64)
                {
                    return Ok(response);
                }
                let cause = AppendCause::Protocol("a commit of another length than was sent");
                Err(AppendError::new(Arc::clone(&journal), Outcome::Done, cause))
            });
            let mut state = self.lock();
            match &result {
                Ok(response) => {
                    let begin = response.commit.as_ref().map_or(0, |commit| commit.begin);
                    state.queue.handle_landed(&journal, begin);
                }
                Err(error) => {
                    state
                        .queue
                        .handle_failed(&journal, error.is_wrong_append_offset());
                }
            }
            job = self.perform(&mut state, Some((&journal, &result)));
        }
    }
}

impl State {
    fn settle(&mut self, id: EntryId, result: Result<Landed, AppendError>) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        if let Err(Err(error)) = entry.done.send(result) {
            let journal: Arc<str> = error.journal().into();
            self.unseen.entry(journal).or_insert(error);
        }
        for flush in entry.flushes {
            let _ = flush.send(());
        }
    }
}

#[cfg(test)]
mod tests;
