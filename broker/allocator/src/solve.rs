//! Which members each item should be assigned to.
//!
//! The solver is greedy. It keeps assignments where it can, gives what is missing to the members
//! with the lowest load, and then moves replicas from members that have more than their share to
//! those that have less. Where members are full it moves other replicas to make room, so that as
//! many replicas as possible find a place.

mod problem;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, VecDeque},
};

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
/// first ones (the primary) most; but a member that has more than its share of all replicas, in
/// proportion to its limit, gives some away to those that have less. The result is a function of
/// the problem.
pub fn solve(problem: &Problem) -> Solution {
    let mut desired = pass(
        problem,
        problem.items.iter().map(|item| item.current.as_slice()),
    );
    // Balancing may have made room in a zone that was full.
    for _ in 1..PASSES_MAX {
        let again = pass(problem, desired.iter().map(Vec::as_slice));
        let is_stable = again == desired;
        desired = again;
        if is_stable {
            break;
        }
    }
    let wanted: usize = problem.items.iter().map(|item| item.replication).sum();
    let got: usize = desired.iter().map(Vec::len).sum();
    for members in &mut desired {
        members.sort_unstable();
    }
    Solution {
        desired,
        shortfall: wanted - got,
    }
}

/// Passes after which the result is taken as it is.
const PASSES_MAX: usize = 8;

fn pass<'a>(problem: &'a Problem, current: impl Iterator<Item = &'a [usize]>) -> Vec<Vec<usize>> {
    let mut solver = Solver::new(problem, current.collect());
    for index in 0..problem.items.len() {
        solver.keep(index);
    }
    // What an item has is not lost to another that wants more.
    for (index, item) in problem.items.iter().enumerate() {
        let has = solver.current[index].len().min(item.replication);
        for _ in solver.desired[index].len()..has {
            solver.fill(index);
        }
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
    for index in 0..problem.items.len() {
        while solver.balance(index) {}
    }
    solver.desired
}

struct Solver<'a> {
    problem: &'a Problem,
    /// Members that each item has.
    current: Vec<&'a [usize]>,
    /// Zone of each member.
    zone_of: Vec<usize>,
    zones: Vec<Zone>,
    /// Share of each member in all replicas, rounded up.
    share: Vec<usize>,
    assigned: Vec<usize>,
    desired: Vec<Vec<usize>>,
    /// Items of each member: the inverse of `desired`.
    holds: Vec<BTreeSet<usize>>,
}

/// A replica that changes its member.
#[derive(Clone, Copy)]
struct Move {
    item: usize,
    from: usize,
    to: usize,
}

/// Members of a zone that have room, by load and index.
#[derive(Default)]
struct Zone {
    open: BTreeSet<(u64, usize)>,
}

