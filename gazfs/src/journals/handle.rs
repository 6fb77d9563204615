//! Files and directories that are open.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::{
    error::Cause,
    fs::JournalFs,
    inode::{Inode, lock},
    stream::Stream,
    tree::Entry,
};

/// Number of an open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HandleId(pub u64);

/// An open file.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) inode: Arc<Inode>,
    pub(super) may_read: bool,
    pub(super) may_write: bool,
    stream: Mutex<Option<Arc<Stream>>>,
    /// Offsets of the last read: who starts at its end reads on, who ends at its begin reads
    /// backwards.
    last: Mutex<Option<(i64, i64)>>,
    /// Why an append failed that was reported as written.
    failed: Mutex<Option<Cause>>,
    is_closed: AtomicBool,
}

impl Handle {
    pub(super) fn new(inode: Arc<Inode>, may_read: bool, may_write: bool) -> Self {
        Self {
            inode,
            may_read,
            may_write,
            stream: Mutex::new(None),
            last: Mutex::new(None),
            failed: Mutex::new(None),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns the stream that a read of `[begin, end)` can be served from, if there is one.
    pub(super) fn stream(&self, begin: i64, end: i64) -> Option<Arc<Stream>> {
        lock(&self.stream)
            .as_ref()
            .filter(|stream| stream.serves(begin, end))
            .cloned()
    }

    /// Returns a stream that serves `[begin, end)`, and starts one if there is none. A program that
    /// reads on gets one up to the head; one that jumps about, a short one.
    pub(super) fn stream_or_start(
        &self,
        fs: &JournalFs,
        begin: i64,
        end: i64,
        head: i64,
    ) -> Arc<Stream> {
        let mut stream = lock(&self.stream);
        if let Some(stream) = stream.as_ref().filter(|stream| stream.serves(begin, end)) {
            return Arc::clone(stream);
        }
        let last = *lock(&self.last);
        let is_backward = last.is_some_and(|(before, _)| before == end);
        let (from, target) = match last {
            Some((_, next)) if (next..=next.saturating_add(AHEAD_MAX)).contains(&begin) => {
                (next, head)
            }
            Some(_) if is_backward => (end.saturating_sub(BACK_BYTES), end),
            Some(_) => (begin, begin.saturating_add(RANDOM_BYTES)),
            None => (begin, begin.saturating_add(FIRST_BYTES)),
        };
        let from = from.clamp(0, begin);
        let target = target.clamp(end, head.max(end));
        let started = Arc::new(Stream::start(fs, &self.inode, from, target, is_backward));
        *stream = Some(Arc::clone(&started));
        started
    }

    /// Notes where a read was, and lets go of what was read ahead if it is used up: a file that
    /// stays open must not hold memory.
    pub(super) fn note_read(&self, stream: &Arc<Stream>, begin: i64, end: i64) {
        *lock(&self.last) = Some((begin, end));
        if stream.is_used_up(begin, end) {
            let mut current = lock(&self.stream);
            if current
                .as_ref()
                .is_some_and(|current| Arc::ptr_eq(current, stream))
            {
                *current = None;
            }
        }
    }

    /// Forgets what was read ahead.
    pub(super) fn drop_stream(&self) {
        *lock(&self.stream) = None;
    }

    /// Keeps the failure of an append for the next call that can report it. Returns whether there
    /// may be one.
    pub(super) fn fail(&self, cause: Cause) -> bool {
        let mut failed = lock(&self.failed);
        failed.get_or_insert(cause);
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Notes that no call follows. Returns whether a failure was not reported.
    pub(super) fn close(&self) -> bool {
        let mut failed = lock(&self.failed);
        self.is_closed.store(true, Ordering::Release);
        failed.take().is_some()
    }

    /// Says whether there is a failure to report.
    pub(super) fn has_failure(&self) -> bool {
        lock(&self.failed).is_some()
    }

    /// Returns the failure that was not reported yet, once.
    pub(super) fn take_failure(&self) -> Result<(), Cause> {
        match lock(&self.failed).take() {
            Some(cause) => Err(cause),
            None => Ok(()),
        }
    }
}

/// All that is open.
#[derive(Debug, Default)]
pub(super) struct Handles {
    next: AtomicU64,
    files: Mutex<BTreeMap<HandleId, Arc<Handle>>>,
    directories: Mutex<BTreeMap<HandleId, Arc<Vec<Entry>>>>,
}

impl Handles {
    pub(super) fn open(&self, handle: Handle) -> HandleId {
        let id = self.number();
        lock(&self.files).insert(id, Arc::new(handle));
        id
    }

    pub(super) fn file(&self, id: HandleId) -> Result<Arc<Handle>, Cause> {
        lock(&self.files).get(&id).cloned().ok_or(Cause::BadHandle)
    }

    pub(super) fn close(&self, id: HandleId) -> Option<Arc<Handle>> {
        lock(&self.files).remove(&id)
    }

    pub(super) fn open_directory(&self, entries: Vec<Entry>) -> HandleId {
        let id = self.number();
        lock(&self.directories).insert(id, Arc::new(entries));
        id
    }

    pub(super) fn directory(&self, id: HandleId) -> Result<Arc<Vec<Entry>>, Cause> {
        lock(&self.directories)
            .get(&id)
            .cloned()
            .ok_or(Cause::BadHandle)
    }

    pub(super) fn reread_directory(&self, id: HandleId, entries: Vec<Entry>) -> Arc<Vec<Entry>> {
        let entries = Arc::new(entries);
        lock(&self.directories).insert(id, Arc::clone(&entries));
        entries
    }

    pub(super) fn close_directory(&self, id: HandleId) {
        lock(&self.directories).remove(&id);
    }

    fn number(&self) -> HandleId {
        HandleId(self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// How far beyond the last read one may begin that reads on: requests that the kernel makes ahead of
/// a program are answered side by side, and may overtake one another.
const AHEAD_MAX: i64 = 2 << 20;

/// What the first read of a file fetches: whoever only looks at the beginning does not cost more.
const FIRST_BYTES: i64 = 1 << 20;

/// What a read fetches that goes backwards.
const BACK_BYTES: i64 = 1 << 20;

/// What a read elsewhere fetches at least.
const RANDOM_BYTES: i64 = 128 << 10;
