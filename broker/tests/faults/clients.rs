//! Clients that are slow, or go away.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use gazette_client::in_process_channel;
use gazette_protocol::{AppendRequest, journal_client::JournalClient};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::house::{self, House};

/// Appends whose clients go away.
const ROUNDS: usize = 60;

fn opening(journal: &str) -> AppendRequest {
    AppendRequest {
        journal: journal.to_owned(),
        ..AppendRequest::default()
    }
}

fn content(bytes: &'static [u8]) -> AppendRequest {
    AppendRequest {
        content: bytes.into(),
        ..AppendRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stalls_is_cut_and_rolled_back_while_others_wait_for_seconds_only() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    for journal in ["slow/one", "slow/two"] {
        house::create(&client, house::spec(journal)).await;
        house::append(&client, journal, "first ").await;
    }
    let mut rpc = JournalClient::new(in_process_channel(house.broker.service().clone()));
    let stalls = stream::iter([opening("slow/one"), content(b"never ")]).chain(stream::pending());
    let stalled = tokio::spawn(async move { rpc.append(stalls).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    house::append(&client, "slow/two", "second").await;
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "another journal waited"
    );
    let waiting = (0..3).map(|_| house::append(&client, "slow/one", "other "));
    futures_util::future::join_all(waiting).await;
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    let status = tokio::time::timeout(Duration::from_secs(5), stalled).await;
    let status = status.unwrap().unwrap().unwrap_err();
    assert!(status.message().contains("slow/one"), "{status}");
    assert_eq!(
        house::read(&client, "slow/one").await,
        b"first other other other "
    );
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_within_an_append_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::serve(folder.path()).await;
    let client = house.client();
    house::create(&client, house::spec("gone/log")).await;
    house::append(&client, "gone/log", "first ").await;
    for round in 0..10 {
        let mut stream = TcpStream::connect(house.address()).await.unwrap();
        let head = "PUT /gone/log HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; 20_000 * round]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(stream);
        let mut rpc = JournalClient::new(in_process_channel(house.broker.service().clone()));
        let stalls =
            stream::iter([opening("gone/log"), content(b"never")]).chain(stream::pending());
        let call = tokio::time::timeout(Duration::from_millis(20), rpc.append(stalls));
        assert!(call.await.is_err());
    }
    let begun = Instant::now();
    house::append(&client, "gone/log", "second").await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(house::read(&client, "gone/log").await, b"first second");
    house.stop().await;
    let house = House::start(folder.path()).await.unwrap();
    assert_eq!(
        house::read(&house.client(), "gone/log").await,
        b"first second"
    );
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_whose_client_goes_away_at_its_commit_is_there_whole_and_once_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::serve(folder.path()).await;
    let client = house.client();
    house::create(&client, house::spec("gone/log")).await;
    for round in 0..ROUNDS {
        let line = format!("line {round:04} {}\n", "y".repeat(50 * round));
        let delay = Duration::from_micros(200 * round as u64);
        if round % 2 == 0 {
            let mut stream = TcpStream::connect(house.address()).await.unwrap();
            let head = format!(
                "PUT /gone/log HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{line}",
                line.len()
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            tokio::time::sleep(delay).await;
        } else {
            let mut rpc = JournalClient::new(in_process_channel(house.broker.service().clone()));
            let bytes = AppendRequest {
                content: line.into(),
                ..AppendRequest::default()
            };
            let whole = stream::iter([opening("gone/log"), bytes, AppendRequest::default()]);
            drop(tokio::time::timeout(delay, rpc.append(whole)).await);
        }
    }
    house::append(&client, "gone/log", "end\n").await;
    let text = String::from_utf8(house::read(&client, "gone/log").await).unwrap();
    let mut seen = Vec::new();
    for line in text.lines().filter(|line| *line != "end") {
        let number: usize = line[5..9].parse().unwrap();
        assert_eq!(line.len(), 10 + 50 * number, "a part of line {number}");
        seen.push(number);
    }
    let total = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), total, "a line is there twice");
    assert!(
        total > ROUNDS / 4,
        "{total} of {ROUNDS}: hardly any was committed"
    );
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_commits_but_leaves_its_stream_open_holds_up_nobody_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    house::create(&client, house::spec("slow/log")).await;
    let mut rpc = JournalClient::new(in_process_channel(house.broker.service().clone()));
    let open = stream::iter([
        opening("slow/log"),
        content(b"maybe "),
        AppendRequest::default(),
    ]);
    let open = tokio::spawn(async move { rpc.append(open.chain(stream::pending())).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    house::append(&client, "slow/log", "other").await;
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    let answer = tokio::time::timeout(Duration::from_secs(5), open).await;
    let expected: &[u8] = match answer.unwrap().unwrap() {
        Ok(_) => b"maybe other",
        Err(_) => b"other",
    };
    assert_eq!(house::read(&client, "slow/log").await, expected);
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_trickles_is_cut_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::serve(folder.path()).await;
    let client = house.client();
    house::create(&client, house::spec("slow/log")).await;
    let mut stream = TcpStream::connect(house.address()).await.unwrap();
    let head = "PUT /slow/log HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let begun = Instant::now();
    let trickle = async {
        let mut answer = [0; 12];
        loop {
            let read = tokio::io::AsyncReadExt::read_exact(&mut stream, &mut answer);
            if tokio::time::timeout(Duration::from_millis(100), read)
                .await
                .is_ok()
            {
                return String::from_utf8(answer.to_vec()).unwrap();
            }
            drop(stream.write_all(b"x").await);
        }
    };
    let answer = tokio::time::timeout(Duration::from_secs(10), trickle).await;
    assert_eq!(answer.unwrap(), "HTTP/1.1 500");
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    house::append(&client, "slow/log", "other").await;
    assert_eq!(house::read(&client, "slow/log").await, b"other");
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn who_was_told_of_an_append_reads_it_however_many_append_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    house::create(&client, house::spec("busy/log")).await;
    let writers = (0..16).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            for _ in 0..60 {
                let (_, end) = house::append(&client, "busy/log", "0123456789").await;
                let head = client.read_head("busy/log").await.unwrap().write_head;
                assert!(head >= end, "the head is {head} after an append to {end}");
            }
        })
    });
    for writer in futures_util::future::join_all(writers).await {
        writer.unwrap();
    }
    assert_eq!(house::read(&client, "busy/log").await.len(), 16 * 60 * 10);
    house.stop().await;
}
