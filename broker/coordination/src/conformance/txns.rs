//! Transactions: compares, branches, atomicity, limits.

use super::{Suite, deleted, pairs};
use crate::{
    Compare, CompareOrder, CompareTarget, CoordinationError, InvalidRequest, LeaseId, Op,
    OpResponse, Put, RangeKey, RangeRequest, WatchRequest,
};

pub(super) async fn run(suite: &Suite<'_>) {
    each_compare_looks_at_its_target(suite).await;
    one_branch_is_applied_in_one_revision(suite).await;
    operations_see_those_before_them(suite).await;
    only_a_write_takes_a_revision(suite).await;
    a_failed_transaction_changes_nothing(suite).await;
    limits_are_enforced(suite).await;
    a_put_can_keep_the_value_or_lease(suite).await;
}

async fn each_compare_looks_at_its_target(suite: &Suite<'_>) {
    use CompareOrder::{Equal, Greater, Less, NotEqual};
    let created = suite.put("key", "m").await;
    let changed = suite.put("key", "m").await;
    let value = |text: &'static str| CompareTarget::Value(text.into());
    let present = [
        (Equal, CompareTarget::ModRevision(changed), true),
        (Equal, CompareTarget::ModRevision(created), false),
        (Greater, CompareTarget::ModRevision(created), true),
        (Less, CompareTarget::ModRevision(created), false),
        (Equal, CompareTarget::CreateRevision(created), true),
        (NotEqual, CompareTarget::CreateRevision(created), false),
        (Less, CompareTarget::CreateRevision(changed), true),
        (Equal, CompareTarget::Version(2), true),
        (Greater, CompareTarget::Version(2), false),
        (Equal, value("m"), true),
        (NotEqual, value("m"), false),
        (Greater, value("l"), true),
        (Less, value("ma"), true),
        (Equal, CompareTarget::Lease(LeaseId::NONE), true),
        (NotEqual, CompareTarget::Lease(LeaseId::NONE), false),
    ];
    let absent = [
        (Equal, CompareTarget::ModRevision(0), true),
        (Equal, CompareTarget::CreateRevision(0), true),
        (NotEqual, CompareTarget::CreateRevision(0), false),
        (Equal, CompareTarget::Version(0), true),
        (Less, CompareTarget::Version(1), true),
        (Equal, value(""), false),
        (NotEqual, value("m"), false),
        (Equal, CompareTarget::Lease(LeaseId::NONE), true),
    ];
    let cases = present.map(|case| ("key", case)).into_iter();
    for (name, (order, target, expected)) in cases.chain(absent.map(|case| ("none", case))) {
        let compare = Compare {
            key: suite.key(name),
            order,
            target,
        };
        let response = suite.txn(vec![compare.clone()], vec![], vec![]).await;
        assert_eq!(response.succeeded, expected, "{compare:?}");
    }
    let both = vec![
        Compare::absent(suite.key("none")),
        Compare::absent(suite.key("key")),
    ];
    assert!(
        !suite.txn(both, vec![], vec![]).await.succeeded,
        "all compares must hold"
    );
    suite.apply(vec![Op::delete(suite.key("key"))]).await;
}

async fn one_branch_is_applied_in_one_revision(suite: &Suite<'_>) {
    let before = suite.revision().await;
    let absent = vec![Compare::absent(suite.key("a"))];
    let puts = vec![Op::put(suite.key("a"), "1"), Op::put(suite.key("b"), "1")];
    let otherwise = vec![Op::put(suite.key("c"), "1"), Op::delete(suite.key("a"))];

    let response = suite
        .txn(absent.clone(), puts.clone(), otherwise.clone())
        .await;
    assert!(response.succeeded);
    assert_eq!(response.header.revision, before + 1);
    assert_eq!(response.responses, [OpResponse::Put, OpResponse::Put]);
    let (a, b) = (suite.get("a").await, suite.get("b").await);
    assert_eq!(a.map(|kv| kv.mod_revision), b.map(|kv| kv.mod_revision));

    let response = suite.txn(absent, puts, otherwise).await;
    assert!(!response.succeeded);
    assert_eq!(response.header.revision, before + 2);
    assert_eq!(suite.dump(None).await, pairs(&[("b", "1"), ("c", "1")]));
    suite
        .apply(vec![Op::Delete(RangeKey::Prefix(
            suite.prefix.clone().into(),
        ))])
        .await;
}

