//! The handles of a running log.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::SystemTime,
};

use bytes::Bytes;
use gazette_protocol::{Fragment, LabelSet};
use tokio::sync::{oneshot, watch};

use crate::{
    disk::Disk,
    error::Corruption,
    error::{Failure, LogError, OpenError},
    format::{Checks, payload::Identity},
    journal::{Active, JournalLog},
    open::{self, Opened, OpenedJournal},
    options::Options,
    pool,
    shared::Shared,
    spool::{SpoolFile, lock},
};

/// A journal that was in the log when it was opened.
#[derive(Debug)]
pub struct RecoveredJournal {
    /// Name of the journal.
    pub name: String,
    /// Revision of the coordination store at which this incarnation of it was created.
    pub create_revision: i64,
    /// Its registers after the last acknowledged append.
    pub registers: Arc<LabelSet>,
    /// Its write head.
    pub end: i64,
    /// Its spools, oldest first. Only the last may be incomplete, and ends at `end` then.
    pub spools: Vec<RecoveredSpool>,
    /// The handle to go on with, or to [forget](JournalLog::forget) what is not wanted any more.
    pub journal: JournalLog,
}

/// A spool that was in the log when it was opened.
#[derive(Debug)]
pub struct RecoveredSpool {
    /// What was acknowledged of it. Never empty.
    pub fragment: Fragment,
    /// When its first append began.
    pub first_append: Option<SystemTime>,
    /// The registers after its last append.
    pub registers: Arc<LabelSet>,
    /// It was rolled: nothing is added to it, and it waits to be stored.
    pub complete: bool,
    /// Its content, at least as long as the fragment unless it is damaged. The caller compares the
    /// sum.
    pub file: SpoolFile,
    /// Why its content is not all there. The spool stays in the log, and its file is left as it is:
    /// if that is mended, all is there when the log is opened again.
    pub damage: Option<Corruption>,
}

/// One acknowledged extent more of a spool.
#[derive(Debug)]
pub struct Commit {
    /// The spool to which the bytes are written.
    pub spool: SpoolFile,
    /// The whole spool with the new bytes; its `end` is the journal's new write head.
    pub fragment: Fragment,
    /// The journal's offset of the first new byte. It is the previous end, or lies before it in
    /// the same spool, which takes back what was committed from there on: do that with an empty
    /// content, and wait for the acknowledgement before writing over what is taken back.
    pub append_begin: i64,
    /// The journal's registers after the append.
    pub registers: Arc<LabelSet>,
    /// When the append began. The spool keeps that of its first one.
    pub first_append: Option<SystemTime>,
    /// The new bytes. They are in the spool file already.
    pub content: Content,
}

/// Where the log takes the bytes of a [`Commit`] from. In each case the caller wrote them to the
/// spool file before.
#[derive(Debug)]
pub enum Content {
    /// The log keeps a copy of the bytes and syncs the spool file later. Where there are more
    /// than [`INLINE_MAX_BYTES`](crate::INLINE_MAX_BYTES), it is the same as `InSpool`.
    Inline(Vec<Bytes>),
    /// The spool file is synced before the commit is recorded.
    InSpool,
}

/// The end of a spool, and where the journal goes on.
#[derive(Debug)]
pub struct Roll {
    /// The spool that gets no more content, if it has any. It stays until it is dropped.
    pub completed: Option<SpoolFile>,
    /// The journal's new write head; not before the present one.
    pub next_begin: i64,
    /// The journal's registers.
    pub registers: Arc<LabelSet>,
}

/// Resolves when an entry is in the log, as durable as [`Options::durability`] says. Dropping it
/// changes nothing but that nobody waits.
#[derive(Debug)]
#[must_use = "nothing is acknowledged before this resolves"]
pub struct Ack(pub(crate) oneshot::Receiver<Result<(), LogError>>);

impl Ack {
    /// Waits, blocking the thread. Not for async tasks.
    pub fn wait(self) -> Result<(), LogError> {
        self.0.blocking_recv().unwrap_or(Err(LogError::Closed))
    }
}

