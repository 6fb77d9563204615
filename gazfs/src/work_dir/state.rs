//! How far the backing files are known to agree with the log.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

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
    /// On what the tree stood, while it is recorded. Without it the log is played.
    #[serde(default)]
    pub ground: Option<Ground>,
}

/// On what a tree stands, and who changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ground {
    /// The start of this machine: what was not synced is there as long as it runs.
    pub boot: String,
    /// The file system of the tree.
    pub device: u64,
    /// The inode of its root.
    pub root: u64,
    /// The recorders of all changes since the checkpoint.
    pub authors: Vec<u32>,
}

impl Ground {
    /// Looks at what a tree stands on. Nobody changed it yet.
    pub fn look(tree: &Path) -> io::Result<Self> {
        let root = tree.symlink_metadata()?;
        Ok(Self {
            boot: fs::read_to_string(BOOT_ID)?.trim().to_owned(),
            device: root.dev(),
            root: root.ino(),
            authors: Vec::new(),
        })
    }
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

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
