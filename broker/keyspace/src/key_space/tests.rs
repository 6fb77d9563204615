use std::time::Instant;

use gazette_coordination::{
    LeaseId, Op, Txn,
    engine::{Engine, EngineConfig, Request, Response},
};
use proptest::prelude::*;

use super::*;
use crate::DecodeError;

const CLUSTER: u64 = 7;

fn header(revision: i64) -> ResponseHeader {
    ResponseHeader {
        cluster_id: CLUSTER,
        member_id: 1,
        revision,
        raft_term: 1,
    }
}

/// Decodes text; what begins with "bad" does not decode.
fn decoder() -> Decoder<String> {
    Arc::new(|kv| match str::from_utf8(&kv.value) {
        Ok(text) if !text.starts_with("bad") => Ok(text.to_owned()),
        _ => Err(DecodeError::new("it is bad")),
    })
}

fn kv(key: &'static str, value: &'static str, create: i64, modified: i64) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: value.into(),
        create_revision: create,
        mod_revision: modified,
        version: modified - create + 1,
        lease: LeaseId::NONE,
    }
}

fn put(key: &'static str, value: &'static str, create: i64, modified: i64) -> Event {
    Event {
        kind: EventKind::Put,
        kv: kv(key, value, create, modified),
    }
}

fn delete(key: &'static str, modified: i64) -> Event {
    let kv = KeyValue {
        key: key.into(),
        mod_revision: modified,
        ..KeyValue::default()
    };
    Event {
        kind: EventKind::Delete,
        kv,
    }
}

/// A response at the revision of its last event.
fn response(events: Vec<Event>) -> WatchResponse {
    let revision = events.last().map_or(0, |event| event.kv.mod_revision);
    WatchResponse {
        header: header(revision),
        events,
    }
}

fn load(kvs: Vec<KeyValue>, revision: i64) -> KeySpace<String> {
    KeySpace::load("/root".into(), header(revision), kvs, decoder()).0
}

fn dump(space: &KeySpace<String>) -> Vec<String> {
    let print = |entry: &Arc<Entry<String>>| {
        format!(
            "{}={}@{}",
            text(&entry.raw.key),
            entry.decoded,
            entry.raw.mod_revision
        )
    };
    space.iter().map(print).collect()
}

