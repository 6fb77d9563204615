//! When closed fragments go to their store, and in what order they are tried.
//!
//! A schedule is that of all replicas of a broker. It says when to try which fragment; the
//! caller looks at the *present* spec of the journal, tries the store of the given index in
//! it, and tells how that went.
//!
//! | | primary | replica |
//! |---|---|---|
//! | first try | at once | after [`REPLICA_DELAY`], when the primary's upload is there |
//! | at a time | [`CONCURRENT_MAX`], of both kinds, primaries first | |
//! | after a failure | later and later, up to [`RETRY_MAX`] | same |
//!
//! A fragment is tried only once it is acknowledged (P2). The first store is the only one that
//! is written, but for a broker that exits and is refused there: it goes on to the next one.
//! What could not be stored when the time to exit is over stays on the disk of the broker.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use super::spool::Completed;

/// Uploads at a time. Flush intervals close the fragments of all journals at once.
pub const CONCURRENT_MAX: usize = 32;
/// How long a replica leaves a fragment to the primary.
pub const REPLICA_DELAY: Duration = Duration::from_secs(150);
/// Wait after a first failure. It doubles with each further one.
pub const RETRY_MIN: Duration = Duration::from_secs(1);
/// Longest wait after a failure.
pub const RETRY_MAX: Duration = Duration::from_secs(150);
/// Wait before a journal that had no stores is looked at again.
pub const NO_STORES_RETRY: Duration = Duration::from_mins(10);

/// A fragment of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PersistId(u64);

/// Which replica of the journal closed a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The primary.
    Primary,
    /// Another one, or one that stopped.
    Replica,
}

/// How a try went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// The fragment is in the store, and is safe there.
    Stored,
    /// The journal is gone.
    NoJournal,
    /// The journal has no store of the given index.
    NoStore,
    /// The store does not let us write.
    Denied,
    /// Something else went wrong.
    Failed,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Try to store a fragment, and answer with [`PersistSchedule::handle_tried`].
    Try {
        /// The fragment.
        id: PersistId,
        /// What it is, and what its path is made of.
        completed: Box<Completed>,
        /// Index of the store in the present spec.
        store: usize,
    },
    /// The schedule is done with a fragment.
    Settled {
        /// The fragment.
        id: PersistId,
        /// What it is.
        completed: Box<Completed>,
        /// Where its content is from now on.
        settled: Settled,
    },
}

/// How the schedule ended with a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is stored. Its local content may go once a listing shows it.
    Stored,
    /// Its journal is gone. Its local content may go.
    Dropped,
    /// It could not be stored before the exit. Its local content must stay.
    Kept,
}

#[derive(Debug)]
struct Item {
    completed: Box<Completed>,
    role: Role,
    phase: Phase,
    failures: u32,
    store: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not acknowledged yet.
    Unacknowledged,
    /// To be tried at this time.
    Due(Instant),
    /// Being tried.
    Trying,
}

/// The fragments of a broker that are on their way to a store.
#[derive(Debug, Default)]
pub struct PersistSchedule {
    items: BTreeMap<PersistId, Item>,
    /// Those to be tried, by role and then by time.
    due: BTreeMap<Role, BTreeSet<(Instant, PersistId)>>,
    created: u64,
    trying: usize,
    /// When to give up, once the broker exits.
    exit: Option<Instant>,
    outputs: VecDeque<Output>,
}

impl PersistSchedule {
    /// A schedule of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fragment that a spool closed, or that was found on the disk. `acknowledged` is up
    /// to where all replicas have the journal.
    pub fn handle_completed(
        &mut self,
        now: Instant,
        completed: Completed,
        role: Role,
        acknowledged: i64,
    ) -> PersistId {
        let id = PersistId(self.created);
        self.created += 1;
        let is_acknowledged = completed.fragment.end <= acknowledged;
        let item = Item {
            completed: Box::new(completed),
            role,
            phase: Phase::Unacknowledged,
            failures: 0,
            store: 0,
        };
        self.items.insert(id, item);
        if is_acknowledged {
            self.make_due(id, self.first_try(now, role));
        }
        id
    }

    /// Notes that all replicas have a journal up to `acknowledged`.
    pub fn handle_acknowledged(&mut self, now: Instant, journal: &str, acknowledged: i64) {
        let waiting = self.items.iter().filter(|(_, item)| {
            let fragment = &item.completed.fragment;
            item.phase == Phase::Unacknowledged
                && fragment.end <= acknowledged
                && fragment.journal == journal
        });
        let ready: Vec<_> = waiting.map(|(&id, item)| (id, item.role)).collect();
        for (id, role) in ready {
            self.make_due(id, self.first_try(now, role));
        }
    }

    /// Forgets fragments of a journal that were never acknowledged and whose content was cut at
    /// `end`.
    pub fn handle_cut(&mut self, journal: &str, end: i64) {
        self.items.retain(|_, item| {
            let fragment = &item.completed.fragment;
            item.phase != Phase::Unacknowledged
                || fragment.end <= end
                || fragment.journal != journal
        });
    }

