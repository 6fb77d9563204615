use std::collections::{BTreeMap, BTreeSet};

use gazette_protocol::process_spec::Id;
use proptest::prelude::*;

use super::*;

fn problem(members: &[(&str, usize)], items: &[(usize, &[usize])]) -> Problem {
    let member = |&(id, limit): &(&str, usize)| {
        let (zone, suffix) = id.split_once('#').unwrap();
        ProblemMember {
            id: Id::new(zone, suffix),
            limit,
        }
    };
    let item = |(n, &(replication, current)): (usize, &(usize, &[usize]))| ProblemItem {
        id: format!("item-{n:05}"),
        replication,
        current: current.to_vec(),
    };
    Problem {
        members: members.iter().map(member).collect(),
        items: items.iter().enumerate().map(item).collect(),
    }
}

fn desired(problem: &Problem) -> Vec<Vec<usize>> {
    solve(problem).desired
}

#[test]
fn what_is_well_assigned_stays() {
    let members = [("a#1", 9), ("a#2", 9), ("b#1", 9)];
    let problem = problem(
        &members,
        &[(2, &[2, 0]), (2, &[1, 2]), (1, &[0]), (3, &[0, 1, 2])],
    );
    assert_eq!(
        desired(&problem),
        [vec![0, 2], vec![1, 2], vec![0], vec![0, 1, 2]]
    );
}

#[test]
fn replicas_span_two_zones_if_there_is_room() {
    let members = [("a#1", 9), ("a#2", 9), ("b#1", 1)];
    let problem = problem(&members, &[(2, &[0, 1]), (2, &[0, 1])]);
    // The first item moves, and the second stays as it was rather than lose a replica.
    assert_eq!(desired(&problem), [vec![0, 2], vec![0, 1]]);
}

#[test]
fn every_item_gets_a_first_replica_before_any_gets_a_second() {
    let problem = problem(&[("a#1", 2), ("b#1", 1)], &[(2, &[]), (2, &[]), (2, &[])]);
    let solution = solve(&problem);
    assert!(
        solution.desired.iter().all(|members| members.len() == 1),
        "{solution:?}"
    );
    assert_eq!(solution.shortfall, 3);
}

#[test]
fn load_is_in_proportion_to_limits() {
    let problem = problem(
        &[("a#1", 10), ("a#2", 20), ("a#3", 30)],
        &[(1, &[] as &[usize]); 12],
    );
    let mut counts = [0; 3];
    for members in desired(&problem) {
        counts[members[0]] += 1;
    }
    assert_eq!(counts, [2, 4, 6]);
}

#[test]
fn a_new_member_gets_its_share_and_nothing_else_moves() {
    let members = [("a#1", 100), ("b#1", 100), ("c#1", 100)];
    let problem = problem(&members, &vec![(2, [0, 1].as_slice()); 30]);
    let solution = desired(&problem);
    let count = |member| {
        solution
            .iter()
            .filter(|members| members.contains(&member))
            .count()
    };
    assert_eq!([count(0), count(1), count(2)], [20, 20, 20]);
    let moved: usize = solution
        .iter()
        .map(|members| members.iter().filter(|m| **m == 2).count())
        .sum();
    assert_eq!(moved, 20);
}

#[test]
fn a_member_without_a_limit_gets_nothing() {
    let problem = problem(&[("a#1", 0), ("b#1", 9)], &[(2, &[0]), (1, &[0])]);
    assert_eq!(desired(&problem), [vec![1], vec![1]]);
}

#[test]
fn the_primary_is_kept_first() {
    let problem = problem(&[("a#1", 9), ("b#1", 9), ("c#1", 9)], &[(1, &[2, 0, 1])]);
    assert_eq!(desired(&problem), [[2]]);
}

#[test]
fn ten_thousand_items_are_solved_at_once() {
    let members: Vec<_> = (0..100).map(|n| (format!("{}#{n}", n % 3), 1000)).collect();
    let members: Vec<_> = members
        .iter()
        .map(|(id, limit)| (id.as_str(), *limit))
        .collect();
    let problem = problem(&members, &vec![(3, &[] as &[usize]); 10_000]);
    let start = std::time::Instant::now();
    let solution = solve(&problem);
    assert_eq!(solution.shortfall, 0);
    let elapsed = start.elapsed();
    assert!(elapsed.as_secs() < 5, "{elapsed:?}");
}

