//! The only file with I/O: loads a key space and keeps it up to date.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, RwLock, RwLockReadGuard},
    time::Duration,
};

use bytes::Bytes;
use gazette_coordination::{
    Coordination, CoordinationError, ErrorKind, KeyValue, RangeRequest, ResponseHeader,
    WatchRequest, WatchResponse,
};
use tokio::{sync::watch as channel, time};

use crate::{Applied, ApplyError, Change, Decoder, KeySpace, Rejected};

/// Settings of a mirror.
#[derive(Clone, Copy, Debug)]
pub struct MirrorOptions {
    /// How long to gather changes before they are applied together. A larger value saves work
    /// when many keys change; each waiter for a revision pays for it.
    pub apply_delay: Duration,
    /// Keys in one read of a load.
    pub page_size: usize,
}

impl MirrorOptions {
    /// For a store at the other end of a network.
    pub fn remote() -> Self {
        Self {
            apply_delay: Duration::from_millis(30),
            page_size: 4096,
        }
    }

    /// For a store in this process, where reading changes costs next to nothing.
    pub fn embedded() -> Self {
        Self {
            apply_delay: Duration::ZERO,
            ..Self::remote()
        }
    }
}

/// A mirror could not be loaded, or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// The store refused.
    #[error("mirror the coordination store: {0}")]
    Coordination(#[from] CoordinationError),
    /// The store is another one, or went back in time.
    #[error("mirror the coordination store: {0}; next: restart this process")]
    Apply(#[from] ApplyError),
    /// The mirror was stopped by its owner.
    #[error("the mirror of the coordination store was stopped")]
    Stopped,
}

/// A [`KeySpace`] that follows its store. Clones share it.
pub struct Mirror<V> {
    shared: Arc<Shared<V>>,
}

struct Shared<V> {
    state: RwLock<State<V>>,
    revision: channel::Sender<i64>,
    stop: channel::Sender<bool>,
    ended: channel::Sender<Option<MirrorError>>,
}

struct State<V> {
    space: KeySpace<V>,
    observers: Vec<Observer<V>>,
}

type Observer<V> = Box<dyn FnMut(&KeySpace<V>, &[Change<V>]) + Send + Sync>;

/// Read access to the key space of a mirror. While it lives, no change is applied: hold it
/// for a look-up, not for a wait, and do not take a second one in the same thread.
#[derive(Debug)]
pub struct ReadGuard<'a, V>(RwLockReadGuard<'a, State<V>>);

impl<V> Deref for ReadGuard<'_, V> {
    type Target = KeySpace<V>;

    fn deref(&self) -> &KeySpace<V> {
        &self.0.space
    }
}

