//! What can go wrong with a file, as the kernel and a person see it.
//!
//! The only place that knows which error number a cause has, and how loudly it is logged.

use std::{fmt, time::Duration};

use gazette_client::{AppendError, ClientError, ErrorKind, Outcome, ReadError};
use rustix::io::Errno;
use thiserror::Error;
use tracing::Level;

/// An operation on a file that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsError {
    /// What was to be done, as a verb.
    pub operation: &'static str,
    /// The journal or path that it was to be done to.
    pub object: String,
    /// Why it was not.
    pub cause: Cause,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Cause {
    /// No such file.
    #[error("it is not there")]
    NotFound,
    /// There is a file already.
    #[error("it is there already")]
    Exists,
    /// The directory is not empty.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The file is a directory.
    #[error("it is a directory")]
    IsDirectory,
    /// The file is not a directory.
    #[error("it is not a directory")]
    NotDirectory,
    /// No journal can have this name.
    #[error("a journal cannot have this name: {reason}")]
    BadName {
        /// Which rule it breaks.
        reason: String,
    },
    /// The name is too long.
    #[error("the name has {bytes} bytes, more than {max}")]
    NameTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Content of a journal cannot be changed, moved, or cut off.
    #[error("a journal only grows: {what}")]
    AppendOnly {
        /// What was tried.
        what: &'static str,
    },
    /// A write was not at the end.
    #[error("a journal is only written at its end: offset {offset} is not {end}")]
    NotAtEnd {
        /// Where the write was to go.
        offset: i64,
        /// Where the journal ended.
        end: i64,
    },
    /// Another writer was faster, so the write was not at the end any more.
    #[error("another writer was faster: the journal ended at {offset}")]
    Overtaken {
        /// Where the write was to go.
        offset: i64,
    },
    /// The write was to be the first of an empty journal, but another writer was faster, and it
    /// landed behind that one's.
    #[error("it landed at {landed}, because another writer was faster than this one at offset 0")]
    Displaced {
        /// Where it landed.
        landed: i64,
    },
    /// The journal does not take appends.
    #[error("the journal is read-only (flags O_RDONLY)")]
    ReadOnlyJournal,
    /// The journal cannot be read.
    #[error("the journal is write-only (flags O_WRONLY)")]
    WriteOnlyJournal,
    /// The file is open, but its journal was deleted.
    #[error("the journal was deleted")]
    Stale,
    /// Deleting was not allowed when the journals were mounted.
    #[error("deleting is not allowed here")]
    DeleteNotAllowed,
    /// Brokers did not answer in time.
    #[error("no answer within {} s", .waited.as_secs_f32())]
    TimedOut {
        /// How long it waited.
        waited: Duration,
        /// An append was sent, and may still land.
        is_outcome_unknown: bool,
    },
    /// The program that waited got a signal.
    #[error("the caller got a signal")]
    Interrupted {
        /// An append was sent, and may still land.
        is_outcome_unknown: bool,
    },
    /// The mount is ending.
    #[error("the mount is ending")]
    Ending,
    /// The broker has no room.
    #[error("the broker's disk is full: {text}")]
    NoSpace {
        /// What the client says.
        text: String,
    },
    /// A broker refused it.
    #[error("{text}")]
    Denied {
        /// What the client says.
        text: String,
    },
    /// No broker can be reached.
    #[error("{text}")]
    Away {
        /// What the client says.
        text: String,
    },
    /// A broker answered that it cannot do it now.
    #[error("{text}")]
    NotReady {
        /// What the client says.
        text: String,
    },
    /// Somebody else changed the same thing meanwhile.
    #[error("{text}")]
    Fenced {
        /// What the client says.
        text: String,
    },
    /// Anything else that the client reports.
    #[error("{text}")]
    Broker {
        /// What the client says.
        text: String,
        /// An append was sent, and may have landed.
        is_outcome_unknown: bool,
    },
    /// There is no such attribute.
    #[error("it has no such attribute")]
    NoAttribute,
    /// Attributes cannot be set.
    #[error("attributes are read-only")]
    ReadOnlyAttribute,
    /// An attribute does not fit into the caller's buffer.
    #[error("the buffer is too small")]
    BufferTooSmall,
    /// Owner and mode are those of the mount.
    #[error("{what} is that of the mount")]
    FixedAttribute {
        /// What was to be changed.
        what: &'static str,
    },
    /// Journals have no such operation.
    #[error("journals have no such operation")]
    Unsupported,
    /// There is no data, or no hole, from the offset on.
    #[error("there is nothing from the offset on")]
    NoData,
    /// The file is not open, or not for this.
    #[error("the file is not open for this")]
    BadHandle,
    /// An argument makes no sense.
    #[error("an argument makes no sense")]
    Invalid,
}

