//! What is to be recovered, and how.

use std::{fmt, path::PathBuf, sync::Arc};

use gazette_recoverylog_fsm::{FsmHints, Timestamp};
use tokio_util::sync::CancellationToken;

/// Up to where a log is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Point {
    /// All of it, as it is when the recovery begins.
    #[default]
    Head,
    /// As of the last group of ops that ends at this offset or before it.
    Offset(i64),
    /// As of the last append that was not recorded after this moment.
    Time(Timestamp),
}

/// Which hints are used.
#[derive(Debug, Clone, Default)]
pub enum HintsChoice {
    /// The newest that do not go beyond the point; without any, the log is played from its beginning.
    #[default]
    Newest,
    /// None: the log is played from its beginning.
    Never,
    /// These, as whoever keeps them elsewhere has them.
    These(Arc<FsmHints>),
}

/// How a log is recovered.
#[derive(Clone)]
pub struct RecoverOptions {
    /// The log.
    pub log: String,
    /// Where the directory is to appear. It must not exist, or be empty.
    pub to: PathBuf,
    /// Up to where.
    pub point: Point,
    /// Owners, devices and privileged attributes are restored, or it is an error. Otherwise what cannot be
    /// restored is listed in the report.
    pub restore_owner: bool,
    /// The directory is on the disk before it appears. Not needed where a lost one is recovered again.
    pub sync: bool,
    /// A tree that was not taken over to its end is recovered as far as it is, to be begun anew. Otherwise that
    /// is an error.
    pub takes_cut_seed: bool,
    /// Which hints are used.
    pub hints: HintsChoice,
    /// How many fragments are read at once.
    pub parallel: usize,
    /// Told how far it is, some times a second.
    pub progress: Option<Tell>,
    /// Ends it, and leaves nothing at the target.
    pub cancel: CancellationToken,
}

impl RecoverOptions {
    /// Recovers the head of a log to a path.
    pub fn new(log: impl Into<String>, to: impl Into<PathBuf>) -> Self {
        Self {
            log: log.into(),
            to: to.into(),
            point: Point::Head,
            restore_owner: true,
            sync: true,
            takes_cut_seed: false,
            hints: HintsChoice::Newest,
            parallel: 4,
            progress: None,
            cancel: CancellationToken::new(),
        }
    }
}

impl fmt::Debug for RecoverOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecoverOptions")
            .field("log", &self.log)
            .field("to", &self.to)
            .field("point", &self.point)
            .field("restore_owner", &self.restore_owner)
            .field("sync", &self.sync)
            .field("hints", &self.hints)
            .field("parallel", &self.parallel)
            .finish_non_exhaustive()
    }
}

/// Is told how far a recovery is.
pub type Tell = Arc<dyn Fn(Progress) + Send + Sync>;

/// How far a recovery is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// Bytes of logs that were played.
    pub bytes: u64,
    /// Bytes that are to be played.
    pub total_bytes: u64,
    /// Files that are live.
    pub files: u64,
    /// Bytes that were played per second, of late.
    pub bytes_per_second: f64,
}
