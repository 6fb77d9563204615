//! Which members each item should be assigned to.
//!
//! The solver is greedy: it keeps assignments where it can, and gives what is missing to the
//! members with the lowest load. It does not move an item to make room for another.

mod problem;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use problem::{Problem, ProblemItem, ProblemMember};

/// Members of each item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Solution {
    /// For each item of the problem, the members that it should have, as ascending indices into
    /// the problem's members.
    pub desired: Vec<Vec<usize>>,
    /// Replicas that found no place.
    pub shortfall: usize,
}

/// Assigns items to members.
///
/// No member gets more than its limit, and no item more than its replication or the same member
/// twice. Items of two replicas or more span two zones if there is room for it; a single zone is
/// preferred to fewer replicas. An item keeps the members that it has where this allows it, the
/// first ones (the primary) most. The result is a function of the problem.
pub fn solve(problem: &Problem) -> Solution {
    let mut solver = Solver::new(problem);
    for index in 0..problem.items.len() {
        solver.keep(index);
    }
    let most = problem
        .items
        .iter()
        .map(|item| item.replication)
        .max()
        .unwrap_or(0);
    // Every item gets a first replica before any gets a second.
    for count in 0..most.min(problem.members.len()) {
        for (index, item) in problem.items.iter().enumerate() {
            if solver.desired[index].len() == count && count < item.replication {
                solver.fill(index);
            }
        }
    }
    let wanted: usize = problem.items.iter().map(|item| item.replication).sum();
    let got: usize = solver.desired.iter().map(Vec::len).sum();
    let mut desired = solver.desired;
    for members in &mut desired {
        members.sort_unstable();
    }
    Solution {
        desired,
        shortfall: wanted - got,
    }
}

struct Solver<'a> {
    problem: &'a Problem,
    /// Zone of each member.
    zone_of: Vec<usize>,
    zones: Vec<Zone>,
    assigned: Vec<usize>,
    desired: Vec<Vec<usize>>,
}

/// Members of a zone that have room, by load and index.
#[derive(Default)]
struct Zone {
    open: BTreeSet<(u64, usize)>,
}

impl<'a> Solver<'a> {
    fn new(problem: &'a Problem) -> Self {
        let names: BTreeSet<_> = problem
            .members
            .iter()
            .map(|member| &member.id.zone)
            .collect();
        let names: Vec<_> = names.into_iter().collect();
        let zone_of: Vec<_> = problem
            .members
            .iter()
            .map(|member| names.partition_point(|name| **name < member.id.zone))
            .collect();
        let mut zones: Vec<_> = names.iter().map(|_| Zone::default()).collect();
        for (index, member) in problem.members.iter().enumerate() {
            if member.limit > 0 {
                zones[zone_of[index]].open.insert((0, index));
            }
        }
        let assigned = vec![0; problem.members.len()];
        let desired = vec![Vec::new(); problem.items.len()];
        Self {
            problem,
            zone_of,
            zones,
            assigned,
            desired,
        }
    }

    /// Keeps the present members of an item, but leaves a place for another zone.
    fn keep(&mut self, index: usize) {
        let item = &self.problem.items[index];
        for &member in &item.current {
            let desired = &self.desired[index];
            if desired.len() == item.replication {
                break;
            }
            let zone = self.zone_of[member];
            let last_place = item.replication > 1 && desired.len() + 1 == item.replication;
            let crowded = desired.iter().all(|&other| self.zone_of[other] == zone);
            let elsewhere = || {
                self.zones
                    .iter()
                    .enumerate()
                    .any(|(at, other)| at != zone && !other.open.is_empty())
            };
            if desired.contains(&member)
                || !self.has_room(member)
                || (last_place && crowded && elsewhere())
            {
                continue;
            }
            self.assign(index, member);
        }
    }

    /// Gives an item one member more, if there is any.
    fn fill(&mut self, index: usize) {
        let item = &self.problem.items[index];
        let desired = &self.desired[index];
        let used: Vec<_> = desired.iter().map(|&member| self.zone_of[member]).collect();
        let is_crowded = used
            .first()
            .filter(|&first| used.iter().all(|zone| zone == first));
        let choice = is_crowded
            .and_then(|&crowded| self.choose(index, |zone| zone != crowded))
            .or_else(|| self.choose(index, |_| true));
        if let Some(member) = choice
            && desired.len() < item.replication
        {
            self.assign(index, member);
        }
    }

    /// The best further member of an item in some zones: one that it has, or the least loaded.
    fn choose(&self, index: usize, zones: impl Fn(usize) -> bool) -> Option<usize> {
        let desired = &self.desired[index];
        let current = &self.problem.items[index].current;
        let is_free = |member: usize| !desired.contains(&member);
        let has = current.iter().copied().find(|&member| {
            is_free(member) && self.has_room(member) && zones(self.zone_of[member])
        });
        let least_loaded = || {
            self.zones
                .iter()
                .enumerate()
                .filter(|(zone, _)| zones(*zone))
                .filter_map(|(_, zone)| zone.open.iter().find(|&&(_, member)| is_free(member)))
                .min()
                .map(|&(_, member)| member)
        };
        has.or_else(least_loaded)
    }

    fn has_room(&self, member: usize) -> bool {
        self.assigned[member] < self.problem.members[member].limit
    }

    fn assign(&mut self, index: usize, member: usize) {
        let limit = self.problem.members[member].limit;
        let open = &mut self.zones[self.zone_of[member]].open;
        open.remove(&(load(self.assigned[member], limit), member));
        self.assigned[member] += 1;
        if self.assigned[member] < limit {
            open.insert((load(self.assigned[member], limit), member));
        }
        self.desired[index].push(member);
    }
}

/// Assignments in parts of 2^32 of the limit.
fn load(assigned: usize, limit: usize) -> u64 {
    let part = ((assigned as u128) << 32) / (limit as u128);
    u64::try_from(part).unwrap_or(u64::MAX)
}
