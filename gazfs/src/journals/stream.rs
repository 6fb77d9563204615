//! Reading ahead of a program that reads on.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::SystemTime,
};

use bytes::Bytes;
use gazette_client::{ReadEvent, RetryReader};
use gazette_protocol::{ReadRequest, Status};
use tokio::{sync::Notify, task::AbortHandle};

use super::{
    error::Cause,
    fs::JournalFs,
    inode::{Inode, lock},
    patience::Patience,
    window::Window,
};

/// Content of one journal from an offset to another, fetched a little ahead of its readers.
///
/// The fetching ends when the stream is dropped.
#[derive(Debug)]
pub(super) struct Stream {
    shared: Arc<Shared>,
    begin: i64,
    target: i64,
    /// The end is read first.
    is_backward: bool,
    task: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Woken when content came, or will not come.
    arrived: Notify,
    /// Woken when a reader went on.
    wanted: Notify,
    /// What was read, so that no more than a window is fetched beyond it.
    reached: AtomicI64,
}

#[derive(Debug)]
struct State {
    window: Window,
    failed: Option<Cause>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream {
    /// Starts to fetch `[begin, target)`, which must not go beyond the head.
    pub(super) fn start(
        fs: &JournalFs,
        inode: &Arc<Inode>,
        begin: i64,
        target: i64,
        is_backward: bool,
    ) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                window: Window::new(begin),
                failed: None,
            }),
            arrived: Notify::new(),
            wanted: Notify::new(),
            reached: AtomicI64::new(begin),
        });
        let fetch = Fetch {
            fs: fs.clone(),
            inode: Arc::clone(inode),
            shared: Arc::clone(&shared),
            target,
        };
        let task = fs.spawn(fetch.run());
        Self {
            shared,
            begin,
            target,
            is_backward,
            task,
        }
    }

    /// Says whether a reader that read `[begin, end)` needs no more of it, if it goes on as it did.
    pub(super) fn is_used_up(&self, begin: i64, end: i64) -> bool {
        if self.is_backward {
            begin <= self.begin
        } else {
            end >= self.target
        }
    }

    /// Says whether `[begin, end)` is here, or will come soon without anything else being skipped.
    pub(super) fn serves(&self, begin: i64, end: i64) -> bool {
        let state = lock(&self.shared.state);
        state.failed.is_none()
            && begin >= state.window.begin()
            && begin <= state.window.end().saturating_add(SKIP_MAX)
            && end <= self.target
    }

    /// Returns `[begin, end)` if it is here.
    pub(super) fn try_read(&self, begin: i64, end: i64) -> Option<Bytes> {
        let bytes = {
            let mut state = lock(&self.shared.state);
            let bytes = state.window.copy(begin, end)?;
            state
                .window
                .discard_before(begin.saturating_sub(BEHIND_BYTES));
            bytes
        };
        self.reach(end);
        Some(bytes)
    }

    /// Waits for `[begin, end)`. Returns `None` if another reader made the stream go on beyond it.
    pub(super) async fn read(&self, begin: i64, end: i64) -> Result<Option<Bytes>, Cause> {
        self.reach(end);
        loop {
            let arrived = self.shared.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            if let Some(bytes) = self.try_read(begin, end) {
                return Ok(Some(bytes));
            }
            {
                let state = lock(&self.shared.state);
                if let Some(cause) = &state.failed {
                    return Err(cause.clone());
                }
                if begin < state.window.begin() {
                    return Ok(None);
                }
            }
            arrived.await;
        }
    }

    fn reach(&self, end: i64) {
        self.shared.reached.fetch_max(end, Ordering::AcqRel);
        self.shared.wanted.notify_one();
    }
}

/// The task behind a stream.
struct Fetch {
    fs: JournalFs,
    inode: Arc<Inode>,
    shared: Arc<Shared>,
    target: i64,
}

impl Fetch {
    async fn run(self) {
        if let Err(cause) = self.fetch().await {
            lock(&self.shared.state).failed = Some(cause);
        }
        self.shared.arrived.notify_waiters();
    }

    async fn fetch(&self) -> Result<(), Cause> {
        let mut end = lock(&self.shared.state).window.end();
        let mut reader = self.fs.client().retry_reader(ReadRequest {
            journal: self.inode.name.clone(),
            offset: end,
            end_offset: self.target,
            // Where the stores can be reached, content need not go through the broker.
            do_not_proxy: self.fs.client().options().file_root.is_some(),
            ..ReadRequest::default()
        });
        while end < self.target {
            self.wait_for_room(end).await;
            end = match self.next(&mut reader).await? {
                Some(end) => end,
                None => self.hole(self.target),
            };
            self.shared.arrived.notify_waiters();
        }
        Ok(())
    }

    /// Takes the next event. Returns where the window ends now, or `None` if nothing more comes.
    async fn next(&self, reader: &mut RetryReader) -> Result<Option<i64>, Cause> {
        match reader.next().await {
            Ok(Some(ReadEvent::Content { offset, bytes })) => {
                self.hole(offset);
                let mut state = lock(&self.shared.state);
                let left = usize::try_from(self.target - state.window.end()).unwrap_or(0);
                state.window.push(bytes.slice(..bytes.len().min(left)));
                Ok(Some(state.window.end()))
            }
            Ok(Some(ReadEvent::Jump { to, .. })) => Ok(Some(self.hole(to))),
            Ok(Some(ReadEvent::Metadata(response))) => {
                if let Some(header) = &response.header {
                    self.fs.verify(&self.inode, header, self.patience()).await?;
                }
                self.fs.answered();
                self.inode.observe(response.write_head, SystemTime::now());
                Ok(Some(lock(&self.shared.state).window.end()))
            }
            Ok(None) => Ok(None),
            // Nothing is stored of a journal that is fully suspended.
            Err(error) if error.status() == Some(Status::Suspended) => Ok(None),
            // What lies before the head is there. Either the replica has not heard of it yet, or the
            // journal is another by now.
            Err(error) if error.status() == Some(Status::OffsetNotYetAvailable) => {
                self.fs.relist(&self.inode, self.patience()).await?;
                reader.set_block(true);
                Ok(Some(lock(&self.shared.state).window.end()))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn patience(&self) -> Patience {
        Patience::new(super::Caller::NOBODY, self.fs.options().timeout)
    }

    /// Notes that nothing is stored up to `end`. Returns where the window ends now.
    fn hole(&self, end: i64) -> i64 {
        let mut state = lock(&self.shared.state);
        state.window.push_hole(end.min(self.target));
        state.window.end()
    }

    /// Waits until the reader is close enough to `end`.
    async fn wait_for_room(&self, end: i64) {
        loop {
            let wanted = self.shared.wanted.notified();
            if end - self.shared.reached.load(Ordering::Acquire) < AHEAD_BYTES {
                return;
            }
            wanted.await;
        }
    }
}

/// How far a stream fetches beyond its reader.
const AHEAD_BYTES: i64 = 4 << 20;

/// How much stays in memory behind a reader: requests of one program may come out of order.
const BEHIND_BYTES: i64 = 1 << 20;

/// How far ahead of what was fetched a reader may go without a new stream being cheaper.
const SKIP_MAX: i64 = 4 << 20;
