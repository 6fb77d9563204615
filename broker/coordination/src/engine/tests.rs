#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "any other answer fails the test"
)]

mod model;

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::{Compare, CompareOrder, CompareTarget, Op, Put};
use model::Model;

fn config() -> EngineConfig {
    EngineConfig {
        cluster_id: 7,
        member_id: 1,
        raft_term: 3,
        max_txn_ops: 4,
        history_revisions: 1000,
    }
}

fn engine() -> Engine {
    Engine::new(config(), 1, Vec::new())
}

fn put(engine: &mut Engine, now: Instant, key: &'static str, lease: LeaseId) -> i64 {
    let txn = Txn::new(vec![], vec![Op::put_with_lease(key, "value", lease)]);
    match engine.handle(now, Request::Txn(txn)) {
        Ok(Response::Txn(response)) => response.header.revision,
        other => panic!("{other:?}"),
    }
}

fn grant(engine: &mut Engine, now: Instant, secs: u64) -> LeaseId {
    match engine.handle(
        now,
        Request::Grant {
            ttl: Duration::from_secs(secs),
        },
    ) {
        Ok(Response::Granted(lease)) => lease,
        other => panic!("{other:?}"),
    }
}

fn history(engine: &mut Engine, start_revision: i64) -> Result<WatchResponse, CoordinationError> {
    let request = Request::History {
        prefix: Bytes::new(),
        start_revision,
    };
    match engine.handle(Instant::now(), request)? {
        Response::History(response) => Ok(response),
        other => panic!("{other:?}"),
    }
}

#[test]
fn leases_that_end_together_end_in_the_order_of_their_deadlines() {
    let (mut engine, now) = (engine(), Instant::now());
    let late = grant(&mut engine, now, 9);
    let early = grant(&mut engine, now, 5);
    put(&mut engine, now, "late", late);
    put(&mut engine, now, "early", early);
    assert_eq!(engine.next_expiry(), Some(now + Duration::from_secs(5)));
    engine.expire(now + Duration::from_mins(1));
    let events = history(&mut engine, 4).unwrap().events;
    let events: Vec<_> = events
        .iter()
        .map(|e| (e.kv.mod_revision, e.kv.key.as_ref()))
        .collect();
    assert_eq!(events, [(4, b"early".as_ref()), (5, b"late".as_ref())]);
    assert_eq!(engine.next_expiry(), None);
}

#[test]
fn a_lease_ends_at_its_deadline_and_not_before() {
    let (mut engine, now) = (engine(), Instant::now());
    let lease = grant(&mut engine, now, 5);
    engine.expire(now + Duration::from_millis(4999));
    let ttl = engine.handle(
        now + Duration::from_millis(4999),
        Request::KeepAlive { lease },
    );
    assert_eq!(ttl, Ok(Response::KeptAlive(Duration::from_secs(5))));
    let gone = engine.handle(
        now + Duration::from_millis(9999),
        Request::KeepAlive { lease },
    );
    assert_eq!(gone, Err(CoordinationError::LeaseNotFound { lease }));
}

#[test]
fn a_lease_of_more_time_than_there_is_never_ends() {
    let (mut engine, now) = (engine(), Instant::now());
    let lease = grant(&mut engine, now, u64::MAX);
    engine.expire(now + Duration::from_secs(1 << 40));
    assert!(engine.handle(now, Request::KeepAlive { lease }).is_ok());
}

#[test]
fn leases_of_the_dead_process_end_at_once_and_in_one_revision() {
    let kv = |key: &'static str, lease: i64| KeyValue {
        key: key.into(),
        value: "v".into(),
        create_revision: 5,
        mod_revision: 6,
        version: 2,
        lease: LeaseId(lease),
    };
    let keys = vec![kv("a", 11), kv("b", 0), kv("c", 12)];
    let mut engine = Engine::new(config(), 9, keys);
    assert_eq!(engine.header().revision, 10);
    assert_eq!(
        engine.changes().into_values().collect::<Vec<_>>(),
        [None, None]
    );
    engine.commit();
    let events = history(&mut engine, 10).unwrap().events;
    let deleted: Vec<_> = events.iter().map(|event| event.kv.key.as_ref()).collect();
    assert_eq!(deleted, [b"a", b"c"]);
    assert!(matches!(
        history(&mut engine, 9),
        Err(CoordinationError::Compacted { oldest: 10, .. })
    ));
}

