use clap::Args;
use gazette_client::Client;
use gazette_protocol::{apply_request::Change, list_response};
use serde_json::json;

use crate::{
    error,
    output::{self, ResultFormat},
    selector::{RequiredSelector, SELECTOR_HELP},
    transactions::{Applied, Transactions},
};

/// Deletes journals
///
/// Lists the journals that match and deletes them at the revisions that were listed: one that was
/// changed in between is kept, and nothing of its transaction is done. Their fragments stay in the
/// stores, and a journal that is created again under the name finds them; --fragments deletes them,
/// too, which cannot be undone. (A broker of Gazette does not know --fragments, and keeps them.)
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  gazctl journals delete -l prefix=tmp/ --dry-run     what would be deleted
  gazctl journals delete -l prefix=tmp/ --fragments   delete it, with all content

{SELECTOR_HELP}"))]
pub(crate) struct Delete {
    #[command(flatten)]
    selector: RequiredSelector,

    /// Delete all content, too
    #[arg(long)]
    fragments: bool,

    /// Print what would be deleted, without deleting it
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    transactions: Transactions,

    /// Form of the output
    #[arg(short = 'o', long, value_enum, default_value = "text")]
    format: ResultFormat,
}

impl Delete {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        if self.selector.selector.0.is_empty() {
            return Err(error::usage(
                "delete journals: the selector is empty, which means all; next: name them",
            ));
        }
        let listing = self.selector.list(client).await?;
        let names: Vec<&str> = listing
            .journals
            .iter()
            .map(|journal| journal.spec.name.as_str())
            .collect();
        // Of what is there if nothing is done.
        let mut applied = Applied {
            changes: names.len(),
            transactions: 0,
            revision: listing.header.etcd.revision,
        };
        if !self.dry_run && !names.is_empty() {
            let changes = changes(&listing.journals, self.fragments);
            applied = self.transactions.apply(client, changes).await?;
        }
        match self.format {
            ResultFormat::Text => {
                let verb = if self.dry_run {
                    "would delete"
                } else {
                    "deleted"
                };
                let mut lines: Vec<String> =
                    names.iter().map(|name| format!("{verb} {name}")).collect();
                lines.push(format!("{applied}\n"));
                output::print(&lines.join("\n"))?;
            }
            ResultFormat::Json => output::print_json(&json!({
                "journals": names,
                "deleted": !self.dry_run,
                "fragments": self.fragments,
                "transactions": applied.transactions,
                "revision": applied.revision,
            }))?,
        }
        Ok(())
    }
}

fn changes(journals: &[list_response::Journal], delete_fragments: bool) -> Vec<Change> {
    let change = |journal: &list_response::Journal| Change {
        expect_mod_revision: journal.mod_revision,
        delete: journal.spec.name.clone(),
        delete_fragments,
        ..Change::default()
    };
    journals.iter().map(change).collect()
}
