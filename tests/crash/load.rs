//! Sixteen writers that append to many journals until the broker is gone.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use bytes::Bytes;
use gazette_client::Client;
use gazette_protocol::{
    AppendRequest, ApplyRequest, CompressionCodec, JournalSpec, Label, LabelSet, ReadRequest,
    Status, apply_request, duration, journal_spec,
};
use gazette_tests::workload::{self, Acknowledged};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// Writers at a time.
pub(crate) const WRITERS: u32 = 16;
/// Journals that they share.
pub(crate) const JOURNALS: u32 = 40;

/// What was acknowledged, by journal, over all rounds.
pub(crate) type Ledger = BTreeMap<String, Vec<Acknowledged>>;

/// The name of a journal of the test.
pub(crate) fn journal(number: u32) -> String {
    format!("crash/journal-{number:03}")
}

/// Creates the journals of the test. Small fragments, so that rolls and uploads happen too.
pub(crate) async fn create_journals(client: &Client) -> anyhow::Result<()> {
    let upsert = |number| JournalSpec {
        name: journal(number),
        replication: 1,
        fragment: journal_spec::Fragment {
            length: 256 << 10,
            compression_codec: if number % 2 == 0 {
                CompressionCodec::None.into()
            } else {
                CompressionCodec::Gzip.into()
            },
            stores: vec!["file:///".to_owned()],
            refresh_interval: duration::from_seconds(1),
            retention: duration::from_seconds(0),
            flush_interval: duration::from_seconds(0),
            path_postfix_template: String::new(),
        },
        ..JournalSpec::default()
    };
    let changes = (0..JOURNALS).map(|number| apply_request::Change {
        expect_mod_revision: -1,
        upsert: Some(upsert(number)),
        ..apply_request::Change::default()
    });
    client
        .apply(ApplyRequest {
            changes: changes.collect(),
        })
        .await
        .context("create journals")?;
    Ok(())
}

/// Appends to random journals until `over` is set. An append that failed may be there or not.
pub(crate) async fn write(
    client: Client,
    writer: u32,
    first: u64,
    seed: u64,
    ledger: Arc<Mutex<Ledger>>,
    over: Arc<AtomicBool>,
) -> u64 {
    let mut random = StdRng::seed_from_u64(seed ^ u64::from(writer).wrapping_mul(0x9e37_79b9));
    let mut sequence = first;
    while !over.load(Ordering::Acquire) {
        let journal = journal(random.random_range(0..JOURNALS));
        // Many small ones; as many of several pages, which a power cut tears in the log; some that are
        // synced in their spool.
        let length = match random.random_range(0..20) {
            0 => random.random_range(100_000..400_000),
            1..=9 => random.random_range(4_000..70_000),
            _ => random.random_range(0..2_000),
        };
        sequence += 1;
        let content = Bytes::from(workload::append(writer, sequence, length));
        let register = Label {
            name: workload::register(writer),
            value: sequence.to_string(),
            prefix: false,
        };
        let request = AppendRequest {
            journal: journal.clone(),
            union_registers: Some(LabelSet {
                labels: vec![register],
            }),
            ..AppendRequest::default()
        };
        let response = client.append(request, content).await;
        let Some(commit) = response.ok().and_then(|response| response.commit) else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let acknowledged = Acknowledged {
            writer,
            sequence,
            begin: commit.begin,
            end: commit.end,
        };
        let mut ledger = ledger.lock().expect("no writer panics");
        ledger.entry(journal).or_default().push(acknowledged);
    }
    sequence
}

/// All content of a journal, from its beginning.
pub(crate) async fn read_all(client: &Client, journal: &str) -> anyhow::Result<Vec<u8>> {
    let request = ReadRequest {
        journal: journal.to_owned(),
        ..ReadRequest::default()
    };
    let mut reader = client.reader(request);
    let mut content = Vec::new();
    loop {
        match reader.next().await {
            Ok(Some(gazette_client::ReadEvent::Content { bytes, .. })) => {
                content.extend_from_slice(&bytes);
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(content),
            Err(error) if error.status() == Some(Status::OffsetNotYetAvailable) => {
                return Ok(content);
            }
            Err(error) => return Err(error).with_context(|| format!("read {journal}")),
        }
    }
}

/// The registers of a journal, as an append of nothing tells them.
pub(crate) async fn registers(
    client: &Client,
    journal: &str,
) -> anyhow::Result<BTreeMap<String, String>> {
    let request = AppendRequest {
        journal: journal.to_owned(),
        ..AppendRequest::default()
    };
    let response = client
        .append(request, Bytes::new())
        .await
        .with_context(|| format!("read the registers of {journal}"))?;
    let labels = response.registers.unwrap_or_default().labels;
    Ok(labels
        .into_iter()
        .map(|label| (label.name, label.value))
        .collect())
}
