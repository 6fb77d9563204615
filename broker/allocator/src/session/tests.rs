use gazette_coordination::{Embedded, RangeRequest};

use super::*;

const TTL: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_secs(1);

struct Fixture {
    store: Arc<Embedded>,
}

impl Fixture {
    fn new() -> Self {
        Self {
            store: Arc::new(Embedded::in_memory()),
        }
    }

    async fn session(&self) -> (Session, KeepAlive) {
        let store: Arc<dyn Coordination> = Arc::<Embedded>::clone(&self.store);
        Session::open(store, TTL).await.unwrap()
    }

    async fn value(&self) -> Option<Bytes> {
        let response = self
            .store
            .range(RangeRequest::key("/member"))
            .await
            .unwrap();
        Some(response.kvs.first()?.value.clone())
    }
}

async fn announce(session: &Session, value: &'static str) -> Result<Announcement, SessionError> {
    session
        .announce("/member".into(), value.into(), RETRY)
        .await
}

#[tokio::test(start_paused = true)]
async fn an_announced_member_lives_as_long_as_it_is_kept_alive() {
    let fixture = Fixture::new();
    let (session, keep_alive) = fixture.session().await;
    let keeping = tokio::spawn(keep_alive.run());
    let announcement = announce(&session, "spec").await.unwrap();
    let header = fixture.store.header().await.unwrap();
    assert_eq!(announcement.revision(), header.revision);
    time::sleep(TTL * 10).await;
    assert_eq!(fixture.value().await, Some("spec".into()));
    keeping.abort();
    keeping.await.ok();
    time::sleep(TTL).await;
    assert_eq!(fixture.value().await, None);
}

#[tokio::test(start_paused = true)]
async fn closing_deletes_the_member_at_once_and_ends_keeping_alive_without_error() {
    let fixture = Fixture::new();
    let (session, keep_alive) = fixture.session().await;
    let keeping = tokio::spawn(keep_alive.run());
    announce(&session, "spec").await.unwrap();
    session.close().await.unwrap();
    assert_eq!(fixture.value().await, None);
    assert_eq!(keeping.await.unwrap(), Ok(()));
    session.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_member_waits_until_the_lease_of_its_former_process_has_ended() {
    let fixture = Fixture::new();
    let (former, _dead) = fixture.session().await;
    announce(&former, "former").await.unwrap();
    let start = time::Instant::now();
    let (session, keep_alive) = fixture.session().await;
    let keeping = tokio::spawn(keep_alive.run());
    announce(&session, "new").await.unwrap();
    let waited = start.elapsed();
    assert!(
        waited + RETRY >= TTL && waited <= TTL + RETRY * 2,
        "{waited:?}"
    );
    assert_eq!(fixture.value().await, Some("new".into()));
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn waiting_to_announce_can_be_given_up() {
    let fixture = Fixture::new();
    let (former, _alive) = fixture.session().await;
    announce(&former, "former").await.unwrap();
    let (session, keep_alive) = fixture.session().await;
    let waiting = time::timeout(Duration::from_secs(3), announce(&session, "new")).await;
    assert!(waiting.is_err());
    session.close().await.unwrap();
    assert_eq!(keep_alive.run().await, Ok(()));
    assert_eq!(fixture.value().await, Some("former".into()));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_an_earlier_try_created_is_taken_over() {
    let fixture = Fixture::new();
    let (session, _keep_alive) = fixture.session().await;
    let first = announce(&session, "spec").await.unwrap();
    let again = announce(&session, "spec").await.unwrap();
    assert_eq!(again.revision(), first.revision());
}

#[tokio::test(start_paused = true)]
async fn an_update_keeps_the_lease_and_fails_if_another_wrote_the_key() {
    let fixture = Fixture::new();
    let (session, _keep_alive) = fixture.session().await;
    let mut announcement = announce(&session, "spec").await.unwrap();
    let before = announcement.revision();
    let revision = announcement.update("exiting".into(), RETRY).await.unwrap();
    assert_eq!(
        (revision, announcement.revision()),
        (before + 1, before + 1)
    );
    assert_eq!(fixture.value().await, Some("exiting".into()));

    let other = Txn::new(vec![], vec![Op::put_keeping_lease("/member", "other")]);
    fixture.store.txn(other).await.unwrap();
    let changed = SessionError::MemberChanged {
        key: "/member".into(),
    };
    assert_eq!(
        announcement.update("again".into(), RETRY).await,
        Err(changed)
    );
    // But a value that is there already, under our lease, is the work of an earlier try.
    announcement.update("other".into(), RETRY).await.unwrap();
    assert_eq!(announcement.revision(), before + 2);
    session.close().await.unwrap();
    assert!(announcement.update("late".into(), RETRY).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_noticed() {
    let fixture = Fixture::new();
    let (session, keep_alive) = fixture.session().await;
    let keeping = tokio::spawn(keep_alive.run());
    fixture.store.revoke_lease(session.lease()).await.unwrap();
    let start = time::Instant::now();
    let lost = SessionError::LeaseLost {
        lease: session.lease(),
    };
    assert_eq!(keeping.await.unwrap(), Err(lost.clone()));
    assert!(start.elapsed() < TTL);
    assert_eq!(announce(&session, "spec").await.unwrap_err(), lost);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_a_lost_lease_when_the_time_is_over() {
    #[derive(Debug)]
    struct Silent;

    #[async_trait::async_trait]
    impl Coordination for Silent {
        async fn range(
            &self,
            _: RangeRequest,
        ) -> Result<gazette_coordination::RangeResponse, CoordinationError> {
            std::future::pending().await
        }
        async fn txn(
            &self,
            _: Txn,
        ) -> Result<gazette_coordination::TxnResponse, CoordinationError> {
            std::future::pending().await
        }
        async fn watch(
            &self,
            _: gazette_coordination::WatchRequest,
        ) -> Result<gazette_coordination::WatchStream, CoordinationError> {
            std::future::pending().await
        }
        async fn grant_lease(&self, _: Duration) -> Result<LeaseId, CoordinationError> {
            Ok(LeaseId(5))
        }
        async fn keep_alive(&self, _: LeaseId) -> Result<Duration, CoordinationError> {
            std::future::pending().await
        }
        async fn revoke_lease(&self, _: LeaseId) -> Result<(), CoordinationError> {
            std::future::pending().await
        }
        async fn compact(&self, _: i64) -> Result<(), CoordinationError> {
            std::future::pending().await
        }
    }

    let start = time::Instant::now();
    let (_session, keep_alive) = Session::open(Arc::new(Silent), TTL).await.unwrap();
    let lost = SessionError::LeaseLost { lease: LeaseId(5) };
    assert_eq!(keep_alive.run().await, Err(lost));
    assert_eq!(start.elapsed(), TTL);
}
