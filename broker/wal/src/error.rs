//! What can go wrong, for the caller of a running log and for whoever opens one.

use std::{fmt, io, path::PathBuf, sync::Arc};

/// An operation of the disk that broke the log.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation} {}: {source}", path.display())]
pub struct Failure {
    /// What was tried, in the imperative.
    pub operation: &'static str,
    /// The file or folder on which it was tried.
    pub path: PathBuf,
    /// What the disk answered.
    #[source]
    pub source: Arc<io::Error>,
}

/// Why an entry of the log is not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The log broke, before or while the entry was written. It is unknown whether the entry is
    /// on the disk, and nothing is acknowledged until the log is opened again: after a failed
    /// sync, the system may have dropped the bytes, and a later sync that succeeds proves nothing.
    #[error("write-ahead log is broken: {0}; next: mend the disk and restart the broker")]
    Failed(Failure),
    /// The entry has too many registers. It is not in the log, and the log goes on.
    #[error(
        "record append: {bytes} bytes of registers are too many, {max} is the limit; next: remove registers"
    )]
    TooLarge {
        /// Bytes that the record would have.
        bytes: usize,
        /// Bytes that it may have.
        max: usize,
    },
    /// The log was closed before the entry was handed over. The entry is not in it.
    #[error("write-ahead log is closed; next: restart the broker")]
    Closed,
}

/// Why a log does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk refused.
    #[error("{0}; next: mend the cause and start again, nothing was changed that is needed")]
    Io(#[from] Failure),
    /// Something that was acknowledged is damaged or gone. Nothing was changed.
    #[error("{0}")]
    Corrupt(#[from] Corruption),
    /// An option is out of its range.
    #[error("open write-ahead log: {name} must be {must_be}; next: change it")]
    Option {
        /// The field of [`Options`](crate::Options).
        name: &'static str,
        /// The values that it may have.
        must_be: &'static str,
    },
}

/// Damage to what was acknowledged, found when a log is opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Corruption {
    /// The damaged file, a segment of the log or a spool.
    pub path: PathBuf,
    /// Where in the file.
    pub offset: u64,
    /// The journal, where it is known.
    pub journal: Option<String>,
    /// What was found there.
    pub cause: CorruptionCause,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recover {} at byte {}", self.path.display(), self.offset)?;
        if let Some(journal) = &self.journal {
            write!(f, " (journal {journal})")?;
        }
        write!(f, ": {}; next: ", self.cause)?;
        match self.cause {
            CorruptionCause::UnknownVersion { .. } => {
                f.write_str("start the version of the broker that wrote it")
            }
            CorruptionCause::NoLog { .. } => f.write_str(
                "put the folder of the log back, or move the spools away to start without them",
            ),
            CorruptionCause::DamagedRecord { .. }
            | CorruptionCause::DamagedHeader { .. }
            | CorruptionCause::MissingSegment { .. }
            | CorruptionCause::ShortSegment { .. }
            | CorruptionCause::NoHeader
            | CorruptionCause::NoTrim
            | CorruptionCause::Malformed(_)
            | CorruptionCause::MissingSpool { .. }
            | CorruptionCause::ShortSpool { .. } => f.write_str(
                "restore the data folder from a copy, or move it away to start empty; \
                 content that is in a fragment store is safe there",
            ),
        }
    }
}

/// What is wrong with what was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptionCause {
    /// A record fails its check although something later shows that it was synced.
    #[error(
        "the record fails its check, but the log goes on at {witness} and shows that it was synced"
    )]
    DamagedRecord {
        /// LSN of what shows it.
        witness: u64,
    },
    /// The header of a segment fails its check although something later shows that it was synced.
    #[error(
        "the segment's header fails its check, but the record at {witness} shows that it was synced"
    )]
    DamagedHeader {
        /// LSN of what shows it.
        witness: u64,
    },
    /// A segment of the log is not there.
    #[error("the segment of generation {generation} is missing")]
    MissingSegment {
        /// Its generation.
        generation: u64,
    },
    /// A segment of the log was cut.
    #[error("the segment is {actual} bytes long instead of {expected}")]
    ShortSegment {
        /// Length that it has.
        actual: u64,
        /// Length that it was made with.
        expected: u64,
    },
    /// No file of the log has a header that can be read, but they are not empty.
    #[error("no segment has a header that can be read")]
    NoHeader,
    /// No record says where the log begins.
    #[error("no record says where the log begins")]
    NoTrim,
    /// There is no log, but there are spools.
    #[error("there is no log, but there are {spools} spools that it should know")]
    NoLog {
        /// Number of spool files.
        spools: usize,
    },
    /// The log was written in another format.
    #[error("the format has version {found}, this broker knows {known}", known = crate::format::VERSION)]
    UnknownVersion {
        /// Version in the segment's header.
        found: u32,
    },
    /// A record passes its check but makes no sense.
    #[error("the record passes its check but {0}")]
    Malformed(&'static str),
    /// A spool file that holds acknowledged bytes is not there.
    #[error("the spool is missing, {expected} bytes of it were acknowledged")]
    MissingSpool {
        /// Length that was acknowledged.
        expected: u64,
    },
    /// A spool file lacks acknowledged bytes.
    #[error("the spool is {actual} bytes long, {expected} were acknowledged")]
    ShortSpool {
        /// Length that it has.
        actual: u64,
        /// Length that was acknowledged.
        expected: u64,
    },
}
