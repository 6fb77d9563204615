use clap::{Args, ValueEnum};
use gazette_client::{Client, Listing};
use gazette_protocol::{
    JournalSpec, ListResponse, Status, journal_spec::suspend::Level, json, list_response, prototext,
};

use crate::{
    journalspace::{self, Node},
    output,
    selector::{OptionalSelector, SELECTOR_HELP},
};

/// Lists journals, their specs and who serves them
///
/// The table shows names, and the columns that are asked for. YAML is a tree that `journals apply`
/// reads: a folder states what all below it have in common, and each journal has its revision, so
/// that an edit which was overtaken by another is refused. JSON and proto give the broker's whole
/// answer as one document.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are flags of a command line"
)]
#[command(after_help = format!("{EXAMPLES}\n\n{SELECTOR_HELP}"))]
pub(crate) struct List {
    #[command(flatten)]
    selector: OptionalSelector,

    /// Form of the output
    #[arg(short = 'o', long, value_enum, default_value = "table")]
    format: Format,

    /// Show the values of this label as a column of the table; may be repeated
    #[arg(short = 'L', long = "label-columns", value_name = "LABEL")]
    labels: Vec<String>,

    /// Show the primary broker; `<S>` marks a suspended journal
    #[arg(short, long)]
    primary: bool,

    /// Show the other brokers that hold the journal
    #[arg(short, long)]
    replicas: bool,

    /// Show how many brokers shall hold the journal
    #[arg(long)]
    rf: bool,

    /// Show the store that new fragments go to
    #[arg(long)]
    stores: bool,

    /// Go on, and print all of it again whenever a journal is created, changed or deleted
    #[arg(long)]
    watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people
    Table,
    /// A tree for `journals apply`
    Yaml,
    /// One JSON document, with all fields
    Json,
    /// Text form of the protocol's messages
    Proto,
}

impl List {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let selector = self.selector.selector.0.clone();
        // The first answer comes at once or not at all, also of a watch.
        let listing = client.list(selector.clone()).await?;
        self.print(&listing)?;
        if !self.watch {
            return Ok(());
        }
        let mut seen = listing.header.etcd.revision;
        let mut watch = client.watch(selector);
        loop {
            let listing = watch.next().await;
            let revision = listing.header.etcd.revision;
            if revision != seen {
                seen = revision;
                self.print(&listing)?;
            }
        }
    }

    fn print(&self, listing: &Listing) -> anyhow::Result<()> {
        output::print(&self.render(listing)?)?;
        Ok(())
    }

    fn render(&self, listing: &Listing) -> anyhow::Result<String> {
        let response = || ListResponse {
            status: Status::Ok.into(),
            header: listing.header.clone(),
            journals: listing.journals.clone(),
        };
        Ok(match self.format {
            Format::Table => self.table(&listing.journals),
            Format::Yaml => {
                let tree = Node::from_listing(&listing.journals);
                journalspace::yaml::print(&tree)?
            }
            Format::Json => {
                format!(
                    "{}\n",
                    json::to_json(&response(), json::JsonForm::OriginalNames)
                )
            }
            Format::Proto => prototext::format(&response()),
        })
    }

    fn table(&self, journals: &[list_response::Journal]) -> String {
        let mut header = vec!["NAME".to_owned()];
        let mut column = |shown: bool, name: &str| {
            if shown {
                header.push(name.to_owned());
            }
        };
        column(self.rf, "RF");
        column(self.primary, "PRIMARY");
        column(self.replicas, "REPLICAS");
        column(self.stores, "STORES");
        header.extend(self.labels.iter().cloned());
        let rows: Vec<_> = journals.iter().map(|journal| self.row(journal)).collect();
        output::table(&header, &rows)
    }

    fn row(&self, journal: &list_response::Journal) -> Vec<String> {
        let spec = &journal.spec;
        let mut row = vec![spec.name.clone()];
        if self.rf {
            row.push(spec.replication.to_string());
        }
        if self.primary {
            row.push(primary(journal));
        }
        if self.replicas {
            row.push(replicas(journal));
        }
        if self.stores {
            row.push(
                spec.fragment
                    .stores
                    .first()
                    .map_or(NONE, String::as_str)
                    .to_owned(),
            );
        }
        row.extend(self.labels.iter().map(|label| label_values(spec, label)));
        row
    }
}

fn primary(journal: &list_response::Journal) -> String {
    let route = &journal.route;
    let index = usize::try_from(route.primary).ok();
    let member = index.and_then(|index| route.members.get(index));
    let name = member.map_or(NONE, |member| member.suffix.as_str());
    if journal.spec.suspend_level() == Level::None {
        name.to_owned()
    } else {
        format!("{name} <S>")
    }
}

fn replicas(journal: &list_response::Journal) -> String {
    let route = &journal.route;
    let primary = usize::try_from(route.primary).ok();
    let others = route
        .members
        .iter()
        .enumerate()
        .filter(|(index, _)| Some(*index) != primary);
    others
        .map(|(_, member)| member.suffix.as_str())
        .collect::<Vec<_>>()
        .join(",")
}

fn label_values(spec: &JournalSpec, label: &str) -> String {
    let values: Vec<&str> = spec.labels.values_of(label).collect();
    if values.is_empty() {
        NONE.to_owned()
    } else {
        values.join(",")
    }
}

const NONE: &str = "<none>";

const EXAMPLES: &str = "\
Examples:
  gazctl journals list                                 names of all journals
  gazctl journals list -l prefix=app/ -p -r --rf       where those below app/ are
  gazctl journals list -l tag=blue -o yaml > blue.yaml edit it, then
  gazctl journals apply --specs blue.yaml              apply it
  gazctl journals list -o json | jq -r '.journals[].spec.name'";

#[cfg(test)]
mod tests;
