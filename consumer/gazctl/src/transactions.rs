//! Changes of journals, cut into transactions that a broker takes.

use std::fmt;

use clap::Args;
use gazette_client::Client;
use gazette_protocol::{ApplyRequest, apply_request::Change};

/// How changes become transactions.
#[derive(Debug, Args)]
pub(crate) struct Transactions {
    /// Most journals of one transaction; 0 puts all into one, however many. Brokers take no more
    /// than 128, unless they and their etcd are told to
    #[arg(long, value_name = "N", default_value_t = CHANGES_MAX)]
    max_txn_size: usize,
}

/// What was applied.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Applied {
    pub(crate) changes: usize,
    pub(crate) transactions: usize,
    /// Revision of the last transaction.
    pub(crate) revision: i64,
}

impl Default for Transactions {
    fn default() -> Self {
        Self {
            max_txn_size: CHANGES_MAX,
        }
    }
}

impl Transactions {
    /// Applies changes, one transaction after the other.
    pub(crate) async fn apply(
        &self,
        client: &Client,
        mut changes: Vec<Change>,
    ) -> anyhow::Result<Applied> {
        let total = changes.len();
        let size = match self.max_txn_size {
            0 => total,
            size => size,
        };
        let mut applied = Applied::default();
        while !changes.is_empty() {
            let rest = changes.split_off(changes.len().min(size));
            let count = changes.len();
            let response = client
                .apply(ApplyRequest { changes })
                .await
                .map_err(|error| {
                    let error = anyhow::Error::new(error);
                    match applied.changes {
                        0 => error,
                        done => error.context(Partly { done, total }),
                    }
                })?;
            applied.revision = response.header.etcd.revision;
            applied.transactions += 1;
            applied.changes += count;
            tracing::info!(revision = applied.revision, count, "applied");
            changes = rest;
        }
        Ok(applied)
    }
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&journals(self.changes))?;
        if self.transactions > 1 {
            write!(f, " in {} transactions", self.transactions)?;
        }
        write!(f, " at revision {}", self.revision)
    }
}

/// How far several transactions got.
#[derive(Debug)]
struct Partly {
    done: usize,
    total: usize,
}

impl fmt::Display for Partly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} changes were applied", self.done, self.total)
    }
}

fn journals(count: usize) -> String {
    if count == 1 {
        "1 journal".to_owned()
    } else {
        format!("{count} journals")
    }
}

/// Most changes of one transaction: etcd takes 128 operations.
const CHANGES_MAX: usize = 128;
