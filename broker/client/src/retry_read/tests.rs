use std::time::Duration;

use bytes::Bytes;
use gazette_protocol::Header;
use tokio::time::timeout;
use tonic::Code;

use super::*;
use crate::{
    ClientOptions, FragmentReaderError,
    fake::{Call, FakeBroker, Fault},
};

fn broker() -> FakeBroker {
    let broker = FakeBroker::new();
    broker.create("app/log");
    broker
}

fn from(offset: i64) -> ReadRequest {
    ReadRequest {
        journal: "app/log".to_owned(),
        offset,
        ..ReadRequest::default()
    }
}

fn following(offset: i64) -> ReadRequest {
    ReadRequest {
        block: true,
        ..from(offset)
    }
}

/// Reads content until `length` bytes came.
async fn read(reader: &mut RetryReader, length: usize) -> Vec<u8> {
    let mut content = Vec::new();
    while content.len() < length {
        if let ReadEvent::Content { bytes, .. } = reader.next().await.unwrap().unwrap() {
            content.extend_from_slice(&bytes);
        }
    }
    content
}

fn error(cause: ReadCause) -> ReadError {
    ReadError::new("app/log", 0, cause)
}

fn status(status: Status) -> ReadError {
    error(ReadCause::Status {
        status,
        response: Box::default(),
    })
}

fn rpc(code: Code) -> ReadError {
    error(ReadCause::Rpc(tonic::Status::new(code, "")))
}

const RETRY: Decision = Decision::Retry { quiet: false };
const QUIETLY: Decision = Decision::Retry { quiet: true };

#[test]
fn each_error_is_surfaced_or_retried_as_the_table_says() {
    let plain = from(0);
    let first = |error: &ReadError| decide(error, 0, 0, &plain);
    let later = |error: &ReadError| decide(error, 5, 0, &plain);

    assert_eq!(
        first(&status(Status::OffsetNotYetAvailable)),
        Decision::Surface
    );
    // Blocking was switched on while it was read.
    assert_eq!(
        decide(&status(Status::OffsetNotYetAvailable), 0, 0, &following(0)),
        QUIETLY
    );
    assert_eq!(first(&status(Status::Suspended)), Decision::Surface);
    assert_eq!(first(&status(Status::NotAllowed)), Decision::Surface);

    let missing = status(Status::JournalNotFound);
    let attempts: Vec<Decision> = (0..5).map(|n| decide(&missing, 9, n, &plain)).collect();
    let (surface, quiet) = (Decision::Surface, QUIETLY);
    assert_eq!(attempts, [quiet, quiet, quiet, surface, surface]);
    let with_header = ReadRequest {
        header: Some(Header::default()),
        ..from(0)
    };
    assert_eq!(decide(&missing, 0, 0, &with_header), Decision::Surface);
    let with_revision = ReadRequest {
        min_etcd_revision: 7,
        ..from(0)
    };
    assert_eq!(decide(&missing, 0, 0, &with_revision), Decision::Surface);

    for moving in [Status::InsufficientJournalBrokers, Status::NotJournalBroker] {
        assert_eq!(
            (first(&status(moving)), later(&status(moving))),
            (QUIETLY, RETRY)
        );
    }
    for other in [
        Status::NoJournalPrimaryBroker,
        Status::NotJournalPrimaryBroker,
        Status::WrongRoute,
        Status::ProposalMismatch,
        Status::EtcdTransactionFailed,
        Status::WrongAppendOffset,
        Status::IndexHasGreaterOffset,
        Status::RegisterMismatch,
        Status::FragmentStoreUnhealthy,
    ] {
        assert_eq!(
            (first(&status(other)), later(&status(other))),
            (RETRY, RETRY),
            "{other:?}"
        );
    }
    for code in [
        Code::Unavailable,
        Code::Unknown,
        Code::Internal,
        Code::Cancelled,
    ] {
        assert_eq!(
            (first(&rpc(code)), later(&rpc(code))),
            (QUIETLY, RETRY),
            "{code:?}"
        );
    }
    for code in [
        Code::Unauthenticated,
        Code::PermissionDenied,
        Code::InvalidArgument,
    ] {
        assert_eq!(first(&rpc(code)), Decision::Surface, "{code:?}");
    }
    assert_eq!(first(&error(ReadCause::Protocol("x"))), RETRY);
    let fragment = |cause| error(ReadCause::Fragment(cause));
    let url = || "http://store/x".to_owned();
    assert_eq!(
        first(&fragment(FragmentReaderError::Http {
            url: url(),
            status: 503
        })),
        RETRY
    );
    let io = |kind: std::io::ErrorKind| FragmentReaderError::Io {
        url: url(),
        cause: Arc::new(kind.into()),
    };
    assert_eq!(
        first(&fragment(io(std::io::ErrorKind::UnexpectedEof))),
        RETRY
    );
    assert_eq!(
        first(&fragment(io(std::io::ErrorKind::InvalidData))),
        Decision::Surface
    );
}