impl<V: Send + Sync + 'static> Mirror<V> {
    /// Reads all keys under `prefix`, as of revision `at` or of now. The mirror changes while
    /// [`MirrorWatch::run`] does.
    pub async fn load(
        coordination: Arc<dyn Coordination>,
        prefix: impl Into<Bytes>,
        at: Option<i64>,
        decoder: Decoder<V>,
        options: MirrorOptions,
    ) -> Result<(Self, MirrorWatch<V>), MirrorError> {
        let prefix = prefix.into();
        let (header, kvs) = read_all(&*coordination, &prefix, at, options.page_size).await?;
        let (space, rejected) = KeySpace::load(prefix, header, kvs, decoder);
        log_rejected(&rejected);
        let resume = space.revision() + 1;
        let (revision, _) = channel::channel(space.revision());
        let (stop, stopping) = channel::channel(false);
        let (ended, _) = channel::channel(None);
        let state = RwLock::new(State {
            space,
            observers: Vec::new(),
        });
        let mirror = Self {
            shared: Arc::new(Shared {
                state,
                revision,
                stop,
                ended,
            }),
        };
        let watch = MirrorWatch {
            mirror: mirror.clone(),
            coordination,
            options,
            resume,
            stopping,
        };
        Ok((mirror, watch))
    }

    /// Locks the key space for reading.
    pub fn read(&self) -> ReadGuard<'_, V> {
        ReadGuard(self.shared.state.read().expect(OBSERVERS))
    }

    /// Calls `observer` for each change, in the write lock: it sees every state of the key space
    /// in order, and readers see what it derived as soon as they see the change. It is called at
    /// once for all present entries, as if they had just been inserted. It must be quick, and
    /// must not lock the mirror.
    pub fn observe(
        &self,
        mut observer: impl FnMut(&KeySpace<V>, &[Change<V>]) + Send + Sync + 'static,
    ) {
        let mut state = self.shared.state.write().expect(OBSERVERS);
        let present: Vec<_> = state
            .space
            .iter()
            .map(|entry| Change {
                before: None,
                after: Some(Arc::clone(entry)),
            })
            .collect();
        observer(&state.space, &present);
        state.observers.push(Box::new(observer));
    }

    /// A signal of changes: the revision of the key space.
    pub fn changed(&self) -> channel::Receiver<i64> {
        self.shared.revision.subscribe()
    }

    /// Waits until the key space has reached `revision`. Fails if the mirror ended before.
    ///
    /// A revision that did not change a key under the prefix is reached with the next one that
    /// does: do not wait for the revision of a transaction that failed, or wrote elsewhere.
    pub async fn wait_for_revision(&self, revision: i64) -> Result<(), MirrorError> {
        let mut revisions = self.shared.revision.subscribe();
        let mut ended = self.shared.ended.subscribe();
        tokio::select! {
            biased;
            reached = revisions.wait_for(|&at| at >= revision) => match reached {
                Ok(_) => Ok(()),
                Err(_) => Err(MirrorError::Stopped),
            },
            ended = ended.wait_for(Option::is_some) => match ended.as_deref() {
                Ok(Some(err)) => Err(err.clone()),
                Ok(None) | Err(_) => Err(MirrorError::Stopped),
            },
        }
    }

    /// Waits until the mirror has ended, and says why.
    pub async fn ended(&self) -> MirrorError {
        let mut ended = self.shared.ended.subscribe();
        match ended.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(err)) => err.clone(),
            Ok(None) | Err(_) => MirrorError::Stopped,
        }
    }

    /// Ends [`MirrorWatch::run`]. Entries stay as they are; waiters get an error.
    pub fn stop(&self) {
        self.shared.stop.send_replace(true);
    }

    fn update(
        &self,
        update: impl FnOnce(&mut KeySpace<V>) -> Result<Applied<V>, ApplyError>,
    ) -> Result<(), ApplyError> {
        let mut state = self.shared.state.write().expect(OBSERVERS);
        let State { space, observers } = &mut *state;
        let was = space.header();
        let applied = update(space)?;
        let now = space.header();
        if (was.member_id, was.raft_term) != (now.member_id, now.raft_term) {
            tracing::info!(
                member_id = now.member_id,
                raft_term = now.raft_term,
                "coordination store has another member or leader"
            );
        }
        if !applied.changes.is_empty() {
            for observer in observers {
                observer(space, &applied.changes);
            }
        }
        drop(state);
        log_rejected(&applied.rejected);
        self.shared.revision.send_if_modified(|revision| {
            let changed = *revision != now.revision;
            *revision = now.revision;
            changed
        });
        Ok(())
    }
}

/// Keeps a [`Mirror`] up to date.
#[must_use = "the mirror does not change unless this runs"]
pub struct MirrorWatch<V> {
    mirror: Mirror<V>,
    coordination: Arc<dyn Coordination>,
    options: MirrorOptions,
    /// First revision that was not received.
    resume: i64,
    stopping: channel::Receiver<bool>,
}

