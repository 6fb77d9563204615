use std::time::Duration;

use gazette_protocol::{CompressionCodec, JournalSpec};

use super::*;
use crate::{
    ErrorKind,
    fake::{Call, FakeBroker, Fault},
    golden,
};

fn upsert(expect_mod_revision: i64, spec: JournalSpec) -> apply_request::Change {
    apply_request::Change {
        expect_mod_revision,
        upsert: Some(spec),
        ..Default::default()
    }
}

fn delete(expect_mod_revision: i64, name: &str) -> apply_request::Change {
    apply_request::Change {
        expect_mod_revision,
        delete: name.to_owned(),
        ..Default::default()
    }
}

fn request(changes: Vec<apply_request::Change>) -> ApplyRequest {
    ApplyRequest { changes }
}

#[tokio::test]
async fn journals_are_applied_listed_and_deleted_with_their_revisions() {
    let broker = FakeBroker::new();
    let client = broker.client();
    client
        .apply(request(vec![upsert(0, FakeBroker::spec("app/log"))]))
        .await
        .unwrap();
    let found = client.get_journal("app/log").await.unwrap().unwrap();
    assert_eq!(found.create_revision, found.mod_revision);
    assert_eq!(client.get_journal("app/lo").await.unwrap(), None);

    let again = request(vec![upsert(0, FakeBroker::spec("app/log"))]);
    let error = client.apply(again).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::EtcdTransactionFailed));
    assert_eq!(error.kind(), ErrorKind::Fenced);
    insta::assert_snapshot!(error, @"apply app/log: a revision is not the expected one (ETCD_TRANSACTION_FAILED); next: list the present revision and apply again");

    let wrong = request(vec![
        upsert(0, FakeBroker::spec("app/new")),
        delete(99, "app/log"),
    ]);
    client.apply(wrong).await.unwrap_err();
    assert_eq!(
        client.get_journal("app/new").await.unwrap(),
        None,
        "all or nothing"
    );
    client
        .apply(request(vec![delete(found.mod_revision, "app/log")]))
        .await
        .unwrap();
    assert!(
        client
            .list(LabelSelector::default())
            .await
            .unwrap()
            .journals
            .is_empty()
    );

    let error = client
        .apply(request(vec![apply_request::Change::default()]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn many_changes_are_applied_in_batches_and_listed_in_pages() {
    let broker = FakeBroker::new();
    let client = broker.client();
    let specs = (0..60).map(|n| upsert(0, FakeBroker::spec(&format!("app/{n:02}"))));
    client
        .apply_in_batches(request(specs.collect()), 25)
        .await
        .unwrap();
    assert_eq!(broker.calls(Call::Apply), 3);
    let listing = client.list(LabelSelector::default()).await.unwrap();
    assert_eq!(listing.journals.len(), 60);
    client
        .apply_in_batches(request(Vec::new()), 25)
        .await
        .unwrap();
}

#[tokio::test]
async fn fragments_are_listed_page_by_page() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    let root = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        broker.append("app/log", b"content");
        broker
            .store("app/log", CompressionCodec::None, root.path())
            .unwrap();
    }
    broker.append("app/log", b"local");
    let request = FragmentsRequest {
        journal: "app/log".to_owned(),
        page_limit: 2,
        ..FragmentsRequest::default()
    };
    let fragments = broker
        .client()
        .list_all_fragments(request.clone())
        .await
        .unwrap();
    let begins: Vec<i64> = fragments
        .iter()
        .map(|fragment| fragment.spec.begin)
        .collect();
    assert_eq!(begins, [0, 7, 14, 21, 28, 35]);
    assert_eq!(broker.calls(Call::ListFragments), 3);

    broker.delete("app/log");
    let error = broker.client().list_fragments(request).await.unwrap_err();
    insta::assert_snapshot!(error, @"list fragments of app/log: there is no such journal (JOURNAL_NOT_FOUND); next: check the name, or create the journal");
}

#[tokio::test]
async fn an_unhealthy_store_is_an_answer() {
    let broker = FakeBroker::new();
    let request = FragmentStoreHealthRequest {
        fragment_store: "s3://bucket/prefix/".to_owned(),
        ..FragmentStoreHealthRequest::default()
    };
    let client = broker.client();
    assert_eq!(
        client.store_health(request.clone()).await.unwrap().status(),
        Status::Ok
    );
    broker.set_store_error("no such bucket");
    let answer = client.store_health(request.clone()).await.unwrap();
    assert_eq!(answer.status(), Status::FragmentStoreUnhealthy);
    assert_eq!(answer.store_health_error, "no such bucket");
    broker.inject(Call::StoreHealth, [Fault::Status(Status::NotAllowed)]);
    client.store_health(request).await.unwrap_err();
}

#[tokio::test]
async fn the_head_is_known_of_empty_and_of_full_journals() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    let client = broker.client();
    assert_eq!(client.read_head("app/log").await.unwrap().write_head, 0);
    broker.append("app/log", b"hello");
    let head = client.read_head("app/log").await.unwrap();
    assert_eq!(
        (head.write_head, head.status),
        (5, Status::OffsetNotYetAvailable)
    );
    assert_eq!(
        client.read_head("app/none").await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_never_answers_is_not_waited_for_for_ever() {
    let broker = FakeBroker::new();
    for call in [
        Call::List,
        Call::Apply,
        Call::Read,
        Call::ListFragments,
        Call::StoreHealth,
    ] {
        broker.inject_every(call, 1, Fault::Hang);
    }
    let client = broker.client();
    let started = tokio::time::Instant::now();
    let list = client.list(LabelSelector::default()).await.unwrap_err();
    assert_eq!(list.kind(), ErrorKind::Retry);
    insta::assert_snapshot!(list, @"list journals: no answer within 30.0 s; next: try again; check that the broker runs and can be reached");
    client.apply(request(Vec::new())).await.unwrap_err();
    client.read_head("app/log").await.unwrap_err();
    let fragments = FragmentsRequest {
        journal: "app/log".to_owned(),
        ..FragmentsRequest::default()
    };
    client.list_fragments(fragments).await.unwrap_err();
    let store = FragmentStoreHealthRequest {
        fragment_store: "file:///".to_owned(),
        ..FragmentStoreHealthRequest::default()
    };
    client.store_health(store).await.unwrap_err();
    assert_eq!(started.elapsed(), Duration::from_secs(5 * 30));
}

#[test]
fn all_answers_of_gazette_are_understood() {
    for case in golden::cases("Apply") {
        let Some(answer) = case.response::<ApplyResponse>() else {
            continue;
        };
        let result = check(answer.status, "", &answer);
        assert_eq!(
            result.is_ok(),
            answer.status() == Status::Ok,
            "{}: {result:?}",
            case.name
        );
    }
    for case in golden::cases("ListFragments") {
        let Some(answer) = case.response::<FragmentsResponse>() else {
            continue;
        };
        let result = check(answer.status, "", &answer);
        assert_eq!(
            result.is_ok(),
            answer.status() == Status::Ok,
            "{}: {result:?}",
            case.name
        );
    }
}
