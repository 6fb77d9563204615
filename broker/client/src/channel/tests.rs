use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use gazette_protocol::{AppendRequest, LabelSelector, ReadRequest};
use tokio::time::timeout;

use super::*;
use crate::{
    Client, ClientOptions, ErrorKind, Outcome, ReadEvent, RouteCacheOptions,
    fake::{Call, FakeBroker, Fault},
};

fn append() -> AppendRequest {
    AppendRequest {
        journal: "app/log".to_owned(),
        ..AppendRequest::default()
    }
}

fn read() -> ReadRequest {
    ReadRequest {
        journal: "app/log".to_owned(),
        ..ReadRequest::default()
    }
}

fn broker() -> FakeBroker {
    let broker = FakeBroker::new();
    broker.create("app/log");
    broker
}

#[tokio::test]
async fn endpoints_that_make_no_sense_are_refused() {
    for endpoint in [
        "",
        "localhost:8080",
        "http://",
        "https://host:1",
        "unix://",
        "unix://host",
        "unix:///",
        "ftp://host/",
        "http://[::1",
    ] {
        let error = connect_channel(endpoint, &ChannelOptions::default()).unwrap_err();
        assert!(
            error.to_string().contains("next: write http://HOST:PORT"),
            "{error}"
        );
    }
    for endpoint in [
        "http://localhost:8080",
        "http://127.0.0.1:1/",
        "unix:///a/b",
        "unix:/a/b",
    ] {
        connect_channel(endpoint, &ChannelOptions::default()).unwrap();
    }
}

#[tokio::test]
async fn all_ways_lead_to_the_broker() {
    let broker = broker();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a socket");
    let unix = broker.serve_unix(&path).unwrap();
    let tcp = broker.serve_tcp().await.unwrap();
    assert_eq!(
        unix.endpoint(),
        format!("unix://localhost{}", path.display())
    );
    let clients = [unix.endpoint(), tcp.endpoint()]
        .map(|endpoint| Client::connect(endpoint, ClientOptions::default()).unwrap());
    for client in clients.into_iter().chain([broker.client()]) {
        client.append(append(), "hello").await.unwrap();
        assert_eq!(
            client
                .list(LabelSelector::default())
                .await
                .unwrap()
                .journals
                .len(),
            1
        );
        let mut reader = client.reader(read());
        while !matches!(
            reader.next().await.unwrap(),
            Some(ReadEvent::Content { .. })
        ) {}
    }
    assert_eq!(broker.content("app/log"), b"hellohellohello");
}

#[tokio::test]
async fn a_call_in_this_process_gets_on_while_its_caller_does_something_else() {
    let broker = broker();
    let mut appender = broker.client().appender(append());
    appender.write("hello".into()).await.unwrap();
    // The caller looks away, and the service gets as far as it can.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(broker.calls(Call::Append), 1);
    appender.commit().await.unwrap();
}

#[tokio::test]
async fn a_call_in_this_process_ends_when_its_caller_drops_it() {
    struct Ended(Arc<AtomicBool>);
    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let ended = Arc::new(AtomicBool::new(false));
    let guard = Ended(Arc::clone(&ended));
    let task = AbortOnDrop(tokio::spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    }));
    tokio::task::yield_now().await;
    drop(task);
    tokio::task::yield_now().await;
    assert!(ended.load(Ordering::Acquire));

    let broker = broker();
    broker.inject(Call::Append, [Fault::Hang]);
    let client = broker.client();
    timeout(Duration::from_millis(10), client.append(append(), "x"))
        .await
        .unwrap_err();
    client.append(append(), "y").await.unwrap();
    assert_eq!(broker.content("app/log"), b"y");
}