async fn operations_see_those_before_them(suite: &Suite<'_>) {
    suite.put("old", "1").await;
    let read = || Op::Range(RangeRequest::prefix(suite.prefix.clone()));
    let ops = vec![
        read(),
        Op::put(suite.key("new"), "2"),
        Op::delete(suite.key("old")),
        read(),
    ];
    let response = suite.txn(vec![], ops, vec![]).await;
    let names = |response: &OpResponse| match response {
        OpResponse::Range(range) => range
            .kvs
            .iter()
            .map(|kv| suite.name(&kv.key))
            .collect::<Vec<_>>(),
        OpResponse::Put | OpResponse::Delete { .. } => panic!("{response:?} is not of a range"),
    };
    assert_eq!(names(&response.responses[0]), ["old"]);
    assert_eq!(deleted(&response.responses[2]), 1);
    assert_eq!(names(&response.responses[3]), ["new"]);
    suite.apply(vec![Op::delete(suite.key("new"))]).await;
}

async fn only_a_write_takes_a_revision(suite: &Suite<'_>) {
    let before = suite.revision().await;
    let nothing = suite.txn(vec![], vec![], vec![]).await;
    assert!(nothing.succeeded, "no compares hold");
    let ops = vec![
        Op::delete(suite.key("none")),
        Op::Delete(RangeKey::Prefix(suite.key("none"))),
        Op::Range(RangeRequest::key(suite.key("none"))),
    ];
    let response = suite.txn(vec![], ops, vec![]).await;
    assert_eq!(response.header.revision, before);
    assert_eq!(
        deleted(&response.responses[0]) + deleted(&response.responses[1]),
        0
    );
    assert_eq!(suite.revision().await, before);

    // A put of what is there is a change all the same.
    suite.put("same", "1").await;
    assert_eq!(suite.put("same", "1").await, before + 2);
    suite.apply(vec![Op::delete(suite.key("same"))]).await;
}

async fn a_failed_transaction_changes_nothing(suite: &Suite<'_>) {
    let before = suite.revision().await;
    let request = WatchRequest {
        prefix: suite.prefix.clone().into(),
        start_revision: before + 1,
    };
    let mut watch = suite
        .store
        .watch(request)
        .await
        .expect("the next revision can be watched");
    let (a, b) = (suite.key("a"), suite.key("b"));
    let keep = |ignore_lease, ignore_value| {
        Op::Put(Put {
            key: b.clone(),
            ignore_lease,
            ignore_value,
            ..Put::default()
        })
    };
    let lease = LeaseId(0x7abc);
    let given = |put: Put| {
        Op::Put(Put {
            key: b.clone(),
            ..put
        })
    };
    let cases = [
        (
            keep(true, false),
            CoordinationError::KeyNotFound { key: b.clone() },
        ),
        (
            keep(false, true),
            CoordinationError::KeyNotFound { key: b.clone() },
        ),
        (
            Op::put_with_lease(b.clone(), "1", lease),
            CoordinationError::LeaseNotFound { lease },
        ),
        (
            given(Put {
                lease,
                ignore_lease: true,
                ..Put::default()
            }),
            InvalidRequest::LeaseGiven.into(),
        ),
        (
            given(Put {
                value: "1".into(),
                ignore_value: true,
                ..Put::default()
            }),
            InvalidRequest::ValueGiven.into(),
        ),
        (Op::put("", "1"), InvalidRequest::EmptyKey.into()),
        (
            Op::put(a.clone(), "2"),
            CoordinationError::DuplicateKey { key: a.clone() },
        ),
        (
            Op::delete(a.clone()),
            CoordinationError::DuplicateKey { key: a.clone() },
        ),
        (
            Op::Delete(RangeKey::Prefix(suite.prefix.clone().into())),
            CoordinationError::DuplicateKey { key: a.clone() },
        ),
    ];
    for (bad, expected) in cases {
        let ops = vec![Op::put(a.clone(), "1"), bad.clone()];
        let result = suite.try_txn(vec![], ops, vec![]).await;
        assert_eq!(result, Err(expected), "{bad:?}");
        assert_eq!(suite.revision().await, before, "{bad:?}");
    }
    assert_eq!(suite.dump(None).await, []);

    // Faults of shape count in the branch that is not taken, too; those of the store do not.
    let twice = vec![Op::put(a.clone(), "1"), Op::put(a.clone(), "2")];
    let result = suite.try_txn(vec![], vec![], twice).await;
    assert_eq!(
        result,
        Err(CoordinationError::DuplicateKey { key: a.clone() })
    );
    let same = vec![Op::put(a.clone(), "1")];
    let after = suite
        .txn(vec![], same, vec![keep(true, false)])
        .await
        .header
        .revision;
    assert_eq!(after, before + 1);
    let events = suite.events(&mut watch, 1).await;
    assert_eq!(
        suite.print(&events),
        ["+a=1@1"],
        "what failed leaves no events"
    );
    suite.apply(vec![Op::delete(a)]).await;
}

