use clap::Args;
use gazette_client::Client;
use gazette_protocol::{AppendRequest, Status, append_request, journal_spec::suspend::Level};

use super::{append_nothing, each::for_each};
use crate::{
    output::ResultFormat,
    selector::{RequiredSelector, SELECTOR_HELP},
};

/// Releases the brokers of journals that are not written
///
/// A suspended journal keeps its content, and costs no broker anything. It is read from its stores,
/// and the next append wakes it. A journal is suspended if its last content has been in a store for
/// as long as its flush interval, or for a day if it has none. Others are left alone, unless --force
/// stores what is not stored yet and suspends them now.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  gazctl journals suspend -l prefix=archive/        those that are not in use
  gazctl journals suspend -l name=app/log --force   store the rest now, and suspend

{SELECTOR_HELP}"))]
pub(crate) struct Suspend {
    #[command(flatten)]
    selector: RequiredSelector,

    /// Suspend also what is in use; content that is in no store yet is stored first
    #[arg(short, long)]
    force: bool,

    /// Form of the output
    #[arg(short = 'o', long, value_enum, default_value = "text")]
    format: ResultFormat,
}

impl Suspend {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let listing = self.selector.list(client).await?;
        let suspend = if self.force {
            append_request::Suspend::Now
        } else {
            append_request::Suspend::IfFlushed
        };
        for_each(
            "suspend",
            listing.journals,
            self.format,
            |journal| async move {
                let name = journal.spec.name;
                let request = AppendRequest {
                    journal: name.clone(),
                    suspend: suspend.into(),
                    ..AppendRequest::default()
                };
                match append_nothing(client, request).await {
                    Err(error) if error.status() != Some(Status::Suspended) => {
                        return Err(error.into());
                    }
                    Ok(_) | Err(_) => {}
                }
                let level = client
                    .get_journal(&name)
                    .await?
                    .map(|found| found.spec.suspend_level());
                anyhow::Ok(match level {
                    Some(Level::Full) => "suspended, and no broker has it",
                    Some(Level::Partial) => "suspended, and one broker has it",
                    Some(Level::None) if self.force => "asked for; it is awake yet",
                    Some(Level::None) => {
                        "stays awake, as its last content was not stored for long enough"
                    }
                    None => "was deleted meanwhile",
                })
            },
        )
        .await
    }
}
