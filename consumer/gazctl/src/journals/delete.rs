use clap::Args;
use gazette_client::Client;
use gazette_protocol::{apply_request::Change, list_response};
use serde_json::json;

use super::apply::{apply_in_batches, journals};
use crate::{
    error,
    output::{self, ResultFormat},
    selector::{RequiredSelector, SELECTOR_HELP},
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

    /// Most journals of one transaction; 0 puts all into one
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_txn_size: usize,

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
        let mut revision = listing.header.etcd.revision;
        if !self.dry_run {
            let changes = changes(&listing.journals, self.fragments);
            if !changes.is_empty() {
                revision = apply_in_batches(client, changes, self.max_txn_size).await?;
            }
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
                lines.push(format!(
                    "{} at revision {revision}\n",
                    journals(names.len())
                ));
                output::print(&lines.join("\n"))?;
            }
            ResultFormat::Json => output::print_json(&json!({
                "journals": names,
                "deleted": !self.dry_run,
                "fragments": self.fragments,
                "revision": revision,
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
