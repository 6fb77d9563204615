use clap::Args;
use gazette_client::Client;
use gazette_protocol::{AppendRequest, Status, append_request, list_response};

use super::{append_nothing, each::for_each, is_fully_suspended};
use crate::{
    output::ResultFormat,
    selector::{RequiredSelector, SELECTOR_HELP},
};

/// Lets appends go on where a journal's stores end
///
/// Appends to a journal fail with `INDEX_HAS_GREATER_OFFSET` if its stores have content beyond what
/// its brokers know: they were all lost at once, or the journal was deleted and created again. This
/// sets the write head behind all stored content. What the lost brokers had and no store has is
/// lost; check that first.
///
/// It does nothing to a journal whose head is right. Appends that come in between win, and are
/// reported as a race.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  gazctl journals reset-head -l name=app/log
  gazctl journals reset-head -l prefix=app/ -o json

{SELECTOR_HELP}"))]
pub(crate) struct ResetHead {
    #[command(flatten)]
    selector: RequiredSelector,

    /// Form of the output
    #[arg(short = 'o', long, value_enum, default_value = "text")]
    format: ResultFormat,
}

impl ResetHead {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let listing = self.selector.list(client).await?;
        for_each("reset head", listing.journals, self.format, |journal| {
            reset(client, journal)
        })
        .await
    }
}

async fn reset(client: &Client, journal: list_response::Journal) -> anyhow::Result<String> {
    if is_fully_suspended(&journal.spec) {
        return Ok(SUSPENDED.to_owned());
    }
    let name = journal.spec.name;
    let head = client.read_head(&name).await?.write_head;
    let request = AppendRequest {
        journal: name,
        offset: head,
        suspend: append_request::Suspend::Keep.into(),
        ..AppendRequest::default()
    };
    match append_nothing(client, request).await {
        Ok(_) => Ok(format!("write head is {head}")),
        Err(error) if error.status() == Some(Status::WrongAppendOffset) => {
            Ok("an append was faster, so its head is right".to_owned())
        }
        Err(error) if error.status() == Some(Status::Suspended) => Ok(SUSPENDED.to_owned()),
        Err(error) => Err(error.into()),
    }
}

const SUSPENDED: &str = "skipped: it is suspended, and its head is right when it wakes";