fn any_problem() -> impl Strategy<Value = Problem> {
    let members = prop::collection::btree_map((0..3u8, 0..4u8), 0..6usize, 0..8);
    let items = prop::collection::vec(
        (0..4usize, prop::collection::btree_set(0..8usize, 0..4)),
        0..9,
    );
    (members, items).prop_map(|(members, items)| {
        let members: Vec<_> = members
            .into_iter()
            .map(|((zone, suffix), limit)| ProblemMember {
                id: Id::new(format!("z{zone}"), format!("m{suffix}")),
                limit,
            })
            .collect();
        let items = items
            .into_iter()
            .enumerate()
            .map(|(n, (replication, current))| ProblemItem {
                id: format!("{n}"),
                replication,
                current: current
                    .into_iter()
                    .rev()
                    .filter(|&m| m < members.len())
                    .collect(),
            })
            .collect();
        Problem { members, items }
    })
}

/// Most replicas that can be placed, by augmenting paths of the plainest kind.
fn most_replicas(problem: &Problem) -> usize {
    fn place(
        problem: &Problem,
        held: &mut Vec<BTreeSet<usize>>,
        seen: &mut BTreeSet<usize>,
        item: usize,
    ) -> bool {
        for member in 0..problem.members.len() {
            if held[member].contains(&item) || !seen.insert(member) {
                continue;
            }
            if held[member].len() < problem.members[member].limit {
                held[member].insert(item);
                return true;
            }
            for other in held[member].clone() {
                if place(problem, held, seen, other) {
                    held[member].remove(&other);
                    held[member].insert(item);
                    return true;
                }
            }
        }
        false
    }
    let mut held = vec![BTreeSet::new(); problem.members.len()];
    let mut placed = 0;
    for (item, ProblemItem { replication, .. }) in problem.items.iter().enumerate() {
        for _ in 0..*replication {
            placed += usize::from(place(problem, &mut held, &mut BTreeSet::new(), item));
        }
    }
    placed
}

#[test]
fn a_chain_of_moves_makes_room_where_members_are_nearly_full() {
    // The last item can go to the first member only, and there is room at the last one only.
    let members = [("a#1", 1), ("a#2", 1), ("a#3", 2)];
    let mut problem = problem(&members, &[(1, &[0]), (1, &[1]), (2, &[2])]);
    problem.items[2].current = vec![2, 1];
    problem.items[1].current = vec![0];
    problem.items[0].current = vec![2];
    let solution = solve(&problem);
    assert_eq!(solution.shortfall, 0, "{solution:?}");
}

proptest! {
    #[test]
    fn as_many_replicas_are_placed_as_can_be(problem in any_problem()) {
        let placed: usize = solve(&problem).desired.iter().map(Vec::len).sum();
        prop_assert_eq!(placed, most_replicas(&problem));
    }

    #[test]
    fn solutions_keep_the_rules(problem in any_problem()) {
        let solution = solve(&problem);
        let mut loads = vec![0; problem.members.len()];
        for members in &solution.desired {
            for &member in members {
                loads[member] += 1;
            }
        }
        for (load, member) in loads.iter().zip(&problem.members) {
            prop_assert!(*load <= member.limit);
        }
        let has_room = |member: usize| loads[member] < problem.members[member].limit;
        let mut missing = 0;
        for (item, members) in problem.items.iter().zip(&solution.desired) {
            prop_assert!(members.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(members.len() <= item.replication);
            missing += item.replication - members.len();
            let others = || (0..problem.members.len()).filter(|member| !members.contains(member));
            if members.len() < item.replication {
                prop_assert!(!others().any(has_room), "there is room for more");
            }
            let zones: BTreeSet<_> = members.iter().map(|&m| &problem.members[m].id.zone).collect();
            if item.replication > 1 && zones.len() == 1 {
                let elsewhere = others()
                    .filter(|&other| !zones.contains(&problem.members[other].id.zone))
                    .any(has_room);
                prop_assert!(!elsewhere, "another zone has room");
            }
        }
        prop_assert_eq!(solution.shortfall, missing);
    }

    #[test]
    fn a_solution_is_its_own_solution(problem in any_problem()) {
        let first = solve(&problem);
        let mut again = problem;
        for (item, members) in again.items.iter_mut().zip(&first.desired) {
            item.current.clone_from(members);
        }
        let second = solve(&again);
        let churn: BTreeMap<_, _> = first
            .desired
            .iter()
            .zip(&second.desired)
            .enumerate()
            .filter(|(_, (first, second))| first != second)
            .collect();
        prop_assert!(churn.is_empty(), "{churn:?}");
    }
}
