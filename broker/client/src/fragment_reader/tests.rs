use std::time::Duration;

use gazette_protocol::{ReadRequest, Status};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::{
    ClientOptions, ReadCause, ReadEvent, RetryOptions, RetryReader,
    fake::{Call, FakeBroker},
};

const CODECS: [CompressionCodec; 5] = [
    CompressionCodec::None,
    CompressionCodec::Gzip,
    CompressionCodec::Zstandard,
    CompressionCodec::Snappy,
    CompressionCodec::GzipOffloadDecompression,
];

fn content() -> Vec<u8> {
    (0..700_000u32)
        .map(|n| u8::try_from((n / 7) % 251).unwrap())
        .collect()
}

fn broker() -> FakeBroker {
    let broker = FakeBroker::new();
    broker.create("app/log");
    broker.append("app/log", &content());
    broker
}

fn client(broker: &FakeBroker, root: &Path) -> Client {
    broker.client_with(ClientOptions {
        file_root: Some(root.to_owned()),
        ..ClientOptions::default()
    })
}

fn request(offset: i64, end_offset: i64) -> ReadRequest {
    ReadRequest {
        journal: "app/log".to_owned(),
        offset,
        end_offset,
        do_not_proxy: true,
        ..ReadRequest::default()
    }
}

/// Reads to the end, and returns the content with the error that it ended with, if any.
async fn drain(mut reader: RetryReader) -> (Vec<u8>, Option<crate::ReadError>) {
    let mut content = Vec::new();
    loop {
        match reader.next().await {
            Ok(Some(ReadEvent::Content { bytes, .. })) => content.extend_from_slice(&bytes),
            Ok(Some(_)) => {}
            Ok(None) => return (content, None),
            Err(error) => return (content, Some(error)),
        }
    }
}

#[tokio::test]
async fn fragments_of_each_codec_are_read_from_their_files_from_any_offset() {
    for codec in CODECS {
        let (broker, root) = (broker(), tempfile::tempdir().unwrap());
        broker.store("app/log", codec, root.path()).unwrap();
        broker.append("app/log", b"tail");
        let client = client(&broker, root.path());
        let mut whole = content();
        whole.extend_from_slice(b"tail");

        for begin in [0, 1, 300_000, 699_999] {
            let (read, error) = drain(client.retry_reader(request(begin, 0))).await;
            assert!(
                read == whole[usize::try_from(begin).unwrap()..],
                "{codec:?} from {begin}"
            );
            assert_eq!(error.unwrap().status(), Some(Status::OffsetNotYetAvailable));
        }
        for (begin, end) in [(0, 10), (5, 700_000), (400_000, 400_001), (0, 700_002)] {
            let (read, error) = drain(client.retry_reader(request(begin, end))).await;
            assert!(error.is_none(), "{error:?}");
            let range = usize::try_from(begin).unwrap()..usize::try_from(end).unwrap();
            assert!(read == whole[range], "{codec:?} {begin}..{end}");
        }
    }
}