impl Future for Ack {
    type Output = Result<(), LogError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|acked| acked.unwrap_or(Err(LogError::Closed)))
    }
}

/// The write-ahead log of a broker. A clone is the same log.
///
/// It ends by itself when it and all handles of its journals are gone; the last one waits for what
/// was handed over.
#[derive(Clone, Debug)]
pub struct Log {
    handle: Arc<Handle>,
}

/// Keeps the log running.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Handle {
    /// Ends the threads and waits for it, unless this is one of them.
    fn end(&self) {
        self.shared.close();
        let threads = std::mem::take(&mut *lock(&self.threads));
        let this = thread::current().id();
        if threads.iter().any(|thread| thread.thread().id() == this) {
            return;
        }
        for thread in threads {
            // A thread that panicked has answered nobody: all acknowledgements fail.
            drop(thread.join());
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

impl Log {
    /// Recovers what is in the log, makes it durable, and starts the log. Blocks for as long as
    /// it takes, mostly less than a second.
    ///
    /// Nothing but one log may use the two folders at a time; the caller holds a lock file.
    pub fn open(
        options: Options,
        disk: Arc<dyn Disk>,
    ) -> Result<(Self, Vec<RecoveredJournal>), OpenError> {
        Self::open_checked(options, disk, Checks::ALL)
    }

    pub(crate) fn open_checked(
        options: Options,
        disk: Arc<dyn Disk>,
        checks: Checks,
    ) -> Result<(Self, Vec<RecoveredJournal>), OpenError> {
        options.validate()?;
        let Opened {
            shared,
            writer,
            journals,
        } = open::open(&options, disk, checks)?;
        let handle = Arc::new(Handle {
            shared: Arc::clone(&shared),
            threads: Mutex::default(),
        });
        let recovered = recovered(journals, &handle);
        let path = options.wal_dir;
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
            thread.map_err(|err| Failure {
                operation: "start thread for",
                path: path.clone(),
                source: Arc::new(err),
            })
        };
        let mut threads = vec![spawn("wal-writer", Box::new(move || writer.run()))?];
        for number in 0..pool::THREADS {
            let shared = Arc::clone(&shared);
            let urgent_only = number < pool::URGENT_THREADS;
            let body = Box::new(move || pool::run(&shared, urgent_only));
            threads.push(spawn("wal-helper", body)?);
        }
        *lock(&handle.threads) = threads;
        Ok((Self { handle }, recovered))
    }

    /// A new incarnation of a journal. Nothing is recorded before its first commit or roll.
    pub fn open_journal(&self, name: &str, create_revision: i64) -> JournalLog {
        let id = self.handle.shared.take_id();
        let identity = Arc::new(Identity::new(id, name.to_owned(), create_revision));
        JournalLog::new(identity, Arc::clone(&self.handle), None, None)
    }

    /// Why the log broke, once it did: nothing is acknowledged any more, and the broker should
    /// end.
    pub fn failed(&self) -> watch::Receiver<Option<Failure>> {
        self.handle.shared.failed()
    }

    /// Writes what was handed over and ends. Later entries, of other handles too, fail with
    /// [`LogError::Closed`]. Blocks.
    pub fn close(self) {
        self.handle.end();
    }
}

/// What was in the log, with handles to go on.
fn recovered(journals: Vec<OpenedJournal>, handle: &Arc<Handle>) -> Vec<RecoveredJournal> {
    let recover = |journal: OpenedJournal| {
        let OpenedJournal {
            identity,
            registers,
            end,
            spools,
        } = journal;
        let active = spools
            .last()
            .filter(|spool| !spool.complete)
            .map(|spool| Active {
                spool_id: spool.file.id(),
                first_append: spool.first_append,
            });
        RecoveredJournal {
            name: identity.name.clone(),
            create_revision: identity.create_revision,
            registers,
            end,
            spools,
            journal: JournalLog::new(identity, Arc::clone(handle), Some(end), active),
        }
    };
    journals.into_iter().map(recover).collect()
}

#[cfg(test)]
pub(crate) mod tests;
