use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use gazette_client::Client;
use gazette_protocol::{AppendRequest, FragmentsRequest, Status, append_request, list_response};
use tokio::time::Instant;

use super::{append_nothing, each::for_each, is_fully_suspended};
use crate::{
    output::ResultFormat,
    selector::{RequiredSelector, SELECTOR_HELP},
    units::parse_duration,
};

/// Writes what journals have to their stores now
///
/// Closes the fragment that is being written, and waits until all that was in the journal when this
/// was asked is in a store. Journals without a store keep all on the disks of their brokers, and
/// are left out.
///
/// A broker of Gazette does not know the request: it stores the fragment when it is due, and this
/// waits for that.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  gazctl journals flush -l name=app/log
  gazctl journals flush -l prefix=app/ --timeout 5m

{SELECTOR_HELP}"))]
pub(crate) struct Flush {
    #[command(flatten)]
    selector: RequiredSelector,

    /// How long to wait, for each journal
    #[arg(long, value_name = "DURATION", default_value = "1m",
          value_parser = parse_duration)]
    timeout: Duration,

    /// Form of the output
    #[arg(short = 'o', long, value_enum, default_value = "text")]
    format: ResultFormat,
}

impl Flush {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let listing = self.selector.list(client).await?;
        let timeout = self.timeout;
        for_each("flush", listing.journals, self.format, |journal| {
            flush(client, journal, timeout)
        })
        .await
    }
}

async fn flush(
    client: &Client,
    journal: list_response::Journal,
    timeout: Duration,
) -> anyhow::Result<String> {
    if journal.spec.fragment.stores.is_empty() {
        return Ok("skipped: it has no store".to_owned());
    }
    if is_fully_suspended(&journal.spec) {
        return Ok(SUSPENDED.to_owned());
    }
    let name = journal.spec.name;
    let request = AppendRequest {
        journal: name.clone(),
        flush: true,
        suspend: append_request::Suspend::Keep.into(),
        ..AppendRequest::default()
    };
    let head = match append_nothing(client, request).await {
        Ok(response) => response.commit.unwrap_or_default().end,
        Err(error) if error.status() == Some(Status::Suspended) => return Ok(SUSPENDED.to_owned()),
        Err(error) => return Err(error.into()),
    };
    let deadline = Instant::now() + timeout;
    loop {
        let request = FragmentsRequest {
            journal: name.clone(),
            ..FragmentsRequest::default()
        };
        let fragments = client.list_all_fragments(request).await?;
        let specs = fragments.iter().map(|fragment| &fragment.spec);
        let mut missing = specs.filter(|spec| spec.mod_time == 0 && spec.begin < head);
        let Some(first) = missing.next() else {
            return Ok(format!("all before offset {head} is stored"));
        };
        if Instant::now() >= deadline {
            return Err(anyhow!(
                "flush {name}: what follows offset {} is not in a store after {} s; next: check \
                 the store with `gazctl journals store-health`",
                first.begin,
                timeout.as_secs()
            ));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

const SUSPENDED: &str = "all is stored, as it is suspended";

/// Time between two looks at a journal's fragments.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
