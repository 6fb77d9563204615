//! Arguments of the commands that record.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use gazette_client::{Client, ClientOptions};
use gazette_recoverylog::fsm::Mode;
use rustix::process::geteuid;

use super::{bytes::parse_bytes, options::template};
use crate::{
    journals::Template,
    mount::Access,
    recording::{Bounded, FsyncWaits, Options, bounded::CLEAN_RATE},
    work_dir,
};

/// Which brokers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Brokers")]
pub(super) struct BrokerArgs {
    /// Any broker of the cluster: `http://host:port`, or `unix:///path` of a socket
    #[arg(
        long,
        visible_alias = "broker.address",
        env = "BROKER_ADDRESS",
        value_name = "URL",
        default_value = "http://localhost:8080"
    )]
    pub(super) broker: String,

    /// Zone of this machine; brokers of the same zone are preferred for reads
    #[arg(long, env = "ZONE", value_name = "ZONE", default_value = "local")]
    zone: String,
}

impl BrokerArgs {
    /// Connects. Nothing is sent yet.
    pub(super) fn connect(&self) -> anyhow::Result<Client> {
        self.connect_with(ClientOptions::default())
    }

    /// The same, with options of which all but the zone count.
    pub(super) fn connect_with(&self, options: ClientOptions) -> anyhow::Result<Client> {
        let options = ClientOptions {
            zone: self.zone.clone(),
            ..options
        };
        Ok(Client::connect(&self.broker, options)?)
    }
}

/// What is recorded, and how.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Recording")]
pub(super) struct RecordingArgs {
    /// Recovery log: a journal, which is made if it is not there
    #[arg(long, value_name = "NAME")]
    log: String,

    /// Folder for the backing files and the state, outside of the mount point; if not given, one
    /// below /var/lib/gazfs for root, and ~/.local/state/gazfs for others. If it is lost, all is still
    /// in the log
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,

    /// Take over the files of a folder that nobody changes meanwhile. Only for a log that is empty
    /// or whose seed was cut short
    #[arg(long, value_name = "FROM")]
    seed: Option<PathBuf>,

    #[command(flatten)]
    tuning: TuningArgs,
}

/// How it is recorded.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Recording")]
pub(super) struct TuningArgs {
    /// How long fsync, and changes for which there is no room, wait for brokers that are away
    /// before they fail with EIO; for ever if not given. What was changed by then is still recorded
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    fail_after: Option<Duration>,

    /// How much may wait for the log before changes wait, too
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = parse_bytes)]
    max_pending: u64,

    /// How a new log records: `native` has all that file systems do in single ops; `compat` can be
    /// played by Gazette's own recovery
    #[arg(long, value_name = "MODE")]
    mode: Option<ModeArg>,

    /// When fsync returns: `log` when the log has all that was done before; `enqueue` at once, for
    /// a store whose commits wait elsewhere. With `enqueue` an fsync promises NOTHING
    #[arg(long, value_name = "WHEN", default_value = "log")]
    fsync: FsyncArg,

    /// Spec of the log if it is made, in YAML; its name is left out
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,

    /// Remove what nothing needs any more of the log from its store, again and again
    #[arg(long)]
    prune: bool,

    /// Folder below which `file` stores of the brokers are, for --prune
    #[arg(long, value_name = "DIR")]
    store_root: Option<PathBuf>,

    /// Bytes a second at most that are recorded again so that older parts of the log are not needed
    /// any more, as long as the log does not grow faster; 0 for never
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = parse_bytes)]
    clean_rate: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeArg {
    Native,
    Compat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FsyncArg {
    Log,
    Enqueue,
}

impl RecordingArgs {
    /// Returns what is recorded, and how.
    pub(super) fn options(&self, point: &Path) -> anyhow::Result<Options> {
        let work = match &self.work {
            Some(work) => work.clone(),
            None => work_dir::default_dir(&self.log).context(
                "find a folder for the backing files: HOME is not set; next: give --work",
            )?,
        };
        Ok(Options {
            seed: self.seed.clone(),
            ..self.tuning.options(&self.log, point, work)?
        })
    }
}

impl Default for TuningArgs {
    fn default() -> Self {
        Self {
            fail_after: None,
            max_pending: MAX_PENDING_BYTES,
            mode: None,
            fsync: FsyncArg::Log,
            spec: None,
            prune: false,
            store_root: None,
            clean_rate: CLEAN_RATE,
        }
    }
}

impl TuningArgs {
    /// The same, for a log and folders that are known.
    pub(super) fn options(
        &self,
        log: &str,
        point: &Path,
        work: PathBuf,
    ) -> anyhow::Result<Options> {
        Ok(Options {
            log: log.to_owned(),
            point: point.to_owned(),
            work,
            seed: None,
            mode: self.mode.map(|mode| match mode {
                ModeArg::Native => Mode::Native,
                ModeArg::Compat => Mode::Compat,
            }),
            fsync: match self.fsync {
                FsyncArg::Log => FsyncWaits::ForLog,
                FsyncArg::Enqueue => FsyncWaits::ForNothing,
            },
            fail_after: self.fail_after,
            max_pending: self.max_pending,
            template: match &self.spec {
                None => Template::of_logs(),
                spec => template(spec.as_deref())?,
            },
            bounded: Bounded {
                clean_rate: self.clean_rate,
                prunes: self.prune,
                store_root: self.store_root.clone(),
            },
        })
    }
}

/// Who may use a recorded directory: modes and owners decide, as on any disk.
pub(super) fn access() -> Access {
    if geteuid().is_root() {
        Access::All
    } else {
        Access::Owner
    }
}

/// As the help says.
const MAX_PENDING_BYTES: u64 = 64 << 20;
