//! How far a playback came, and what it met.

use bytes::Bytes;
use gazette_recoverylog_fsm::{DecodedOp, Timestamp};

/// An op that was met.
#[derive(Debug, Clone)]
pub(crate) struct Met {
    pub(crate) decoded: DecodedOp,
    pub(crate) standing: Standing,
    /// Time of the append that it is part of, as far as the chain tells.
    pub(crate) time: Option<Timestamp>,
    /// The path that it names, or one of those of the file that it is about.
    pub(crate) path: Option<Bytes>,
}

/// Whether an op counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It took effect.
    Live,
    /// It is about a file that has no name any more, or that hints leave out.
    Untracked,
    /// It is of a dead branch, or repeats an earlier op.
    Dead,
}

/// How far a playback came, and what it met.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reached {
    /// Behind the last whole group.
    pub(crate) offset: i64,
    /// Behind the last whole group that a later op follows upon, which shows that it is what was recorded.
    pub(crate) proven: i64,
    /// Where a group began of which the last op is still to come.
    pub(crate) open_group: Option<i64>,
    /// Author of the last op of the chain.
    pub(crate) author: Option<u32>,
    /// Time of the last append.
    pub(crate) time: Option<Timestamp>,
    /// Where a seed began that is not complete, and the last offset before it.
    pub(crate) seed: Option<(i64, Option<i64>)>,
    /// Ops of the chain.
    pub(crate) ops: u64,
    /// Ops of dead branches, and repeated ones.
    pub(crate) dead_ops: u64,
    /// What was skipped.
    pub(crate) skipped: Vec<Skipped>,
}

/// Bytes of a log that were skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The log.
    pub log: String,
    /// The first byte.
    pub begin: i64,
    /// Behind the last.
    pub end: i64,
    /// They are the end of the log: a torn tail. Otherwise good ops follow, which show that nothing is missing.
    pub is_tail: bool,
}
