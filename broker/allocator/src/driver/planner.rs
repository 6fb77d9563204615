//! What the leader remembers between rounds.

use std::collections::{BTreeMap, BTreeSet};

use gazette_protocol::process_spec::Id;

use crate::{
    Schema, State,
    converge::{Batch, Loads, converge},
    solve::{Problem, solve},
    state::MemberEntry,
    tracker::Tracker,
};

/// The solution that is being converged to, and the items that are not there yet.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    solution: Option<Solved>,
    /// Items to look at in the next round.
    again: BTreeSet<String>,
    /// Items that wait for room at a member.
    blocked: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Solved {
    desired: BTreeMap<String, Vec<Id>>,
    limits: BTreeMap<Id, usize>,
}

impl Planner {
    /// Notes that another member leads.
    pub(crate) fn follow(&mut self, tracker: &mut Tracker) {
        *self = Self::default();
        tracker.take_dirty();
    }

    /// Plans these items again in the next round, as what was planned did not happen.
    pub(crate) fn again(&mut self, items: BTreeSet<String>) {
        self.again.extend(items);
    }

    /// Plans a round: of all items after a new solution, else of those that changed.
    pub(crate) fn plan<S: Schema>(
        &mut self,
        state: State<'_, S>,
        leader: MemberEntry<'_, S>,
        tracker: &mut Tracker,
        max_ops: usize,
    ) -> Vec<Batch> {
        let mut items = tracker.take_dirty();
        items.append(&mut self.again);
        items.append(&mut self.blocked);
        let is_new = tracker.take_network_changed() || self.solution.is_none();
        if is_new {
            let solved = solve_anew(state);
            let is_known = self.solution.is_some();
            let before = self.solution.take().unwrap_or_default();
            let moved = solved
                .desired
                .iter()
                .filter(|(id, to)| before.desired.get(*id) != Some(to));
            items.extend(moved.map(|(id, _)| id.clone()));
            if !is_known {
                // Assignments of items that were deleted while nobody led.
                items.extend(state.assignments().map(|entry| entry.decoded.item.clone()));
            }
            self.solution = Some(solved);
        }
        let solved = self.solution.get_or_insert_default();
        let mut loads = Loads::new(&solved.limits, tracker);
        let work = items.iter().map(|id| {
            let desired = solved.desired.get(id).map_or(&[] as &[Id], Vec::as_slice);
            (id.as_str(), desired)
        });
        let plan = converge(state, leader, &mut loads, work, max_ops);
        self.blocked = plan.blocked;
        plan.batches
    }
}

fn solve_anew<S: Schema>(state: State<'_, S>) -> Solved {
    let problem = Problem::of(state);
    let solution = solve(&problem);
    if solution.shortfall > 0 {
        tracing::warn!(
            replicas = solution.shortfall,
            members = problem.members.len(),
            "members have no room for all replicas"
        );
    }
    let id_of = |member: &usize| problem.members[*member].id.clone();
    let desired = problem
        .items
        .iter()
        .zip(&solution.desired)
        .map(|(item, members)| (item.id.clone(), members.iter().map(id_of).collect()))
        .collect();
    let limits = problem
        .members
        .iter()
        .map(|member| (member.id.clone(), member.limit))
        .collect();
    Solved { desired, limits }
}
