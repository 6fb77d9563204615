use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tokio::time::{Instant, advance};

use super::*;
use crate::conformance::conformance;
use crate::{Fault, FaultyStore, Health, MemoryStore, Operation};

fn files(root: &TempDir) -> Stores {
    Stores::new(StoreConfig {
        file_root: Some(root.path().to_owned()),
        ..StoreConfig::default()
    })
}

fn faulty() -> Arc<FaultyStore> {
    Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())))
}

async fn error_of(store: &ActiveStore) -> String {
    store.list("").await.unwrap_err().to_string()
}

#[tokio::test]
async fn an_active_store_behaves_as_a_store() {
    let root = TempDir::new().unwrap();
    let stores = files(&root);
    conformance(stores.get("file:///").as_ref()).await;
    conformance(
        stores
            .insert("memory:///", Arc::new(MemoryStore::new()))
            .as_ref(),
    )
    .await;
}

#[tokio::test]
async fn a_url_has_one_handle() {
    let stores = Stores::new(StoreConfig::default());
    assert!(Arc::ptr_eq(
        &stores.get("file:///"),
        &stores.get("file:///")
    ));
    assert!(!Arc::ptr_eq(
        &stores.get("file:///"),
        &stores.get("file:///a/")
    ));
}

#[tokio::test]
async fn a_missing_folder_is_named_and_used_once_it_is_there() {
    let root = TempDir::new().unwrap();
    let store = files(&root).get("file:///x/");
    let missing = root.path().join("x");
    let expected = format!(
        "open store file:///x/: no such directory {}; next: create it or correct the spec",
        missing.display()
    );
    assert_eq!(error_of(&store).await, expected);
    let error = store.list("").await.unwrap_err();
    assert!(store.is_auth_error(&error), "another store is worth a try");

    std::fs::create_dir(&missing).unwrap();
    assert_eq!(store.list("").await, Ok(vec![]));
}

#[tokio::test]
async fn what_cannot_be_opened_says_why() {
    let root = TempDir::new().unwrap();
    std::fs::write(root.path().join("plain"), "").unwrap();
    let stores = files(&root);
    for (url, cause) in [
        (
            "s3://bucket/",
            "this process opens no stores of scheme \"s3\"",
        ),
        (
            "file:///?region=x",
            "a file store has no argument \"region\"",
        ),
        ("nonsense", "relative URL without a base"),
        ("file:///a", "its path must start and end with a slash"),
        ("file:///plain/", "is no directory"),
    ] {
        let error = error_of(&stores.get(url)).await;
        let start = format!("open store {url}: ");
        assert!(error.starts_with(&start), "{error}");
        assert!(
            error.contains(cause) && error.contains("; next: "),
            "{error}"
        );
    }
    let rootless = Stores::new(StoreConfig::default()).get("file:///");
    assert!(
        error_of(&rootless)
            .await
            .contains("no folder for file stores")
    );
}

#[tokio::test]
async fn with_file_only_every_store_is_the_root() {
    let root = TempDir::new().unwrap();
    let stores = Stores::new(StoreConfig {
        file_root: Some(root.path().to_owned()),
        file_only: true,
        ..StoreConfig::default()
    });
    std::fs::write(root.path().join("object"), "content").unwrap();
    for url in ["s3://bucket/prefix/?region=x", "gs://b/p/", "file:///x/"] {
        assert!(stores.get(url).exists("object").await.unwrap(), "{url}");
    }
}

