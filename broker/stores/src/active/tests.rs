use bytes::Bytes;
use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;
use crate::{Fault, FaultyStore, MemoryStore, StoreConfig, Stores};

fn active(url: &str, store: Arc<dyn Store>) -> Arc<ActiveStore> {
    Stores::new(StoreConfig::default()).insert(url, store)
}

fn content() -> Arc<dyn Content> {
    Arc::new(Bytes::from_static(b"content"))
}

#[tokio::test]
async fn paths_and_prefixes_are_rewritten_on_the_way() {
    let inner = Arc::new(MemoryStore::new());
    let url = "memory:///?find=/v1/&replace=/old/";
    let store = active(url, Arc::clone(&inner) as Arc<dyn Store>);

    store.put("a/v1/b/v1/x", content(), None).await.unwrap();
    store.put("other", content(), None).await.unwrap();
    assert_eq!(inner.paths(), ["a/old/b/v1/x", "other"]);

    assert!(store.exists("a/v1/b/v1/x").await.unwrap());
    store.get("a/v1/b/v1/x").await.unwrap();
    store.get_range("a/v1/b/v1/x", 0, 1).await.unwrap();
    let url = store
        .sign_get("a/v1/b/v1/x", Duration::from_secs(1))
        .await
        .unwrap();
    assert_eq!(url, "memory:///a/old/b/v1/x");

    // What is listed is relative to the prefix as the caller knows it.
    let listed = store.list("a/v1/b/").await.unwrap();
    assert_eq!(listed[0].path, "v1/x");

    store.remove("a/v1/b/v1/x").await.unwrap();
    assert_eq!(inner.paths(), ["other"]);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_hangs_ends_after_its_budget() {
    let inner = FaultyStore::new(Arc::new(MemoryStore::new()));
    inner.always(Operation::List, Fault::Hang);
    let store = active("memory:///", Arc::new(inner));
    let begun = Instant::now();
    let error = store.check_health().await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_mins(1));
    let expected = "check store memory:///: no end after 60 seconds; \
        next: try again; if it goes on, look at the store";
    assert_eq!(error.to_string(), expected);
    assert_eq!(*store.health().borrow(), Health::Unhealthy(error));
}

#[tokio::test]
async fn the_first_to_ask_for_health_need_not_wait_for_the_task() {
    let inner = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
    let store = active("memory:///", Arc::clone(&inner) as Arc<dyn Store>);
    store.checked_health().await.unwrap();
    store.checked_health().await.unwrap();
    assert_eq!(
        inner.calls(Operation::Put),
        1,
        "the second answer is the first"
    );
    store.probe_delete().await.unwrap();
    assert_eq!(inner.calls(Operation::Remove), 1);
}

#[test]
fn metrics_have_the_names_and_labels_of_the_reference() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    ::metrics::with_local_recorder(&recorder, || {
        metrics::describe();
        runtime.block_on(async {
            let inner = FaultyStore::new(Arc::new(MemoryStore::new()));
            inner.script(
                Operation::Get,
                [Fault::Pass, Fault::Fail(StoreErrorKind::Retry)],
            );
            let store = active("memory:///", Arc::new(inner));
            store.check_health().await.unwrap();
            store.put("a", content(), None).await.unwrap();
            store.put("b", content(), Some("gzip")).await.unwrap();
            assert!(store.get("a").await.is_err());
            store.list("").await.unwrap();
        });
    });
    let rendered = recorder.handle().render();
    for line in [
        "gazette_store_active 1",
        "gazette_store_health_check_total{store=\"memory:///\",status=\"ok\"} 1",
        "gazette_store_operation_total{store=\"memory:///\",operation=\"put\",status=\"success\"} 2",
        "gazette_store_operation_total{store=\"memory:///\",operation=\"get\",status=\"error\"} 1",
        "gazette_store_operation_total{store=\"memory:///\",operation=\"list\",status=\"success\"} 1",
        "gazette_store_put_bytes_total{store=\"memory:///\",encoding=\"none\"} 7",
        "gazette_store_put_bytes_total{store=\"memory:///\",encoding=\"gzip\"} 7",
    ] {
        assert!(rendered.contains(line), "{line}\n\n{rendered}");
    }

    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/broker/metrics/metrics.json"
    );
    let golden: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
    let recorded = golden["metrics"].as_object().unwrap();
    let mut names: Vec<&str> = recorded
        .keys()
        .map(String::as_str)
        .filter(|name| name.starts_with("gazette_store_"))
        .collect();
    names.sort_unstable();
    let mut ours = [
        metrics::STORE_ACTIVE,
        metrics::STORE_HEALTH_CHECK_TOTAL,
        metrics::STORE_LIST_ITEMS_COUNT,
        metrics::STORE_OPERATION_DURATION_SECONDS,
        metrics::STORE_OPERATION_TOTAL,
        metrics::STORE_PUT_BYTES_TOTAL,
    ];
    ours.sort_unstable();
    assert_eq!(names, ours);
    assert!(names.iter().all(|name| rendered.contains(name)));
}
