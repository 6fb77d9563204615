//! Arguments of the program.

use std::{path::PathBuf, time::Duration};

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use gazette_client::{Client, ClientOptions, RouteCacheOptions};
use gazette_process::{BrokerAddressArgs, LogArgs, dial};

use crate::{bench, journals, output, units::parse_duration};

/// Operates and measures journals
///
/// Talks to any broker that speaks Gazette's protocol; nothing else has to be reachable.
#[derive(Debug, Parser)]
#[command(
    name = "gazctl",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = AFTER_HELP
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogArgs,

    #[command(flatten)]
    client: ClientArgs,

    #[command(subcommand)]
    command: Command,
}

/// Which broker is asked, and how.
#[derive(Debug, Clone, Args)]
struct ClientArgs {
    #[command(flatten)]
    broker: BrokerAddressArgs,

    /// Routes of journals to remember. With some, reads and appends go to the brokers that serve a
    /// journal instead of through the one at the address
    #[arg(
        id = "broker.cache.size",
        long = "broker.cache.size",
        env = "BROKER_CACHE_SIZE",
        value_name = "N",
        default_value_t = 0,
        global = true,
        help_heading = "Broker"
    )]
    cache_size: usize,

    /// How long a route is remembered
    #[arg(id = "broker.cache.ttl", long = "broker.cache.ttl", env = "BROKER_CACHE_TTL",
          value_name = "DURATION", default_value = "1m", global = true, help_heading = "Broker",
          value_parser = parse_duration)]
    cache_ttl: Duration,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists, creates, appends to, reads and deletes journals
    #[command(subcommand, arg_required_else_help = true)]
    Journals(journals::Command),

    /// Measures how fast a broker appends and reads
    #[command(subcommand, arg_required_else_help = true)]
    Bench(bench::Command),

    /// Prints a script that completes the arguments in a shell
    #[command(after_help = "Example:\n  gazctl completions bash > /etc/bash_completion.d/gazctl")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Cli {
    /// Does what was asked for.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Journals(command) => command.run(&self.client.into()).await,
            Command::Bench(command) => command.run(&self.client.into()).await,
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "gazctl", &mut script);
                output::print(&String::from_utf8_lossy(&script))?;
                Ok(())
            }
        }
    }
}

/// Makes clients.
#[derive(Debug, Clone)]
pub(crate) struct Dialer(ClientArgs);

impl From<ClientArgs> for Dialer {
    fn from(args: ClientArgs) -> Self {
        Self(args)
    }
}

impl Dialer {
    /// Returns a client of the broker that the arguments name.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        self.client_with_files(None)
    }

    /// Returns a client that opens fragments below `file_root` itself.
    pub(crate) fn client_with_files(&self, file_root: Option<PathBuf>) -> anyhow::Result<Client> {
        let route_cache = RouteCacheOptions {
            size: self.0.cache_size,
            ttl: self.0.cache_ttl,
        };
        let options = ClientOptions {
            route_cache,
            file_root,
            ..ClientOptions::default()
        };
        Ok(dial::dial_with(&self.0.broker, options)?)
    }

    /// Reports whether brokers shall not pass on what they do not serve themselves.
    pub(crate) fn goes_direct(&self) -> bool {
        self.0.cache_size > 0
    }
}

const AFTER_HELP: &str = "\
Examples:
  gazctl journals list                                  what is there
  echo hello | gazctl journals append -l name=app/log   one atomic append
  gazctl journals read -b -l name=app/log               follow it
  gazctl bench append --clients 8 --size 1KiB           measure

Exit codes:
  0   done
  1   failed, and trying the same again is not expected to help
  2   the arguments or the specs make no sense; nothing was tried
  75  not done, but the same may succeed later: no broker answers, or its disk is full";
