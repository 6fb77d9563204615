//! `gazctl journals`: one file for each sub-command.

use clap::Subcommand;
use gazette_client::{AppendError, Client};
use gazette_protocol::{AppendRequest, AppendResponse, JournalSpec, journal_spec::suspend::Level};

use crate::cli::Dialer;

mod append;
mod apply;
mod delete;
mod each;
mod flush;
mod fragments;
mod list;
mod read;
mod records;
mod reset_head;
mod store_health;
mod suspend;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(list::List),
    Apply(apply::Apply),
    Append(append::Append),
    Read(read::Read),
    Delete(delete::Delete),
    Fragments(fragments::Fragments),
    Flush(flush::Flush),
    Suspend(suspend::Suspend),
    ResetHead(reset_head::ResetHead),
    StoreHealth(store_health::StoreHealth),
}

impl Command {
    pub(crate) async fn run(self, dialer: &Dialer) -> anyhow::Result<()> {
        match self {
            Self::List(command) => command.run(&dialer.client()?).await,
            Self::Apply(command) => command.run(&dialer.client()?).await,
            Self::Append(command) => command.run(&dialer.client()?).await,
            Self::Read(command) => command.run(dialer).await,
            Self::Delete(command) => command.run(&dialer.client()?).await,
            Self::Fragments(command) => command.run(&dialer.client()?).await,
            Self::Flush(command) => command.run(&dialer.client()?).await,
            Self::Suspend(command) => command.run(&dialer.client()?).await,
            Self::ResetHead(command) => command.run(&dialer.client()?).await,
            Self::StoreHealth(command) => command.run(&dialer.client()?).await,
        }
    }
}

/// Reports whether no broker is assigned to the journal because it is suspended.
fn is_fully_suspended(spec: &JournalSpec) -> bool {
    spec.suspend_level() == Level::Full
}

/// Appends nothing, for the sake of what else `request` asks for.
async fn append_nothing(
    client: &Client,
    request: AppendRequest,
) -> Result<AppendResponse, AppendError> {
    client.append(request, bytes::Bytes::new()).await
}
