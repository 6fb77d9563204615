use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use futures_util::{StreamExt, TryStreamExt, stream};
use gazette_client::{Client, ReadEvent};
use gazette_protocol::{AppendRequest, ReadRequest};

use super::{
    Common, append::random_bytes, load::Operation, parse_size, report::Plan, selector_help,
};
use crate::{cli::Dialer, units::parse_bytes};

/// Measures reads
///
/// Each client reads its journal piece by piece, from the beginning to the end and then again. Every
/// piece is a request of its own, and is checked to be all that it should be: contiguous, and
/// of the right length. New journals are filled first, which is not measured.
#[derive(Debug, Args)]
#[command(after_help = selector_help(EXAMPLES))]
pub(crate) struct Read {
    /// Bytes of a read
    #[arg(short, long, value_name = "BYTES", default_value = "1MiB", value_parser = parse_size)]
    size: u64,

    /// Bytes to fill each new journal with
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = parse_bytes)]
    fill: u64,

    #[command(flatten)]
    common: Common,
}

impl Read {
    pub(crate) async fn run(self, dialer: &Dialer) -> anyhow::Result<()> {
        self.common
            .measure(dialer, async |dialer, names| {
                let client = dialer.client()?;
                if self.common.journals.selector.is_none() {
                    fill(&client, names, self.fill).await?;
                }
                let mut ends = Vec::new();
                for name in names {
                    let end = client.read_head(name).await?.write_head;
                    if end <= 0 {
                        return Err(anyhow!(
                            "bench read {name}: it is empty; next: append to it, or leave the \
                             selector out"
                        ));
                    }
                    ends.push(end);
                }
                let size = i64::try_from(self.size)?;
                let mut readers = Vec::new();
                for number in 0..self.common.clients {
                    let index = usize::try_from(number)? % names.len();
                    readers.push(PieceReader {
                        client: dialer.client()?,
                        journal: names[index].as_str().into(),
                        at: 0,
                        end: ends[index],
                        size,
                    });
                }
                let plan = Plan {
                    operation: "read",
                    clients: self.common.clients,
                    journals: names.len(),
                    size: self.size,
                    warmup: self.common.warmup,
                };
                Ok((plan, readers))
            })
            .await
    }
}

async fn fill(client: &Client, names: &[String], total: u64) -> anyhow::Result<()> {
    let piece = random_bytes(usize::try_from(total.clamp(1, FILL_BYTES))?);
    let appends = total.div_ceil(FILL_BYTES).max(1);
    stream::iter(names)
        .map(|name| {
            let piece = piece.clone();
            async move {
                for _ in 0..appends {
                    let request = AppendRequest {
                        journal: name.clone(),
                        ..AppendRequest::default()
                    };
                    client.append(request, piece.clone()).await?;
                }
                anyhow::Ok(())
            }
        })
        .buffer_unordered(FILL_CONCURRENT)
        .try_collect::<()>()
        .await
}

struct PieceReader {
    client: Client,
    journal: Arc<str>,
    at: i64,
    end: i64,
    size: i64,
}

impl Operation for PieceReader {
    async fn run(&mut self) -> anyhow::Result<u64> {
        let begin = if self.at >= self.end { 0 } else { self.at };
        let end = self.end.min(begin.saturating_add(self.size));
        // Also if it fails, the next one is another piece.
        self.at = end;
        let mut reader = self.client.retry_reader(ReadRequest {
            journal: (*self.journal).into(),
            offset: begin,
            end_offset: end,
            ..ReadRequest::default()
        });
        let mut at = begin;
        let mut bytes = 0;
        while let Some(event) = reader.next().await? {
            match event {
                ReadEvent::Metadata(_) => {}
                // A pruned beginning has no bytes.
                ReadEvent::Jump { from, to } if from == at => at = to,
                ReadEvent::Content {
                    offset,
                    bytes: content,
                } if offset == at => {
                    at = at.saturating_add(i64::try_from(content.len())?);
                    bytes += u64::try_from(content.len())?;
                }
                ReadEvent::Jump { from: offset, .. } | ReadEvent::Content { offset, .. } => {
                    return Err(anyhow!(
                        "read {}: content of offset {offset} came where {at} was due; next: report \
                         it, this must not happen",
                        self.journal
                    ));
                }
            }
        }
        if at < end || (at > end && bytes > 0) {
            return Err(anyhow!(
                "read {}: [{begin}, {end}) was asked for and ended at {at}; next: report it, this \
                 must not happen",
                self.journal
            ));
        }
        Ok(bytes)
    }
}

/// Bytes of an append that fills a journal.
const FILL_BYTES: u64 = 1 << 20;

/// Journals that are filled at a time.
const FILL_CONCURRENT: usize = 8;

const EXAMPLES: &str = "\
Examples:
  gazctl bench read                                      8 clients read one journal of 64 MiB
  gazctl bench read --clients 16 --journals 16 --size 4KiB
  gazctl bench read -l prefix=app/ --duration 1m -o json what is there";
