use std::time::Duration;

use gazette_protocol::{LabelSet, Status};
use tokio::time::timeout;
use tonic::Code;

use super::*;
use crate::{
    ClientOptions,
    fake::{Call, FakeBroker, Fault},
};

fn names(listing: &Listing) -> Vec<&str> {
    listing
        .journals
        .iter()
        .map(|journal| journal.spec.name.as_str())
        .collect()
}

fn all() -> LabelSelector {
    LabelSelector::default()
}

#[tokio::test]
async fn each_change_gives_a_whole_snapshot() {
    let broker = FakeBroker::new();
    let mut watch = broker.client().watch(all());
    assert_eq!(names(&watch.next().await), Vec::<&str>::new());
    broker.create("app/two");
    broker.create("app/one");
    let mut listing = watch.next().await;
    while listing.journals.len() < 2 {
        listing = watch.next().await;
    }
    assert_eq!(names(&listing), ["app/one", "app/two"]);

    let mut spec = FakeBroker::spec("app/one");
    spec.labels = LabelSet::from_pairs([("color", "red")]);
    broker.upsert(spec.clone());
    let changed = watch.next().await;
    assert_eq!(changed.diff(&listing).changed[0].spec, spec);
    broker.delete("app/two");
    assert_eq!(names(&watch.next().await), ["app/one"]);

    // A change elsewhere is none.
    broker.bump_revision();
    assert!(
        timeout(Duration::from_millis(20), watch.next())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_snapshot_of_many_messages_is_one() {
    let broker = FakeBroker::new();
    for n in 0..60 {
        broker.create(&format!("app/{n:02}"));
    }
    let mut watch = broker
        .client()
        .watch(LabelSelector::parse("name:prefix=app/").unwrap());
    assert_eq!(watch.next().await.journals.len(), 60);
}

#[tokio::test]
async fn it_goes_on_after_a_lost_connection_without_repeating_itself() {
    let broker = FakeBroker::new();
    broker.create("app/one");
    let folder = tempfile::tempdir().unwrap();
    let server = broker.serve_unix(&folder.path().join("s")).unwrap();
    let client = Client::connect(server.endpoint(), ClientOptions::default()).unwrap();
    let mut watch = client.watch(all());
    assert_eq!(names(&watch.next().await), ["app/one"]);
    for n in 0..3 {
        server.cut();
        assert!(
            timeout(Duration::from_millis(120), watch.next())
                .await
                .is_err()
        );
        broker.create(&format!("app/more{n}"));
        assert_eq!(watch.next().await.journals.len(), n + 2);
        assert!(watch.last_error().get().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn it_retries_for_ever_and_says_why() {
    let broker = FakeBroker::new();
    broker.inject_every(Call::List, 1, Fault::Rpc(Code::Unavailable, "away"));
    let mut watch = broker.client().watch(all());
    let last = watch.last_error();
    assert!(
        timeout(Duration::from_hours(1), watch.next())
            .await
            .is_err()
    );
    insta::assert_snapshot!(last.get().unwrap(), @"watch journals: away; next: try again; check that the broker runs and can be reached");
    assert!(broker.calls(Call::List) < 3600 / 5 + 10);
    broker.heal();
    assert_eq!(names(&watch.next().await), Vec::<&str>::new());

    broker.create("app/one");
    broker.inject(
        Call::List,
        [
            Fault::Status(Status::NotAllowed),
            Fault::EndAfter(0),
            Fault::EndAfter(1),
            Fault::BreakAfter(1),
        ],
    );
    let before = broker.calls(Call::List);
    let mut watch = broker.client().watch(all());
    assert_eq!(names(&watch.next().await), ["app/one"]);
    assert_eq!(broker.calls(Call::List), before + 5, "all faults were met");
}

#[tokio::test]
async fn dropping_a_wait_loses_nothing() {
    let broker = FakeBroker::new();
    let folder = tempfile::tempdir().unwrap();
    let server = broker.serve_unix(&folder.path().join("s")).unwrap();
    let client = Client::connect(server.endpoint(), ClientOptions::default()).unwrap();
    let mut watch = client.watch(all());
    let mut seen = 0;
    let writer = {
        let broker = broker.clone();
        tokio::spawn(async move {
            for n in 0..100 {
                broker.create(&format!("app/{n:02}"));
                tokio::time::sleep(Duration::from_micros(700)).await;
            }
        })
    };
    while seen < 100 {
        if let Ok(listing) = timeout(Duration::from_micros(500), watch.next()).await {
            assert!(listing.journals.len() > seen);
            seen = listing.journals.len();
        }
    }
    writer.await.unwrap();
}

#[test]
fn a_snapshot_must_be_newer_unless_the_cluster_is_another() {
    let header = |cluster_id, revision| {
        let mut header = FakeBroker::new().header();
        (header.etcd.cluster_id, header.etcd.revision) = (cluster_id, revision);
        header
    };
    assert!(is_newer(&header(1, 5), None));
    assert!(is_newer(&header(1, 6), Some(&header(1, 5))));
    assert!(!is_newer(&header(1, 5), Some(&header(1, 5))));
    assert!(!is_newer(&header(1, 4), Some(&header(1, 5))));
    assert!(is_newer(&header(2, 4), Some(&header(1, 5))));
}