impl<'a> Solver<'a> {
    fn new(problem: &'a Problem, current: Vec<&'a [usize]>) -> Self {
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
            current,
            zone_of,
            zones,
            share: shares(problem),
            assigned,
            desired,
            holds: vec![BTreeSet::new(); problem.members.len()],
        }
    }

    /// Keeps the present members of an item, but leaves a place for another zone.
    fn keep(&mut self, index: usize) {
        let item = &self.problem.items[index];
        for &member in self.current[index] {
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
        if desired.len() >= item.replication {
            return;
        }
        match choice {
            Some(member) => self.assign(index, member),
            None => self.make_room(index),
        }
    }

    /// Gives an item a full member, after one of that member's items has moved to another member,
    /// and perhaps one of that member's items to a third, until one had room.
    fn make_room(&mut self, index: usize) {
        let Some(path) = self
            .find_path(index, true)
            .or_else(|| self.find_path(index, false))
        else {
            return;
        };
        let mut free = None;
        for Move { item, from, to } in path {
            self.release(item, from);
            self.assign(item, to);
            free = Some(from);
        }
        if let Some(member) = free {
            self.assign(index, member);
        }
    }

    /// Moves to make room for an item at a member that does not hold it: a shortest augmenting
    /// path, from its end, where there is room, to its start. With `keeps_zones`, no item that
    /// moves may end up in one zone only.
    fn find_path(&self, index: usize, keeps_zones: bool) -> Option<Vec<Move>> {
        if self.zones.iter().all(|zone| zone.open.is_empty()) {
            return None;
        }
        let members = self.problem.members.len();
        let mut reached: Vec<bool> = (0..members).map(|m| self.is_free_for(index, m)).collect();
        let mut moves: Vec<Option<Move>> = vec![None; members];
        let mut queue: VecDeque<_> = (0..members).filter(|&member| reached[member]).collect();
        while let Some(from) = queue.pop_front() {
            for to in 0..members {
                if reached[to] || self.problem.members[to].limit == 0 {
                    continue;
                }
                let Some(item) = self.movable(from, to, keeps_zones) else {
                    continue;
                };
                reached[to] = true;
                moves[to] = Some(Move { item, from, to });
                if self.has_room(to) {
                    let last = moves[to];
                    let back = |step: &Move| moves[step.from];
                    return Some(std::iter::successors(last, back).collect());
                }
                queue.push_back(to);
            }
        }
        None
    }

    /// An item of one member that can move to another.
    fn movable(&self, from: usize, to: usize, keeps_zones: bool) -> Option<usize> {
        let may_move = |item: &&usize| {
            let held = &self.desired[**item];
            let spans = || {
                let mut rest = held.iter().filter(|&&member| member != from);
                self.zone_of[from] == self.zone_of[to]
                    || rest.any(|&member| self.zone_of[member] != self.zone_of[to])
            };
            !held.contains(&to) && (!keeps_zones || held.len() == 1 || spans())
        };
        self.holds[from].iter().find(may_move).copied()
    }

    /// Whether a member does not hold an item, and may hold any.
    fn is_free_for(&self, index: usize, member: usize) -> bool {
        self.problem.members[member].limit > 0 && !self.desired[index].contains(&member)
    }

    /// The best further member of an item in some zones: one that it has, or the least loaded.
    fn choose(&self, index: usize, zones: impl Fn(usize) -> bool) -> Option<usize> {
        let has = self.current[index].iter().copied().find(|&member| {
            !self.desired[index].contains(&member)
                && self.has_room(member)
                && zones(self.zone_of[member])
        });
        has.or_else(|| self.least_loaded(index, zones))
    }

    /// The member with the lowest load, of those that have room and do not hold the item.
    fn least_loaded(&self, index: usize, zones: impl Fn(usize) -> bool) -> Option<usize> {
        let is_free = |member: usize| !self.desired[index].contains(&member);
        self.zones
            .iter()
            .enumerate()
            .filter(|(zone, _)| zones(*zone))
            .filter_map(|(_, zone)| zone.open.iter().find(|&&(_, member)| is_free(member)))
            .min()
            .map(|&(_, member)| member)
    }

    /// Moves a replica of an item from its member that is most above its share to one that is
    /// below, unless it would then be in one zone only. Returns whether it did.
    fn balance(&mut self, index: usize) -> bool {
        let desired = &self.desired[index];
        let mut above: Vec<_> = desired
            .iter()
            .copied()
            .filter(|&member| self.assigned[member] > self.share[member])
            .collect();
        above.sort_by_key(|&member| Reverse((self.load(member), member)));
        for from in above {
            let mut others = desired.iter().filter(|&&member| member != from);
            let zones: BTreeSet<_> = others.by_ref().map(|&other| self.zone_of[other]).collect();
            let spans = zones.len() > 1 || zones.first().is_some_and(|&z| z != self.zone_of[from]);
            let only = zones.first().filter(|_| spans && zones.len() == 1).copied();
            let to = self.least_loaded(index, |zone| only != Some(zone));
            if let Some(to) = to.filter(|&to| self.is_below_share(to)) {
                self.release(index, from);
                self.assign(index, to);
                return true;
            }
        }
        false
    }

    fn is_below_share(&self, member: usize) -> bool {
        self.assigned[member] < self.share[member]
    }

    fn has_room(&self, member: usize) -> bool {
        self.assigned[member] < self.problem.members[member].limit
    }

    /// Assignments in parts of 2^32 of the limit.
    fn load(&self, member: usize) -> u64 {
        let limit = self.problem.members[member].limit.max(1);
        let part = ((self.assigned[member] as u128) << 32) / (limit as u128);
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    fn assign(&mut self, index: usize, member: usize) {
        self.count(member, self.assigned[member] + 1);
        self.desired[index].push(member);
        self.holds[member].insert(index);
    }

    fn release(&mut self, index: usize, member: usize) {
        self.count(member, self.assigned[member] - 1);
        self.desired[index].retain(|&other| other != member);
        self.holds[member].remove(&index);
    }

    fn count(&mut self, member: usize, assigned: usize) {
        let zone = self.zone_of[member];
        let before = (self.load(member), member);
        self.zones[zone].open.remove(&before);
        self.assigned[member] = assigned;
        if self.has_room(member) {
            let after = (self.load(member), member);
            self.zones[zone].open.insert(after);
        }
    }
}

/// Divides all replicas that can be placed among members, in proportion to their limits.
fn shares(problem: &Problem) -> Vec<usize> {
    let limits = || problem.members.iter().map(|member| member.limit as u128);
    let open = limits().filter(|limit| *limit > 0).count();
    let slots: u128 = limits().sum();
    let wanted: u128 = problem
        .items
        .iter()
        .map(|item| item.replication.min(open) as u128)
        .sum();
    let share = |limit: u128| match slots {
        0 => 0,
        slots => (limit * wanted.min(slots)).div_ceil(slots),
    };
    limits()
        .map(|limit| usize::try_from(share(limit).min(limit)).unwrap_or(usize::MAX))
        .collect()
}