impl<V: Send + Sync + 'static> MirrorWatch<V> {
    /// Follows the store until [`Mirror::stop`], or an error that no retry can cure. If the
    /// future is dropped, the mirror has ended as well.
    pub async fn run(mut self) -> Result<(), MirrorError> {
        let mut stopping = self.stopping.clone();
        let result = tokio::select! {
            biased;
            // An error says that the mirror is gone, and its wish to stop with it.
            _ = stopping.wait_for(|stop| *stop) => Ok(()),
            err = self.follow() => Err(err),
        };
        let ended = result.clone().err().unwrap_or(MirrorError::Stopped);
        self.mirror.shared.ended.send_replace(Some(ended));
        result
    }

    async fn follow(&mut self) -> MirrorError {
        let mut attempt = 0;
        loop {
            let before = self.resume;
            let err = match self.follow_watch().await {
                MirrorError::Coordination(err) => err,
                err @ (MirrorError::Apply(_) | MirrorError::Stopped) => return err,
            };
            attempt = if self.resume > before { 0 } else { attempt + 1 };
            let err = if err.kind() == ErrorKind::Compacted {
                match self.reload().await {
                    Ok(()) => continue,
                    Err(MirrorError::Coordination(err)) => err,
                    Err(err @ (MirrorError::Apply(_) | MirrorError::Stopped)) => return err,
                }
            } else {
                err
            };
            match err.kind() {
                ErrorKind::Retry | ErrorKind::NoSpace | ErrorKind::Compacted => {}
                ErrorKind::NotFound | ErrorKind::Invalid | ErrorKind::Closed => return err.into(),
            }
            let delay = back_off(attempt);
            tracing::warn!(%err, attempt, ?delay, "watch of the coordination store broke");
            time::sleep(delay).await;
        }
    }

    /// Watches until an error.
    async fn follow_watch(&mut self) -> MirrorError {
        let prefix = self.mirror.read().prefix().clone();
        let request = WatchRequest {
            prefix,
            start_revision: self.resume,
        };
        let mut watch = match self.coordination.watch(request).await {
            Ok(watch) => watch,
            Err(err) => return err.into(),
        };
        loop {
            let mut broken = None;
            let mut batch = match watch.next().await {
                Ok(response) => vec![response],
                Err(err) => return err.into(),
            };
            if !self.options.apply_delay.is_zero() && !batch[0].events.is_empty() {
                let deadline = time::Instant::now() + self.options.apply_delay;
                while let Ok(next) = time::timeout_at(deadline, watch.next()).await {
                    match next {
                        Ok(response) => batch.push(response),
                        Err(err) => {
                            broken = Some(err);
                            break;
                        }
                    }
                }
            }
            if let Err(err) = self.mirror.update(|space| space.apply(&batch)) {
                return err.into();
            }
            self.resume = self
                .resume
                .max(batch.iter().map(next_revision).max().unwrap_or(0));
            if let Some(err) = broken {
                return err.into();
            }
        }
    }

    async fn reload(&mut self) -> Result<(), MirrorError> {
        let prefix = self.mirror.read().prefix().clone();
        let (header, kvs) =
            read_all(&*self.coordination, &prefix, None, self.options.page_size).await?;
        tracing::info!(revision = header.revision, "reload after compaction");
        self.mirror.update(|space| space.reload(header, kvs))?;
        self.resume = header.revision + 1;
        Ok(())
    }
}

impl<V> Drop for MirrorWatch<V> {
    fn drop(&mut self) {
        self.mirror.shared.ended.send_if_modified(|ended| {
            let running = ended.is_none();
            ended.get_or_insert(MirrorError::Stopped);
            running
        });
    }
}

/// First revision that a response does not cover.
fn next_revision(response: &WatchResponse) -> i64 {
    match response.events.last() {
        Some(event) => event.kv.mod_revision + 1,
        None => response.header.revision + 1,
    }
}

/// Reads all keys under a prefix at one revision, which the returned header holds.
async fn read_all(
    coordination: &dyn Coordination,
    prefix: &Bytes,
    at: Option<i64>,
    page_size: usize,
) -> Result<(ResponseHeader, Vec<KeyValue>), CoordinationError> {
    let mut request = RangeRequest::prefix(prefix.clone()).limit(page_size);
    request.revision = at;
    let mut kvs = Vec::new();
    loop {
        let response = coordination.range(request.clone()).await?;
        let revision = *request.revision.get_or_insert(response.header.revision);
        kvs.extend(response.kvs);
        match kvs.last() {
            Some(last) if response.more => {
                let mut after = last.key.to_vec();
                after.push(0);
                request.from = Some(after.into());
            }
            _ => {
                return Ok((
                    ResponseHeader {
                        revision,
                        ..response.header
                    },
                    kvs,
                ));
            }
        }
    }
}

fn log_rejected(rejected: &[Rejected]) {
    for Rejected {
        key,
        mod_revision,
        error,
    } in rejected
    {
        tracing::warn!(key = %key.escape_ascii(), revision = mod_revision, err = %error, "skip key that does not decode");
    }
}

/// The first retry is at once; a store that stays away is asked every five seconds.
fn back_off(attempt: usize) -> Duration {
    const MILLIS: [u64; 7] = [0, 5, 50, 250, 1000, 2000, 5000];
    Duration::from_millis(MILLIS[attempt.min(MILLIS.len() - 1)])
}

impl<V> Clone for Mirror<V> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<V: fmt::Debug> fmt::Debug for Mirror<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror")
            .field("revision", &*self.shared.revision.borrow())
            .finish_non_exhaustive()
    }
}

impl<V> fmt::Debug for MirrorWatch<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MirrorWatch")
            .field("resume", &self.resume)
            .finish_non_exhaustive()
    }
}

impl<V: fmt::Debug> fmt::Debug for State<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.space.fmt(f)
    }
}

/// Why the lock is never poisoned.
const OBSERVERS: &str = "observers do not panic";
