#![expect(
    clippy::clone_on_ref_ptr,
    reason = "only a method call coerces to a trait object"
)]

mod scripted;

use std::sync::Mutex;

use gazette_coordination::{Embedded, EmbeddedOptions, Op, Txn};

use super::*;
use scripted::{Scripted, WatchFault};

fn decoder() -> Decoder<String> {
    Arc::new(|kv| Ok(String::from_utf8_lossy(&kv.value).into_owned()))
}

async fn put(store: &dyn Coordination, key: &str, value: &str) -> i64 {
    let ops = vec![Op::put(key.to_owned(), value.to_owned())];
    store
        .txn(Txn::new(vec![], ops))
        .await
        .unwrap()
        .header
        .revision
}

fn dump(space: &KeySpace<String>) -> String {
    let name = |key: &[u8]| String::from_utf8_lossy(key).replace("/root/", "");
    let pairs: Vec<_> = space
        .iter()
        .map(|entry| format!("{}={}", name(&entry.raw.key), entry.decoded))
        .collect();
    pairs.join(" ")
}

/// Loads, and runs the watch in the background.
async fn mirror(
    store: Arc<dyn Coordination>,
    options: MirrorOptions,
) -> (
    Mirror<String>,
    tokio::task::JoinHandle<Result<(), MirrorError>>,
) {
    let (mirror, watch) = Mirror::load(store, "/root", None, decoder(), options)
        .await
        .unwrap();
    (mirror, tokio::spawn(watch.run()))
}

