//! From how items are assigned to how they should be, as transactions.
//!
//! One call makes the steps that are allowed now. Later ones wait until these were applied, and
//! until members have caught up: an item is never left with fewer consistent assignments than
//! replicas for the sake of a move.

mod batch;
mod item;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use gazette_coordination::Compare;
use gazette_protocol::process_spec::Id;

use crate::{
    Schema, State,
    state::MemberEntry,
    tracker::{Load, Tracker},
};

pub use batch::Batch;

/// Members and their limits, as the solver saw them, and how loaded they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    members: BTreeMap<Id, (usize, Load)>,
}

/// How loaded a member is: assignments for its limit. Compares as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ratio {
    assigned: usize,
    limit: usize,
}

/// Transactions that bring items closer to their desired members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To apply in order. The changes of one item are in one batch.
    pub batches: Vec<Batch>,
    /// Items that lack a member, because it has no room yet: they must be planned again when
    /// any member has lost an assignment.
    pub blocked: BTreeSet<String>,
}

impl Loads {
    /// Returns the loads of members with these limits.
    pub fn new(limits: &BTreeMap<Id, usize>, tracker: &Tracker) -> Self {
        let members = limits
            .iter()
            .map(|(id, &limit)| (id.clone(), (limit, tracker.load(id))))
            .collect();
        Self { members }
    }

    /// A member that is not known has neither limit nor load, which counts as fully loaded.
    fn of(&self, member: &Id) -> (usize, Load) {
        self.members.get(member).copied().unwrap_or_default()
    }

    fn assigned(&self, member: &Id) -> Ratio {
        let (limit, load) = self.of(member);
        Ratio {
            assigned: load.assigned,
            limit,
        }
    }

    fn primary(&self, member: &Id) -> Ratio {
        let (limit, load) = self.of(member);
        Ratio {
            assigned: load.primary,
            limit,
        }
    }

    fn has_room(&self, member: &Id) -> bool {
        let (limit, load) = self.of(member);
        load.assigned < limit
    }

    fn add(&mut self, member: &Id) {
        if let Some((_, load)) = self.members.get_mut(member) {
            load.assigned += 1;
        }
    }

    fn add_primary(&mut self, member: &Id) {
        if let Some((_, load)) = self.members.get_mut(member) {
            load.primary += 1;
        }
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self.limit, other.limit) {
            (0, 0) => self.assigned.cmp(&other.assigned),
            (0, _) => std::cmp::Ordering::Greater,
            (_, 0) => std::cmp::Ordering::Less,
            (mine, theirs) => {
                let cross = |assigned: usize, limit: usize| (assigned as u128) * (limit as u128);
                cross(self.assigned, theirs).cmp(&cross(other.assigned, mine))
            }
        }
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Plans the next steps of `items`, each with the members that it should have.
///
/// Every transaction fails if the spec of `leader` has changed, so that no other member can have
/// become leader. None has more than `max_ops` compares or operations. `loads` is counted up by
/// what is added.
pub fn converge<'a, S: Schema>(
    state: State<'_, S>,
    leader: MemberEntry<'_, S>,
    loads: &mut Loads,
    items: impl IntoIterator<Item = (&'a str, &'a [Id])>,
    max_ops: usize,
) -> Plan {
    let guard = Compare::mod_revision(leader.raw().key.clone(), leader.mod_revision());
    let mut batcher = batch::Batcher::new(guard, max_ops);
    let mut blocked = BTreeSet::new();
    for (id, desired) in items {
        let Some(item) = state.item(id) else {
            item::remove_dead(state, id, &mut batcher);
            continue;
        };
        let steps = item::plan(state, item, desired, loads);
        if steps.is_blocked {
            blocked.insert(id.to_owned());
        }
        batcher.push(id, steps.compares, steps.ops);
    }
    Plan {
        batches: batcher.finish(),
        blocked,
    }
}
