//! Leases.

use std::time::Duration;

use super::{NO_LEASE, PATIENCE, Suite};
use crate::{CoordinationError, Op, RangeRequest};

pub(super) async fn run(suite: &Suite<'_>) {
    a_revoked_lease_deletes_its_keys_in_one_revision(suite).await;
    a_lease_expires_unless_it_is_kept_alive(suite).await;
    a_key_can_change_its_lease(suite).await;
    a_lease_that_ended_is_not_found(suite).await;
}

async fn a_revoked_lease_deletes_its_keys_in_one_revision(suite: &Suite<'_>) {
    let lease = suite
        .store
        .grant_lease(PATIENCE)
        .await
        .expect("a lease is granted");
    let ops = vec![
        Op::put_with_lease(suite.key("a"), "1", lease),
        Op::put_with_lease(suite.key("b"), "1", lease),
        Op::put(suite.key("c"), "1"),
    ];
    let revision = suite.apply(ops).await;
    assert_eq!(suite.get("a").await.map(|kv| kv.lease), Some(lease));
    assert_eq!(suite.get("c").await.map(|kv| kv.lease), Some(NO_LEASE));
    let mut watch = suite.watch(revision + 1).await;
    suite
        .store
        .revoke_lease(lease)
        .await
        .expect("the lease can be revoked");
    let events = suite.events(&mut watch, 2).await;
    assert_eq!(suite.print_sorted(&events), ["-a", "-b"]);
    assert!(
        events
            .iter()
            .all(|event| event.kv.mod_revision == revision + 1)
    );
    assert_eq!(suite.revision().await, revision + 1);
    suite.apply(vec![Op::delete(suite.key("c"))]).await;
}

async fn a_lease_expires_unless_it_is_kept_alive(suite: &Suite<'_>) {
    // Servers round short times up, so only the order of events is checked, and no duration.
    let short = suite
        .store
        .grant_lease(Duration::from_secs(1))
        .await
        .expect("it is granted");
    let kept = suite
        .store
        .grant_lease(PATIENCE)
        .await
        .expect("a lease is granted");
    let ops = vec![
        Op::put_with_lease(suite.key("kept"), "1", kept),
        Op::put_with_lease(suite.key("short"), "1", short),
    ];
    let revision = suite.apply(ops).await;
    let mut watch = suite.watch(revision + 1).await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        let ttl = suite
            .store
            .keep_alive(short)
            .await
            .expect("the lease lives");
        assert!(ttl >= Duration::from_secs(1), "{ttl:?}");
    }
    assert!(
        suite.get("short").await.is_some(),
        "it was kept alive past its time"
    );

    let events = suite.events(&mut watch, 1).await;
    assert_eq!(suite.print(&events), ["-short"]);
    assert_eq!(suite.get("short").await, None);
    let ttl = suite
        .store
        .keep_alive(kept)
        .await
        .expect("the other lease lives");
    assert!(ttl > Duration::from_secs(1), "{ttl:?}");
    suite
        .store
        .revoke_lease(kept)
        .await
        .expect("the lease can be revoked");
    assert_eq!(suite.get("kept").await, None);
}

async fn a_key_can_change_its_lease(suite: &Suite<'_>) {
    let one = suite
        .store
        .grant_lease(PATIENCE)
        .await
        .expect("a lease is granted");
    let two = suite
        .store
        .grant_lease(PATIENCE)
        .await
        .expect("a lease is granted");
    assert_ne!(one, two);
    suite
        .apply(vec![Op::put_with_lease(suite.key("key"), "1", one)])
        .await;
    suite
        .apply(vec![Op::put_with_lease(suite.key("key"), "2", two)])
        .await;
    let before = suite.revision().await;
    suite
        .store
        .revoke_lease(one)
        .await
        .expect("the lease can be revoked");
    assert_eq!(
        suite.revision().await,
        before,
        "an empty lease ends without a revision"
    );
    assert_eq!(suite.get("key").await.map(|kv| kv.lease), Some(two));
    suite
        .store
        .revoke_lease(two)
        .await
        .expect("the lease can be revoked");
    assert_eq!(suite.get("key").await, None);
    let request = RangeRequest::key(suite.key("key")).at(before);
    let then = suite
        .store
        .range(request)
        .await
        .expect("the revision can be read");
    assert_eq!(then.kvs[0].lease, two, "the past knows the lease");
}

async fn a_lease_that_ended_is_not_found(suite: &Suite<'_>) {
    let lease = suite
        .store
        .grant_lease(PATIENCE)
        .await
        .expect("a lease is granted");
    suite
        .store
        .revoke_lease(lease)
        .await
        .expect("the lease can be revoked");
    let gone = CoordinationError::LeaseNotFound { lease };
    assert_eq!(suite.store.keep_alive(lease).await, Err(gone.clone()));
    assert_eq!(suite.store.revoke_lease(lease).await, Err(gone.clone()));
    let put = vec![Op::put_with_lease(suite.key("key"), "1", lease)];
    assert_eq!(suite.try_txn(vec![], put, vec![]).await, Err(gone));
    let next = suite
        .store
        .grant_lease(PATIENCE)
        .await
        .expect("a lease is granted");
    assert_ne!(next, lease, "ids are not used again");
    suite
        .store
        .revoke_lease(next)
        .await
        .expect("the lease can be revoked");
}