impl FsError {
    /// Creates the error of an operation.
    pub fn new(operation: &'static str, object: impl Into<String>, cause: Cause) -> Self {
        Self {
            operation,
            object: object.into(),
            cause,
        }
    }

    /// Returns the number that the caller gets.
    pub fn errno(&self) -> Errno {
        self.cause.errno()
    }

    /// Logs it, once: where the answer is given.
    pub fn log(&self) {
        match self.cause.level() {
            Level::ERROR => tracing::error!("{self}"),
            Level::WARN => tracing::warn!("{self}"),
            Level::INFO => tracing::info!("{self}"),
            _ => tracing::debug!("{self}"),
        }
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = if self.object.is_empty() {
            "/"
        } else {
            &self.object
        };
        write!(f, "{} {object}: {}", self.operation, self.cause)?;
        // The client's own texts say it themselves.
        if self.cause.is_outcome_unknown() && !matches!(self.cause, Cause::Broker { .. }) {
            f.write_str("; the outcome is unknown: it landed whole, or not at all")?;
        }
        match self.cause.next() {
            Some(next) => write!(f, "; next: {next}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FsError {}

impl Cause {
    /// Returns the number that the caller gets.
    pub fn errno(&self) -> Errno {
        match self {
            Self::NotFound => Errno::NOENT,
            Self::Exists => Errno::EXIST,
            Self::NotEmpty => Errno::NOTEMPTY,
            Self::IsDirectory => Errno::ISDIR,
            Self::NotDirectory => Errno::NOTDIR,
            Self::BadName { .. } | Self::Invalid => Errno::INVAL,
            Self::NameTooLong { .. } => Errno::NAMETOOLONG,
            Self::AppendOnly { .. }
            | Self::NotAtEnd { .. }
            | Self::Overtaken { .. }
            | Self::DeleteNotAllowed
            | Self::ReadOnlyAttribute
            | Self::FixedAttribute { .. } => Errno::PERM,
            Self::ReadOnlyJournal | Self::WriteOnlyJournal | Self::Denied { .. } => Errno::ACCESS,
            Self::Stale => Errno::STALE,
            Self::TimedOut { .. } => Errno::TIMEDOUT,
            Self::Interrupted { .. } => Errno::INTR,
            Self::NoSpace { .. } => Errno::NOSPC,
            Self::Fenced { .. } => Errno::AGAIN,
            Self::Displaced { .. }
            | Self::Ending
            | Self::Away { .. }
            | Self::NotReady { .. }
            | Self::Broker { .. } => Errno::IO,
            Self::NoAttribute => Errno::NODATA,
            Self::BufferTooSmall => Errno::RANGE,
            Self::Unsupported => Errno::OPNOTSUPP,
            Self::NoData => Errno::NXIO,
            Self::BadHandle => Errno::BADF,
        }
    }

    /// Returns how loudly it is logged: an ERROR asks somebody to look, a WARN says why something
    /// does not work although the program did nothing unusual.
    pub fn level(&self) -> Level {
        match self {
            Self::Displaced { .. } | Self::NoSpace { .. } | Self::Broker { .. } => Level::ERROR,
            Self::BadName { .. }
            | Self::TimedOut { .. }
            | Self::Away { .. }
            | Self::NotReady { .. }
            | Self::Denied { .. }
            | Self::Fenced { .. }
            | Self::ReadOnlyJournal
            | Self::Overtaken { .. } => Level::WARN,
            Self::AppendOnly { .. }
            | Self::NotAtEnd { .. }
            | Self::DeleteNotAllowed
            | Self::FixedAttribute { .. }
            | Self::WriteOnlyJournal
            | Self::Stale
            | Self::Interrupted { .. }
            | Self::Ending => Level::INFO,
            Self::NotFound
            | Self::Exists
            | Self::NotEmpty
            | Self::IsDirectory
            | Self::NotDirectory
            | Self::NameTooLong { .. }
            | Self::NoAttribute
            | Self::ReadOnlyAttribute
            | Self::BufferTooSmall
            | Self::Unsupported
            | Self::NoData
            | Self::BadHandle
            | Self::Invalid => Level::DEBUG,
        }
    }

    /// Says whether an append may have landed although it is reported as failed.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(
            self,
            Self::TimedOut {
                is_outcome_unknown: true,
                ..
            } | Self::Interrupted {
                is_outcome_unknown: true
            } | Self::Broker {
                is_outcome_unknown: true,
                ..
            }
        )
    }

    /// Says whether brokers did not do their part, so that it may work when they are back.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Away { .. })
    }

    /// What to do about it. The client's own texts say so themselves.
    fn next(&self) -> Option<&'static str> {
        match self {
            Self::BadName { .. } => Some(
                "use 4 to 512 bytes of letters, digits and -_+/.=%, with no empty, . or .. part",
            ),
            Self::AppendOnly { .. } => Some("append, or write a new journal"),
            Self::NotAtEnd { .. } | Self::Overtaken { .. } => {
                Some("open the file with O_APPEND (in a shell: >>)")
            }
            Self::Displaced { .. } => Some("use O_APPEND where several write to a new journal"),
            Self::ReadOnlyJournal | Self::WriteOnlyJournal => {
                Some("change the flags of its spec: gazctl journals edit")
            }
            Self::Stale => Some("open the file again"),
            Self::DeleteNotAllowed => {
                Some("mount with --allow-delete, or use gazctl journals delete")
            }
            Self::TimedOut { .. } => Some(
                "check that the broker runs and can be reached; --timeout says how long to wait",
            ),
            Self::FixedAttribute { .. } => Some("mount with --uid, --gid and --mode"),
            Self::Unsupported => Some("read and append instead"),
            Self::NotFound
            | Self::Exists
            | Self::NotEmpty
            | Self::IsDirectory
            | Self::NotDirectory
            | Self::NameTooLong { .. }
            | Self::Interrupted { .. }
            | Self::Ending
            | Self::NoSpace { .. }
            | Self::Denied { .. }
            | Self::Away { .. }
            | Self::NotReady { .. }
            | Self::Fenced { .. }
            | Self::Broker { .. }
            | Self::NoAttribute
            | Self::ReadOnlyAttribute
            | Self::BufferTooSmall
            | Self::NoData
            | Self::BadHandle
            | Self::Invalid => None,
        }
    }
}