#[tokio::test]
async fn a_silent_broker_ends_the_wait() {
    let broker = broker();
    broker.append("app/log", b"x");
    let server = broker.serve_tcp().await.unwrap();
    let channel = ChannelOptions {
        keep_alive_interval: Duration::from_millis(100),
        keep_alive_timeout: Duration::from_millis(100),
        ..ChannelOptions::default()
    };
    let options = ClientOptions {
        channel,
        ..ClientOptions::default()
    };
    let client = Client::connect(server.endpoint(), options).unwrap();
    let mut reader = client.reader(ReadRequest {
        block: true,
        ..read()
    });
    for _ in 0..2 {
        reader.next().await.unwrap();
    }
    client.append(append(), "warm").await.unwrap();
    reader.next().await.unwrap();
    reader.next().await.unwrap();

    server.freeze();
    let started = Instant::now();
    assert_eq!(reader.next().await.unwrap_err().kind(), ErrorKind::Retry);
    let error = client.append(append(), "x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert_ne!(error.outcome(), Outcome::Done);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    server.thaw();
    client.append(append(), "again").await.unwrap();
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_nobody() {
    let broker = broker();
    broker.append("app/log", &vec![b'x'; 40 << 20]);
    let server = broker.serve_tcp().await.unwrap();
    let client = Client::connect(server.endpoint(), ClientOptions::default()).unwrap();
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut reader = client.reader(read());
        reader.next().await.unwrap();
        idle.push(reader);
    }
    let whole = async {
        let mut reader = client.reader(ReadRequest {
            end_offset: 20 << 20,
            ..read()
        });
        let mut length = 0;
        while let Some(event) = reader.next().await.unwrap() {
            if let ReadEvent::Content { bytes, .. } = event {
                length += bytes.len();
            }
        }
        length
    };
    assert_eq!(
        timeout(Duration::from_secs(20), whole).await.unwrap(),
        20 << 20
    );
    drop(idle);
}

#[tokio::test]
async fn many_followers_do_not_use_up_the_connection_of_the_appends() {
    let broker = broker();
    let server = broker.serve_tcp().await.unwrap();
    let client = Client::connect(server.endpoint(), ClientOptions::default()).unwrap();
    let followers: Vec<_> = (0..300)
        .map(|_| {
            let mut reader = client.reader(ReadRequest {
                block: true,
                ..read()
            });
            tokio::spawn(async move { reader.next().await })
        })
        .collect();
    let appended = timeout(Duration::from_secs(20), client.append(append(), "x")).await;
    appended.unwrap().unwrap();
    for follower in followers {
        follower.abort();
    }
}

#[tokio::test]
async fn calls_go_to_the_broker_of_the_journal_and_to_the_default_one_if_that_is_away() {
    let broker = broker();
    let folder = tempfile::tempdir().unwrap();
    let default = broker.serve_unix(&folder.path().join("s")).unwrap();
    // What it advertises from now on.
    let member = broker.serve_tcp().await.unwrap();
    let options = ClientOptions {
        route_cache: RouteCacheOptions {
            size: 10,
            ..RouteCacheOptions::default()
        },
        ..ClientOptions::default()
    };
    let client = Client::connect(default.endpoint(), options).unwrap();
    assert!(client.is_routing());
    client.append(append(), "1").await.unwrap();

    // The default broker is not needed for a journal of which the route is known.
    default.freeze();
    client.append(append(), "2").await.unwrap();
    let mut reader = client.reader(read());
    while !matches!(
        reader.next().await.unwrap(),
        Some(ReadEvent::Content { .. })
    ) {}
    default.thaw();

    drop(member);
    // It may be sent before the end of the connection is noticed.
    while let Err(error) = client.append(append(), "3").await {
        assert_eq!(error.outcome(), Outcome::Unknown);
        assert_eq!(broker.head("app/log"), 2);
    }
    let mut reader = client.retry_reader(ReadRequest {
        end_offset: 3,
        ..read()
    });
    let mut content = Vec::new();
    while let Some(event) = reader.next().await.unwrap() {
        if let ReadEvent::Content { bytes, .. } = event {
            content.extend_from_slice(&bytes);
        }
    }
    assert_eq!(content, b"123");
}