fn print(changes: &[Change<String>]) -> Vec<String> {
    let side = |entry: &Option<Arc<Entry<String>>>| match entry {
        Some(entry) => format!("{}@{}", entry.decoded, entry.raw.create_revision),
        None => "-".to_owned(),
    };
    let print = |change: &Change<String>| {
        format!(
            "{}: {} to {}",
            text(&change.entry().raw.key),
            side(&change.before),
            side(&change.after)
        )
    };
    changes.iter().map(print).collect()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

#[test]
fn the_revision_is_that_of_the_load_and_then_of_the_latest_event() {
    let mut space = load(vec![kv("/root/a", "1", 3, 5)], 9);
    assert_eq!(space.revision(), 9);
    // The store is at 30, but the prefix was changed at 12 only.
    let late = WatchResponse {
        header: header(30),
        events: vec![put("/root/b", "1", 12, 12)],
    };
    space.apply(&[late]).unwrap();
    assert_eq!(space.revision(), 12);
    // Progress, and nothing happened.
    space
        .apply(&[WatchResponse {
            header: header(40),
            events: vec![],
        }])
        .unwrap();
    assert_eq!(space.revision(), 12);
    // Deletes count, and so do values that do not decode.
    space
        .apply(&[response(vec![delete("/root/b", 41)])])
        .unwrap();
    assert_eq!(space.revision(), 41);
    space
        .apply(&[response(vec![put("/root/c", "bad", 42, 42)])])
        .unwrap();
    assert_eq!(space.revision(), 42);
}

#[test]
fn the_header_follows_the_member_that_answers() {
    let mut space = load(vec![], 9);
    let other = ResponseHeader {
        member_id: 5,
        raft_term: 8,
        ..header(10)
    };
    space
        .apply(&[WatchResponse {
            header: other,
            events: vec![],
        }])
        .unwrap();
    assert_eq!(
        space.header(),
        ResponseHeader {
            revision: 9,
            ..other
        }
    );
}

#[test]
fn values_that_do_not_decode_are_skipped_until_they_are_repaired() {
    let kvs = vec![kv("/root/a", "1", 2, 2), kv("/root/b", "bad", 3, 3)];
    let (mut space, rejected) = KeySpace::load("/root".into(), header(4), kvs, decoder());
    assert_eq!(
        rejected.iter().map(|r| text(&r.key)).collect::<Vec<_>>(),
        ["/root/b"]
    );
    assert_eq!(dump(&space), ["/root/a=1@2"]);

    // An update that does not decode leaves value and revision as they were.
    let applied = space
        .apply(&[response(vec![put("/root/a", "bad", 2, 5)])])
        .unwrap();
    assert_eq!((applied.changes.len(), applied.rejected.len()), (0, 1));
    assert_eq!(dump(&space), ["/root/a=1@2"]);

    let repairs = vec![put("/root/a", "2", 2, 6), put("/root/b", "2", 3, 6)];
    let applied = space.apply(&[response(repairs)]).unwrap();
    assert_eq!(
        print(&applied.changes),
        ["/root/a: 1@2 to 2@2", "/root/b: - to 2@3"]
    );
    assert_eq!(dump(&space), ["/root/a=2@6", "/root/b=2@6"]);

    let events = vec![put("/root/c", "bad", 7, 7), delete("/root/c", 8)];
    let applied = space.apply(&[response(events)]).unwrap();
    assert_eq!(
        applied.changes,
        [],
        "a key that never decoded goes unnoticed"
    );
}

#[test]
fn several_changes_of_a_key_are_one() {
    let mut space = load(vec![kv("/root/a", "1", 2, 2), kv("/root/b", "1", 2, 2)], 2);
    let first = vec![
        put("/root/c", "1", 3, 3),
        delete("/root/a", 3),
        delete("/root/b", 3),
    ];
    let second = vec![delete("/root/c", 4), put("/root/a", "2", 4, 4)];
    let applied = space.apply(&[response(first), response(second)]).unwrap();
    // That "a" was deleted in between shows in its create revision.
    assert_eq!(
        print(&applied.changes),
        ["/root/a: 1@2 to 2@4", "/root/b: 1@2 to -"]
    );
    assert_eq!(dump(&space), ["/root/a=2@4"]);
}

#[test]
fn events_that_contradict_the_entries_are_applied_as_well_as_can_be() {
    let mut space = load(vec![kv("/root/a", "1", 2, 2)], 2);
    let events = vec![
        delete("/root/unknown", 3),
        put("/root/a", "created again", 3, 3),
        put("/root/b", "third version of an unknown key", 1, 3),
    ];
    space.apply(&[response(events)]).unwrap();
    assert_eq!(
        dump(&space),
        [
            "/root/a=created again@3",
            "/root/b=third version of an unknown key@3"
        ]
    );
}

#[test]
fn another_store_or_an_older_revision_is_an_error_and_changes_nothing() {
    let mut space = load(vec![kv("/root/a", "1", 2, 2)], 9);
    let other = ResponseHeader {
        cluster_id: 8,
        ..header(10)
    };
    let event = || vec![put("/root/a", "2", 2, 10)];
    let responses = [
        response(event()),
        WatchResponse {
            header: other,
            events: vec![],
        },
    ];
    let changed = ApplyError::ClusterChanged { was: 7, now: 8 };
    assert_eq!(space.apply(&responses), Err(changed.clone()));
    assert_eq!(space.reload(other, vec![]), Err(changed));
    let back = WatchResponse {
        header: header(8),
        events: vec![],
    };
    let went_back = ApplyError::RevisionWentBack { was: 9, now: 8 };
    assert_eq!(space.apply(&[back]), Err(went_back.clone()));
    assert_eq!(space.reload(header(8), vec![]), Err(went_back));
    let again = WatchResponse {
        header: header(10),
        events: vec![put("/root/a", "2", 2, 9)],
    };
    assert_eq!(
        space.apply(&[again]),
        Err(ApplyError::EventOutOfOrder { was: 9, event: 9 })
    );
    let descending = vec![put("/root/a", "2", 2, 11), put("/root/b", "2", 10, 10)];
    let descending = WatchResponse {
        header: header(11),
        events: descending,
    };
    assert_eq!(
        space.apply(&[descending]),
        Err(ApplyError::EventOutOfOrder { was: 11, event: 10 })
    );
    assert_eq!(
        (dump(&space), space.revision()),
        (vec!["/root/a=1@2".to_owned()], 9)
    );
    space.apply(&[response(event())]).unwrap();
}

#[test]
fn a_prefix_covers_what_begins_with_it_and_nothing_else() {
    let keys = [
        "/root/a",
        "/root/a#1",
        "/root/a#2",
        "/root/a/b#1",
        "/root/b",
    ];
    let space = load(keys.map(|key| kv(key, "1", 2, 2)).to_vec(), 2);
    let under = |prefix: &str| space.prefixed(prefix).count();
    assert_eq!(
        [under("/root/a#"), under("/root/a"), under(""), under("/s")],
        [2, 4, 5, 0]
    );
    assert!(space.get(b"/root/a/b").is_none() && space.get(b"/root/b").is_some());
    assert_eq!((space.len(), space.is_empty()), (5, false));
}

#[test]
fn a_reload_tells_what_changed_while_nobody_watched() {
    let kept = kv("/root/kept", "1", 2, 2);
    let kvs = vec![
        kept.clone(),
        kv("/root/changed", "1", 2, 2),
        kv("/root/gone", "1", 2, 2),
        kv("/root/spoiled", "1", 2, 2),
    ];
    let mut space = load(kvs, 5);
    let kvs = vec![
        kv("/root/changed", "2", 2, 7),
        kept,
        kv("/root/new", "1", 8, 8),
        kv("/root/spoiled", "bad", 2, 9),
        kv("/root/strange", "bad", 9, 9),
    ];
    let applied = space.reload(header(12), kvs).unwrap();
    assert_eq!(
        print(&applied.changes),
        [
            "/root/changed: 1@2 to 2@2",
            "/root/gone: 1@2 to -",
            "/root/new: - to 1@8"
        ]
    );
    assert_eq!(applied.rejected.len(), 2);
    assert_eq!(space.revision(), 12);
    assert_eq!(
        dump(&space),
        [
            "/root/changed=2@7",
            "/root/kept=1@2",
            "/root/new=1@8",
            "/root/spoiled=1@2"
        ]
    );
}

/// Puts or deletes of one transaction, of different keys.
fn txn() -> impl Strategy<Value = Vec<(u8, Option<&'static str>)>> {
    let value = prop::option::weighted(0.7, prop::sample::select(vec!["1", "2", "bad"]));
    prop::collection::btree_map(0..5u8, value, 1..4).prop_map(|ops| ops.into_iter().collect())
}

fn key_of(n: u8) -> String {
    // The fourth is of a sibling that only begins with the root; the fifth is elsewhere.
    ["/root/a", "/root/b", "/root/c", "/root2/d", "/other"][usize::from(n)].to_owned()
}

proptest! {
    #[test]
    fn the_mirror_equals_what_is_stored(
        before in prop::collection::vec(txn(), 0..5),
        groups in prop::collection::vec(prop::collection::vec(txn(), 1..5), 0..6),
        reload in any::<bool>(),
    ) {
        let config = EngineConfig {
            cluster_id: CLUSTER,
            member_id: 1,
            raft_term: 1,
            max_txn_ops: 128,
            history_revisions: 1000,
        };
        let mut engine = Engine::new(config, 1, Vec::new());
        let now = Instant::now();
        let apply = |engine: &mut Engine, ops: &[(u8, Option<&'static str>)]| {
            let op = |&(n, value): &(u8, Option<&'static str>)| match value {
                Some(value) => Op::put(key_of(n), value),
                None => Op::delete(key_of(n)),
            };
            let txn = Txn::new(vec![], ops.iter().map(op).collect());
            engine.handle(now, Request::Txn(txn)).unwrap();
        };
        let read = |engine: &mut Engine| {
            let request = gazette_coordination::RangeRequest::prefix("/root");
            match engine.handle(now, Request::Range(request)) {
                Ok(Response::Range(response)) => (response.header, response.kvs),
                other => panic!("{other:?}"),
            }
        };
        for ops in &before {
            apply(&mut engine, ops);
        }
        let (header, kvs) = read(&mut engine);
        let mut space = KeySpace::load("/root".into(), header, kvs, decoder()).0;
        let mut revision = header.revision;
        // Rebuilt from the reported changes alone.
        let mut shadow: BTreeMap<_, _> =
            space.iter().map(|entry| (entry.raw.key.clone(), Arc::clone(entry))).collect();
        for (index, group) in groups.iter().enumerate() {
            let mut responses = Vec::new();
            for ops in group {
                let start_revision = engine.header().revision + 1;
                apply(&mut engine, ops);
                let request = Request::History { prefix: "/root".into(), start_revision };
                match engine.handle(now, request) {
                    Ok(Response::History(response)) => responses.push(response),
                    other => panic!("{other:?}"),
                }
            }
            let (header, kvs) = read(&mut engine);
            let events = || responses.iter().flat_map(|response| &response.events);
            let applied = if reload && index == 2 {
                revision = header.revision;
                space.reload(header, kvs.clone()).unwrap()
            } else {
                revision = events().last().map_or(revision, |event| event.kv.mod_revision);
                space.apply(&responses).unwrap()
            };
            for Change { before, after } in applied.changes {
                let key = before.as_ref().or(after.as_ref()).unwrap().raw.key.clone();
                let known = match after {
                    Some(after) => shadow.insert(key, after),
                    None => shadow.remove(&key),
                };
                prop_assert_eq!(known, before);
            }
            prop_assert!(shadow.values().eq(space.iter()));
            prop_assert_eq!(space.revision(), revision);
            for kv in &kvs {
                let entry = space.get(&kv.key);
                if kv.value.starts_with(b"bad") {
                    prop_assert!(entry.is_none_or(|entry| entry.raw.mod_revision < kv.mod_revision));
                } else {
                    prop_assert_eq!(&entry.unwrap().raw, kv);
                }
            }
            for entry in space.iter() {
                prop_assert!(kvs.iter().any(|kv| kv.key == entry.raw.key));
            }
        }
    }
}
