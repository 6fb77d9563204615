//! The handles of a running log.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use bytes::Bytes;
use gazette_protocol::{Fragment, LabelSet};
use tokio::sync::{oneshot, watch};

use crate::{
    disk::Disk,
    error::{Failure, LogError, OpenError},
    options::Options,
    spool::SpoolFile,
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
    /// As in its first commit.
    pub first_append: Option<SystemTime>,
    /// The registers after its last append.
    pub registers: Arc<LabelSet>,
    /// It was rolled: nothing is added to it, and it waits to be stored.
    pub complete: bool,
    /// Its content, at least as long as the fragment. The caller compares the sum.
    pub file: SpoolFile,
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
    /// When the first append to this spool began.
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
#[derive(Clone, Debug)]
pub struct Log {}

impl Log {
    /// Recovers what is in the log, makes it durable, and starts the log. Blocks for as long as
    /// it takes, at most some seconds.
    ///
    /// Nothing but one log may use the two folders at a time; the caller holds a lock file.
    pub fn open(
        options: Options,
        disk: Arc<dyn Disk>,
    ) -> Result<(Self, Vec<RecoveredJournal>), OpenError> {
        drop((options, disk));
        unimplemented!()
    }

    /// A new incarnation of a journal. Nothing is recorded before its first commit or roll.
    pub fn open_journal(&self, name: &str, create_revision: i64) -> JournalLog {
        drop((name, create_revision));
        unimplemented!()
    }

    /// Why the log broke, once it did: nothing is acknowledged any more, and the broker should
    /// end.
    pub fn failed(&self) -> watch::Receiver<Option<Failure>> {
        unimplemented!()
    }

    /// Writes what was handed over and ends. Later entries of other handles fail with
    /// [`LogError::Closed`]. Blocks.
    pub fn close(self) {}
}

/// One incarnation of one journal in the log. A clone is the same.
///
/// Entries are recorded, and acknowledged, in the order of the calls.
#[derive(Clone, Debug)]
pub struct JournalLog {}

impl JournalLog {
    /// The journal's name.
    pub fn name(&self) -> &str {
        unimplemented!()
    }

    /// The revision at which this incarnation was created.
    pub fn create_revision(&self) -> i64 {
        unimplemented!()
    }

    /// A new spool. Its file is made at the first write.
    pub fn create_spool(&self, begin: i64) -> SpoolFile {
        drop(begin);
        unimplemented!()
    }

    /// Records an append, or a change of the registers only (with empty content).
    pub fn commit(&self, commit: Commit) -> Ack {
        drop(commit);
        unimplemented!()
    }

    /// Records that a spool is complete, that the write head moves to a greater offset, or both.
    pub fn roll(&self, roll: Roll) -> Ack {
        drop(roll);
        unimplemented!()
    }

    /// Records that a spool is not needed any more, and removes its file then.
    pub fn drop_spool(&self, spool: &SpoolFile) -> Ack {
        drop(spool);
        unimplemented!()
    }

    /// Records that this incarnation of the journal is not wanted any more, with all its spools,
    /// and removes their files then. No other call may follow.
    pub fn forget(&self) -> Ack {
        unimplemented!()
    }
}
