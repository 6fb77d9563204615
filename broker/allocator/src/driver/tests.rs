use std::{collections::VecDeque, path::Path};

use async_trait::async_trait;
use gazette_coordination::{
    Embedded, LeaseId, Op, RangeRequest, RangeResponse, Txn, TxnResponse, WatchRequest, WatchStream,
};
use gazette_keyspace::MirrorOptions;
use tokio::task::JoinHandle;

use super::*;
use crate::{
    Session,
    session::{Announcement, EMBEDDED_TTL},
    testing::{Toy, id},
};

/// A store whose transactions fail when told to.
#[derive(Debug)]
struct Store {
    inner: Embedded,
    faults: Mutex<VecDeque<CoordinationError>>,
    txns: Mutex<usize>,
}

#[async_trait]
impl Coordination for Store {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CoordinationError> {
        self.inner.range(request).await
    }
    async fn txn(&self, txn: Txn) -> Result<TxnResponse, CoordinationError> {
        *self.txns.lock().unwrap() += 1;
        let fault = self.faults.lock().unwrap().pop_front();
        match fault {
            Some(fault) => Err(fault),
            None => self.inner.txn(txn).await,
        }
    }
    async fn watch(&self, request: WatchRequest) -> Result<WatchStream, CoordinationError> {
        self.inner.watch(request).await
    }
    async fn grant_lease(&self, ttl: Duration) -> Result<LeaseId, CoordinationError> {
        self.inner.grant_lease(ttl).await
    }
    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, CoordinationError> {
        self.inner.keep_alive(lease).await
    }
    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), CoordinationError> {
        self.inner.revoke_lease(lease).await
    }
    async fn compact(&self, revision: i64) -> Result<(), CoordinationError> {
        self.inner.compact(revision).await
    }
}

struct Fixture {
    store: Arc<Store>,
    keys: Keys,
}

struct Process {
    session: Session,
    announcement: Announcement,
    mirror: Mirror<Decoded<Toy>>,
    running: JoinHandle<Result<Exit, AllocateError>>,
}

impl Fixture {
    fn new(inner: Embedded) -> Self {
        let (faults, txns) = Default::default();
        let store = Arc::new(Store {
            inner,
            faults,
            txns,
        });
        Self {
            store,
            keys: Keys::new("/toy").unwrap(),
        }
    }

    fn in_memory() -> Self {
        Self::new(Embedded::in_memory())
    }

    /// Starts a member with its mirror and allocator.
    async fn start(&self, member: &str, limit: usize, options: AllocatorOptions) -> Process {
        let store: Arc<dyn Coordination> = Arc::<Store>::clone(&self.store);
        let (session, keep_alive) = Session::open(Arc::clone(&store), EMBEDDED_TTL)
            .await
            .unwrap();
        tokio::spawn(keep_alive.run());
        let key = self.keys.member(&id(member));
        let value = limit.to_string().into();
        let announcement = session
            .announce(key, value, Duration::from_secs(1))
            .await
            .unwrap();
        let (mirror, watch) = Mirror::load(
            Arc::clone(&store),
            self.keys.root().to_owned(),
            Some(announcement.revision()),
            Toy::decoder(self.keys.clone()),
            MirrorOptions::embedded(),
        )
        .await
        .unwrap();
        tokio::spawn(watch.run());
        let (keys, local) = (self.keys.clone(), id(member));
        let allocator = Allocator::<Toy>::new(store, keys, mirror.clone(), local, options);
        let running = tokio::spawn(allocator.run());
        Process {
            session,
            announcement,
            mirror,
            running,
        }
    }

    async fn items(&self, names: impl IntoIterator<Item = String>, replication: usize) {
        let names: Vec<_> = names.into_iter().collect();
        for names in names.chunks(128) {
            let op = |name: &String| Op::put(self.keys.item(name), replication.to_string());
            let txn = Txn::new(vec![], names.iter().map(op).collect());
            self.store.inner.txn(txn).await.unwrap();
        }
    }