#[tokio::test]
async fn a_bounded_read_ends_and_an_unbounded_one_says_where_the_journal_ends() {
    let broker = broker();
    broker.append("app/log", b"hello, world");
    let mut reader = broker.client().retry_reader(ReadRequest {
        end_offset: 5,
        ..from(0)
    });
    assert_eq!(read(&mut reader, 5).await, b"hello");
    assert_eq!(reader.next().await.unwrap(), None);
    assert_eq!(reader.offset(), 5);

    let mut reader = broker.client().retry_reader(from(7));
    assert_eq!(read(&mut reader, 5).await, b"world");
    let error = reader.next().await.unwrap_err();
    assert_eq!(
        (error.status(), error.write_head()),
        (Some(Status::OffsetNotYetAvailable), Some(12))
    );
    insta::assert_snapshot!(error, @"read app/log at 12: the offset was not written yet (OFFSET_NOT_YET_AVAILABLE); next: wait for an append, or read with blocking");

    // It stays usable.
    broker.append("app/log", b"!");
    assert_eq!(read(&mut reader, 1).await, b"!");
    reader.set_block(true);
    let later = tokio::spawn(async move { read(&mut reader, 1).await });
    tokio::task::yield_now().await;
    broker.append("app/log", b"?");
    assert_eq!(later.await.unwrap(), b"?");
}

