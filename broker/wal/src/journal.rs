//! The handle of one journal, which keeps its entries in order.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use tokio::sync::oneshot;

use crate::{
    INLINE_MAX_BYTES, RECORD_MAX_BYTES,
    error::LogError,
    format::{
        Kind,
        payload::{
            DropSpoolMessage, ForgetMessage, Frame, Identity, JournalRef, SpoolRef, encode_commit,
        },
    },
    ledger::{Committed, Placement},
    log::{Ack, Commit, Content, Handle, Roll},
    pool::Job,
    shared::{Change, Entry, Shared},
    spool::{SpoolFile, lock},
};

/// One incarnation of one journal in the log. A clone is the same.
///
/// Entries are recorded, and acknowledged, in the order of the calls.
#[derive(Clone)]
pub struct JournalLog(Arc<Inner>);

struct Inner {
    identity: Arc<Identity>,
    handle: Arc<Handle>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Entries that wait for a sync, or behind one that does.
    waiting: VecDeque<Waiting>,
    /// A helper syncs, or is about to.
    syncing: bool,
    /// The write head and the spool that grows, as handed over.
    end: Option<i64>,
    active: Option<Active>,
}

/// The spool that grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub(crate) spool_id: u64,
    pub(crate) first_append: Option<SystemTime>,
}

#[derive(Debug)]
struct Waiting {
    entry: Entry,
    /// The spool that must be synced before the entry is recorded.
    sync: Option<SpoolFile>,
}

impl JournalLog {
    pub(crate) fn new(
        identity: Arc<Identity>,
        handle: Arc<Handle>,
        end: Option<i64>,
        active: Option<Active>,
    ) -> Self {
        let state = State {
            end,
            active,
            ..State::default()
        };
        Self(Arc::new(Inner {
            identity,
            handle,
            state: Mutex::new(state),
        }))
    }

    /// The journal's name.
    pub fn name(&self) -> &str {
        &self.0.identity.name
    }

    /// The revision at which this incarnation was created.
    pub fn create_revision(&self) -> i64 {
        self.0.identity.create_revision
    }

    /// A new spool. Its file is made at the first write.
    pub fn create_spool(&self, begin: i64) -> SpoolFile {
        assert!(begin >= 0, "a spool begins at an offset of its journal");
        let shared = self.shared();
        shared.folder.create(shared.take_id(), begin)
    }

    /// Records an append, or a change of the registers only (with empty content).
    ///
    /// Fails with [`LogError::TooLarge`], and changes nothing, where there are too many registers.
    ///
    /// # Panics
    ///
    /// Where the offsets do not continue the journal: that would lose what was acknowledged.
    pub fn commit(&self, commit: Commit) -> Ack {
        let Commit {
            spool,
            mut fragment,
            append_begin,
            registers,
            first_append,
            content,
        } = commit;
        let length = fragment.end - append_begin;
        assert!(
            spool.begin() == fragment.begin && fragment.begin <= append_begin && length >= 0,
            "the offsets of a commit are in order"
        );
        let content = match content {
            Content::Inline(bytes) => {
                let total: usize = bytes.iter().map(bytes::Bytes::len).sum();
                assert!(
                    total as u64 == length.unsigned_abs(),
                    "all content of a commit is given"
                );
                (total <= INLINE_MAX_BYTES).then_some(bytes)
            }
            Content::InSpool => (length == 0).then(Vec::new),
        };
        // The record has it once, as the journal's.
        fragment.journal = String::new();

        let mut queue = lock(&self.0.state);
        let active = queue.active.filter(|active| active.spool_id == spool.id());
        assert!(
            active.is_some() || queue.active.is_none(),
            "a spool is rolled or dropped before the next one begins"
        );
        assert!(
            queue.end.is_none_or(|end| {
                append_begin == end || active.is_some() && append_begin < end
            }),
            "an append begins where the journal ends"
        );
        let first_append = active
            .and_then(|active| active.first_append)
            .or(first_append);

        let inline = content.is_some();
        let identity = &self.0.identity;
        let journal = JournalRef {
            identity,
            end: fragment.end,
            registers: &registers,
        };
        let state = SpoolRef {
            id: spool.id(),
            fragment: &fragment,
            first_append,
            complete: false,
            registers: None,
        };
        let message = encode_commit(journal, state, append_begin, inline);
        let kind = if inline {
            Kind::CommitInline
        } else {
            Kind::CommitInSpool
        };
        let frame = Frame::new(kind, message, content.unwrap_or_default());
        let bytes = frame.record_bytes();
        if bytes > RECORD_MAX_BYTES {
            return answered(Err(LogError::TooLarge {
                bytes,
                max: RECORD_MAX_BYTES,
            }));
        }

        queue.end = Some(fragment.end);
        queue.active = (fragment.begin < fragment.end).then(|| Active {
            spool_id: spool.id(),
            first_append,
        });
        spool.keep();
        let placement = match (inline, length) {
            (true, 0) => Placement::Nowhere,
            (true, _) => Placement::Inline,
            (false, _) => Placement::InSpool,
        };
        let committed = Committed {
            journal: Arc::clone(identity),
            spool_id: spool.id(),
            fragment,
            registers,
            first_append,
            placement,
        };
        let sync = (!inline).then(|| spool.clone());
        self.submit(
            queue,
            Change::Commit {
                frame,
                committed,
                spool,
            },
            sync,
        )
    }