async fn limits_are_enforced(suite: &Suite<'_>) {
    let limit = suite.store.max_txn_ops();
    let puts = |count: usize| {
        (0..count)
            .map(|n| Op::put(suite.key(&format!("{n:04}")), "1"))
            .collect::<Vec<_>>()
    };
    let compares = |count: usize| {
        (0..count)
            .map(|n| Compare::absent(suite.key(&format!("{n:04}"))))
            .collect::<Vec<_>>()
    };
    let too_many = Err(CoordinationError::TooManyOps {
        count: limit + 1,
        limit,
    });
    assert_eq!(
        suite.try_txn(vec![], puts(limit + 1), vec![]).await,
        too_many
    );
    assert_eq!(
        suite.try_txn(vec![], vec![], puts(limit + 1)).await,
        too_many
    );
    assert_eq!(
        suite.try_txn(compares(limit + 1), vec![], vec![]).await,
        too_many
    );
    let response = suite.txn(compares(limit), puts(limit), puts(limit)).await;
    assert!(response.succeeded);
    assert_eq!(suite.dump(None).await.len(), limit);
    suite
        .apply(vec![Op::Delete(RangeKey::Prefix(
            suite.prefix.clone().into(),
        ))])
        .await;
}

async fn a_put_can_keep_the_value_or_lease(suite: &Suite<'_>) {
    let lease = suite
        .store
        .grant_lease(super::PATIENCE)
        .await
        .expect("a lease is granted");
    let key = suite.key("key");
    suite
        .apply(vec![Op::put_with_lease(key.clone(), "1", lease)])
        .await;

    suite
        .apply(vec![Op::put_keeping_lease(key.clone(), "2")])
        .await;
    let kv = suite.get("key").await.expect("the key was put");
    assert_eq!(
        (kv.value.as_ref(), kv.lease, kv.version),
        (b"2".as_ref(), lease, 2)
    );

    let detach = Put {
        key: key.clone(),
        ignore_value: true,
        ..Put::default()
    };
    suite.apply(vec![Op::Put(detach)]).await;
    let kv = suite.get("key").await.expect("the key was put");
    assert_eq!(
        (kv.value.as_ref(), kv.lease),
        (b"2".as_ref(), LeaseId::NONE)
    );
    let attached = Compare::equal(key.clone(), CompareTarget::Lease(lease));
    assert!(!suite.txn(vec![attached], vec![], vec![]).await.succeeded);

    suite
        .store
        .revoke_lease(lease)
        .await
        .expect("the lease can be revoked");
    assert!(
        suite.get("key").await.is_some(),
        "a detached key outlives the lease"
    );
    suite.apply(vec![Op::delete(key)]).await;
}
