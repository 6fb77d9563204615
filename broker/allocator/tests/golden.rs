//! Keys and values that a cluster of the reference wrote: ours read them as it meant them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, sync::Arc};

use gazette_allocator::{
    Brokers, Decoded, Keys, Schema, State,
    converge::{Loads, converge},
    tracker::Tracker,
};
use gazette_coordination::{
    Event, EventKind, KeyValue, LeaseId, Op, ResponseHeader, WatchResponse,
};
use gazette_keyspace::{Change, KeySpace};
use gazette_protocol::process_spec::Id;
use serde_json::Value;

const ROOT: &str = "/gazette/cluster";

fn golden(name: &str) -> Value {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/broker/etcd"
    );
    let file = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
    serde_json::from_str(&file).unwrap()
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{text:?} is not base 64"),
    };
    let mut bytes = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group
            .iter()
            .fold(0, |bits, &byte| (bits << 6) | digit(byte));
        let bits = bits << (6 * (4 - group.len()));
        bytes.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}

/// `lease-of-broker-N` as lease N.
fn lease(value: &Value) -> LeaseId {
    let name = value.as_str().unwrap_or_default();
    let number = name.strip_prefix("lease-of-broker-").unwrap_or("0");
    LeaseId(number.parse().unwrap())
}

fn key_value(value: &Value, mod_revision: i64) -> KeyValue {
    KeyValue {
        key: value["key"].as_str().unwrap().to_owned().into(),
        value: base64(value["value_base64"].as_str().unwrap_or_default()).into(),
        create_revision: value["create_revision"].as_i64().unwrap_or_default(),
        mod_revision: value["mod_revision"].as_i64().unwrap_or(mod_revision),
        version: value["version"].as_i64().unwrap_or_default(),
        lease: lease(&value["lease"]),
    }
}

fn header(revision: i64) -> ResponseHeader {
    ResponseHeader {
        cluster_id: 1,
        member_id: 1,
        revision,
        raft_term: 1,
    }
}

fn keys() -> Keys {
    Keys::new(ROOT).unwrap()
}