#[test]
fn leases_of_two_openings_differ() {
    let now = Instant::now();
    let first = grant(&mut engine(), now, 5);
    let mut again = Engine::new(
        EngineConfig {
            raft_term: 4,
            ..config()
        },
        1,
        Vec::new(),
    );
    assert_ne!(first, grant(&mut again, now, 5));
}

#[test]
fn history_is_kept_for_a_number_of_revisions() {
    let mut engine = Engine::new(
        EngineConfig {
            history_revisions: 3,
            ..config()
        },
        1,
        Vec::new(),
    );
    for _ in 0..10 {
        put(&mut engine, Instant::now(), "key", LeaseId::NONE);
        engine.commit();
    }
    assert_eq!(engine.header().revision, 11);
    let compacted = CoordinationError::Compacted {
        requested: 8,
        oldest: 9,
    };
    assert_eq!(history(&mut engine, 8), Err(compacted));
    assert_eq!(history(&mut engine, 9).unwrap().events.len(), 3);
}

#[test]
fn long_histories_are_read_in_pieces_of_whole_revisions() {
    let mut engine = Engine::new(
        EngineConfig {
            max_txn_ops: 1000,
            ..config()
        },
        1,
        Vec::new(),
    );
    for _ in 0..10 {
        let ops = (0..1000).map(|n| Op::put(format!("{n}"), "v")).collect();
        engine
            .handle(Instant::now(), Request::Txn(Txn::new(vec![], ops)))
            .unwrap();
    }
    let first = history(&mut engine, 2).unwrap();
    assert_eq!((first.events.len(), first.header.revision), (5000, 6));
    let rest = history(&mut engine, 7).unwrap();
    assert_eq!((rest.events.len(), rest.header.revision), (5000, 11));
}

#[derive(Clone, Debug)]
enum Step {
    Txn(Txn),
    Grant { secs: u64 },
    KeepAlive { nth: usize },
    Revoke { nth: usize },
    Pass { secs: u64 },
    Compact { back: i64 },
    Read { back: i64 },
    Commit,
    RollBack,
}

fn key() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["a", "a/", "a/1", "b", "c"]).prop_map(Bytes::from)
}

fn range_key() -> impl Strategy<Value = RangeKey> {
    prop_oneof![
        key().prop_map(RangeKey::Key),
        key().prop_map(RangeKey::Prefix),
        Just(RangeKey::Prefix(Bytes::new())),
    ]
}

/// Leases are named by their place among those granted, plus one; see `resolve`.
fn op() -> impl Strategy<Value = Op> {
    let put = (
        key(),
        0..3u8,
        0..4i64,
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
    );
    let put = put.prop_map(|(key, value, lease, ignore_lease, ignore_value)| {
        let value = if ignore_value {
            Bytes::new()
        } else {
            vec![value].into()
        };
        let lease = if ignore_lease {
            LeaseId::NONE
        } else {
            LeaseId(lease)
        };
        Op::Put(Put {
            key,
            value,
            lease,
            ignore_lease,
            ignore_value,
        })
    });
    prop_oneof![3 => put, 1 => range_key().prop_map(Op::Delete)]
}

fn compare() -> impl Strategy<Value = Compare> {
    let order = prop::sample::select(vec![
        CompareOrder::Equal,
        CompareOrder::NotEqual,
        CompareOrder::Less,
        CompareOrder::Greater,
    ]);
    let target = prop_oneof![
        (0..20i64).prop_map(CompareTarget::ModRevision),
        (0..20i64).prop_map(CompareTarget::CreateRevision),
        (0..4i64).prop_map(CompareTarget::Version),
        (0..3u8).prop_map(|value| CompareTarget::Value(vec![value].into())),
        (0..4i64).prop_map(|lease| CompareTarget::Lease(LeaseId(lease))),
    ];
    (key(), order, target).prop_map(|(key, order, target)| Compare { key, order, target })
}

fn step() -> impl Strategy<Value = Step> {
    let ops = || prop::collection::vec(op(), 0..4);
    let txn = (prop::collection::vec(compare(), 0..2), ops(), ops()).prop_map(
        |(compares, success, failure)| Txn {
            compares,
            success,
            failure,
        },
    );
    prop_oneof![
        12 => txn.prop_map(Step::Txn),
        2 => (1..8u64).prop_map(|secs| Step::Grant { secs }),
        1 => (0..4usize).prop_map(|nth| Step::KeepAlive { nth }),
        1 => (0..4usize).prop_map(|nth| Step::Revoke { nth }),
        2 => (1..5u64).prop_map(|secs| Step::Pass { secs }),
        1 => (0..9i64).prop_map(|back| Step::Compact { back }),
        4 => (-1..12i64).prop_map(|back| Step::Read { back }),
        4 => Just(Step::Commit),
        1 => Just(Step::RollBack),
    ]
}

