//! The program `gazette`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand, ValueEnum};
use gazette_process::{
    DebugArgs, ExitStatus, ListenArgs, LogArgs, Metrics, Readiness, Server,
    diagnostics::{self, Diagnostics},
    exit, logging, panic, signals,
};
use gazette_protocol::process_spec;
use gazette_wal::Durability;

use crate::embedded::{Embedded, EmbeddedOptions};

/// Serves journals: append-only logs that are kept as plain files.
#[derive(Debug, Parser)]
#[command(name = "gazette", version, about, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogArgs,
}

const AFTER_HELP: &str = "\
Promises (embedded, durability=durable):
  An append is all or nothing; appends to a journal are in one order.
  Readers see only what is acknowledged; what they saw never changes.
  What is acknowledged survives kill -9 and a power cut.

Exit codes: 0 done, 1 failed, 2 usage";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves journals until SIGTERM or Ctrl-C
    ///
    /// Example: gazette serve --embedded /var/lib/gazette --broker.port 8080
    Serve(Box<ServeArgs>),
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
struct ServeArgs {
    /// Serves from this folder alone, as the only broker: no etcd, nothing else to install
    #[arg(long, value_name = "DIR")]
    embedded: PathBuf,

    /// What an acknowledged append survives
    #[arg(long, value_enum, default_value = "durable", env = "BROKER_DURABILITY")]
    durability: DurabilityArg,

    /// Zone of this broker
    #[arg(
        long = "broker.zone",
        env = "BROKER_ZONE",
        default_value = "local",
        value_name = "ZONE"
    )]
    zone: String,

    /// Name of this broker within its zone
    #[arg(
        long = "broker.id",
        env = "BROKER_ID",
        default_value = "embedded",
        value_name = "ID"
    )]
    id: String,

    /// Journals that this broker takes, at most
    #[arg(
        long = "broker.limit",
        env = "BROKER_LIMIT",
        default_value_t = gazette_protocol::MAX_JOURNAL_LIMIT,
        value_name = "N"
    )]
    limit: u32,

    /// Folder that file:// stores are below; `fragments` in the data folder if not given
    #[arg(
        long = "broker.file-root",
        env = "BROKER_FILE_ROOT",
        value_name = "DIR"
    )]
    file_root: Option<PathBuf>,

    /// Takes every store for file:///, whatever its specs say
    #[arg(long = "broker.file-only", env = "BROKER_FILE_ONLY")]
    file_only: bool,

    /// Bytes per second that appends to one journal may reach; 0 is unlimited
    #[arg(
        long = "broker.max-append-rate",
        env = "BROKER_MAX_APPEND_RATE",
        default_value_t = 0,
        value_name = "BYTES"
    )]
    max_append_rate: u64,

    /// Bytes per second that an append must sustain, lest it hold up others
    #[arg(
        long = "broker.min-append-rate",
        env = "BROKER_MIN_APPEND_RATE",
        default_value_t = 1 << 16,
        value_name = "BYTES"
    )]
    min_append_rate: u64,

    #[command(flatten)]
    listen: ListenArgs,

    #[command(flatten)]
    debug: DebugArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DurabilityArg {
    /// A power cut: each append is synced to disk first
    Durable,
    /// The end of the process, but not a power cut: nothing is synced
    Replicated,
}

impl From<DurabilityArg> for Durability {
    fn from(durability: DurabilityArg) -> Self {
        match durability {
            DurabilityArg::Durable => Self::Durable,
            DurabilityArg::Replicated => Self::Replicated,
        }
    }
}

/// What a durability level means, for people.
pub fn promise(durability: Durability) -> &'static str {
    match durability {
        Durability::Durable => "durable: what is acknowledged survives kill -9 and a power cut",
        Durability::Replicated => {
            "replicated, by one broker: what is acknowledged survives kill -9, but NOT a power cut"
        }
    }
}

/// Runs the program.
pub fn main() -> ExitCode {
    main_with(|_| {})
}

/// Runs the program, with options of the broker that the command line does not have.
pub fn main_with(adjust: impl FnOnce(&mut EmbeddedOptions)) -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Broken pipes of `--help` do not matter.
            drop(error.print());
            let is_usage = error.use_stderr();
            return if is_usage {
                ExitStatus::Usage
            } else {
                ExitStatus::Done
            }
            .into();
        }
    };
    panic::abort_on_panic();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&anyhow::Error::new(error).context("start the runtime")),
    };
    let Command::Serve(serve) = arguments.command;
    match runtime.block_on(run(*serve, &arguments.log, adjust)) {
        Ok(()) => ExitStatus::Done.into(),
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    use std::io::Write as _;
    // Nobody may be there to read it.
    drop(writeln!(
        std::io::stderr(),
        "error: {}",
        exit::message(error)
    ));
    ExitStatus::Failed.into()
}

async fn run(
    arguments: ServeArgs,
    log: &LogArgs,
    adjust: impl FnOnce(&mut EmbeddedOptions),
) -> anyhow::Result<()> {
    let log = logging::init(log)?;
    let shutdown = signals::shutdown_token().context("install signal handlers")?;
    let metrics = Metrics::install()?;
    let address = arguments.listen.listen_address()?;
    let server = Server::bind_as(&address, &arguments.listen.advertised_host()).await?;
    let endpoint = server.endpoint().to_owned();
    let mut options = EmbeddedOptions {
        durability: arguments.durability.into(),
        id: process_spec::Id::new(arguments.zone, arguments.id),
        journal_limit: arguments.limit,
        file_root: arguments.file_root,
        file_only: arguments.file_only,
        min_append_rate: arguments.min_append_rate,
        max_append_rate: arguments.max_append_rate,
        ..EmbeddedOptions::new(arguments.embedded, endpoint.as_str())
    };
    adjust(&mut options);
    let durability = options.durability;
    let data = options.data_dir.clone();
    let broker = Embedded::start(options).await?;
    let ready = Readiness::new();
    let diagnostics = diagnostics::router(Diagnostics {
        ready: ready.clone(),
        metrics: Some(metrics.clone()),
        log: Some(log),
    });
    let http = if arguments.debug.private {
        broker.http()
    } else {
        diagnostics.clone().merge(broker.http())
    };
    let extra = match &arguments.debug.port {
        Some(address) => Some(Server::bind(address).await?),
        None => None,
    };
    ready.set(true);
    announce(&format!(
        "gazette {} serves {} at {endpoint}\n{}",
        env!("CARGO_PKG_VERSION"),
        data.display(),
        promise(durability),
    ));
    let stop = shutdown.child_token();
    let serving = server.serve(broker.grpc(), http, stop.clone());
    let extra_serving = async {
        if let Some(extra) = extra {
            let none = tonic::service::Routes::default();
            extra.serve(none, diagnostics, stop.clone()).await?;
        }
        Ok(())
    };
    let ending = async {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = broker.failed() => {}
            // Without it the samples of histograms pile up until somebody asks for them.
            () = metrics.upkeep() => {}
        }
        ready.set(false);
        broker.end_streams();
        stop.cancel();
    };
    let (served, extra_served, ()) = tokio::join!(serving, extra_serving, ending);
    let stopped = broker.stop().await;
    stopped?;
    if let Err(error) = served.and(extra_served) {
        tracing::warn!(err = %error, "connections were cut");
    }
    Ok(())
}

fn announce(text: &str) {
    use std::io::Write as _;
    drop(writeln!(std::io::stdout(), "{text}"));
}
