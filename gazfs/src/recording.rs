//! One recorded directory, from the look at its log to the end of its mount: what `gazfs record`,
//! `run` and `up` share.
//!
//! At the start the backing files are brought to what the log says: they are what the last daemon
//! left if it ended in order and nobody recorded since, and are rebuilt from the log otherwise.
//! What they hold that the log never got is set aside, and told.

pub(crate) mod bounded;
mod checkpoints;
mod compare;
mod error;
mod files;
mod keep;
mod log;
mod prepare;
mod restart;
mod seed;
mod serve;
mod status;
mod xattrs;

use std::{fs::File, os::unix::fs::PermissionsExt, path::PathBuf, sync::Arc, time::Duration};

use gazette_client::Client;
use gazette_process::TaskGroup;
use gazette_recoverylog::{
    Source,
    fsm::Mode,
    recorder::{Recorder, Room},
};
use rustix::process::geteuid;
use tokio_util::sync::CancellationToken;

use crate::{
    journals::Template,
    mount::{MountError, MountOptions, Mounted, mount_recorded},
    recorded::RecordedFs,
    work_dir::WorkDir,
};

use bounded::Cleaner;
use checkpoints::Checkpoints;
use log::RecorderLog;

pub use bounded::Bounded;
pub use error::{RecordingError, is_recovery_temporary};
pub use seed::SeedError;
pub use serve::Ended;
pub(crate) use serve::until;

/// What is recorded, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The log.
    pub log: String,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Folder of the backing files and the state.
    pub work: PathBuf,
    /// A tree that is taken over.
    pub seed: Option<PathBuf>,
    /// How a new log records; that of the log if not given.
    pub mode: Option<Mode>,
    /// When fsync returns.
    pub fsync: FsyncWaits,
    /// How long fsync, and changes for which there is no room, wait for brokers that are away.
    pub fail_after: Option<Duration>,
    /// Bytes that may wait for the log.
    pub max_pending: u64,
    /// What the log is, if it is made.
    pub template: Template,
    /// How it is kept small.
    pub bounded: Bounded,
}

/// When fsync returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsyncWaits {
    /// When the log has all that was done before.
    ForLog,
    /// At once.
    ForNothing,
}

/// How far a start is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The log is played.
    Recovering {
        /// Bytes so far.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A tree is taken over.
    Seeding {
        /// Bytes so far.
        done: u64,
    },
}

/// How the backing files came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The log was empty.
    Fresh,
    /// They were there, as the last daemon left them.
    Kept,
    /// They were rebuilt from the log.
    Recovered,
    /// They were taken over.
    Seeded,
}

/// A directory that is being recorded.
#[derive(Debug)]
pub struct Recording {
    options: Options,
    work: Arc<WorkDir>,
    recorder: Recorder,
    log: RecorderLog,
    fs: RecordedFs<RecorderLog>,
    found: Found,
    source: Source,
    cleaner: Cleaner,
    /// What goes on beside it.
    tasks: TaskGroup,
    /// Who took the log over, as he says himself.
    successor: Option<String>,
    checkpoints: Option<Checkpoints>,
}

/// What the start found.
#[derive(Debug, Clone)]
struct Found {
    origin: Origin,
    /// Things that could not be restored.
    not_restored: u64,
    /// What a person should know.
    notes: Vec<String>,
    /// Bytes of log a second that were played, if much was.
    rate: Option<u64>,
}

impl Found {
    /// The files were there, and nothing about them is worth telling.
    const fn kept() -> Self {
        Self {
            origin: Origin::Kept,
            not_restored: 0,
            notes: Vec::new(),
            rate: None,
        }
    }
}

impl Recording {
    /// Brings the backing files to what the log says, and takes the log over.
    pub async fn start(
        client: &Client,
        options: Options,
        cancel: &CancellationToken,
        progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<Self, RecordingError> {
        prepare::start(client, options, cancel, Arc::new(progress)).await
    }

    /// Mounts it. From then on nobody but root can write to the mount point while nothing is mounted
    /// there: what a program writes then would be in no log, and hidden by the next mount.
    pub fn mount(&self, options: impl Into<MountOptions>) -> Result<Mounted, MountError> {
        let point = &self.options.point;
        // What is opened before is the directory below the mount.
        let below = File::open(point).and_then(|below| Ok((below.metadata()?, below)));
        let refused = |cause| MountError::Refused {
            point: point.clone(),
            cause,
        };
        let (metadata, below) = below.map_err(refused)?;
        let mode = metadata.permissions().mode() & 0o7777;
        let set = |mode| below.set_permissions(PermissionsExt::from_mode(mode));
        if !geteuid().is_root() && mode & 0o200 == 0 {
            // fusermount3 mounts only where its user may write.
            set(mode | 0o200).map_err(refused)?;
        }
        let mounted = mount_recorded(&self.fs, point, self.work.path(), options);
        let after = if mounted.is_ok() { mode & !0o222 } else { mode };
        if let Err(error) = set(after) {
            tracing::warn!(point = %point.display(), err = %error, "keep programs from writing below the mount");
        }
        mounted
    }

    /// Tells how much room the log has, where its disk is known.
    pub fn set_room(&self, room: Room) {
        self.recorder.set_room(Some(room));
    }

    /// Waits until the log is not ours any more, or failed for good.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let log = self.log.clone();
        async move {
            log.until_ended().await;
        }
    }

    /// What a person is told when it is mounted.
    pub fn announcement(&self, broker: &str) -> String {
        let point = self.options.point.display();
        let origin = match self.found.origin {
            Origin::Fresh => "the log is new",
            Origin::Kept => "the backing files are those of before",
            Origin::Recovered => "the backing files were rebuilt from the log",
            Origin::Seeded => "the files were taken over into the log",
        };
        let promise = match self.options.fsync {
            FsyncWaits::ForLog => {
                "an fsync(2) that returned is in the log, and is as safe as its brokers make it"
            }
            FsyncWaits::ForNothing => {
                "fsync(2) returns at once and promises NOTHING (--fsync=enqueue)"
            }
        };
        let mut notes = String::new();
        for note in &self.found.notes {
            notes = format!("{notes}note: {note}\n");
        }
        format!(
            "recording {point} in {} of {broker}; {origin}\n\
             durability: {promise}\n\
             one writer: whoever records this log elsewhere takes it over, and changes fail here\n\
             {notes}end it with: gazfs umount {point}\n",
            self.options.log,
        )
    }
}
