use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _},
    path::PathBuf,
};

use anyhow::Context as _;
use clap::Args;
use gazette_client::Client;
use gazette_protocol::{
    ApplyRequest, LabelSelector, Validate, apply_request::Change, json, prototext,
};
use serde_json::json;

use crate::{
    error::usage,
    journalspace::{self, Node},
    output::{self, ResultFormat},
    transactions::Transactions,
};

/// Creates, changes and deletes journals as a YAML tree says
///
/// Each journal of the tree is created, brought to the spec in the tree, or, with `delete: true`,
/// deleted. Journals that are not in the tree stay as they are.
///
/// `revision` says what is expected: none or 0, that there is no such journal yet; a number from
/// `journals list -o yaml`, that nobody changed it since; -1, nothing. If one expectation does not
/// hold, nothing of the transaction is done. More than --max-txn-size journals are several
/// transactions, which are applied one after the other: then an error may leave the earlier ones
/// applied, and says so.
///
/// The YAML is read strictly: an unknown key or a wrong value is an error with its line. In the tree, a
/// name that ends in a slash is a folder; journals inherit what it says. A value of zero inherits,
/// too, so it cannot replace a folder's value; an empty list of stores can.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Apply {
    /// File with the tree; `-` is standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    specs: PathBuf,

    /// Change only what the tree says of journals that are there, and keep the rest of their specs.
    /// Without a revision, that of the moment is expected
    #[arg(long)]
    patch: bool,

    /// Check the tree and print what would be sent, without sending it
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    transactions: Transactions,

    /// Form of the output
    #[arg(short = 'o', long, value_enum, default_value = "text")]
    format: ResultFormat,
}

impl Apply {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let file = self.file();
        let source = file.as_deref().unwrap_or(STDIN);
        let text = self.read().with_context(|| format!("read {source}"))?;
        let mut tree =
            parse(&text, file.as_deref()).map_err(|error| usage(format!("apply {error}")))?;
        if self.patch {
            // With everything, as new journals and their folders have to find their places.
            let listing = client.list(LabelSelector::default()).await?;
            tree = patch(Node::from_listing(&listing.journals), &tree);
        }
        let changes =
            changes_of(&tree).map_err(|error| usage(format!("apply {source}: {error}")))?;
        let request = ApplyRequest { changes };
        if self.dry_run {
            output::print(&match self.format {
                ResultFormat::Text => prototext::format(&request),
                ResultFormat::Json => {
                    format!(
                        "{}\n",
                        json::to_json(&request, json::JsonForm::OriginalNames)
                    )
                }
            })?;
            return Ok(());
        }
        let applied = self.transactions.apply(client, request.changes).await?;
        match self.format {
            ResultFormat::Text => output::print(&format!("applied {applied}\n"))?,
            ResultFormat::Json => output::print_json(&json!({
                "applied": applied.changes,
                "transactions": applied.transactions,
                "revision": applied.revision,
            }))?,
        }
        Ok(())
    }

    /// Name of the file with the tree, unless that is standard input.
    fn file(&self) -> Option<String> {
        (!self.is_stdin()).then(|| self.specs.display().to_string())
    }

    fn is_stdin(&self) -> bool {
        self.specs.as_os_str() == "-"
    }

    fn read(&self) -> io::Result<String> {
        if !self.is_stdin() {
            return fs::read_to_string(&self.specs);
        }
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Reads a tree and pushes it down. Without a name of its file it is from standard input.
fn parse(text: &str, file: Option<&str>) -> Result<Node, String> {
    let mut tree: Node = journalspace::yaml::parse(text).map_err(|error| {
        let told = match file {
            Some(file) => error.in_file(file),
            None => format!("{STDIN}: {error}"),
        };
        format!("{told}; next: correct the file")
    })?;
    let source = file.unwrap_or(STDIN);
    if tree == Node::default() {
        return Err(format!(
            "{source}: it has no journals; next: write at least one `name:`"
        ));
    }
    tree.validate()
        .map_err(|error| format!("{source}: {error}"))?;
    tree.push_down();
    Ok(tree)
}

/// Merges `patches` into `present`, and returns a tree of only the journals that it names.
fn patch(mut present: Node, patches: &Node) -> Node {
    present.push_down();
    for leaf in patches.leaves() {
        present.patch(leaf.clone());
    }
    let named: BTreeSet<&str> = patches.leaves().into_iter().map(Node::name).collect();
    let leaves = present
        .leaves()
        .into_iter()
        .filter(|leaf| named.contains(leaf.name()));
    Node::from_leaves(leaves.cloned().collect())
}

/// Returns the changes that a tree, which is pushed down, asks for, if they are valid.
fn changes_of(tree: &Node) -> Result<Vec<Change>, String> {
    let changes = tree.to_changes();
    for change in &changes {
        change.validate().map_err(|error| {
            format!(
                "journal {:?}: {error}; next: correct its spec",
                name(change)
            )
        })?;
    }
    Ok(changes)
}

fn name(change: &Change) -> &str {
    change
        .upsert
        .as_ref()
        .map_or(change.delete.as_str(), |spec| spec.name.as_str())
}

/// What standard input is called.
const STDIN: &str = "standard input";

const EXAMPLES: &str = r#"Examples:
  gazctl journals apply <<'END'
  name: app/
  replication: 1
  fragment:
    length: 67108864
    compression_codec: GZIP
    stores: ["file:///"]
    refresh_interval: 1m
  children:
  - name: app/access
  - name: app/errors
    labels: [{name: content-type, value: application/x-ndjson}]
  END

  gazctl journals list -l prefix=app/ -o yaml > app.yaml     save, edit, then
  gazctl journals apply --specs app.yaml --dry-run           look at it, and
  gazctl journals apply --specs app.yaml                     apply it

  printf 'name: app/errors\nflags: O_RDONLY\n' | gazctl journals apply --patch
  printf 'name: app/errors\ndelete: true\nrevision: -1\n' | gazctl journals apply"#;

#[cfg(test)]
mod tests;
