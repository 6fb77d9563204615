//! Journals as files, without any transport.
//!
//! Each operation is a method. A method `try_*` does not wait, and returns `None` if it would have
//! to: then the method without `try_` does it. The kernel's numbers are `Ino` and `HandleId`.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use gazette_client::{AppendService, AppendServiceOptions, Client, Listing, WatchedList};
use gazette_protocol::{LabelSelector, list_response};
use thiserror::Error;
use tokio::{runtime, task::AbortHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    create::Template,
    error::Cause,
    handle::Handles,
    inode::{Inode, lock},
    patience::Patience,
    pending::Pending,
    tree::{Ino, Listed, Tree},
};
use crate::journals::caller::Caller;

/// How journals are shown.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a call waits for brokers.
    pub timeout: Duration,
    /// When a write is reported as done.
    pub ack: Ack,
    /// What is the beginning of a file.
    pub origin: Origin,
    /// Whether deleting a file deletes the journal and its content.
    pub allow_delete: bool,
    /// Owner of all files.
    pub uid: u32,
    /// Group of all files.
    pub gid: u32,
    /// Mode of all journals, 12 bits. Directories may be searched by those who may read.
    pub mode: u16,
    /// What a new journal is.
    pub template: Template,
    /// Folder of which the free space is shown as that of the mount.
    pub space_of: Option<PathBuf>,
}

/// When a write is reported as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// When brokers acknowledged it.
    Write,
    /// At once; then fsync and close wait for brokers.
    Close,
}

/// What is the beginning of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The journal's offset zero. What was pruned is a hole.
    Zero,
    /// The first byte that was there when the file was first opened.
    Available,
}

/// Journals as files. A clone is the same.
#[derive(Clone)]
pub struct JournalFs {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    appends: AppendService,
    options: Options,
    runtime: runtime::Handle,
    started: SystemTime,
    names: Mutex<Names>,
    handles: Handles,
    /// Streams and watches, which end with the mount.
    tasks: TaskTracker,
    /// Appends, for which the end of the mount waits.
    pending: Pending,
    failed_appends: AtomicU64,
    is_away: AtomicBool,
    /// Full listings go one after the other.
    listing: tokio::sync::Mutex<()>,
    ending: CancellationToken,
}

/// The names that are known, and what is behind them.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) tree: Tree,
    pub(super) inodes: BTreeMap<Ino, Arc<Inode>>,
    /// Journals of the last listing whose names cannot be shown.
    hidden: usize,
}

/// Why journals cannot be shown.
#[derive(Debug, Error)]
pub enum StartError {
    /// No broker answered.
    #[error("list journals: no answer within {} s{}; next: check that the broker runs, and its \
             address", .waited.as_secs_f32(), .last)]
    NoAnswer {
        /// How long it waited.
        waited: Duration,
        /// The last error, after a colon, if there was one.
        last: String,
    },
}

impl fmt::Debug for JournalFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalFs")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

impl JournalFs {
    /// Lists the journals, and follows them from now on. Must be called in a tokio runtime, whose
    /// threads then do what takes time.
    pub async fn start(client: Client, options: Options) -> Result<Self, StartError> {
        let mut watch = client.watch(LabelSelector::default());
        let last = watch.last_error();
        let waited = options.timeout;
        let Ok(listing) = tokio::time::timeout(waited, watch.next()).await else {
            let last = last
                .get()
                .map(|error| format!(": {error}"))
                .unwrap_or_default();
            return Err(StartError::NoAnswer { waited, last });
        };
        let appends = AppendService::new(
            client.clone(),
            AppendServiceOptions {
                max_batch_bytes: BATCH_BYTES_MAX,
                max_pending_bytes: PENDING_BYTES_MAX,
                give_up_after: Some(options.timeout),
                ..AppendServiceOptions::default()
            },
        );
        let inner = Inner {
            client,
            appends,
            options,
            runtime: runtime::Handle::current(),
            started: SystemTime::now(),
            names: Mutex::default(),
            handles: Handles::default(),
            tasks: TaskTracker::new(),
            pending: Pending::default(),
            failed_appends: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
            listing: tokio::sync::Mutex::new(()),
            ending: CancellationToken::new(),
        };
        let fs = Self {
            inner: Arc::new(inner),
        };
        fs.take_listing(&listing);
        fs.spawn(fs.clone().follow(watch));
        Ok(fs)
    }

    /// How journals are shown.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Says whether there is no journal.
    pub fn is_empty(&self) -> bool {
        self.names().inodes.is_empty()
    }

    /// Waits until all appends that have begun have ended. Returns how many failed without a caller to
    /// tell.
    pub async fn drain(&self) -> u64 {
        self.inner.pending.settled().await;
        self.inner.failed_appends.load(Ordering::Acquire)
    }

    /// How many appends are under way.
    pub fn pending(&self) -> usize {
        self.inner.pending.len()
    }

    /// How many watches and reads ahead are under way.
    pub fn tasks(&self) -> usize {
        self.inner.tasks.len()
    }

    /// Refuses further appends: what was accepted is all that is waited for.
    pub fn refuse_appends(&self) {
        self.inner.ending.cancel();
    }

