use super::*;
use crate::{Fault, FaultyStore, MemoryStore, Operation};

#[test]
fn failures_are_looked_at_ever_later() {
    let delays: Vec<u128> = (0..10).map(|n| next_check(n, 0.0).as_millis()).collect();
    let expected = [
        1_800_000, 0, 100, 1_000, 1_000, 10_000, 10_000, 100_000, 100_000, 100_000,
    ];
    assert_eq!(delays, expected);
    assert_eq!(next_check(u32::MAX, 0.0), Duration::from_secs(100));
}

#[test]
fn jitter_is_a_fifth_of_the_delay() {
    assert_eq!(next_check(7, 1.0), Duration::from_mins(2));
    assert_eq!(next_check(7, -1.0), Duration::from_secs(80));
    assert_eq!(next_check(7, 99.0), Duration::from_mins(2));
    assert_eq!(next_check(1, 1.0), Duration::ZERO);
}

#[tokio::test]
async fn a_good_store_passes_with_a_small_object() {
    let store = MemoryStore::new();
    check(&store).await.unwrap();
    let (content, encoding) = store.object(".test/health-check").unwrap();
    assert_eq!(
        (content.as_ref(), encoding),
        (b"health-check\n".as_slice(), None)
    );
}

#[tokio::test]
async fn each_step_can_fail_the_check() {
    for operation in [
        Operation::Put,
        Operation::Get,
        Operation::List,
        Operation::SignGet,
    ] {
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        store.always(operation, Fault::Fail(StoreErrorKind::Denied));
        let error = check(&store).await.unwrap_err();
        assert_eq!(
            (error.operation(), error.kind()),
            (operation.name(), StoreErrorKind::Denied)
        );
    }
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    store.always(Operation::List, Fault::ListOnly(0));
    let error = check(&store).await.unwrap_err().to_string();
    let expected = "list .test/: health-check is missing although it was just put; \
        next: list the store to see what it holds";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_store_that_keeps_something_else_is_found_out() {
    let inner = Arc::new(MemoryStore::new());
    inner
        .put(
            CHECK_PATH,
            Arc::new(Bytes::from_static(b"health-check\n and more")),
            None,
        )
        .await
        .unwrap();
    let store = FaultyStore::new(inner);
    store.always(Operation::Put, Fault::Skip);
    assert_eq!(
        check(&store).await.unwrap_err().kind(),
        StoreErrorKind::Corrupt
    );
}

#[tokio::test]
async fn the_probe_of_removal_leaves_nothing() {
    let store = MemoryStore::new();
    probe_delete(&store).await.unwrap();
    assert_eq!(store.paths(), [""; 0]);

    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    store.always(Operation::Remove, Fault::Fail(StoreErrorKind::Denied));
    assert_eq!(
        probe_delete(&store).await.unwrap_err().operation(),
        "remove"
    );
}