    /// Notes how a try went.
    pub fn handle_tried(&mut self, now: Instant, id: PersistId, tried: Tried) {
        let is_exit = self.exit.is_some();
        let Some(item) = self
            .items
            .get_mut(&id)
            .filter(|item| item.phase == Phase::Trying)
        else {
            return;
        };
        self.trying -= 1;
        match tried {
            Tried::Stored => return self.settle(id, Settled::Stored),
            Tried::NoJournal => return self.settle(id, Settled::Dropped),
            Tried::NoStore if is_exit && item.store == 0 => {
                return self.settle(id, Settled::Kept);
            }
            // The last one refused as well: begin again with the first.
            Tried::NoStore if item.store > 0 => item.store = 0,
            Tried::NoStore => return self.make_due(id, now + NO_STORES_RETRY),
            Tried::Denied if is_exit => {
                item.store += 1;
                return self.make_due(id, now);
            }
            Tried::Denied | Tried::Failed => item.store = 0,
        }
        item.failures = item.failures.saturating_add(1);
        let wait = RETRY_MIN
            .saturating_mul(1 << (item.failures - 1).min(16))
            .min(RETRY_MAX);
        self.make_due(id, now + wait);
    }

    /// Tries at once what waits after a failure, or for its journal to have a store: the cause
    /// may be gone.
    pub fn handle_wake(&mut self, now: Instant) {
        self.hasten(now, |item| item.failures > 0 || item.role == Role::Primary);
    }

    /// Begins the exit: everything is tried at once, until `until` at the latest.
    pub fn handle_exit(&mut self, now: Instant, until: Instant) {
        self.exit = Some(self.exit.map_or(until, |before| before.min(until)));
        self.hasten(now, |_| true);
    }

    /// What is due, until there is nothing. `now` is that of the call before it.
    pub fn poll_output(&mut self, now: Instant) -> Option<Output> {
        if self.exit.is_some_and(|until| until <= now) {
            self.give_up();
        }
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if self.trying >= CONCURRENT_MAX {
            return None;
        }
        let id = self.take_due(now)?;
        let item = self.items.get_mut(&id)?;
        item.phase = Phase::Trying;
        self.trying += 1;
        let completed = item.completed.clone();
        Some(Output::Try {
            id,
            completed,
            store: item.store,
        })
    }

    /// When to ask [`Self::poll_output`] again, if nothing else happens.
    pub fn next_timeout(&self) -> Option<Instant> {
        let has_room = self.trying < CONCURRENT_MAX;
        let firsts = self.due.values().filter_map(BTreeSet::first);
        let due = firsts.map(|(at, _)| *at).filter(|_| has_room);
        let exit = self.exit.filter(|_| !self.items.is_empty());
        due.chain(exit).min()
    }

    /// Whether the schedule is done with everything.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.outputs.is_empty()
    }

    /// Fragments that are not settled.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    fn first_try(&self, now: Instant, role: Role) -> Instant {
        match role {
            Role::Replica if self.exit.is_none() => now + REPLICA_DELAY,
            Role::Primary | Role::Replica => now,
        }
    }

    /// Makes due by now what is due later.
    fn hasten(&mut self, now: Instant, which: impl Fn(&Item) -> bool) {
        let late = self
            .items
            .iter()
            .filter(|(_, item)| matches!(item.phase, Phase::Due(at) if at > now) && which(item));
        let late: Vec<_> = late.map(|(&id, _)| id).collect();
        for id in late {
            self.make_due(id, now);
        }
    }

    fn make_due(&mut self, id: PersistId, at: Instant) {
        if let Some(item) = self.items.get_mut(&id) {
            let due = self.due.entry(item.role).or_default();
            if let Phase::Due(before) = item.phase {
                due.remove(&(before, id));
            }
            item.phase = Phase::Due(at);
            due.insert((at, id));
        }
    }

    /// Of what is due by `now`, the first of a primary, or else of a replica.
    fn take_due(&mut self, now: Instant) -> Option<PersistId> {
        for due in self.due.values_mut() {
            if let Some(first) = due.first().copied().filter(|(at, _)| *at <= now) {
                due.remove(&first);
                return Some(first.1);
            }
        }
        None
    }

    fn settle(&mut self, id: PersistId, settled: Settled) {
        if let Some(item) = self.items.remove(&id) {
            self.outputs.push_back(Output::Settled {
                id,
                completed: item.completed,
                settled,
            });
        }
    }

    fn give_up(&mut self) {
        self.due.clear();
        self.trying = 0;
        for (id, item) in std::mem::take(&mut self.items) {
            let Item { completed, .. } = item;
            self.outputs.push_back(Output::Settled {
                id,
                completed,
                settled: Settled::Kept,
            });
        }
    }
}

#[cfg(test)]
mod tests;
