//! Watches.

use std::time::Duration;

use super::Suite;
use crate::{EventKind, Op, RangeKey};

pub(super) async fn run(suite: &Suite<'_>) {
    a_watch_delivers_the_past_and_the_present(suite).await;
    a_watch_from_zero_begins_with_the_next_revision(suite).await;
    a_watch_of_a_future_revision_waits_for_it(suite).await;
    events_carry_the_key_after_the_change(suite).await;
    a_dropped_wait_loses_nothing(suite).await;
    slow_watches_get_everything(suite).await;
}

async fn a_watch_delivers_the_past_and_the_present(suite: &Suite<'_>) {
    let first = suite.put("a", "1").await;
    suite.put("b", "1").await;
    // Not under the prefix.
    let outside = suite.prefix.trim_end_matches('/').to_owned();
    suite.apply(vec![Op::put(outside.clone(), "1")]).await;

    let mut watch = suite.watch(first).await;
    let events = suite.events(&mut watch, 2).await;
    assert_eq!(suite.print(&events), ["+a=1@1", "+b=1@1"]);
    assert_eq!(
        (events[0].kv.mod_revision, events[1].kv.mod_revision),
        (first, first + 1)
    );

    let ops = vec![
        Op::put(suite.key("a"), "2"),
        Op::delete(suite.key("b")),
        Op::put(suite.key("c"), "2"),
        Op::delete(outside),
    ];
    let revision = suite.apply(ops).await;
    let events = suite.events(&mut watch, 3).await;
    assert_eq!(suite.print_sorted(&events), ["+a=2@2", "+c=2@1", "-b"]);
    assert!(events.iter().all(|event| event.kv.mod_revision == revision));
    suite
        .apply(vec![Op::Delete(RangeKey::Prefix(
            suite.prefix.clone().into(),
        ))])
        .await;
    let events = suite.events(&mut watch, 2).await;
    assert_eq!(suite.print_sorted(&events), ["-a", "-c"]);
}

async fn a_watch_from_zero_begins_with_the_next_revision(suite: &Suite<'_>) {
    suite.put("before", "1").await;
    let mut watch = suite.watch(0).await;
    suite.put("after", "1").await;
    let events = suite.events(&mut watch, 1).await;
    assert_eq!(suite.print(&events), ["+after=1@1"]);
    suite
        .apply(vec![Op::Delete(RangeKey::Prefix(
            suite.prefix.clone().into(),
        ))])
        .await;
}

async fn a_watch_of_a_future_revision_waits_for_it(suite: &Suite<'_>) {
    let now = suite.revision().await;
    let mut watch = suite.watch(now + 3).await;
    for value in ["1", "2", "3", "4"] {
        suite.put("key", value).await;
    }
    let events = suite.events(&mut watch, 2).await;
    assert_eq!(suite.print(&events), ["+key=3@3", "+key=4@4"]);
    suite.apply(vec![Op::delete(suite.key("key"))]).await;
}

async fn events_carry_the_key_after_the_change(suite: &Suite<'_>) {
    let created = suite.put("key", "1").await;
    let changed = suite.put("key", "2").await;
    let deleted = suite.apply(vec![Op::delete(suite.key("key"))]).await;
    let mut watch = suite.watch(created).await;
    let events = suite.events(&mut watch, 3).await;
    let [put, update, delete] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(
        (put.kv.create_revision, put.kv.mod_revision),
        (created, created)
    );
    assert_eq!(
        (update.kv.create_revision, update.kv.mod_revision),
        (created, changed)
    );
    assert_eq!((put.kv.version, update.kv.version), (1, 2));
    assert_eq!(
        (delete.kind, delete.kv.mod_revision),
        (EventKind::Delete, deleted)
    );
    assert_eq!((delete.kv.create_revision, delete.kv.version), (0, 0));
    assert!(delete.kv.value.is_empty());
}

async fn a_dropped_wait_loses_nothing(suite: &Suite<'_>) {
    let mut watch = suite.watch(0).await;
    for value in ["1", "2", "3"] {
        let wait = tokio::time::timeout(Duration::from_millis(1), watch.next()).await;
        if let Ok(response) = wait {
            let response = response.expect("the watch goes on");
            assert!(response.events.is_empty(), "nothing happened: {response:?}");
        }
        suite.put("key", value).await;
        let events = suite.events(&mut watch, 1).await;
        assert_eq!(events[0].kv.value, value);
    }
    suite.apply(vec![Op::delete(suite.key("key"))]).await;
}

async fn slow_watches_get_everything(suite: &Suite<'_>) {
    let mut slow = suite.watch(0).await;
    for round in 0..50 {
        let ops = (0..20).map(|n| Op::put(suite.key(&format!("{n:02}")), round.to_string()));
        suite.apply(ops.collect()).await;
    }
    let events = suite.events(&mut slow, 1000).await;
    for (n, event) in events.iter().enumerate() {
        assert_eq!(
            event.kv.value,
            (n / 20).to_string(),
            "revisions come in order"
        );
    }
    suite
        .apply(vec![Op::Delete(RangeKey::Prefix(
            suite.prefix.clone().into(),
        ))])
        .await;
}
