//! What a recovery results in.

use std::{path::PathBuf, sync::Arc};

use gazette_recoverylog_fsm::{Author, Fsm, Liveness, Mode, Timestamp, Tree};

use super::reached::Skipped;
use crate::image::NotRestored;

/// A directory that was recovered, and the state from which a recorder can go on.
#[derive(Debug)]
pub struct Recovered {
    /// The log.
    pub log: Arc<str>,
    /// Its mode; `None` if nothing says it, as in an empty log.
    pub mode: Option<Mode>,
    /// The directory.
    pub path: PathBuf,
    /// Which ops counted, and what is live.
    pub fsm: Fsm,
    /// Names and attributes.
    pub tree: Tree,
    /// What of the log is live. A recorder that goes on with it leaves the rest out of hints. `None` for
    /// logs of mode `compat`.
    pub liveness: Option<Liveness>,
    /// Where the log ended when it was read, or the point if that is before it. All of it up to there was
    /// played, or skipped as the report says.
    pub write_head: i64,
    /// Behind the last group of ops that counts.
    pub offset: i64,
    /// Author of the last op.
    pub last_author: Option<Author>,
    /// Time of the last append.
    pub time: Option<Timestamp>,
    /// What was met on the way.
    pub report: Report,
}

/// What a recovery met.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Ops that were played.
    pub ops: u64,
    /// Ops that were left out: of dead branches, and repeated ones.
    pub dead_ops: u64,
    /// Bytes of logs that were read.
    pub bytes: u64,
    /// Files of all kinds that the directory has.
    pub files: u64,
    /// The hints that were used.
    pub hints: HintsUse,
    /// Bytes that hold no ops. One that is the log's tail was torn when its author died.
    pub skipped: Vec<Skipped>,
    /// Only the store was read: what was recorded from this offset on, if anything was, is not in it.
    pub unpersisted_from: Option<i64>,
    /// The primary broker could not be asked where the log ends; another broker's word was taken, which may be
    /// behind.
    pub is_head_uncertain: bool,
    /// The log takes over a tree, and did not come to the end of that: it means nothing yet.
    pub is_seed_cut: bool,
    /// The first of what was not restored.
    pub not_restored: Vec<NotRestored>,
    /// How much was not restored.
    pub not_restored_count: u64,
}

impl Report {
    /// The torn tail that was skipped, if there was one.
    pub fn torn_tail(&self) -> Option<&Skipped> {
        self.skipped.iter().find(|skipped| skipped.is_tail)
    }
}

/// Which hints a recovery used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintsUse {
    /// There are none, or none that are not beyond the point.
    #[default]
    None,
    /// They were not to be used.
    NotAsked,
    /// Those that the caller had.
    Given,
    /// Those of this offset.
    Of(i64),
}
