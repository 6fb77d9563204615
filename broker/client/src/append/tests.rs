use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream;
use gazette_protocol::LabelSet;
use proptest::prelude::*;
use tokio::time::timeout;
use tonic::Code;

use super::*;
use crate::{
    ClientOptions, ErrorKind,
    fake::{Call, FakeBroker, Fault},
    golden,
};

fn broker() -> FakeBroker {
    let broker = FakeBroker::new();
    broker.create("app/log");
    broker
}

fn request() -> AppendRequest {
    AppendRequest {
        journal: "app/log".to_owned(),
        ..AppendRequest::default()
    }
}

fn status_error(status: Status) -> AppendError {
    AppendError::of_status("app/log", status, AppendResponse::default())
}

fn local(code: Code) -> tonic::Status {
    tonic::Status::from_error(Box::new(io::Error::other(format!("{code:?}"))))
}

#[test]
fn only_what_was_certainly_not_done_is_tried_again() {
    for status in (0..16).filter_map(|number| Status::try_from(number).ok()) {
        let error = status_error(status);
        assert_eq!(error.outcome(), Outcome::NotDone);
        let expected = matches!(
            status,
            Status::NoJournalPrimaryBroker
                | Status::NotJournalPrimaryBroker
                | Status::InsufficientJournalBrokers
                | Status::JournalNotFound
                | Status::Suspended
        );
        assert_eq!(is_retried(&error, 1, &request()), expected, "{status:?}");
    }
    let missing = status_error(Status::JournalNotFound);
    let tries: Vec<bool> = (1..6)
        .map(|count| is_retried(&missing, count, &request()))
        .collect();
    assert_eq!(tries, [true, true, true, false, false]);
    let informed = AppendRequest {
        min_etcd_revision: 7,
        ..request()
    };
    assert!(!is_retried(&missing, 1, &informed));
    let suspended = status_error(Status::Suspended);
    let sleepy = AppendRequest {
        suspend: append_request::Suspend::NoResume.into(),
        ..request()
    };
    assert!(!is_retried(&suspended, 1, &sleepy));
}

#[test]
fn a_failed_rpc_is_unknown_once_the_commit_may_have_left() {
    let of = |status, committed| {
        let error = AppendError::of_rpc("app/log", status, committed);
        (error.outcome(), is_retried(&error, 0, &request()))
    };
    let remote = |code| tonic::Status::new(code, "");
    // The connection failed.
    assert_eq!(of(local(Code::Unknown), false), (Outcome::NotDone, true));
    assert_eq!(of(local(Code::Unknown), true), (Outcome::Unknown, false));
    // The broker failed, perhaps after it did it.
    for code in [
        Code::Unavailable,
        Code::Unknown,
        Code::Internal,
        Code::Cancelled,
        Code::Aborted,
    ] {
        assert_eq!(
            of(remote(code), true),
            (Outcome::Unknown, false),
            "{code:?}"
        );
    }
    assert_eq!(
        of(remote(Code::Unavailable), false),
        (Outcome::NotDone, true)
    );
    assert_eq!(of(remote(Code::Unknown), false), (Outcome::NotDone, false));
    // The broker refused.
    for code in [
        Code::Unauthenticated,
        Code::PermissionDenied,
        Code::InvalidArgument,
        Code::FailedPrecondition,
        Code::ResourceExhausted,
    ] {
        assert_eq!(
            of(remote(code), true),
            (Outcome::NotDone, false),
            "{code:?}"
        );
    }
    // The answer was there, and too large for us.
    assert_eq!(
        of(remote(Code::OutOfRange), true),
        (Outcome::Unknown, false)
    );
}

#[test]
fn the_kind_of_an_error_says_what_to_do() {
    let kind = |status| status_error(status).kind();
    assert_eq!(kind(Status::JournalNotFound), ErrorKind::NotFound);
    assert_eq!(kind(Status::WrongAppendOffset), ErrorKind::Fenced);
    assert_eq!(kind(Status::RegisterMismatch), ErrorKind::Fenced);
    assert_eq!(kind(Status::NotAllowed), ErrorKind::Denied);
    assert_eq!(kind(Status::IndexHasGreaterOffset), ErrorKind::Corrupt);
    assert_eq!(kind(Status::FragmentStoreUnhealthy), ErrorKind::Retry);
    let full = tonic::Status::new(Code::ResourceExhausted, "the disk is full");
    let error = AppendError::of_rpc("app/log", full, true);
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::NoSpace, Outcome::NotDone)
    );
    insta::assert_snapshot!(error, @"append app/log: the disk is full; next: free space on the broker's disk");
}