fn load(name: &str) -> KeySpace<Decoded<Brokers>> {
    let file = golden(name);
    let kvs = file["kvs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|value| key_value(value, 0))
        .collect();
    let header = header(file["revision"].as_i64().unwrap());
    let decoder = Brokers::decoder(keys());
    let (space, rejected) = KeySpace::load(ROOT.into(), header, kvs, decoder);
    assert_eq!(rejected, [], "{name}");
    space
}

const SNAPSHOTS: [&str; 5] = [
    "at-rest",
    "exit-requested",
    "mid-exit",
    "mid-exit-2",
    "after-exit",
];

#[test]
fn every_key_and_value_decodes_to_what_the_reference_decoded() {
    for name in SNAPSHOTS {
        let space = load(name);
        for value in golden(name)["kvs"].as_array().unwrap() {
            let key = value["key"].as_str().unwrap();
            let entry = space.get(key.as_bytes()).unwrap();
            let decoded = &value["decoded"];
            match (value["kind"].as_str().unwrap(), &entry.decoded) {
                ("items", Decoded::Item(item)) => {
                    assert_eq!(item.id, decoded["name"].as_str().unwrap());
                    assert_eq!(
                        i64::from(item.spec.replication),
                        decoded["replication"].as_i64().unwrap()
                    );
                }
                ("members", Decoded::Member(member)) => {
                    assert_eq!(member.spec.exiting, decoded["exiting"].as_bool().unwrap());
                    let spec = &decoded["process_spec"];
                    assert_eq!(
                        member.spec.process_spec.endpoint,
                        spec["endpoint"].as_str().unwrap()
                    );
                }
                ("assign", Decoded::Assignment(assignment)) => {
                    assert_eq!(
                        i64::from(assignment.value.primary),
                        decoded["primary"].as_i64().unwrap()
                    );
                    let members = decoded["members"].as_array().map_or(0, Vec::len);
                    assert_eq!(assignment.value.members.len(), members);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn the_history_replays_to_each_snapshot() {
    let (mut space, _) =
        KeySpace::load(ROOT.into(), header(1), Vec::new(), Brokers::decoder(keys()));
    let snapshots: BTreeMap<_, _> = SNAPSHOTS
        .iter()
        .map(|name| (golden(name)["revision"].as_i64().unwrap(), load(name)))
        .collect();
    let mut compared = 0;
    for revision in golden("history")["revisions"].as_array().unwrap() {
        let number = revision["revision"].as_i64().unwrap();
        let event = |value: &Value| Event {
            kind: match value["op"].as_str().unwrap() {
                "put" => EventKind::Put,
                "delete" => EventKind::Delete,
                other => panic!("{other}"),
            },
            kv: key_value(value, number),
        };
        let events = revision["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(event)
            .collect();
        let response = WatchResponse {
            header: header(number),
            events,
        };
        let applied = space.apply(&[response]).unwrap();
        assert_eq!(applied.rejected, []);
        assert_eq!(space.revision(), number);
        if let Some(snapshot) = snapshots.get(&number) {
            let raw = |space: &KeySpace<Decoded<Brokers>>| -> Vec<_> {
                space.iter().map(|entry| entry.raw.clone()).collect()
            };
            assert_eq!(raw(&space), raw(snapshot), "revision {number}");
            compared += 1;
        }
    }
    assert_eq!(compared, SNAPSHOTS.len());
}

fn inconsistent(space: &KeySpace<Decoded<Brokers>>) -> Vec<String> {
    let keys = keys();
    let state = State::<Brokers>::new(&keys, space);
    let items = state.items().map(|item| item.decoded.id.clone());
    items.filter(|item| !state.is_consistent(item)).collect()
}

#[test]
fn journals_are_consistent_when_the_reference_took_them_for_consistent() {
    for name in ["at-rest", "exit-requested", "mid-exit", "after-exit"] {
        assert_eq!(inconsistent(&load(name)), [""; 0], "{name}");
    }
    // In the middle, all from which an assignment was just removed still hold the former route.
    let (before, after) = (load("mid-exit"), load("mid-exit-2"));
    let keys = keys();
    let count = |space: &KeySpace<Decoded<Brokers>>, item: &str| {
        State::<Brokers>::new(&keys, space)
            .assignments_of(item)
            .count()
    };
    let items: Vec<_> = State::<Brokers>::new(&keys, &after)
        .items()
        .map(|item| item.decoded.id.clone())
        .filter(|item| count(&before, item) != count(&after, item))
        .collect();
    assert_eq!(items.len(), 9);
    assert_eq!(inconsistent(&after), items);
}

#[test]
fn the_oldest_member_leads() {
    let keys = keys();
    let leader = |name: &str| {
        let space = load(name);
        let state = State::<Brokers>::new(&keys, &space);
        state.leader().unwrap().decoded.id.clone()
    };
    assert_eq!(leader("at-rest"), Id::new("zone-a", "broker-1"));
    assert_eq!(
        leader("mid-exit"),
        Id::new("zone-a", "broker-1"),
        "also while it leaves"
    );
    assert_eq!(leader("after-exit"), Id::new("zone-a", "broker-2"));
}

#[test]
fn routes_follow_from_keys_and_member_specs() {
    let keys = keys();
    let space = load("mid-exit-2");
    let state = State::<Brokers>::new(&keys, &space);
    let route = state.route("acme/orders/part-000");
    let suffixes: Vec<_> = route
        .members
        .iter()
        .map(|member| member.suffix.as_str())
        .collect();
    assert_eq!(suffixes, ["broker-2", "broker-3", "broker-4"]);
    assert_eq!(route.primary, 2, "broker-4 was promoted");
    assert_eq!(route.endpoints.len(), 3);
    assert!(
        route.endpoints[0].ends_with(":18081"),
        "{:?}",
        route.endpoints
    );
    let stored = state.assignments_of("acme/orders/part-000").next().unwrap();
    assert!(
        !stored.decoded.value.is_equivalent(&route),
        "it still holds the former route"
    );
}

/// Events of a revision, as text.
fn steps_of_reference(revision: i64) -> Vec<String> {
    let history = golden("history");
    let revisions = history["revisions"].as_array().unwrap();
    let found = revisions
        .iter()
        .find(|value| value["revision"] == revision)
        .unwrap();
    let step = |event: &Value| {
        let value = event["value_base64"].as_str().unwrap_or_default();
        format!(
            "{} {} {value:?} {}",
            event["op"].as_str().unwrap(),
            event["key"].as_str().unwrap(),
            lease(&event["lease"])
        )
    };
    let mut steps: Vec<_> = found["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(step)
        .collect();
    steps.sort();
    steps
}

/// The key space at a revision of the history.
fn replay(until: i64) -> KeySpace<Decoded<Brokers>> {
    let (mut space, _) =
        KeySpace::load(ROOT.into(), header(1), Vec::new(), Brokers::decoder(keys()));
    for revision in golden("history")["revisions"].as_array().unwrap() {
        let number = revision["revision"].as_i64().unwrap();
        if number > until {
            break;
        }
        let event = |value: &Value| Event {
            kind: if value["op"] == "put" {
                EventKind::Put
            } else {
                EventKind::Delete
            },
            kv: key_value(value, number),
        };
        let events = revision["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(event)
            .collect();
        space
            .apply(&[WatchResponse {
                header: header(number),
                events,
            }])
            .unwrap();
    }
    space
}

/// Plans from the state at `before` towards the members that items had at `goal`.
fn steps_of_ours(before: i64, goal: i64) -> Vec<String> {
    let keys = keys();
    let (space, goal) = (replay(before), replay(goal));
    let state = State::<Brokers>::new(&keys, &space);
    let goal = State::<Brokers>::new(&keys, &goal);
    let desired: Vec<(String, Vec<Id>)> = goal
        .items()
        .map(|item| item.decoded.id.clone())
        .map(|item| {
            let members = goal.assignments_of(&item);
            let members = members.map(|entry| entry.decoded.member.clone()).collect();
            (item, members)
        })
        .collect();
    let mut tracker = Tracker::default();
    let present: Vec<_> = space
        .iter()
        .map(|entry| Change {
            before: None,
            after: Some(Arc::clone(entry)),
        })
        .collect();
    tracker.apply::<Brokers>(&present);
    let limits = state
        .members()
        .map(|member| (member.decoded.id.clone(), 1024))
        .collect();
    let mut loads = Loads::new(&limits, &tracker);
    let work = desired
        .iter()
        .map(|(item, members)| (item.as_str(), members.as_slice()));
    let plan = converge(state, state.leader().unwrap(), &mut loads, work, 128);
    let step = |op: &Op| match op {
        Op::Put(put) => {
            let value = to_base64(&put.value);
            format!(
                "put {} {value:?} {}",
                String::from_utf8_lossy(&put.key),
                put.lease
            )
        }
        Op::Delete(range) => {
            format!("delete {} \"\" 0", String::from_utf8_lossy(range.start()))
        }
        Op::Range(_) => panic!("{op:?}"),
    };
    let ops = plan.batches.iter().flat_map(|batch| &batch.txn.success);
    let mut steps: Vec<_> = ops.map(step).collect();
    steps.sort();
    steps
}

fn to_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for place in 0..=group.len() {
            let digit = (bits >> (18 - 6 * place)) & 63;
            text.push(char::from(DIGITS[usize::try_from(digit).unwrap()]));
        }
        text.extend(std::iter::repeat_n('=', 3 - group.len()));
    }
    text
}

#[test]
fn the_steps_of_an_exit_are_those_of_the_reference() {
    // Additions, once another broker has joined.
    assert_eq!(steps_of_ours(94, 95), steps_of_reference(95));
    // Removals and promotions, in one transaction for each item.
    assert_eq!(steps_of_ours(104, 116), steps_of_reference(105));
    // Slots are packed.
    assert_eq!(steps_of_ours(115, 116), steps_of_reference(116));
    // And then there is nothing to do.
    assert_eq!(steps_of_ours(116, 116), [""; 0]);
}

#[test]
fn steps_after_apply_suspension_and_deletion_are_those_of_the_reference() {
    assert_eq!(
        steps_of_ours(70, 71),
        steps_of_reference(71),
        "suspended in full"
    );
    assert_eq!(
        steps_of_ours(78, 79),
        steps_of_reference(79),
        "suspended in part"
    );
    assert_eq!(steps_of_ours(81, 82), steps_of_reference(82), "resumed");
    assert_eq!(
        steps_of_ours(89, 90),
        steps_of_reference(90),
        "created again"
    );
}
