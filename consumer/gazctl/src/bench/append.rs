use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use gazette_client::Client;
use gazette_protocol::AppendRequest;

use super::{Common, load::Operation, parse_size, report::Plan, selector_help};
use crate::cli::Dialer;

/// Measures appends
///
/// Each client appends the same random bytes again and again, and waits for the acknowledgement of
/// each before the next: what is measured is as durable as the broker promises.
#[derive(Debug, Args)]
#[command(after_help = selector_help(EXAMPLES))]
pub(crate) struct Append {
    /// Bytes of an append
    #[arg(short, long, value_name = "BYTES", default_value = "1KiB", value_parser = parse_size)]
    size: u64,

    #[command(flatten)]
    common: Common,
}

impl Append {
    pub(crate) async fn run(self, dialer: &Dialer) -> anyhow::Result<()> {
        let size = usize::try_from(self.size)?;
        self.common
            .measure(dialer, async |dialer, names| {
                let mut appenders = Vec::new();
                for number in 0..self.common.clients {
                    let index = usize::try_from(number)? % names.len();
                    appenders.push(Appender {
                        client: dialer.client()?,
                        journal: names[index].as_str().into(),
                        content: random_bytes(size),
                    });
                }
                let plan = Plan {
                    operation: "append",
                    clients: self.common.clients,
                    journals: names.len(),
                    size: self.size,
                    warmup: self.common.warmup,
                };
                Ok((plan, appenders))
            })
            .await
    }
}

struct Appender {
    client: Client,
    journal: Arc<str>,
    content: Bytes,
}

impl Operation for Appender {
    async fn run(&mut self) -> anyhow::Result<u64> {
        let request = AppendRequest {
            journal: (*self.journal).into(),
            ..AppendRequest::default()
        };
        self.client.append(request, self.content.clone()).await?;
        Ok(u64::try_from(self.content.len())?)
    }
}

/// Returns bytes that do not compress.
pub(super) fn random_bytes(size: usize) -> Bytes {
    let mut bytes = vec![0; size];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut bytes);
    bytes.into()
}

const EXAMPLES: &str = "\
Examples:
  gazctl bench append                                    8 clients, 1 KiB, one new journal
  gazctl bench append --clients 64 --journals 64 --size 64KiB
  gazctl bench append -l name=app/log --duration 1m -o json
  gazctl bench append --spec replicated.yaml             with your spec";