#[tokio::test]
async fn wrong_content_is_an_error_before_its_last_byte_is_given_out() {
    let (broker, root) = (broker(), tempfile::tempdir().unwrap());
    broker
        .store("app/log", CompressionCodec::None, root.path())
        .unwrap();
    let file = root
        .path()
        .join("app/log")
        .read_dir()
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut object = content();
    object[1234] ^= 1;
    std::fs::write(&file, &object).unwrap();
    let client = client(&broker, root.path());
    let (read, error) = drain(client.retry_reader(request(0, 0))).await;
    let error = error.unwrap();
    assert!(read.len() < object.len());
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("SHA-1"), "{error}");

    object.push(0);
    std::fs::write(&file, &object).unwrap();
    for offset in [0, 7] {
        let (read, error) = drain(client.retry_reader(request(offset, 0))).await;
        assert!(read.len() < object.len() - 1 - usize::try_from(offset).unwrap());
        assert_eq!(error.unwrap().kind(), ErrorKind::Corrupt);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fragment_that_is_cut_short_is_tried_again_until_it_is_given_up() {
    let (broker, root) = (broker(), tempfile::tempdir().unwrap());
    broker
        .store("app/log", CompressionCodec::Gzip, root.path())
        .unwrap();
    let file = root
        .path()
        .join("app/log")
        .read_dir()
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let object = std::fs::read(&file).unwrap();
    std::fs::write(&file, &object[..object.len() / 2]).unwrap();
    let options = RetryOptions {
        give_up_after: Some(Duration::from_secs(20)),
    };
    let client = client(&broker, root.path());
    let reader = client.retry_reader_with(request(0, 0), options);
    let last = reader.last_error();
    let reading = tokio::spawn(drain(reader));
    while last.get().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    std::fs::write(&file, &object).unwrap();
    let (read, error) = reading.await.unwrap();
    assert!(read == content(), "{error:?}");

    std::fs::remove_file(&file).unwrap();
    let (_, error) = drain(client.retry_reader_with(request(0, 0), options)).await;
    assert!(matches!(error.unwrap().cause(), ReadCause::GaveUp { .. }));
}

#[tokio::test]
async fn a_store_that_we_cannot_reach_is_read_by_the_broker() {
    for url in ["file:///x", "https://store.invalid/x"] {
        let broker = broker();
        let (fragment, _) = broker.compress("app/log", CompressionCodec::Gzip).unwrap();
        broker.store_at("app/log", fragment, url.to_owned());
        let (read, _) = drain(broker.client().retry_reader(request(0, 700_000))).await;
        assert!(read == content());
        assert_eq!(broker.calls(Call::Read), 2);

        let mut reader = broker.client().reader(request(0, 0));
        assert!(matches!(
            reader.next().await,
            Ok(Some(ReadEvent::Metadata(_)))
        ));
        let error = reader.next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(
            error.to_string().contains("read app/log at 0: fragment"),
            "{error}"
        );
    }
}

/// Answers each HTTP request with `head` and `body`, and returns the requests.
async fn store(
    head: &'static str,
    body: Vec<u8>,
) -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://{}/a/b?signature=secret",
        listener.local_addr().unwrap()
    );
    let (requests, received) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buf = vec![0; 4096];
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") {
                let count = stream.read(&mut buf).await.unwrap();
                request.push_str(std::str::from_utf8(&buf[..count]).unwrap());
            }
            requests.send(request).unwrap_or_default();
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&body).await.unwrap_or_default();
        }
    });
    (url, received)
}

#[tokio::test]
async fn fragments_are_read_over_http() {
    let broker = broker();
    let (fragment, object) = broker.compress("app/log", CompressionCodec::Gzip).unwrap();
    let (url, mut requests) = store("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", object).await;
    broker.store_at("app/log", fragment, url);
    let (read, _) = drain(broker.client().retry_reader(request(0, 700_000))).await;
    assert!(read == content());
    assert!(
        requests
            .recv()
            .await
            .unwrap()
            .contains("accept-encoding: gzip\r\n")
    );
}

#[tokio::test]
async fn uncompressed_content_is_asked_for_from_where_it_is_wanted() {
    let broker = broker();
    let (fragment, object) = broker.compress("app/log", CompressionCodec::None).unwrap();
    let answer = "HTTP/1.1 206 Partial Content\r\nConnection: close\r\n\r\n";
    let (url, mut requests) = store(answer, object[600_000..].to_vec()).await;
    broker.store_at("app/log", fragment, url);
    let (read, _) = drain(broker.client().retry_reader(request(600_000, 700_000))).await;
    assert!(read == content()[600_000..]);
    assert!(
        requests
            .recv()
            .await
            .unwrap()
            .contains("range: bytes=600000-\r\n")
    );
}

#[tokio::test]
async fn a_store_may_have_undone_the_compression_or_not() {
    for gzip in [false, true] {
        let broker = broker();
        let codec = CompressionCodec::GzipOffloadDecompression;
        let (fragment, object) = broker.compress("app/log", codec).unwrap();
        let (url, _) = if gzip {
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Encoding: gzip\r\n\r\n";
            store(head, object).await
        } else {
            store("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", content()).await
        };
        broker.store_at("app/log", fragment, url);
        let (read, _) = drain(broker.client().retry_reader(request(0, 700_000))).await;
        assert!(read == content());
    }
}

#[tokio::test]
async fn an_answer_that_is_not_ok_is_an_error_without_the_signature() {
    let broker = broker();
    let (fragment, _) = broker.compress("app/log", CompressionCodec::Gzip).unwrap();
    let head = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let (url, _) = store(head, Vec::new()).await;
    broker.store_at("app/log", fragment, url);
    let mut reader = broker.client().reader(request(0, 0));
    reader.next().await.unwrap();
    let error = reader.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(
        error.to_string().contains("the store answered 403"),
        "{error}"
    );
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn escapes_in_paths_are_undone() {
    assert_eq!(percent_decode("/a%3Db/c%25d%"), "/a=b/c%d%");
    assert_eq!(without_query("http://h/p?x=y"), "http://h/p");
}
