use gazette_protocol::Status;

use super::*;
use crate::fake::{Call, FakeBroker, Fault};

#[tokio::test]
async fn what_is_at_the_offset_decides() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    broker.append("app/log", b"before:record:after");
    let client = broker.client();
    let resolve = |offset, content: &'static [u8]| {
        let client = client.clone();
        async move {
            client
                .resolve_append("app/log", offset, content)
                .await
                .unwrap()
        }
    };
    assert_eq!(resolve(7, b"record").await, Resolution::Landed { end: 13 });
    assert_eq!(resolve(7, b"RECORD").await, Resolution::Other);
    assert_eq!(resolve(19, b"record").await, Resolution::Absent);
    assert_eq!(resolve(25, b"record").await, Resolution::Absent);
    assert_eq!(
        resolve(14, b"after and more").await,
        Resolution::Other,
        "half of it is no append"
    );
    assert_eq!(resolve(19, b"").await, Resolution::Landed { end: 19 });

    broker.truncate("app/log", 10);
    assert_eq!(resolve(7, b"record").await, Resolution::Other);
}

#[tokio::test]
async fn a_question_without_an_answer_is_an_error() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    broker.append("app/log", b"record");
    broker.inject(Call::Append, [Fault::Status(Status::IndexHasGreaterOffset)]);
    let client = broker.client();
    let error = client.resolve_append("app/log", 1, b"x").await.unwrap_err();
    insta::assert_snapshot!(error, @"resolve an append: append app/log: the fragment store is ahead of the replicas (INDEX_HAS_GREATER_OFFSET); next: run `gazctl journals reset-head` for the journal");
    broker.inject(Call::Read, [Fault::Status(Status::NotAllowed)]);
    client.resolve_append("app/log", 1, b"x").await.unwrap_err();
}
