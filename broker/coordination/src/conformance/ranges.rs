//! Reading, at present and at past revisions.

use super::{Suite, pairs};
use crate::{CoordinationError, ErrorKind, Op, RangeKey, RangeRequest, WatchRequest};

pub(super) async fn run(suite: &Suite<'_>) {
    keys_carry_their_revisions_and_versions(suite).await;
    a_prefix_is_read_in_order_and_in_pages(suite).await;
    an_older_revision_shows_what_was_then(suite).await;
    a_future_revision_is_an_error(suite).await;
}

async fn keys_carry_their_revisions_and_versions(suite: &Suite<'_>) {
    let before = suite.revision().await;
    let first = suite.put("key", "one").await;
    assert_eq!(first, before + 1, "a put takes one revision");
    let second = suite.put("key", "two").await;
    let kv = suite.get("key").await.expect("the key was put");
    assert_eq!(
        (kv.create_revision, kv.mod_revision, kv.version),
        (first, second, 2)
    );
    assert_eq!(kv.value, "two");

    suite.apply(vec![Op::delete(suite.key("key"))]).await;
    assert_eq!(suite.get("key").await, None);
    let third = suite.put("key", "three").await;
    let kv = suite.get("key").await.expect("the key was put again");
    assert_eq!(
        (kv.create_revision, kv.mod_revision, kv.version),
        (third, third, 1)
    );
    suite.apply(vec![Op::delete(suite.key("key"))]).await;
    assert_eq!(suite.revision().await, third + 1, "reads take no revision");
}

async fn a_prefix_is_read_in_order_and_in_pages(suite: &Suite<'_>) {
    let names = ["a", "a#", "a/b", "b", "c"];
    suite
        .apply(
            names
                .iter()
                .map(|name| Op::put(suite.key(name), *name))
                .collect(),
        )
        .await;

    let all = RangeRequest::prefix(suite.prefix.clone());
    let response = suite
        .store
        .range(all.clone())
        .await
        .expect("the prefix can be read");
    let read: Vec<_> = response.kvs.iter().map(|kv| suite.name(&kv.key)).collect();
    assert_eq!(read, names);
    assert_eq!((response.count, response.more), (5, false));

    let page = suite
        .store
        .range(all.clone().limit(2))
        .await
        .expect("a page can be read");
    assert_eq!((page.kvs.len(), page.count, page.more), (2, 5, true));
    let page = all.clone().limit(3).from(suite.key("a/b"));
    let page = suite.store.range(page).await.expect("a page can be read");
    assert_eq!((page.kvs.len(), page.more), (3, false));
    assert_eq!(page.kvs[0].key, suite.key("a/b"));

    let keys = RangeRequest {
        keys_only: true,
        ..all.clone()
    };
    let keys = suite.store.range(keys).await.expect("keys can be read");
    assert!(keys.kvs.len() == 5 && keys.kvs.iter().all(|kv| kv.value.is_empty()));
    let count = RangeRequest {
        count_only: true,
        ..all
    };
    let count = suite.store.range(count).await.expect("keys can be counted");
    assert_eq!((count.kvs.len(), count.count), (0, 5));
    suite
        .apply(vec![Op::Delete(RangeKey::Prefix(
            suite.prefix.clone().into(),
        ))])
        .await;
}

async fn an_older_revision_shows_what_was_then(suite: &Suite<'_>) {
    let first = suite.apply(vec![
        Op::put(suite.key("kept"), "1"),
        Op::put(suite.key("changed"), "1"),
        Op::put(suite.key("deleted"), "1"),
    ]);
    let first = first.await;
    let second = suite.apply(vec![
        Op::put(suite.key("changed"), "2"),
        Op::put(suite.key("new"), "2"),
        Op::delete(suite.key("deleted")),
    ]);
    let second = second.await;
    let third = suite.put("changed", "3").await;

    let old = [("changed", "1"), ("deleted", "1"), ("kept", "1")];
    assert_eq!(suite.dump(Some(first)).await, pairs(&old));
    let middle = [("changed", "2"), ("kept", "1"), ("new", "2")];
    assert_eq!(suite.dump(Some(second)).await, pairs(&middle));
    let latest = [("changed", "3"), ("kept", "1"), ("new", "2")];
    assert_eq!(suite.dump(None).await, pairs(&latest));

    let request = RangeRequest::key(suite.key("changed")).at(first);
    let response = suite
        .store
        .range(request)
        .await
        .expect("the revision can be read");
    assert_eq!(
        response.header.revision, third,
        "the header tells the latest revision"
    );
    let kv = &response.kvs[0];
    assert_eq!(
        (kv.create_revision, kv.mod_revision, kv.version),
        (first, first, 1)
    );
    suite
        .apply(vec![Op::Delete(RangeKey::Prefix(
            suite.prefix.clone().into(),
        ))])
        .await;
}

async fn a_future_revision_is_an_error(suite: &Suite<'_>) {
    let latest = suite.revision().await;
    let request = RangeRequest::prefix(suite.prefix.clone()).at(latest + 1);
    let err = suite
        .store
        .range(request)
        .await
        .expect_err("the revision has not happened");
    assert!(
        matches!(err, CoordinationError::FutureRevision { .. }),
        "{err}"
    );
}

pub(super) async fn run_compaction(suite: &Suite<'_>) {
    let first = suite.put("key", "1").await;
    let second = suite.put("key", "2").await;
    let third = suite.put("key", "3").await;
    suite
        .store
        .compact(second)
        .await
        .expect("the revision can be compacted");

    let request = RangeRequest::prefix(suite.prefix.clone());
    let err = suite
        .store
        .range(request.clone().at(first))
        .await
        .expect_err("it is compacted");
    assert_eq!(err.kind(), ErrorKind::Compacted, "{err}");
    assert_eq!(suite.dump(Some(second)).await, pairs(&[("key", "2")]));
    assert_eq!(suite.dump(Some(third)).await, pairs(&[("key", "3")]));

    // An implementation may notice with the request, or with the first response.
    let watch = WatchRequest {
        prefix: suite.prefix.clone().into(),
        start_revision: first,
    };
    let err = match suite.store.watch(watch).await {
        Ok(mut watch) => watch.next().await.expect_err("the start is compacted"),
        Err(err) => err,
    };
    assert_eq!(err.kind(), ErrorKind::Compacted, "{err}");
    let mut watch = suite.watch(third).await;
    let events = suite.events(&mut watch, 1).await;
    assert_eq!(suite.print(&events), ["+key=3@3"]);

    let err = suite
        .store
        .compact(third + 1000)
        .await
        .expect_err("it has not happened");
    assert!(
        matches!(err, CoordinationError::FutureRevision { .. }),
        "{err}"
    );
}
