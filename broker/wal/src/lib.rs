#![doc = include_str!("../README.md")]

mod disk;
mod error;
mod format;
mod log;
mod options;
mod spool;

#[cfg(feature = "test-util")]
pub use disk::{Crash, SimDisk};
pub use disk::{Disk, DiskFile, OpenMode, RealDisk};
pub use error::{Corruption, CorruptionCause, Failure, LogError, OpenError};
pub use log::{Ack, Commit, Content, JournalLog, Log, RecoveredJournal, RecoveredSpool, Roll};
pub use options::{Durability, Options};
pub use spool::{SpoolFile, SpoolReader};

/// Content that the log keeps a copy of, per commit, at most. A sync of a spool costs about as
/// much as writing this much twice.
pub const INLINE_MAX_BYTES: usize = 64 << 10;

/// A segment holds at least this much: the largest record several times over.
pub const SEGMENT_MIN_BYTES: u64 = 1 << 20;