impl From<ClientError> for Cause {
    fn from(error: ClientError) -> Self {
        of_kind(error.kind(), error.status().is_some(), &error, false)
    }
}

impl From<ReadError> for Cause {
    fn from(error: ReadError) -> Self {
        of_kind(error.kind(), error.status().is_some(), &error, false)
    }
}

impl From<AppendError> for Cause {
    fn from(error: AppendError) -> Self {
        let is_unknown = error.outcome() != Outcome::NotDone;
        of_kind(error.kind(), error.status().is_some(), &error, is_unknown)
    }
}

fn of_kind(
    kind: ErrorKind,
    is_answer: bool,
    error: &dyn fmt::Display,
    is_outcome_unknown: bool,
) -> Cause {
    let text = error.to_string();
    match kind {
        _ if is_outcome_unknown => Cause::Broker {
            text,
            is_outcome_unknown,
        },
        ErrorKind::Retry if is_answer => Cause::NotReady { text },
        ErrorKind::Retry => Cause::Away { text },
        ErrorKind::NotFound => Cause::Stale,
        ErrorKind::Denied => Cause::Denied { text },
        ErrorKind::Fenced => Cause::Fenced { text },
        ErrorKind::NoSpace => Cause::NoSpace { text },
        ErrorKind::Invalid | ErrorKind::Corrupt | ErrorKind::Cancelled | ErrorKind::Internal => {
            Cause::Broker {
                text,
                is_outcome_unknown,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_why_and_what_to_do() {
        let cause = Cause::NotAtEnd { offset: 3, end: 10 };
        assert_eq!(
            FsError::new("write", "app/log", cause).to_string(),
            "write app/log: a journal is only written at its end: offset 3 is not 10; next: open \
             the file with O_APPEND (in a shell: >>)"
        );
        let cause = Cause::TimedOut {
            waited: Duration::from_secs(30),
            is_outcome_unknown: true,
        };
        let text = FsError::new("write", "app/log", cause).to_string();
        assert!(
            text.contains("within 30 s; the outcome is unknown"),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_ever_answered_with_exdev() {
        let refused = [
            Cause::AppendOnly { what: "rename" },
            Cause::NotAtEnd { offset: 0, end: 1 },
            Cause::Overtaken { offset: 1 },
            Cause::DeleteNotAllowed,
        ];
        for cause in refused {
            assert_eq!(cause.errno(), Errno::PERM);
        }
    }
}