    async fn assignments(&self) -> Vec<String> {
        let prefix = self.keys.assignments();
        let response = self
            .store
            .inner
            .range(RangeRequest::prefix(prefix.clone()))
            .await
            .unwrap();
        let name = |key: &[u8]| String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        response.kvs.iter().map(|kv| name(&kv.key)).collect()
    }

    /// Waits until there are `count` assignments. Marks them consistent meanwhile.
    async fn wait_for(&self, count: usize) -> Vec<String> {
        for _ in 0..100_000 {
            let prefix = self.keys.assignments();
            let response = self
                .store
                .inner
                .range(RangeRequest::prefix(prefix))
                .await
                .unwrap();
            for kv in response.kvs.iter().filter(|kv| kv.value.is_empty()) {
                let put = Op::put_keeping_lease(kv.key.clone(), "consistent");
                // Someone else may have moved it.
                self.store.inner.txn(Txn::new(vec![], vec![put])).await.ok();
            }
            if response.kvs.len() == count {
                return self.assignments().await;
            }
            time::sleep(Duration::from_millis(1)).await;
        }
        panic!(
            "{count} assignments are awaited: {:?}",
            self.assignments().await
        );
    }
}

impl Process {
    async fn exit(&mut self, limit: usize) {
        let value = format!("{limit}!").into();
        self.announcement
            .update(value, Duration::from_secs(1))
            .await
            .unwrap();
    }
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("item-{n:05}"))
}

