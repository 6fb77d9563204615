//! The replicas of this broker, as the assignments say.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use gazette_allocator::{Brokers, Decoded, Keys, State};
use gazette_keyspace::{Change, KeySpace};
use gazette_protocol::process_spec;
use gazette_wal::{Log, RecoveredJournal};

use crate::{
    replica::{Context, Replica},
    topology::ByName,
};

/// The replicas of this broker, by journal.
#[derive(Debug)]
pub(crate) struct Replicas {
    keys: Keys,
    local: process_spec::Id,
    log: Log,
    context: Context,
    running: RwLock<ByName<Arc<Replica>>>,
    /// What the log held at the start, until its journal is assigned to us again.
    recovered: Mutex<ByName<RecoveredJournal>>,
    /// Replicas that are not assigned any more, and are about to end.
    retiring: Mutex<BTreeMap<String, Vec<Arc<Replica>>>>,
    is_serving: AtomicBool,
}

impl Replicas {
    /// No replicas yet; `recovered` is what the log held.
    pub(crate) fn new(
        keys: Keys,
        local: process_spec::Id,
        log: Log,
        context: Context,
        recovered: Vec<RecoveredJournal>,
    ) -> Self {
        // A journal that was made anew under its name may be there in several incarnations, of
        // which only the newest can still be assigned.
        let mut newest: ByName<RecoveredJournal> = BTreeMap::new();
        for journal in recovered {
            let older = match newest.get(&journal.name) {
                Some(other) if other.create_revision > journal.create_revision => Some(journal),
                _ => newest.insert(journal.name.clone(), journal),
            };
            if let Some(older) = older {
                drop(older.journal.forget());
            }
        }
        Self {
            keys,
            local,
            log,
            context,
            running: RwLock::default(),
            recovered: Mutex::new(newest),
            retiring: Mutex::default(),
            is_serving: AtomicBool::new(true),
        }
    }

    /// The replica of a journal, if it is assigned to this broker.
    pub(crate) fn get(&self, journal: &str) -> Option<Arc<Replica>> {
        self.running
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(journal)
            .cloned()
    }

    /// Whether replicas that are assigned are served.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Acquire)
    }

    /// Ends all replicas; their spools stay in the log.
    pub(crate) fn stop(&self) {
        self.is_serving.store(false, Ordering::Release);
        let running = mem::take(&mut *self.running.write().unwrap_or_else(PoisonError::into_inner));
        for replica in running.values() {
            replica.stop();
        }
    }

    /// Waits until no earlier replica of a journal works on it any more.
    pub(crate) async fn retired(&self, journal: &str) {
        let retiring = lock(&self.retiring)
            .get(journal)
            .cloned()
            .unwrap_or_default();
        for replica in retiring {
            replica.ended().await;
        }
    }

    /// Follows the assignments. Called in the lock of the mirror, for each change.
    pub(crate) fn observe(
        &self,
        space: &KeySpace<Decoded<Brokers>>,
        changes: &[Change<Decoded<Brokers>>],
    ) {
        if !self.is_serving() {
            return;
        }
        let state = State::new(&self.keys, space);
        for change in changes {
            let Some(entry) = change.after.as_ref().or(change.before.as_ref()) else {
                continue;
            };
            match &entry.decoded {
                Decoded::Assignment(assignment) if assignment.member == self.local => {
                    self.sync(state, &assignment.item);
                }
                Decoded::Item(item) => self.sync(state, &item.id),
                Decoded::Assignment(_) | Decoded::Member(_) => {}
            }
            // Whatever changed about an assignment, appends on the old route look again.
            if let Decoded::Assignment(assignment) = &entry.decoded
                && let Some(replica) = self.get(&assignment.item)
            {
                replica.invalidate();
            }
        }
    }

    /// Makes the replica of one journal what the key space says.
    fn sync(&self, state: State<'_, Brokers>, journal: &str) {
        let item = state.item(journal);
        let is_assigned = state
            .assignments_of(journal)
            .any(|assignment| assignment.member == self.local);
        let incarnation = item.map(|item| item.raw().create_revision);
        let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(replica) = running.get(journal) {
            // One that is suspended has no assignment, but nobody else has its spools either.
            if incarnation == Some(replica.create_revision()) {
                replica.spec_changed();
                return;
            }
            // Without a spec nothing of it can be stored, and nobody may read it.
            let replica = running.remove(journal).expect("it was just there");
            replica.retire();
            self.keep_until_ended(replica);
        }
        if let Some(create_revision) = incarnation.filter(|_| is_assigned) {
            let replica = self.start(journal, create_revision);
            running.insert(journal.to_owned(), replica);
        }
    }

    fn start(&self, journal: &str, create_revision: i64) -> Arc<Replica> {
        let recovered = lock(&self.recovered).remove(journal);
        let recovered = match recovered {
            Some(recovered) if recovered.create_revision == create_revision => Some(recovered),
            Some(other) => {
                // Its journal was deleted, and made anew under the same name.
                drop(other.journal.forget());
                None
            }
            None => None,
        };
        Replica::start(
            self.context.clone(),
            &self.log,
            journal,
            create_revision,
            recovered,
        )
    }

    fn keep_until_ended(&self, replica: Arc<Replica>) {
        let mut retiring = lock(&self.retiring);
        for replicas in retiring.values_mut() {
            replicas.retain(|replica| !replica.has_ended());
        }
        retiring.retain(|_, replicas| !replicas.is_empty());
        retiring
            .entry(replica.name().to_owned())
            .or_default()
            .push(replica);
    }

    /// Forgets what the log held of journals that are not there any more.
    pub(crate) fn forget_deleted(&self, exists: impl Fn(&str, i64) -> bool) {
        let mut recovered = lock(&self.recovered);
        recovered.retain(|name, journal| {
            let is_there = exists(name, journal.create_revision);
            if !is_there {
                drop(journal.journal.forget());
            }
            is_there
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
