//! How far the backing files are known to agree with the log.

use serde::{Deserialize, Serialize};

/// What a daemon leaves for the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Name of the log.
    pub log: String,
    /// The recorder that wrote it.
    pub author: u32,
    /// The log's offset up to which image and backing files agree.
    pub offset: i64,
    /// What was going on.
    pub phase: Phase,
}

/// What was going on when a state was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The daemon had ended: the tree is what the log says at the offset, and it was synced.
    Clean,
    /// The daemon recorded: the tree is ahead of the log, or equal.
    Recording,
    /// An existing tree was being taken over: the log means nothing yet.
    Seeding,
}