#[tokio::test]
async fn all_answers_of_gazette_are_understood() {
    let client = broker().client();
    for case in golden::cases("Append") {
        let Some(answer) = case.response::<AppendResponse>() else {
            continue;
        };
        let status = answer.status();
        match client.finish_append("rpc/one", Ok(Response::new(answer)), true) {
            Ok(_) => assert_eq!(status, Status::Ok, "{}", case.name),
            Err(error) => {
                assert_eq!(error.status(), Some(status), "{}: {error}", case.name);
                assert_eq!(error.outcome(), Outcome::NotDone);
                let mismatch = status == Status::RegisterMismatch;
                assert_eq!(error.registers().is_some(), mismatch, "{}", case.name);
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_used_still_says_what_happened() {
    let client = broker().client();
    let finish = |answer| {
        client
            .finish_append("app/log", Ok(Response::new(answer)), true)
            .unwrap_err()
            .outcome()
    };
    assert_eq!(finish(AppendResponse::default()), Outcome::Done);
    assert_eq!(
        finish(AppendResponse {
            status: 99,
            ..AppendResponse::default()
        }),
        Outcome::Unknown
    );
}

#[tokio::test(start_paused = true)]
async fn an_append_waits_for_a_primary_and_for_news_of_a_new_journal() {
    let broker = broker();
    broker.inject(
        Call::Append,
        [
            Fault::Status(Status::NoJournalPrimaryBroker),
            Fault::Status(Status::JournalNotFound),
            Fault::Status(Status::NotJournalPrimaryBroker),
            Fault::Status(Status::InsufficientJournalBrokers),
            Fault::Status(Status::JournalNotFound),
        ],
    );
    let answer = broker.client().append(request(), "hello").await.unwrap();
    assert_eq!(answer.commit.unwrap().end, 5);
    assert_eq!(broker.content("app/log"), b"hello");

    let missing = AppendRequest {
        journal: "app/none".to_owned(),
        ..request()
    };
    let error = broker.client().append(missing, "x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(broker.calls(Call::Append), 6 + 4);
}

#[tokio::test]
async fn nobody_at_the_other_end_means_that_nothing_was_done() {
    let options = ClientOptions {
        append_give_up_after: Some(Duration::from_millis(900)),
        ..ClientOptions::default()
    };
    for endpoint in ["http://127.0.0.1:1", "unix:///no/such/socket"] {
        let client = Client::connect(endpoint, options.clone()).unwrap();
        let error = client.append(request(), "x").await.unwrap_err();
        assert_eq!(
            (error.outcome(), error.kind()),
            (Outcome::NotDone, ErrorKind::Retry)
        );
        let text = error.to_string();
        assert!(
            text.contains("gave up after") && text.contains("os error"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_lost_answer_is_an_error_and_not_repeated() {
    let broker = broker();
    let folder = tempfile::tempdir().unwrap();
    let server = broker.serve_unix(&folder.path().join("s")).unwrap();
    let client = Client::connect(server.endpoint(), ClientOptions::default()).unwrap();
    broker.inject(Call::Append, [Fault::Hang]);
    let appending = tokio::spawn(async move { client.append(request(), "x").await });
    while broker.calls(Call::Append) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.cut();
    let error = appending.await.unwrap().unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(broker.calls(Call::Append), 1);
}

#[tokio::test]
async fn an_empty_append_is_a_barrier_and_registers_need_content() {
    let broker = broker();
    broker.append("app/log", b"hello");
    let client = broker.client();
    let commit = client
        .append(request(), Bytes::new())
        .await
        .unwrap()
        .commit
        .unwrap();
    assert_eq!((commit.begin, commit.end), (5, 5));
    let registers = LabelSet::from_pairs([("owner", "me")]);
    let union = AppendRequest {
        union_registers: Some(registers.clone()),
        ..request()
    };
    client
        .append(union.clone(), Bytes::new())
        .await
        .unwrap_err();
    client.append(union, "!").await.unwrap();
    assert_eq!(broker.registers("app/log"), registers);
}

#[tokio::test]
async fn content_of_any_length_is_written_piece_by_piece() {
    let broker = broker();
    let mut appender = broker.client().appender(request());
    let mut expected = Vec::new();
    for length in [0, 1, CHUNK_MAX_BYTES, 0, CHUNK_MAX_BYTES + 1, 3_000_000, 5] {
        let piece: Vec<u8> = (0..length)
            .map(|n| u8::try_from(n % 253).unwrap())
            .collect();
        expected.extend_from_slice(&piece);
        appender.write(piece.into()).await.unwrap();
    }
    assert_eq!(broker.head("app/log"), 0);
    let commit = appender.commit().await.unwrap().commit.unwrap();
    assert_eq!(commit.end, i64::try_from(expected.len()).unwrap());
    assert!(broker.content("app/log") == expected);
}

#[tokio::test]
async fn an_appender_that_is_given_up_leaves_nothing() {
    let broker = broker();
    let folder = tempfile::tempdir().unwrap();
    let server = broker.serve_unix(&folder.path().join("s")).unwrap();
    let connected = Client::connect(server.endpoint(), ClientOptions::default()).unwrap();
    for client in [broker.client(), connected] {
        let mut appender = client.appender(request());
        appender.write("lost".into()).await.unwrap();
        appender.abort();
        let mut appender = client.appender(request());
        appender.write("also lost".into()).await.unwrap();
        drop(appender);
        client.append(request(), "kept").await.unwrap();
    }
    assert_eq!(broker.content("app/log"), b"keptkept");
}

#[tokio::test]
async fn a_write_that_is_dropped_in_the_middle_cannot_be_committed() {
    let broker = broker();
    broker.inject(Call::Append, [Fault::Hang]);
    let mut appender = broker.client().appender(request());
    let much = Bytes::from(vec![b'x'; 50 << 20]);
    timeout(Duration::from_millis(50), appender.write(much))
        .await
        .unwrap_err();
    let error = appender.commit().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotDone);
    assert_eq!(broker.head("app/log"), 0);
}

#[tokio::test]
async fn a_broker_that_refuses_early_ends_the_writing() {
    let broker = broker();
    broker.append("app/log", b"hello");
    let client = broker.client();
    let mut appender = client.appender(AppendRequest {
        offset: 3,
        ..request()
    });
    let error = loop {
        match appender.write(vec![b'x'; 1 << 20].into()).await {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert!(error.is_wrong_append_offset());
    let again = appender.write("x".into()).await.unwrap_err();
    assert!(again.is_wrong_append_offset());
    assert!(
        appender
            .commit()
            .await
            .unwrap_err()
            .is_wrong_append_offset()
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_replayed_while_it_is_short() {
    let broker = broker();
    let client = broker.client();
    let pieces = |count: usize, length: usize| {
        stream::iter((0..count).map(move |_| Ok(Bytes::from(vec![b'x'; length]))))
    };
    let waking = [Fault::Status(Status::NoJournalPrimaryBroker), Fault::None];
    broker.inject(Call::Append, waking.clone());
    client
        .append_stream(request(), pieces(10, 1000))
        .await
        .unwrap();
    assert_eq!(broker.head("app/log"), 10_000);

    // It took more than is held before the broker refused.
    broker.inject(
        Call::Append,
        [Fault::Delay(Duration::from_secs(1))]
            .into_iter()
            .chain(waking),
    );
    broker.inject(
        Call::Append,
        [Fault::Status(Status::NoJournalPrimaryBroker)],
    );
    client
        .append_stream(request(), pieces(10, HELD_MAX_BYTES))
        .await
        .unwrap();
    assert_eq!(
        broker.head("app/log"),
        10_000 + 10 * i64::try_from(HELD_MAX_BYTES).unwrap()
    );

    let failing = stream::iter([Ok(Bytes::from("x")), Err(io::Error::other("torn"))]);
    broker.heal();
    let head = broker.head("app/log");
    let error = client.append_stream(request(), failing).await.unwrap_err();
    assert_eq!(
        (error.outcome(), error.kind()),
        (Outcome::NotDone, ErrorKind::Cancelled)
    );
    assert_eq!(broker.head("app/log"), head);
}

fn messages(pieces: Vec<Bytes>) -> (Vec<AppendRequest>, Arc<AtomicBool>) {
    let committed = Arc::new(AtomicBool::new(false));
    let mut stream = AppendContent::from(pieces).messages(request(), Arc::clone(&committed));
    let mut messages = Vec::new();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    while let Poll::Ready(Some(message)) = Pin::new(&mut stream).poll_next(&mut cx) {
        let last = message.journal.is_empty() && message.content.is_empty();
        assert_eq!(
            committed.load(Ordering::Acquire),
            last,
            "it is noted with the last message"
        );
        messages.push(message);
    }
    (messages, committed)
}

proptest! {
    #[test]
    fn content_is_cut_into_chunks_and_small_pieces_are_gathered(
        lengths in proptest::collection::vec(
            prop_oneof![0..300usize, 10_000..40_000usize, 100_000..400_000usize], 0..30
        )
    ) {
        let pieces: Vec<Bytes> = lengths
            .iter()
            .enumerate()
            .map(|(n, length)| Bytes::from(vec![u8::try_from(n).unwrap(); *length]))
            .collect();
        let (messages, committed) = messages(pieces.clone());
        prop_assert!(committed.load(Ordering::Acquire));
        let (first, rest) = messages.split_first().unwrap();
        prop_assert_eq!(first, &request());
        let (last, chunks) = rest.split_last().unwrap();
        prop_assert_eq!(last, &AppendRequest::default());
        for chunk in chunks {
            prop_assert!(!chunk.content.is_empty() && chunk.content.len() <= CHUNK_MAX_BYTES);
        }
        let sent: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.content.to_vec()).collect();
        prop_assert!(sent == pieces.concat());
        let small = lengths.iter().all(|length| *length <= 300);
        prop_assert!(!small || chunks.len() <= 1);
    }
}
