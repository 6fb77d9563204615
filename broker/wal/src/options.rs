//! What a log is opened with.

use std::path::PathBuf;

use crate::{SEGMENT_MIN_BYTES, error::OpenError};

/// Segments that a log needs to work: the head, the one that follows, and one in reserve.
pub(crate) const SEGMENTS_MIN: usize = 3;

/// A page of the system, of which a segment is a multiple.
const PAGE_BYTES: u64 = 4096;

/// What an acknowledged append survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power cut: bytes and commit record are synced before the acknowledgement.
    Durable,
    /// The end of the process by any means, but not a power cut: nothing is ever synced.
    Replicated,
}

/// What a [`Log`](crate::Log) is opened with. Start from [`Options::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Folder of the segments of the log. It is created where it is missing.
    pub wal_dir: PathBuf,
    /// Folder of the spool files. It is created where it is missing.
    pub spool_dir: PathBuf,
    /// Length of one segment file, a multiple of 4 KiB and at least
    /// [`SEGMENT_MIN_BYTES`].
    pub segment_bytes: u64,
    /// Number of segment files, at least three. Grows by itself where the live state needs more.
    pub segments: usize,
    /// What an acknowledged append survives.
    pub durability: Durability,
    /// Spool files that are open at a time, at most. Readers that hold a file open come on top.
    pub open_files_max: usize,
}

impl Options {
    /// Durable, four segments of 16 MiB, 512 open spool files.
    pub fn new(wal_dir: impl Into<PathBuf>, spool_dir: impl Into<PathBuf>) -> Self {
        Self {
            wal_dir: wal_dir.into(),
            spool_dir: spool_dir.into(),
            segment_bytes: 16 << 20,
            segments: 4,
            durability: Durability::Durable,
            open_files_max: 512,
        }
    }

    /// Whether the values are in their ranges.
    pub(crate) fn validate(&self) -> Result<(), OpenError> {
        if self.segment_bytes < SEGMENT_MIN_BYTES
            || !self.segment_bytes.is_multiple_of(PAGE_BYTES)
            || u32::try_from(self.segment_bytes).is_err()
        {
            let must_be = "a multiple of 4096, at least 1048576, and less than 4294967296";
            return Err(OpenError::Option {
                name: "segment_bytes",
                must_be,
            });
        }
        if self.segments < SEGMENTS_MIN {
            return Err(OpenError::Option {
                name: "segments",
                must_be: "at least 3",
            });
        }
        Ok(())
    }
}