#[tokio::test]
async fn an_opener_is_asked_again_after_it_failed() {
    #[derive(Debug, Default)]
    struct SecondTime(AtomicUsize);

    #[async_trait]
    impl StoreOpener for SecondTime {
        async fn open(&self, url: &StoreUrl) -> Result<Arc<dyn Store>, StoreError> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => Err(cannot_open(url, "no credentials")),
                _ => Ok(Arc::new(MemoryStore::new())),
            }
        }
    }

    let opener = Arc::new(SecondTime::default());
    let stores = Stores::new(StoreConfig {
        openers: [("s3".to_owned(), Arc::clone(&opener) as Arc<dyn StoreOpener>)].into(),
        ..StoreConfig::default()
    });
    let store = stores.get("s3://bucket/");
    assert!(error_of(&store).await.contains("no credentials"));
    for _ in 0..3 {
        assert_eq!(store.list("").await, Ok(vec![]));
    }
    assert_eq!(
        opener.0.load(Ordering::Relaxed),
        2,
        "once open it stays open"
    );
}

#[tokio::test]
async fn a_handle_in_use_is_never_swept() {
    let stores = Stores::new(StoreConfig::default());
    let held = stores.get("file:///held/");
    let weak = Arc::downgrade(&stores.get("file:///dropped/"));

    assert_eq!(
        stores.sweep(),
        0,
        "both were asked for since the last sweep"
    );
    assert_eq!(stores.sweep(), 1);
    assert!(weak.upgrade().is_none());
    for _ in 0..3 {
        assert_eq!(stores.sweep(), 0);
    }
    assert!(Arc::ptr_eq(&held, &stores.get("file:///held/")));

    drop(held);
    assert_eq!((stores.sweep(), stores.sweep()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn health_is_looked_after_while_it_runs() {
    let stores = Arc::new(Stores::new(StoreConfig::default()));
    let inner = faulty();
    inner.always(Operation::Put, Fault::Fail(StoreErrorKind::Denied));
    let store = stores.insert("memory:///", Arc::clone(&inner) as Arc<dyn Store>);
    let mut health = store.health();
    assert_eq!(*health.borrow_and_update(), Health::Unchecked);

    let running = {
        let stores = Arc::clone(&stores);
        tokio::spawn(async move { stores.run(1).await })
    };
    let begun = Instant::now();
    health.changed().await.unwrap();
    assert!(
        matches!(&*health.borrow_and_update(), Health::Unhealthy(error) if error.kind() == StoreErrorKind::Denied)
    );

    // Eight failures: 0, 0.1, 1, 1, 10 and 10 seconds, then one of 100 begins; each a fifth more or less.
    while inner.calls(Operation::Put) < 7 {
        health.changed().await.unwrap();
    }
    let elapsed = begun.elapsed().as_secs_f64();
    assert!((22.1 * 0.8..22.1 * 1.2).contains(&elapsed), "{elapsed}");

    inner.heal();
    health.changed().await.unwrap();
    while !health.borrow_and_update().is_healthy() {
        health.changed().await.unwrap();
    }
    let calls = inner.calls(Operation::Put);
    advance(Duration::from_mins(20)).await;
    assert_eq!(
        inner.calls(Operation::Put),
        calls,
        "a healthy store is left alone for half an hour"
    );

    // A store that comes later is looked after too.
    let later = stores.insert("memory:///later/", faulty());
    later.health().wait_for(Health::is_healthy).await.unwrap();

    // When the task is stopped, so are the checks.
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    let calls = inner.calls(Operation::Put);
    advance(Duration::from_hours(10)).await;
    assert_eq!(inner.calls(Operation::Put), calls);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_nobody_uses_is_swept_and_no_longer_checked() {
    let stores = Arc::new(Stores::new(StoreConfig::default()));
    let inner = faulty();
    drop(stores.insert("memory:///", Arc::clone(&inner) as Arc<dyn Store>));
    let running = {
        let stores = Arc::clone(&stores);
        tokio::spawn(async move { stores.run(1).await })
    };
    tokio::time::sleep(Duration::from_hours(3)).await;
    let calls = inner.calls(Operation::Put);
    assert!(calls >= 3);
    assert_eq!(Arc::strong_count(&inner), 1, "the registry has let go");
    tokio::time::sleep(Duration::from_hours(3)).await;
    assert_eq!(inner.calls(Operation::Put), calls);
    running.abort();
}
