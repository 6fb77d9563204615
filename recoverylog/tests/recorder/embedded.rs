//! The same with a real broker, and its disk.

use std::{path::Path, time::Duration};

use gazette_broker::{Embedded, EmbeddedOptions};
use gazette_client::{Client, ClientOptions};
use gazette_process::{ListenAddress, ServeError, Server};
use gazette_protocol::{CompressionCodec, JournalSpec, journal_spec};
use gazette_recoverylog::{
    Source,
    fsm::{Fnode, Kind, Mode},
    hints::{HintsHome, HintsPoint, JournalHints},
    journals::make_log,
    player::{RecoverOptions, recover},
    recorder::{Fault, Recorder, Start, State},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{LOG, author, create, eventually, inode, options, write};

async fn house(data: &Path) -> Embedded {
    let options = EmbeddedOptions::new(data, "unix://localhost/not/served");
    Embedded::start(options).await.unwrap()
}

async fn make(client: &Client) {
    let template = JournalSpec {
        replication: 1,
        fragment: journal_spec::Fragment {
            length: 1 << 20,
            compression_codec: CompressionCodec::None.into(),
            stores: vec!["file:///".to_owned()],
            refresh_interval: Duration::from_mins(5).try_into().unwrap(),
            ..journal_spec::Fragment::default()
        },
        ..JournalSpec::default()
    };
    make_log(client, LOG, Mode::Native, &template)
        .await
        .unwrap();
}

fn fresh(number: u32) -> Start {
    Start::fresh(LOG, Mode::Native, author(number), inode(Kind::Directory)).unwrap()
}

async fn recovered(client: &Client, to: &Path, number: u32) -> Start {
    let source = Source::Broker(client.clone());
    let recovered = recover(&source, RecoverOptions::new(LOG, to))
        .await
        .unwrap();
    Start {
        log: LOG.to_owned(),
        mode: recovered.mode.unwrap(),
        author: author(number),
        fsm: recovered.fsm,
        tree: recovered.tree,
        liveness: recovered.liveness,
        root: inode(Kind::Directory),
        write_head: recovered.write_head,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_owner_recorded_the_next_one_recovers_and_goes_on_from() {
    let data = tempfile::tempdir().unwrap();
    let broker = house(data.path()).await;
    let client = broker.client();
    make(&client).await;
    let first = Recorder::start(client.clone(), fresh(1), options())
        .await
        .unwrap();
    let file = create(&first, "a").unwrap();
    for at in 0..300_u64 {
        write(&first, file, at * 10_000, &[at.to_le_bytes()[0]; 10_000]).unwrap();
    }
    first.stop().await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let start = recovered(&client, &place.path().join("one"), 2).await;
    let second = Recorder::start(client.clone(), start, options())
        .await
        .unwrap();
    assert_eq!(second.fnode_at(Fnode::ROOT, b"a"), Some(file));
    write(&second, file, 0, b"again").unwrap();
    let acked = second.stop().await.unwrap();
    let home = JournalHints::new(client.clone(), LOG);
    let hints = home.newest(HintsPoint::Head).await.unwrap().unwrap();
    assert_eq!((hints.author, hints.offset), (author(2), acked.offset));
    recovered(&client, &place.path().join("two"), 3).await;
    let content = std::fs::read(place.path().join("two/a")).unwrap();
    assert_eq!(content.len(), 3_000_000);
    assert_eq!(&content[..5], b"again");
    assert!(content[2_990_000..].iter().all(|byte| *byte == 43));
    broker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_owner_is_fenced_at_a_real_broker() {
    let data = tempfile::tempdir().unwrap();
    let broker = house(data.path()).await;
    let client = broker.client();
    make(&client).await;
    let first = Recorder::start(client.clone(), fresh(1), options())
        .await
        .unwrap();
    create(&first, "a").unwrap();
    let acked = first.flush().await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let start = recovered(&client, &place.path().join("one"), 2).await;
    let second = Recorder::start(client, start, options()).await.unwrap();
    // An idle owner learns it by himself.
    let mut state = first.watch();
    let state = state
        .wait_for(|state| matches!(state, State::Fenced(_)))
        .await
        .unwrap()
        .clone();
    let State::Fenced(fence) = state else {
        unreachable!()
    };
    assert_eq!(fence.author, Some(author(2)));
    assert_eq!(fence.offset, acked.offset);
    assert_eq!(first.flush().await, Err(Fault::Fenced(fence)));
    second.stop().await.unwrap();
    broker.stop().await.unwrap();
}

/// A broker on a port, which can be ended and started again.
struct Served {
    broker: Embedded,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
    port: u16,
}

impl Served {
    async fn start(data: &Path, port: u16) -> Self {
        let address = ListenAddress::Tcp {
            host: "127.0.0.1".to_owned(),
            port,
        };
        let server = Server::bind(&address).await.unwrap();
        let port = server.tcp_address().unwrap().port();
        let broker = Embedded::start(EmbeddedOptions::new(data, server.endpoint()))
            .await
            .unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(server.serve_with_grace(
            broker.grpc(),
            broker.http(),
            stop.clone(),
            Duration::from_millis(200),
        ));
        Self {
            broker,
            stop,
            task,
            port,
        }
    }

    async fn stop(self) {
        self.broker.end_streams();
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        self.broker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_restarts_is_waited_for() {
    let data = tempfile::tempdir().unwrap();
    let served = Served::start(data.path(), 0).await;
    let port = served.port;
    let endpoint = format!("http://127.0.0.1:{port}");
    let client = Client::connect(&endpoint, ClientOptions::default()).unwrap();
    make(&client).await;
    let recorder = Recorder::start(client.clone(), fresh(1), options())
        .await
        .unwrap();
    let worker = {
        let recorder = recorder.clone();
        tokio::spawn(async move {
            for number in 0..200 {
                create(&recorder, &format!("file-{number}")).unwrap();
                recorder.flush().await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    served.stop().await;
    eventually("stalled", || {
        matches!(recorder.status().state, State::Stalled { .. })
    })
    .await;
    let served = Served::start(data.path(), port).await;
    tokio::time::timeout(Duration::from_secs(30), worker)
        .await
        .unwrap()
        .unwrap();
    recorder.stop().await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let start = recovered(&client, &place.path().join("one"), 2).await;
    assert_eq!(start.tree.children(Fnode::ROOT).count(), 200);
    drop(client);
    served.stop().await;
}
