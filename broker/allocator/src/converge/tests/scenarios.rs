//! Scenarios that were run through the reference: ours must come to rest as well off.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{solve::Problem, testing::Cluster};

fn scenarios() -> Vec<Value> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/broker/allocator/scenarios.json"
    );
    let file = std::fs::read_to_string(path).unwrap();
    let mut all: Value = serde_json::from_str(&file).unwrap();
    match all["scenarios"].take() {
        Value::Array(scenarios) => scenarios,
        other => panic!("{other}"),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

fn count(value: &Value, field: &str) -> usize {
    usize::try_from(value[field].as_u64().unwrap()).unwrap()
}

fn member(value: &Value) -> String {
    format!("{}#{}", text(value, "zone"), text(value, "suffix"))
}

fn cluster(scenario: &Value) -> Cluster {
    let mut cluster = Cluster::new();
    for value in list(&scenario["members_in_creation_order"]) {
        let exiting = value["exiting"].as_bool().unwrap();
        cluster.member(&member(value), count(value, "limit"), exiting);
    }
    for item in list(&scenario["items"]) {
        cluster.item(text(item, "id"), count(item, "desired_replication"));
    }
    for value in list(&scenario["current_assignments_all_consistent"]) {
        let slot = u32::try_from(count(value, "slot")).unwrap();
        cluster.assign(text(value, "item"), &member(value), slot, true);
    }
    cluster
}

/// Number of assignments of each item, given their keys.
fn counts<'a>(keys: impl IntoIterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for key in keys {
        *counts.entry(key.split('#').next().unwrap()).or_default() += 1;
    }
    counts
}

#[test]
fn exiting_members_are_granted_to_shed_what_the_reference_grants() {
    for scenario in scenarios() {
        let cluster = cluster(&scenario);
        let problem = Problem::of(cluster.state());
        let mut shed = BTreeMap::new();
        for value in list(&scenario["members_in_creation_order"]) {
            let name = member(value);
            let limit = count(value, "limit");
            let now = problem
                .members
                .iter()
                .find(|m| crate::testing::id(&name) == m.id)
                .unwrap();
            if now.limit < limit {
                shed.insert(name, Value::from(limit - now.limit));
            }
        }
        let expected: BTreeMap<_, _> = scenario["shed_capacity"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, shed)| (name.clone(), shed.clone()))
            .collect();
        assert_eq!(shed, expected, "{}", scenario["name"]);
        let slots: usize = problem.members.iter().map(|member| member.limit).sum();
        assert_eq!(
            slots,
            count(&scenario, "member_slots_after_shed"),
            "{}",
            scenario["name"]
        );
    }
}

#[test]
fn items_end_with_as_many_assignments_as_in_the_reference() {
    for scenario in scenarios() {
        let name = text(&scenario, "name");
        // There, the loop of the leader returned when it had drained, and left the rest undone.
        let is_cut = text(&scenario, "leader_loop_returned").starts_with("clean exit");
        let mut cluster = cluster(&scenario);
        cluster.converge();
        let ours = cluster.assignments();
        let theirs = list(
            &scenario[if is_cut {
                "desired_assignments"
            } else {
                "final_assignment_keys"
            }],
        );
        let theirs: Vec<_> = theirs
            .iter()
            .map(|key| key.as_str().unwrap_or_else(|| text(key, "item")))
            .collect();
        if text(&scenario, "name") == "overcommitted" {
            // There, the first items get all their replicas, and the last ones none.
            assert_eq!(ours.len(), theirs.len());
            assert_eq!(counts(ours.iter().map(String::as_str)).len(), 3, "{ours:?}");
            continue;
        }
        assert_eq!(
            counts(ours.iter().map(String::as_str)),
            counts(theirs),
            "{name}: {ours:?}"
        );
        let exits = list(&scenario["members_in_creation_order"])
            .iter()
            .filter(|value| {
                scenario["shed_capacity"][member(value)].as_u64() == value["limit"].as_u64()
            });
        for exit in exits {
            let exit = format!("#{}#", member(exit));
            assert!(
                !ours.iter().any(|key| key.contains(&exit)),
                "{name}: {exit} has drained"
            );
        }
    }
}