/// Replaces places by the ids of leases that were granted.
fn resolve(txn: &Txn, leases: &[LeaseId]) -> Txn {
    let id = |place: LeaseId| match usize::try_from(place.0 - 1) {
        Ok(nth) => leases.get(nth).copied().unwrap_or(LeaseId(99)),
        Err(_) => LeaseId::NONE,
    };
    let mut txn = txn.clone();
    for op in txn.success.iter_mut().chain(&mut txn.failure) {
        if let Op::Put(put) = op {
            put.lease = id(put.lease);
        }
    }
    for compare in &mut txn.compares {
        if let CompareTarget::Lease(lease) = &mut compare.target {
            *lease = id(*lease);
        }
    }
    txn
}

proptest! {
    #[test]
    fn the_engine_does_what_a_naive_model_does(steps in prop::collection::vec(step(), 1..60)) {
        let mut engine = engine();
        let mut model = Model::new(4);
        let mut committed = model.clone();
        let mut now = Instant::now();
        let mut leases = Vec::new();
        for step in steps {
            if !matches!(step, Step::Commit | Step::RollBack) {
                engine.expire(now);
                model.expire(now);
            }
            match step {
                Step::Txn(txn) => {
                    let txn = resolve(&txn, &leases);
                    let response = engine.handle(now, Request::Txn(txn.clone()));
                    let response = response.map(|response| match response {
                        Response::Txn(response) => {
                            (response.succeeded, response.header.revision, response.responses)
                        }
                        other => panic!("{other:?}"),
                    });
                    prop_assert_eq!(response, model.txn(&txn));
                }
                Step::Grant { secs } => {
                    let lease = grant(&mut engine, now, secs);
                    model.grant(lease, now + Duration::from_secs(secs), secs);
                    leases.push(lease);
                }
                Step::KeepAlive { nth } => {
                    if let Some(&lease) = leases.get(nth) {
                        let response = engine.handle(now, Request::KeepAlive { lease });
                        prop_assert_eq!(response.is_ok(), model.keep_alive(lease, now));
                    }
                }
                Step::Revoke { nth } => {
                    if let Some(&lease) = leases.get(nth) {
                        let response = engine.handle(now, Request::Revoke { lease });
                        prop_assert_eq!(response.is_ok(), model.revoke(lease));
                    }
                }
                Step::Pass { secs } => now += Duration::from_secs(secs),
                Step::Compact { back } => {
                    let revision = model.revision() - back;
                    let response = engine.handle(now, Request::Compact { revision });
                    prop_assert_eq!(response.is_ok(), model.compact(revision));
                }
                Step::Read { back } => {
                    let revision = model.revision() - back;
                    let mut request = RangeRequest::prefix("a");
                    request.revision = Some(revision);
                    let read = match engine.handle(now, Request::Range(request)) {
                        Ok(Response::Range(response)) => Some(response.kvs),
                        Ok(other) => panic!("{other:?}"),
                        Err(_) => None,
                    };
                    prop_assert_eq!(read, model.read_a(revision));
                    let request = Request::History { prefix: "a".into(), start_revision: revision };
                    let events = match engine.handle(now, request) {
                        Ok(Response::History(response)) => Some(model::sorted(response.events)),
                        Ok(other) => panic!("{other:?}"),
                        Err(_) => None,
                    };
                    prop_assert_eq!(events, model.events_of_a(revision));
                }
                Step::Commit => {
                    let changes: Vec<_> = engine
                        .changes()
                        .into_iter()
                        .map(|(key, kv)| (key.clone(), kv.cloned()))
                        .collect();
                    prop_assert_eq!(committed.keys_after(&changes), model.keys());
                    engine.commit();
                    committed = model.clone();
                }
                Step::RollBack => {
                    engine.roll_back();
                    model = model.rolled_back_to(&committed);
                }
            }
            let all = engine.range(&RangeRequest::prefix("")).unwrap();
            prop_assert_eq!(all.kvs, model.keys());
            prop_assert_eq!(all.header.revision, model.revision());
        }
    }
}