#[tokio::test(start_paused = true)]
async fn a_mirror_follows_its_store() {
    let store = Arc::new(Embedded::in_memory());
    put(&*store, "/root/a", "1").await;
    let (mirror, running) = mirror(store.clone(), MirrorOptions::embedded()).await;
    assert_eq!(dump(&mirror.read()), "a=1");
    let mut changed = mirror.changed();
    let revision = put(&*store, "/root/b", "2").await;
    mirror.wait_for_revision(revision).await.unwrap();
    assert_eq!(dump(&mirror.read()), "a=1 b=2");
    assert_eq!(*changed.borrow_and_update(), revision);

    mirror.stop();
    assert_eq!(running.await.unwrap(), Ok(()));
    assert_eq!(
        mirror.wait_for_revision(revision + 1).await,
        Err(MirrorError::Stopped)
    );
    assert_eq!(
        mirror.wait_for_revision(revision).await,
        Ok(()),
        "what is reached is reached"
    );
    assert_eq!(mirror.ended().await, MirrorError::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_can_be_loaded_at_an_older_revision() {
    let store = Arc::new(Embedded::in_memory());
    let first = put(&*store, "/root/a", "1").await;
    let second = put(&*store, "/root/a", "2").await;
    let options = MirrorOptions::embedded();
    let (mirror, watch) = Mirror::load(store.clone(), "/root", Some(first), decoder(), options)
        .await
        .unwrap();
    assert_eq!(
        (dump(&mirror.read()).as_str(), mirror.read().revision()),
        ("a=1", first)
    );
    tokio::spawn(watch.run());
    mirror.wait_for_revision(second).await.unwrap();
    assert_eq!(dump(&mirror.read()), "a=2");
}

#[tokio::test(start_paused = true)]
async fn a_load_in_pages_is_of_one_revision() {
    let store = Arc::new(Scripted::new(Embedded::in_memory()));
    for n in 0..10 {
        put(&*store, &format!("/root/{n}"), "old").await;
    }
    store.write_at_each_range("/root/9", "new");
    let options = MirrorOptions {
        page_size: 3,
        ..MirrorOptions::embedded()
    };
    let (mirror, running) = mirror(store.clone(), options).await;
    assert_eq!(mirror.read().len(), 10);
    assert!(mirror.read().iter().all(|entry| entry.decoded == "old"));
    let latest = put(&*store, "/root/9", "newest").await;
    mirror.wait_for_revision(latest).await.unwrap();
    assert!(dump(&mirror.read()).ends_with("9=newest"));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn changes_within_the_delay_are_applied_together() {
    let store = Arc::new(Embedded::in_memory());
    let (mirror, _running) = mirror(store.clone(), MirrorOptions::remote()).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    mirror.observe(move |space, changes| {
        log.lock().unwrap().push((changes.len(), space.revision()));
    });
    let start = time::Instant::now();
    put(&*store, "/root/a", "1").await;
    time::sleep(Duration::from_millis(10)).await;
    let second = put(&*store, "/root/b", "1").await;
    time::sleep(Duration::from_millis(10)).await;
    assert_eq!(mirror.read().len(), 0, "the delay is not over");
    mirror.wait_for_revision(second).await.unwrap();
    assert!(
        start.elapsed() >= Duration::from_millis(30),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(*seen.lock().unwrap(), [(0, 1), (2, second)]);
}

#[tokio::test(start_paused = true)]
async fn observers_see_present_entries_and_then_each_change() {
    let store = Arc::new(Embedded::in_memory());
    put(&*store, "/root/a", "1").await;
    let (mirror, _running) = mirror(store.clone(), MirrorOptions::embedded()).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    mirror.observe(move |_, changes| {
        let side = |entry: &Option<Arc<crate::Entry<String>>>| {
            entry
                .as_ref()
                .map_or_else(String::new, |entry| entry.decoded.clone())
        };
        let print =
            |change: &Change<String>| format!("{}>{}", side(&change.before), side(&change.after));
        log.lock().unwrap().extend(changes.iter().map(print));
    });
    assert_eq!(*seen.lock().unwrap(), [">1"]);
    put(&*store, "/root/a", "2").await;
    let last = store
        .txn(Txn::new(vec![], vec![Op::delete("/root/a")]))
        .await
        .unwrap();
    mirror
        .wait_for_revision(last.header.revision)
        .await
        .unwrap();
    // The mirror may have applied both at once.
    let seen = seen.lock().unwrap().clone();
    assert!(
        seen == [">1", "1>2", "2>"] || seen == [">1", "1>"],
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_is_restarted_where_it_was() {
    let store = Arc::new(Scripted::new(Embedded::in_memory()));
    let (mirror, running) = mirror(store.clone(), MirrorOptions::remote()).await;
    store.fail_watches([
        WatchFault::AtStart,
        WatchFault::AtNext,
        WatchFault::AfterEvents,
    ]);
    let start = time::Instant::now();
    for n in 0..20 {
        let revision = put(&*store, "/root/a", &n.to_string()).await;
        mirror.wait_for_revision(revision).await.unwrap();
        store.break_watches();
    }
    assert_eq!(dump(&mirror.read()), "a=19");
    assert_eq!(store.faults_left(), 0);
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_is_asked_ever_more_rarely() {
    let store = Arc::new(Scripted::new(Embedded::in_memory()));
    let (mirror, running) = mirror(store.clone(), MirrorOptions::remote()).await;
    tokio::task::yield_now().await;
    store.fail_watches([WatchFault::AtStart; 12]);
    store.break_watches();
    let start = time::Instant::now();
    let revision = put(&*store, "/root/a", "1").await;
    mirror.wait_for_revision(revision).await.unwrap();
    let secs = start.elapsed().as_secs();
    assert!((30..50).contains(&secs), "{secs}");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn after_a_compaction_everything_is_read_anew() {
    let store = Arc::new(Scripted::new(Embedded::in_memory()));
    put(&*store, "/root/gone", "1").await;
    put(&*store, "/root/kept", "1").await;
    let (mirror, running) = mirror(store.clone(), MirrorOptions::embedded()).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    mirror.observe(move |_, changes| {
        for change in changes.iter().filter(|change| change.before.is_some()) {
            log.lock().unwrap().push(change.entry().decoded.clone());
        }
    });
    tokio::task::yield_now().await;
    // The watch breaks; until it is back, its revision was compacted.
    store.fail_watches([WatchFault::AtStart, WatchFault::AtStart]);
    store.break_watches();
    store
        .inner()
        .txn(Txn::new(vec![], vec![Op::delete("/root/gone")]))
        .await
        .unwrap();
    put(&*store, "/root/kept", "2").await;
    let last = put(&*store, "/root/new", "1").await;
    store.compact(last).await.unwrap();
    mirror.wait_for_revision(last).await.unwrap();
    assert_eq!(dump(&mirror.read()), "kept=2 new=1");
    assert_eq!(
        *seen.lock().unwrap(),
        ["1", "2"],
        "gone, and kept with another value"
    );
    let next = put(&*store, "/root/new", "2").await;
    mirror.wait_for_revision(next).await.unwrap();
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn another_store_ends_the_mirror() {
    let options = |id| EmbeddedOptions {
        cluster_id: Some(id),
        ..EmbeddedOptions::default()
    };
    let store = Arc::new(Scripted::new(Embedded::in_memory_with(&options(1))));
    let (mirror, running) = mirror(store.clone(), MirrorOptions::embedded()).await;
    tokio::task::yield_now().await;
    store.replace(Embedded::in_memory_with(&options(2)));
    store.break_watches();
    let waiting = mirror.wait_for_revision(100);
    put(&*store, "/root/a", "1").await;
    let expected = MirrorError::Apply(ApplyError::ClusterChanged { was: 1, now: 2 });
    assert_eq!(waiting.await, Err(expected.clone()));
    assert_eq!(running.await.unwrap(), Err(expected));
}

#[tokio::test(start_paused = true)]
async fn a_closed_store_ends_the_mirror() {
    let store = Arc::new(Embedded::in_memory());
    let (mirror, running) = mirror(store.clone(), MirrorOptions::embedded()).await;
    tokio::task::yield_now().await;
    store.close().await;
    let closed = MirrorError::Coordination(CoordinationError::Closed);
    assert_eq!(running.await.unwrap(), Err(closed.clone()));
    assert_eq!(mirror.ended().await, closed);
}

#[tokio::test(start_paused = true)]
async fn waiters_learn_that_the_watch_was_dropped() {
    let store = Arc::new(Embedded::in_memory());
    let (mirror, running) = mirror(store, MirrorOptions::embedded()).await;
    let waiting = tokio::spawn({
        let mirror = mirror.clone();
        async move { mirror.wait_for_revision(100).await }
    });
    tokio::task::yield_now().await;
    running.abort();
    assert_eq!(waiting.await.unwrap(), Err(MirrorError::Stopped));
}
