//! The journals that are measured.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, anyhow};
use gazette_client::Client;
use gazette_protocol::{
    CompressionCodec, JournalSpec, apply_request::Change, duration, journal_spec,
};

use super::JournalArgs;
use crate::{error::usage, journalspace, transactions::Transactions};

/// Journals, and which of them are ours to delete.
#[derive(Debug)]
pub(super) struct Journals {
    pub(super) names: Vec<String>,
    created: bool,
}

impl Journals {
    /// Finds or creates the journals that the arguments ask for.
    pub(super) async fn prepare(client: &Client, args: &JournalArgs) -> anyhow::Result<Self> {
        if let Some(selector) = &args.selector {
            let listing = client.list(selector.0.clone()).await?;
            let names: Vec<String> = listing
                .journals
                .into_iter()
                .map(|journal| journal.spec.name)
                .collect();
            if names.is_empty() {
                return Err(anyhow!(
                    "bench {selector}: no journals match the selector; next: leave it out, so that \
                     journals are created"
                ));
            }
            return Ok(Self {
                names,
                created: false,
            });
        }
        let template = match &args.spec {
            Some(path) => load_template(path)?,
            None => default_template(),
        };
        let run = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let names: Vec<String> = (0..args.journals)
            .map(|number| format!("bench/{run:x}/{number:06}"))
            .collect();
        let upsert = |name: &String| Change {
            upsert: Some(JournalSpec {
                name: name.clone(),
                ..template.clone()
            }),
            ..Change::default()
        };
        let changes = names.iter().map(upsert).collect();
        Transactions::default().apply(client, changes).await?;
        Ok(Self {
            names,
            created: true,
        })
    }

    /// Deletes the journals that were created, with their content.
    pub(super) async fn clean(self, client: &Client, keep: bool) -> anyhow::Result<()> {
        if !self.created || keep {
            return Ok(());
        }
        let delete = |name: String| Change {
            expect_mod_revision: -1,
            delete: name,
            delete_fragments: true,
            ..Change::default()
        };
        let changes = self.names.into_iter().map(delete).collect();
        Transactions::default().apply(client, changes).await?;
        Ok(())
    }
}

fn load_template(path: &Path) -> anyhow::Result<JournalSpec> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("read {shown}"))?;
    let node = journalspace::yaml::parse(&text).map_err(|error| {
        usage(format!(
            "read {}; next: correct the file",
            error.in_file(&shown.to_string())
        ))
    })?;
    if !node.children.is_empty() {
        return Err(usage(format!(
            "read {shown}: it has children; next: write the spec of one journal"
        )));
    }
    Ok(node.spec)
}

fn default_template() -> JournalSpec {
    JournalSpec {
        replication: 1,
        fragment: journal_spec::Fragment {
            length: 256 << 20,
            compression_codec: CompressionCodec::None.into(),
            refresh_interval: duration::from_std(Duration::from_hours(1)),
            ..journal_spec::Fragment::default()
        },
        ..JournalSpec::default()
    }
}
