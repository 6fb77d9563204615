#![doc = include_str!("../README.md")]
#![doc = include_str!("../FORMAT.md")]

mod disk;
mod error;
mod format;
mod journal;
mod ledger;
mod log;
pub mod metrics;
mod open;
mod options;
#[cfg(feature = "test-util")]
mod planted;
mod pool;
mod recover;
mod shared;
mod spool;
mod writer;

#[cfg(feature = "test-util")]
pub use disk::{Crash, SimDisk};
pub use disk::{Disk, DiskFile, OpenMode, RealDisk};
pub use error::{Corruption, CorruptionCause, Failure, LogError, OpenError};
pub use journal::JournalLog;
pub use log::{Ack, Commit, Content, Log, RecoveredJournal, RecoveredSpool, Roll};
pub use options::{Durability, Options};
#[cfg(feature = "test-util")]
pub use planted::Planted;
pub use spool::{SpoolFile, SpoolReader};

/// Content that the log keeps a copy of, per commit, at most. A sync of a spool costs about as
/// much as writing this much twice.
pub const INLINE_MAX_BYTES: usize = 64 << 10;

/// A record has at most this many bytes, content included: what is left is for registers.
pub const RECORD_MAX_BYTES: usize = 256 << 10;

/// A segment has at least this many bytes, several times the longest record.
pub const SEGMENT_MIN_BYTES: u64 = 1 << 20;
