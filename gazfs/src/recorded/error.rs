//! Why an operation failed.

use rustix::io::Errno;
use thiserror::Error;

use super::log::Hold;

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FsError {
    /// For a reason that the program sees.
    #[error(transparent)]
    System(#[from] Errno),
    /// The log has no room now, and the call does not wait for any. Nothing was changed.
    #[error("the log has no room now")]
    Held,
}

impl FsError {
    /// The number that the program sees.
    pub fn errno(self) -> Errno {
        match self {
            Self::System(errno) => errno,
            Self::Held => Errno::AGAIN,
        }
    }
}

impl From<Hold> for FsError {
    fn from(hold: Hold) -> Self {
        match hold {
            Hold::Full => Self::Held,
            Hold::GivenUp => Self::System(Errno::INTR),
            Hold::NoSpace => Self::System(Errno::NOSPC),
            Hold::Refused(errno) => Self::System(errno),
            Hold::TimedOut | Hold::Ended => Self::System(Errno::IO),
        }
    }
}