#[tokio::test(start_paused = true)]
async fn a_leader_allocates_what_is_there_and_what_comes() {
    let fixture = Fixture::in_memory();
    fixture.items(names(3), 1).await;
    let process = fixture
        .start("za#one", 10, AllocatorOptions::default())
        .await;
    fixture.wait_for(3).await;
    fixture.items(["another".to_owned()], 2).await;
    let assignments = fixture.wait_for(4).await;
    assert_eq!(assignments[0], "another#za#one#0");
    assert!(!process.running.is_finished());
    process.running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_failed_is_tried_again_though_nothing_changes() {
    let fixture = Fixture::in_memory();
    let _process = fixture
        .start("za#one", 1000, AllocatorOptions::default())
        .await;
    let fault = || CoordinationError::Unavailable {
        cause: "scripted".to_owned(),
    };
    fixture
        .store
        .faults
        .lock()
        .unwrap()
        .extend([fault(), fault(), CoordinationError::NoSpace]);
    let start = time::Instant::now();
    fixture.items(names(200), 1).await;
    fixture.wait_for(200).await;
    assert!(
        start.elapsed() >= Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    assert!(fixture.store.faults.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_good_ends_the_loop() {
    let fixture = Fixture::in_memory();
    let process = fixture
        .start("za#one", 10, AllocatorOptions::default())
        .await;
    fixture
        .store
        .faults
        .lock()
        .unwrap()
        .push_back(CoordinationError::Closed);
    fixture.items(names(1), 1).await;
    let err = process.running.await.unwrap().unwrap_err();
    assert_eq!(err, AllocateError::Coordination(CoordinationError::Closed));
}

#[tokio::test(start_paused = true)]
async fn an_exiting_member_leaves_when_others_have_taken_over() {
    let fixture = Fixture::in_memory();
    let mut first = fixture
        .start("za#one", 10, AllocatorOptions::default())
        .await;
    fixture.items(names(5), 1).await;
    fixture.wait_for(5).await;
    let second = fixture
        .start("zb#two", 10, AllocatorOptions::default())
        .await;
    first.exit(10).await;
    // The leader moves its own items away; here, members catch up whenever they are asked.
    while !first.running.is_finished() {
        time::sleep(Duration::from_millis(1)).await;
        fixture.wait_for(5).await;
    }
    assert_eq!(first.running.await.unwrap(), Ok(Exit::Drained));
    first.session.close().await.unwrap();
    let assignments = fixture.wait_for(5).await;
    assert!(
        assignments.iter().all(|key| key.ends_with("#zb#two#0")),
        "{assignments:?}"
    );

    // The second one leads now.
    fixture.items(["new".to_owned()], 1).await;
    fixture.wait_for(6).await;
    second.running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lone_member_leaves_at_once() {
    let fixture = Fixture::in_memory();
    let mut process = fixture
        .start("za#one", 10, AllocatorOptions::default())
        .await;
    fixture.items(names(5), 1).await;
    fixture.wait_for(5).await;
    let start = time::Instant::now();
    process.exit(10).await;
    assert_eq!(process.running.await.unwrap(), Ok(Exit::Alone));
    process.session.close().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(
        fixture.assignments().await,
        [""; 0],
        "they end with the lease"
    );
    process.mirror.stop();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_leaves_as_a_whole_does_not_wait_for_itself() {
    let fixture = Fixture::in_memory();
    let mut first = fixture
        .start("za#one", 10, AllocatorOptions::default())
        .await;
    let mut second = fixture
        .start("zb#two", 10, AllocatorOptions::default())
        .await;
    fixture.items(names(5), 2).await;
    fixture.wait_for(10).await;
    first.exit(10).await;
    second.exit(10).await;
    assert_eq!(first.running.await.unwrap(), Ok(Exit::Alone));
    assert_eq!(second.running.await.unwrap(), Ok(Exit::Alone));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_no_one_can_replace_leaves_after_its_time() {
    let fixture = Fixture::in_memory();
    let wait = Some(Duration::from_mins(1));
    let options = AllocatorOptions {
        drain_timeout: wait,
        ..AllocatorOptions::default()
    };
    let mut first = fixture.start("za#one", 10, options).await;
    let _second = fixture
        .start("zb#two", 10, AllocatorOptions::default())
        .await;
    fixture.items(names(5), 2).await;
    fixture.wait_for(10).await;
    let start = time::Instant::now();
    first.exit(10).await;
    assert_eq!(first.running.await.unwrap(), Ok(Exit::TimedOut));
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_key_is_gone_stops() {
    let fixture = Fixture::in_memory();
    let process = fixture
        .start("za#one", 10, AllocatorOptions::default())
        .await;
    tokio::task::yield_now().await;
    fixture
        .store
        .inner
        .revoke_lease(process.session.lease())
        .await
        .unwrap();
    let gone = AllocateError::MemberGone {
        member: id("za#one"),
    };
    assert_eq!(process.running.await.unwrap(), Err(gone));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_mirror_ends_the_loop() {
    let fixture = Fixture::in_memory();
    let process = fixture
        .start("za#one", 10, AllocatorOptions::default())
        .await;
    tokio::task::yield_now().await;
    process.mirror.stop();
    let stopped = AllocateError::Mirror(MirrorError::Stopped);
    assert_eq!(process.running.await.unwrap(), Err(stopped));
}

#[tokio::test]
async fn ten_thousand_items_are_allocated_in_full_transactions() {
    let folder = std::env::temp_dir().join(format!("allocator-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    allocate_many(&folder).await;
    std::fs::remove_dir_all(&folder).unwrap();
}

async fn allocate_many(folder: &Path) {
    let store = Embedded::open(folder.join("coordination.db"))
        .await
        .unwrap();
    let fixture = Fixture::new(store);
    fixture.items(names(10_000), 1).await;
    let start = std::time::Instant::now();
    let process = fixture
        .start("za#one", 20_000, AllocatorOptions::default())
        .await;
    let mut changed = process.mirror.changed();
    let done = changed.wait_for(|_| process.mirror.read().len() == 20_001);
    time::timeout(Duration::from_mins(1), done)
        .await
        .unwrap()
        .unwrap();
    println!("10,000 items were allocated in {:?}", start.elapsed());
    // One to announce, and as many as 128 operations in each take.
    assert_eq!(
        *fixture.store.txns.lock().unwrap(),
        1 + 10_000_usize.div_ceil(128)
    );
    fixture.store.inner.close().await;
}