    /// Records that a spool is complete, that the write head moves to a greater offset, or both.
    ///
    /// # Panics
    ///
    /// Where the write head would move back, or the spool that grows is not the completed one.
    pub fn roll(&self, roll: Roll) -> Ack {
        let Roll {
            completed,
            next_begin,
            registers,
        } = roll;
        let mut queue = lock(&self.0.state);
        assert!(
            queue.end.is_none_or(|end| end <= next_begin),
            "a roll does not move back"
        );
        let completed = completed.map(|spool| spool.id());
        assert!(
            queue
                .active
                .is_none_or(|active| Some(active.spool_id) == completed),
            "a roll completes the spool that grows"
        );
        queue.end = Some(next_begin);
        queue.active = None;
        let change = Change::Roll {
            journal: Arc::clone(&self.0.identity),
            completed,
            next_begin,
            registers,
        };
        self.submit(queue, change, None)
    }

    /// Records that a spool is not needed any more, and removes its file then.
    pub fn drop_spool(&self, spool: &SpoolFile) -> Ack {
        let journal_id = self.0.identity.id;
        let message = DropSpoolMessage {
            journal_id,
            spool_id: spool.id(),
        };
        let frame = Frame::message(Kind::DropSpool, &message);
        let mut queue = lock(&self.0.state);
        queue.active = queue.active.filter(|active| active.spool_id != spool.id());
        self.submit(
            queue,
            Change::DropSpool {
                frame,
                journal_id,
                spool: spool.clone(),
            },
            None,
        )
    }

    /// Records that this incarnation of the journal is not wanted any more, with all its spools,
    /// and removes their files then. What follows begins a new history.
    pub fn forget(&self) -> Ack {
        let journal_id = self.0.identity.id;
        let frame = Frame::message(Kind::Forget, &ForgetMessage { journal_id });
        let mut queue = lock(&self.0.state);
        queue.end = None;
        queue.active = None;
        self.submit(queue, Change::Forget { frame, journal_id }, None)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.handle.shared
    }

    fn submit(
        &self,
        mut state: MutexGuard<'_, State>,
        change: Change,
        sync: Option<SpoolFile>,
    ) -> Ack {
        let shared = self.shared();
        if let Err(err) = shared.admit() {
            return answered(Err(err));
        }
        let (waiter, ack) = oneshot::channel();
        let entry = Entry { change, waiter };
        if sync.is_none() && state.waiting.is_empty() && !state.syncing {
            // Under the lock, so that the order stays.
            shared.push([entry]);
            return Ack(ack);
        }
        state.waiting.push_back(Waiting { entry, sync });
        if !state.syncing {
            state.syncing = true;
            drop(state);
            shared.pool.urgent(Job::SyncJournal(self.clone()));
        }
        Ack(ack)
    }

    /// Syncs the spools of what waits, and hands it to the writer then.
    pub(crate) fn sync_waiting(&self) {
        let shared = self.shared();
        let (count, spools) = {
            let state = lock(&self.0.state);
            let mut spools: Vec<SpoolFile> = Vec::new();
            for spool in state
                .waiting
                .iter()
                .filter_map(|waiting| waiting.sync.as_ref())
            {
                if spools.iter().all(|other| other.id() != spool.id()) {
                    spools.push(spool.clone());
                }
            }
            (state.waiting.len(), spools)
        };
        for spool in spools {
            if let Err(err) = spool.sync() {
                shared.fail("sync spool", spool.path().to_path_buf(), err);
                break;
            }
        }

        let mut state = lock(&self.0.state);
        if shared.is_broken() {
            let waiters: Vec<_> = state.waiting.drain(..).map(|w| w.entry.waiter).collect();
            state.syncing = false;
            drop(state);
            return shared.answer(waiters, &Err(shared.failure()));
        }
        // What came meanwhile follows, up to the next that waits for a sync.
        let rest = state
            .waiting
            .iter()
            .skip(count)
            .take_while(|waiting| waiting.sync.is_none());
        let count = count + rest.count();
        shared.push(state.waiting.drain(..count).map(|waiting| waiting.entry));
        state.syncing = !state.waiting.is_empty();
        if state.syncing {
            drop(state);
            shared.pool.urgent(Job::SyncJournal(self.clone()));
        }
    }
}

impl fmt::Debug for JournalLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalLog")
            .field("name", &self.name())
            .field("create_revision", &self.create_revision())
            .finish_non_exhaustive()
    }
}

fn answered(result: Result<(), LogError>) -> Ack {
    let (waiter, ack) = oneshot::channel();
    drop(waiter.send(result));
    Ack(ack)
}
