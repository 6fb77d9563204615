use anyhow::anyhow;
use clap::Args;
use gazette_client::Client;
use gazette_protocol::{FragmentStoreHealthRequest, Status};
use serde_json::json;

use crate::output::{self, ResultFormat};

/// Asks a broker whether it can use a fragment store
///
/// The broker writes, reads and lists a small object in the store; with --check-delete-prefix it
/// also deletes one. It is the broker's access that is checked, not that of this machine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gazctl journals store-health file:///
  gazctl journals store-health s3://bucket/logs/ --check-delete-prefix app/")]
pub(crate) struct StoreHealth {
    /// URL of the store, as it is in specs
    #[arg(value_name = "STORE_URL")]
    store: String,

    /// Check that objects below this path, which is empty or ends in a slash, can be deleted
    #[arg(long, value_name = "PREFIX")]
    check_delete_prefix: Option<String>,

    /// Form of the output
    #[arg(short = 'o', long, value_enum, default_value = "text")]
    format: ResultFormat,
}

impl StoreHealth {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let request = FragmentStoreHealthRequest {
            fragment_store: self.store.clone(),
            check_delete: self.check_delete_prefix.is_some(),
            check_delete_prefix: self.check_delete_prefix.unwrap_or_default(),
        };
        let response = client.store_health(request).await?;
        let healthy = response.status() == Status::Ok;
        let cause = response.store_health_error;
        if self.format == ResultFormat::Json {
            output::print_json(&json!({"store": self.store, "healthy": healthy, "error": cause}))?;
        }
        if !healthy {
            // The broker says what to do about it.
            return Err(anyhow!("check store {}: {cause}", self.store));
        }
        if self.format == ResultFormat::Text {
            output::print(&format!("Fragment store {} is healthy\n", self.store))?;
        }
        Ok(())
    }
}
