//! Why a log could not be played.

use std::fmt::{self, Write as _};

use gazette_recoverylog_fsm::{FromHintsError, FsmError, OpError, Timestamp, TreeError};

use crate::{ImageError, SourceError};

/// Why a recovery failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RecoverError {
    /// The log or its hints could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The files could not be rebuilt.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The journal is no recovery log.
    #[error(
        "recover {log}: its content type is {found:?}, and that is no recovery log; next: name a journal that was recorded into"
    )]
    ContentType {
        /// The journal.
        log: String,
        /// What its label says; empty without one.
        found: String,
    },
    /// The hints cannot be used.
    #[error("recover {log}: {cause}; next: recover without hints (--no-hints), or with others")]
    Hints {
        /// The log.
        log: String,
        /// What is wrong with them.
        cause: Box<HintsFault>,
    },
    /// Something that is needed is gone from the log.
    #[error("recover {}: [{}, {}) is gone from the log, and {}; next: {}", .0.log, .0.begin, .0.end, .0.needed_by, .0.nearest)]
    Missing(Box<Missing>),
    /// A record is damaged, or one before it is missing.
    #[error("{0}")]
    Damaged(Box<Damage>),
    /// The log takes over a tree, and did not come to the end of that.
    #[error("recover {log}: it takes over a tree since offset {begin}, and ends before all of that is recorded; next: {}", seed_next(*before))]
    SeedIncomplete {
        /// The log.
        log: String,
        /// Where that began.
        begin: i64,
        /// An offset before it at which the log has a whole tree, if there is one.
        before: Option<i64>,
    },
    /// The log has no times.
    #[error("recover {log} as of a time: its ops carry no times; next: name an offset")]
    NoTimes {
        /// The log.
        log: String,
    },
    /// Nothing is as old as the point.
    #[error("recover {log} as of a time: its first op is of {}; next: name that time or a later one", show(*first))]
    BeforeFirst {
        /// The log.
        log: String,
        /// When it begins.
        first: Timestamp,
    },
    /// The point is behind the end.
    #[error("recover {log} as of offset {offset}: it ends at {head}{}; next: name an offset up to that", if *is_store { " as far as it is stored" } else { "" })]
    BehindHead {
        /// The log.
        log: String,
        /// The point.
        offset: i64,
        /// Where the log ends.
        head: i64,
        /// Only the store was read, which lacks what is at brokers.
        is_store: bool,
    },
    /// It was cancelled.
    #[error("recover {log}: cancelled at offset {offset}")]
    Cancelled {
        /// The log.
        log: String,
        /// How far it was.
        offset: i64,
    },
    /// The thread that plays ended.
    #[error("recover {log}: the thread that plays it ended; next: look at this process's log")]
    Thread {
        /// The log.
        log: String,
    },
}

/// What is wrong with hints.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HintsFault {
    /// They contradict themselves.
    #[error("its hints are not valid: {0}")]
    Invalid(#[from] FromHintsError),
    /// None can be decoded.
    #[error("none of its hints can be decoded: {0}")]
    Undecodable(String),
    /// They name what is behind the end of a log.
    #[error(
        "its hints name offset {offset} of {log}, which ends at {end}: content of the log may be lost"
    )]
    BeyondEnd {
        /// The log.
        log: String,
        /// What they name.
        offset: i64,
        /// Where the log ends.
        end: i64,
    },
    /// The log does not have the ops that they name.
    #[error(
        "its hints name op {seq_no} of author {author}, which was not found up to offset {end}: content of the log may be lost"
    )]
    Unused {
        /// Sequence number of the first op that was not found.
        seq_no: i64,
        /// Its author.
        author: u32,
        /// How far the log was read.
        end: i64,
    },
    /// A segment ends within an op.
    #[error("its hints name a segment that ends at offset {end} of {log}, within an op")]
    WithinOp {
        /// The log.
        log: String,
        /// Where the segment ends.
        end: i64,
    },
}

/// Something that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The log.
    pub log: String,
    /// The first offset that is gone.
    pub begin: i64,
    /// The offset behind the last.
    pub end: i64,
    /// Why it is needed.
    pub needed_by: NeededBy,
    /// What can be had instead.
    pub nearest: Nearest,
}

