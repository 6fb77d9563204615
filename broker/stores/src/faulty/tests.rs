use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::MemoryStore;
use crate::conformance::conformance;

fn content() -> Arc<dyn Content> {
    Arc::new(Bytes::from_static(b"content"))
}

#[tokio::test]
async fn without_faults_it_is_the_store_it_wraps() {
    conformance(&FaultyStore::new(Arc::new(MemoryStore::new()))).await;
}

#[tokio::test]
async fn scripted_faults_come_in_order_and_then_end() {
    let inner = Arc::new(MemoryStore::new());
    let store = FaultyStore::new(Arc::clone(&inner) as Arc<dyn Store>);
    store.script(
        Operation::Put,
        [
            Fault::Fail(StoreErrorKind::NoSpace),
            Fault::Pass,
            Fault::LoseAnswer(StoreErrorKind::Retry),
        ],
    );
    let error = store.put("a", content(), None).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.operation()),
        (StoreErrorKind::NoSpace, "put")
    );
    assert!(!inner.exists("a").await.unwrap());

    store.put("b", content(), None).await.unwrap();

    let error = store.put("c", content(), None).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Retry);
    assert!(inner.exists("c").await.unwrap(), "only the answer was lost");

    store.put("d", content(), None).await.unwrap();
    assert_eq!(store.calls(Operation::Put), 4);
    assert_eq!(store.calls(Operation::Get), 0);
}

#[tokio::test]
async fn a_partial_listing_shows_the_first_objects() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    for path in ["a", "b", "c"] {
        store.put(path, content(), None).await.unwrap();
    }
    store.script(Operation::List, [Fault::ListOnly(2)]);
    assert_eq!(store.list("").await.unwrap().len(), 2);
    assert_eq!(store.list("").await.unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn latency_and_hanging_are_of_the_runtimes_time() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    store.always(Operation::Exists, Fault::Delay(Duration::from_secs(5)));
    let begun = tokio::time::Instant::now();
    store.exists("a").await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(5));

    store.always(Operation::Exists, Fault::Hang);
    let hanging = tokio::time::timeout(Duration::from_hours(1), store.exists("a"));
    assert!(hanging.await.is_err());

    store.heal();
    assert!(!store.exists("a").await.unwrap());
}
