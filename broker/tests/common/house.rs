//! A broker with a data folder, on a socket if a test wants one.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use gazette_broker::{Embedded, EmbeddedError, EmbeddedOptions};
use gazette_client::{AppendError, Client, ReadError, ReadEvent};
use gazette_process::{ListenAddress, ServeError, Server};
use gazette_protocol::{
    AppendRequest, ApplyRequest, CompressionCodec, FragmentsRequest, JournalSpec, ReadRequest,
    Status, apply_request::Change, duration, journal_spec,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A running broker. Its folder outlives it.
pub(crate) struct House {
    pub(crate) broker: Embedded,
    serving: Option<Serving>,
}

struct Serving {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

impl House {
    /// Starts a broker without a socket.
    pub(crate) async fn start(data: &Path) -> Result<Self, EmbeddedError> {
        Self::start_with(data, |_| {}).await
    }

    pub(crate) async fn start_with(
        data: &Path,
        adjust: impl FnOnce(&mut EmbeddedOptions),
    ) -> Result<Self, EmbeddedError> {
        let mut options = EmbeddedOptions::new(data, "unix://localhost/not/served");
        adjust(&mut options);
        let broker = Embedded::start(options).await?;
        Ok(Self {
            broker,
            serving: None,
        })
    }

    /// Starts a broker that is served on a TCP port of this machine.
    pub(crate) async fn serve(data: &Path) -> Self {
        let address = ListenAddress::Tcp {
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let server = Server::bind(&address).await.unwrap();
        let address = server.tcp_address().unwrap();
        let options = EmbeddedOptions::new(data, server.endpoint());
        let broker = Embedded::start(options).await.unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(server.serve_with_grace(
            broker.grpc(),
            broker.http(),
            stop.clone(),
            Duration::from_secs(1),
        ));
        let serving = Some(Serving {
            address,
            stop,
            task,
        });
        Self { broker, serving }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.serving.as_ref().expect("it is served").address
    }

    pub(crate) fn client(&self) -> Client {
        self.broker.client()
    }

    pub(crate) async fn stop(self) {
        self.broker.end_streams();
        if let Some(serving) = self.serving {
            serving.stop.cancel();
            // Connections that a test left open are cut.
            drop(serving.task.await.unwrap());
        }
        self.broker.stop().await.unwrap();
    }
}

/// A journal with a store in the data folder.
pub(crate) fn spec(name: &str) -> JournalSpec {
    JournalSpec {
        name: name.to_owned(),
        replication: 1,
        fragment: journal_spec::Fragment {
            length: 1 << 20,
            compression_codec: CompressionCodec::None.into(),
            stores: vec!["file:///".to_owned()],
            refresh_interval: duration::from_seconds(1),
            ..journal_spec::Fragment::default()
        },
        ..JournalSpec::default()
    }
}

pub(crate) async fn create(client: &Client, spec: JournalSpec) {
    let change = Change {
        upsert: Some(spec),
        ..Change::default()
    };
    let changes = vec![change];
    client.apply(ApplyRequest { changes }).await.unwrap();
}

pub(crate) async fn try_append(
    client: &Client,
    journal: &str,
    content: impl Into<Bytes>,
) -> Result<(i64, i64), AppendError> {
    let request = AppendRequest {
        journal: journal.to_owned(),
        ..AppendRequest::default()
    };
    let response = client.append(request, content.into()).await?;
    let commit = response.commit.unwrap();
    Ok((commit.begin, commit.end))
}

pub(crate) async fn append(
    client: &Client,
    journal: &str,
    content: impl Into<Bytes>,
) -> (i64, i64) {
    try_append(client, journal, content).await.unwrap()
}

/// Reads to the write head.
pub(crate) async fn try_read(
    client: &Client,
    journal: &str,
    offset: i64,
) -> Result<Vec<u8>, ReadError> {
    let request = ReadRequest {
        journal: journal.to_owned(),
        offset,
        ..ReadRequest::default()
    };
    let mut reader = client.reader(request);
    let mut content = Vec::new();
    loop {
        match reader.next().await {
            Ok(Some(ReadEvent::Content { bytes, .. })) => content.extend_from_slice(&bytes),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(content),
            Err(error) if error.status() == Some(Status::OffsetNotYetAvailable) => {
                return Ok(content);
            }
            Err(error) => return Err(error),
        }
    }
}

pub(crate) async fn read(client: &Client, journal: &str) -> Vec<u8> {
    try_read(client, journal, 0).await.unwrap()
}

/// Closes the open fragment.
pub(crate) async fn close_fragment(client: &Client, journal: &str) {
    let request = AppendRequest {
        journal: journal.to_owned(),
        flush: true,
        ..AppendRequest::default()
    };
    client.append(request, Bytes::new()).await.unwrap();
}

/// Whether all fragments of a journal are in their store.
pub(crate) async fn is_stored(client: &Client, journal: &str) -> bool {
    let request = FragmentsRequest {
        journal: journal.to_owned(),
        ..FragmentsRequest::default()
    };
    let fragments = client.list_all_fragments(request).await.unwrap();
    fragments.iter().all(|fragment| fragment.spec.mod_time != 0)
}

/// Waits until all fragments of a journal are in their store.
pub(crate) async fn stored(client: &Client, journal: &str) {
    for _ in 0..400 {
        if is_stored(client, journal).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the fragments of {journal} do not get to their store");
}

/// A file of the golden data.
pub(crate) fn golden(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden/broker")
        .join(relative)
}

pub(crate) fn golden_json(relative: &str) -> serde_json::Value {
    let path = golden(relative);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// `text(n, tag)` of the golden data.
pub(crate) fn golden_text(length: usize, tag: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 100);
    for line in 0_u32.. {
        if text.len() >= length {
            break;
        }
        let line = format!("{tag} {line:08} the quick brown fox jumps over the lazy dog\n");
        text.extend_from_slice(line.as_bytes());
    }
    text.truncate(length);
    text
}

/// `rand(n, seed)` of the golden data.
pub(crate) fn golden_rand(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let step = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u8::try_from((state >> 33) & 0xff).unwrap()
    };
    (0..length).map(step).collect()
}

/// The content that a golden file describes.
pub(crate) fn golden_content(described: &serde_json::Value) -> Vec<u8> {
    let length = usize::try_from(described["length"].as_u64().unwrap()).unwrap();
    match (described["kind"].as_str(), described["text"].as_str()) {
        (Some("text"), _) => golden_text(length, described["tag"].as_str().unwrap()),
        (Some("rand"), _) => golden_rand(length, described["seed"].as_u64().unwrap()),
        (None, Some(text)) => {
            assert_eq!(text.len(), length);
            text.as_bytes().to_vec()
        }
        other => panic!("content of no known kind: {other:?}"),
    }
}

pub(crate) fn sha1_hex(content: &[u8]) -> String {
    use sha1::Digest as _;
    let sum = gazette_protocol::Sha1Sum::from_digest(sha1::Sha1::digest(content).into());
    sum.to_hex()
}
