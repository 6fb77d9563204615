//! `gazctl bench`: how fast a broker is, over the wire.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use gazette_process::signals;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    journals::Journals,
    load::{Counters, Operation, Window},
    report::Plan,
};
use crate::{
    cli::Dialer,
    output::{self, ResultFormat},
    selector::{SELECTOR_HELP, Selector},
    units::{parse_bytes, parse_duration},
};

mod append;
mod journals;
mod load;
mod progress;
mod read;
mod report;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Append(append::Append),
    Read(read::Read),
}

impl Command {
    pub(crate) async fn run(self, dialer: &Dialer) -> anyhow::Result<()> {
        match self {
            Self::Append(command) => command.run(dialer).await,
            Self::Read(command) => command.run(dialer).await,
        }
    }
}

/// What all measurements have in common.
#[derive(Debug, Args)]
struct Common {
    /// Clients that work at the same time. Each has a connection of its own, and one request in
    /// flight
    #[arg(short, long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,

    /// How long is measured
    #[arg(short, long, value_name = "DURATION", default_value = "10s",
          value_parser = parse_duration)]
    duration: Duration,

    /// How long the clients work before it counts
    #[arg(short, long, value_name = "DURATION", default_value = "2s",
          value_parser = parse_duration)]
    warmup: Duration,

    /// Form of the result
    #[arg(short = 'o', long, value_enum, default_value = "text")]
    format: ResultFormat,

    #[command(flatten)]
    journals: JournalArgs,
}

impl Common {
    /// Prepares journals, lets the clients that `plan` makes work on them, and tells the result.
    async fn measure<O: Operation>(
        &self,
        dialer: &Dialer,
        plan: impl AsyncFnOnce(&Dialer, &[String]) -> anyhow::Result<(Plan, Vec<O>)>,
    ) -> anyhow::Result<()> {
        let stop = signals::shutdown_token().context("install signal handlers")?;
        let client = dialer.client()?;
        let journals = Journals::prepare(&client, &self.journals).await?;
        let measured = async {
            let (plan, clients) = plan(dialer, &journals.names).await?;
            let begin = Instant::now() + self.warmup;
            let window = Window {
                begin,
                end: begin + self.duration,
            };
            let counters = Arc::new(Counters::default());
            let progress = progress::show(plan.operation, window, Arc::clone(&counters));
            let measured = tokio::select! {
                biased;
                measured = load::run(clients, window, counters, &stop) => measured,
                never = progress => match never {},
            };
            anyhow::Ok((plan, measured?))
        };
        // What was created is deleted, whatever became of the rest.
        let measured = tokio::select! {
            biased;
            measured = measured => measured,
            () = stopped_late(&stop) => Err(anyhow!("bench: ended before anything was measured")),
        };
        let cleaned = journals.clean(&client, self.journals.keep).await;
        let (plan, measured) = measured?;
        match self.format {
            ResultFormat::Text => output::print(&report::text(&plan, &measured))?,
            ResultFormat::Json => output::print_json(&report::json(&plan, &measured))?,
        }
        cleaned?;
        match measured.first_error {
            Some(error) if measured.operations == 0 => Err(anyhow!(
                "bench {}: every request failed: {error}",
                plan.operation
            )),
            Some(_) | None => Ok(()),
        }
    }
}

/// Gives the clients a moment to end by themselves after the signal.
async fn stopped_late(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// Which journals are measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Journals")]
struct JournalArgs {
    /// Use the journals that match, instead of new ones
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with_all = ["journals", "spec"])]
    selector: Option<Selector>,

    /// Journals to create. The clients are spread over them
    #[arg(short, long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    journals: u32,

    /// YAML file with the spec of the new journals, as `journals apply` reads one; its name is left
    /// out. If not given: one replica, no store, fragments of 256 MiB
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,

    /// Keep the new journals, which are otherwise deleted with their content
    #[arg(long)]
    keep: bool,
}

/// Returns the size of one operation in bytes, which is at least one.
fn parse_size(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("expected at least 1 byte".to_owned()),
        size if size > SIZE_MAX_BYTES => Err("expected at most 1 GiB".to_owned()),
        size => Ok(size),
    }
}

/// An operation is held in memory by each client.
const SIZE_MAX_BYTES: u64 = 1 << 30;

fn selector_help(examples: &str) -> String {
    format!("{examples}\n\n{RESULT_HELP}\n\n{SELECTOR_HELP}")
}

const RESULT_HELP: &str = "\
Result:
  A request counts if its answer came within the measured time. Latency is from before the request
  to after its answer; p99 is what 99 % of the requests did not exceed. An error is a request that
  failed for good; the client goes on after 100 ms. Progress goes to standard error. SIGINT ends the
  measurement early, and what was measured is told.";