    /// Starts a task that may be dropped when the mount ends.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.inner
            .tasks
            .spawn_on(task, &self.inner.runtime)
            .abort_handle()
    }

    /// Starts a task that the end of the mount waits for.
    pub(super) fn spawn_append(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner.pending.spawn(&self.inner.runtime, task);
    }

    /// Counts an append as under way until the token is dropped.
    pub(super) fn pending_token(&self) -> tokio_util::task::task_tracker::TaskTrackerToken {
        self.inner.pending.token()
    }

    /// Counts an append that failed when it could not be reported any more.
    pub(super) fn count_failed_append(&self) {
        self.inner.failed_appends.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn check_not_ending(&self) -> Result<(), Cause> {
        if self.inner.ending.is_cancelled() {
            Err(Cause::Ending)
        } else {
            Ok(())
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(super) fn appends(&self) -> &AppendService {
        &self.inner.appends
    }

    pub(super) fn handles(&self) -> &Handles {
        &self.inner.handles
    }

    /// When the mount began, which is when its directories changed as far as anybody knows.
    pub(super) fn started(&self) -> SystemTime {
        self.inner.started
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.inner.names)
    }

    pub(super) fn patience(&self, caller: Caller) -> Patience {
        Patience::new(caller, self.inner.options.timeout)
    }

    /// Returns a journal by its number, or an error if it is gone or none.
    pub(super) fn inode(&self, ino: Ino) -> Result<Arc<Inode>, Cause> {
        let names = self.names();
        match names.inodes.get(&ino) {
            Some(inode) => Ok(Arc::clone(inode)),
            None if names.tree.kind(ino).is_some() => Err(Cause::IsDirectory),
            None => Err(Cause::Stale),
        }
    }

    /// Takes the listing of all journals.
    pub(super) fn take_listing(&self, listing: &Listing) {
        let now = SystemTime::now();
        let names = &mut *self.names();
        let listed = listing.journals.iter().map(|journal| Listed {
            name: &journal.spec.name,
            create_revision: journal.create_revision,
        });
        let changes = names.tree.replace(listing.header.etcd.revision, listed);
        for ino in &changes.removed {
            names.retire(*ino);
        }
        let hidden = std::mem::replace(&mut names.hidden, changes.hidden);
        if changes.hidden > hidden {
            let count = changes.hidden;
            tracing::warn!(
                count,
                "journals are not shown, as their names cannot be paths"
            );
        }
        for journal in &listing.journals {
            let Some(ino) = names.tree.journal(&journal.spec.name) else {
                continue;
            };
            match names.inodes.get(&ino) {
                Some(inode) => inode.relist(journal),
                None => names.add(ino, journal, now),
            }
        }
    }

    /// Takes journals that were looked up by name at a revision.
    pub(super) fn learn(&self, listing: &Listing) {
        let now = SystemTime::now();
        let names = &mut *self.names();
        for journal in &listing.journals {
            let listed = Listed {
                name: &journal.spec.name,
                create_revision: journal.create_revision,
            };
            let Some((ino, replaced)) = names.tree.learn(listing.header.etcd.revision, listed)
            else {
                continue;
            };
            if let Some(replaced) = replaced {
                names.retire(replaced);
            }
            match names.inodes.get(&ino) {
                Some(inode) => inode.relist(journal),
                None => names.add(ino, journal, now),
            }
        }
    }

    /// Forgets a journal that turned out to be gone.
    pub(super) fn gone(&self, inode: &Inode) {
        inode.retire();
        let names = &mut *self.names();
        if names.tree.journal(&inode.name) == Some(inode.ino) {
            names.tree.remove(&inode.name);
        }
        names.inodes.remove(&inode.ino);
    }

    /// Makes sure that the names are not older than what the broker has now.
    pub(super) async fn refresh_names(&self, patience: Patience) -> Result<(), Cause> {
        let probe = super::head::named(NO_JOURNAL);
        let answer = patience.wait(self.client().list(probe)).await??;
        if answer.header.etcd.revision == self.names().tree.revision() {
            return Ok(());
        }
        let _one_at_a_time = patience.wait(self.inner.listing.lock()).await?;
        if answer.header.etcd.revision > self.names().tree.revision() {
            let listing = patience
                .wait(self.client().list(LabelSelector::default()))
                .await??;
            if listing.header.etcd.revision >= self.names().tree.revision() {
                self.take_listing(&listing);
            }
        }
        Ok(())
    }

    async fn follow(self, mut watch: WatchedList) {
        loop {
            let listing = tokio::select! {
                biased;
                () = self.inner.ending.cancelled() => return,
                listing = watch.next() => listing,
            };
            self.answered();
            self.take_listing(&listing);
        }
    }

    /// Notes that a broker answered.
    pub(super) fn answered(&self) {
        if self.inner.is_away.swap(false, Ordering::AcqRel) {
            tracing::warn!("brokers answer again");
        }
    }

    /// Notes that no broker did what it should.
    pub(super) fn not_answered(&self, cause: &Cause) {
        if cause.is_away() && !self.inner.is_away.swap(true, Ordering::AcqRel) {
            tracing::warn!(%cause, "brokers do not answer");
        }
    }

    /// Says whether brokers did not answer the last time.
    pub(super) fn is_away(&self) -> bool {
        self.inner.is_away.load(Ordering::Acquire)
    }
}

impl Names {
    fn add(&mut self, ino: Ino, journal: &list_response::Journal, now: SystemTime) {
        let inode = Inode::new(ino, journal.clone(), now);
        self.inodes.insert(ino, Arc::new(inode));
    }

    fn retire(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.remove(&ino) {
            inode.retire();
        }
    }
}

/// Appends that are queued behind one in flight go together up to this size.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// What programs may have written that is not acknowledged, in all: after that they wait.
const PENDING_BYTES_MAX: usize = 64 << 20;

/// A name that no journal has: it is too short.
const NO_JOURNAL: &str = "-";
