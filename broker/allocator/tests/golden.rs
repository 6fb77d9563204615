//! Keys and values that a cluster of the reference wrote: ours read them as it meant them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use gazette_allocator::{Brokers, Decoded, Keys, Schema, State};
use gazette_coordination::{Event, EventKind, KeyValue, LeaseId, ResponseHeader, WatchResponse};
use gazette_keyspace::KeySpace;
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