/// Why a range is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeededBy {
    /// There are no hints that do without it.
    Beginning,
    /// Hints name it.
    Hints,
    /// It follows upon what hints name.
    Following,
}

impl fmt::Display for NeededBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Beginning => "no hints do without it",
            Self::Hints => "hints name it",
            Self::Following => "it follows upon what hints name",
        })
    }
}

/// Points nearest to the wanted one that can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Nearest {
    /// The last before it.
    pub before: Option<i64>,
    /// The first after it.
    pub after: Option<i64>,
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.before, self.after) {
            (Some(before), Some(after)) => write!(
                f,
                "recover as of offset {before} (--at {before}), the nearest before, or {after}, the nearest after"
            ),
            (Some(before), None) => write!(
                f,
                "recover as of offset {before} (--at {before}), the nearest that can be had"
            ),
            (None, Some(after)) => write!(
                f,
                "recover as of offset {after} (--at {after}), the nearest that can be had"
            ),
            (None, None) => f.write_str("restore the fragments of that range into the store"),
        }
    }
}

/// Damage of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Damage {
    /// The log.
    pub log: String,
    /// Where it was noticed.
    pub offset: i64,
    /// When what is there was recorded, as far as the log tells: the time of the last good append.
    pub time: Option<Timestamp>,
    /// What was noticed.
    pub cause: DamageCause,
    /// Paths of the files that are affected for certain. More may be.
    pub files: Vec<Vec<u8>>,
    /// The last offset before the damage as of which the tree is good.
    pub good: i64,
}

/// What was noticed of damage.
#[derive(Debug, Clone, PartialEq)]
pub enum DamageCause {
    /// A frame or content is damaged.
    Record(OpError),
    /// An op does not follow upon the ones before it.
    Chain(FsmError),
    /// Content is cut short, and the log goes on.
    Cut,
    /// An op follows upon the ones before it, and cannot be done.
    Op(FsmError),
    /// An op does not fit the files that there are, or has a name that is refused.
    Tree(TreeError),
    /// The first op is not the first of a log, but the one of this number.
    NoBeginning(i64),
    /// A file is where no path leads to.
    Unreachable,
}

impl fmt::Display for DamageCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) => error.fmt(f),
            Self::Chain(error) => write!(f, "{error}: an op before it is damaged or missing"),
            Self::Cut => f.write_str("a record is cut short, and the log goes on behind it"),
            Self::Op(error) => write!(f, "an op cannot be done: {error}"),
            Self::Tree(error) => write!(f, "an op cannot be done: {error}"),
            Self::NoBeginning(seq_no) => write!(
                f,
                "the log begins with op {seq_no}, what was before it is gone, and no hints do without that"
            ),
            Self::Unreachable => f.write_str("a file is at a path that does not exist"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            log,
            offset,
            time,
            cause,
            files,
            good,
        } = self;
        write!(f, "recover {log}: damaged at offset {offset}")?;
        if let Some(time) = time {
            write!(f, " (after {})", show(*time))?;
        }
        write!(f, ": {cause}")?;
        if !files.is_empty() {
            f.write_str("; affected: ")?;
            for (index, file) in files.iter().enumerate() {
                if index > 0 {
                    f.write_str(", ")?;
                }
                f.write_str(&String::from_utf8_lossy(file))?;
            }
        }
        write!(
            f,
            "; next: restore the log's fragment, or recover as of offset {good} (--at {good}), which is before it"
        )
    }
}

fn seed_next(before: Option<i64>) -> String {
    let mut text = "record again with --seed, which begins it anew".to_owned();
    if let Some(before) = before {
        // A string takes all.
        let _infallible = write!(text, ", or recover as of offset {before} (--at {before})");
    }
    text
}

/// A time in UTC, as people write it.
pub(crate) fn show(time: Timestamp) -> String {
    let days = time.seconds.div_euclid(86_400);
    let second = time.seconds.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = time.nanos / 1_000_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years are counted from
/// March, so that the odd day is at their end.
fn civil(days: i64) -> (i64, i64, i64) {
    // Days since 0000-03-01, in eras of 400 years.
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let day = day - (153 * shifted + 2) / 5 + 1;
    let year = era * 400 + year + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests;