#[tokio::test]
async fn metadata_alone_ends_after_it() {
    let broker = broker();
    broker.append("app/log", b"hello");
    let request = ReadRequest {
        metadata_only: true,
        ..from(2)
    };
    let mut reader = broker.client().retry_reader(request);
    assert!(matches!(
        reader.next().await.unwrap(),
        Some(ReadEvent::Metadata(_))
    ));
    assert_eq!(reader.next().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn streams_that_break_or_end_go_unnoticed() {
    let broker = broker();
    let content: Vec<u8> = (0..200_000u32)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    broker.append("app/log", &content);
    broker.inject(
        Call::Read,
        [
            Fault::Rpc(Code::Unavailable, "away"),
            Fault::BreakAfter(3),
            Fault::EndAfter(2),
            Fault::EndAfter(0),
            Fault::Status(Status::NotJournalBroker),
            Fault::BreakAfter(0),
            Fault::Status(Status::JournalNotFound),
        ],
    );
    let mut reader = broker.client().retry_reader(from(0));
    assert_eq!(read(&mut reader, content.len()).await, content);
    assert!(reader.last_error().get().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_missing_journal_is_found_out_in_bounded_time() {
    let broker = FakeBroker::new();
    let mut reader = broker.client().retry_reader(from(0));
    let started = Instant::now();
    let error = reader.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(broker.calls(Call::Read), 4);
    assert!(
        started.elapsed() < Duration::from_millis(300),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn it_shows_what_it_retries_after_and_gives_up_when_told_to() {
    let broker = broker();
    broker.inject_every(Call::Read, 1, Fault::Rpc(Code::Unavailable, "away"));
    let mut reader = broker.client().retry_reader(following(0));
    let last = reader.last_error();
    assert!(
        timeout(Duration::from_mins(10), reader.next())
            .await
            .is_err()
    );
    assert_eq!(last.get().unwrap().kind(), ErrorKind::Retry);
    assert!(
        (100..140).contains(&broker.calls(Call::Read)),
        "{}",
        broker.calls(Call::Read)
    );

    let options = RetryOptions {
        give_up_after: Some(Duration::from_secs(10)),
    };
    let mut reader = broker.client().retry_reader_with(following(0), options);
    let started = Instant::now();
    let error = reader.next().await.unwrap_err();
    assert!(
        started.elapsed() <= Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(error.kind(), ErrorKind::Retry);
    insta::assert_snapshot!(error, @"read app/log at 0: gave up after 7.3 s: away; next: try again; check that the broker runs and can be reached");
    broker.heal();
    broker.append("app/log", b"x");
    assert_eq!(read(&mut reader, 1).await, b"x");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_content_is_not_failing() {
    let broker = broker();
    let options = RetryOptions {
        give_up_after: Some(Duration::from_secs(10)),
    };
    let mut reader = broker.client().retry_reader_with(following(0), options);
    assert!(
        timeout(Duration::from_hours(1), reader.next())
            .await
            .is_err()
    );
    broker.append("app/log", b"x");
    assert_eq!(read(&mut reader, 1).await, b"x");
}

#[tokio::test]
async fn dropping_a_wait_loses_nothing() {
    let broker = broker();
    let content: Vec<u8> = (0..100_000u32)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    let mut reader = broker.client().retry_reader(following(0));
    let writer = {
        let (broker, content) = (broker.clone(), content.clone());
        tokio::spawn(async move {
            for piece in content.chunks(997) {
                broker.append("app/log", piece);
                tokio::time::sleep(Duration::from_micros(300)).await;
            }
        })
    };
    let mut got = Vec::new();
    let mut timeouts = 0;
    while got.len() < content.len() {
        match timeout(Duration::from_micros(200), reader.next()).await {
            Err(_) => timeouts += 1,
            Ok(event) => {
                if let Some(ReadEvent::Content { offset, bytes }) = event.unwrap() {
                    assert_eq!(usize::try_from(offset).unwrap(), got.len());
                    got.extend_from_slice(&bytes);
                }
            }
        }
    }
    writer.await.unwrap();
    assert_eq!(got, content);
    assert!(timeouts > 0);
}

/// Case B-58: the end of an empty journal is an offset from the first answer on.
#[tokio::test]
async fn what_is_written_after_the_end_was_asked_for_is_not_skipped() {
    let broker = broker();
    let folder = tempfile::tempdir().unwrap();
    let server = broker.serve_unix(&folder.path().join("s")).unwrap();
    let client = Client::connect(server.endpoint(), ClientOptions::default()).unwrap();
    for head in [0, 6] {
        let mut reader = client.retry_reader(following(-1));
        assert_eq!(reader.resolve_offset().await.unwrap(), head);
        // It waits at the end, and the connection is lost.
        assert!(
            timeout(Duration::from_millis(20), reader.next())
                .await
                .is_err()
        );
        server.cut();
        broker.append("app/log", b"missed");
        assert_eq!(read(&mut reader, 6).await, b"missed");
    }

    // Also if nobody asked for the offset, and if it does not wait.
    let mut reader = client.retry_reader(following(-1));
    assert!(
        timeout(Duration::from_millis(50), reader.next())
            .await
            .is_err()
    );
    assert_eq!(reader.offset(), 12);
    server.cut();
    broker.append("app/log", b"seen");
    assert_eq!(read(&mut reader, 4).await, b"seen");

    let mut reader = client.retry_reader(from(-1));
    assert_eq!(reader.next().await.unwrap_err().write_head(), Some(16));
    broker.append("app/log", b"more");
    server.cut();
    assert_eq!(read(&mut reader, 4).await, b"more");
}

#[tokio::test]
async fn content_that_is_gone_is_an_event_and_not_an_error() {
    let broker = broker();
    broker.append("app/log", b"0123456789");
    broker.truncate("app/log", 4);
    let mut reader = broker.client().retry_reader(from(1));
    assert_eq!(
        reader.next().await.unwrap(),
        Some(ReadEvent::Jump { from: 1, to: 4 })
    );
    assert!(matches!(
        reader.next().await.unwrap(),
        Some(ReadEvent::Metadata(_))
    ));
    let content = ReadEvent::Content {
        offset: 4,
        bytes: Bytes::from_static(b"456789"),
    };
    assert_eq!(reader.next().await.unwrap(), Some(content));
}

#[tokio::test]
async fn seeking_goes_on_elsewhere() {
    let broker = broker();
    broker.append("app/log", b"0123456789");
    let mut reader = broker.client().retry_reader(from(0));
    assert_eq!(read(&mut reader, 10).await, b"0123456789");
    reader.seek(3);
    assert_eq!(read(&mut reader, 7).await, b"3456789");
}

#[test]
fn a_read_of_the_end_first_asks_only_where_that_is() {
    let request = first_request(&following(-1));
    assert!(request.metadata_only && !request.block);
    assert_eq!(first_request(&following(3)), following(3));
}
