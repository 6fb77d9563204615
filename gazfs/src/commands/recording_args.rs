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
    mount::Access,
    recording::{FsyncWaits, Options},
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

    /// Name of this one among the owners and standbys of the log; the name of the host with the number of
    /// the process if not given
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// How long an idle owner goes without making sure that the log is still his. A standby hears of him
    /// that often
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_idle_mark)]
    idle_mark: Duration,

    /// Take the log from an owner who is at work: his changes fail from then on. Without it that is
    /// refused; one who does not answer is taken for dead
    #[arg(long)]
    take_over: bool,

    /// When fsync returns: `log` when the log has all that was done before; `enqueue` at once, for
    /// a store whose commits wait elsewhere. With `enqueue` an fsync promises NOTHING
    #[arg(long, value_name = "WHEN", default_value = "log")]
    fsync: FsyncArg,

    /// Spec of the log if it is made, in YAML; its name is left out
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
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
            id: None,
            idle_mark: IDLE_MARK,
            take_over: false,
            fsync: FsyncArg::Log,
            spec: None,
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
            id: self.id.clone(),
            idle_mark: self.idle_mark,
            takes_over: self.take_over,
            template: template(self.spec.as_deref())?,
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

fn parse_idle_mark(text: &str) -> Result<Duration, String> {
    let mark = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if mark < IDLE_MARK_MIN || mark > IDLE_MARK_MAX {
        return Err("expected something between 50ms and 1min".to_owned());
    }
    Ok(mark)
}

const IDLE_MARK: Duration = Duration::from_secs(1);
const IDLE_MARK_MIN: Duration = Duration::from_millis(50);
const IDLE_MARK_MAX: Duration = Duration::from_mins(1);

/// As the help says.
const MAX_PENDING_BYTES: u64 = 64 << 20;
