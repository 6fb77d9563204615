//! The exit codes that all programs share.

use std::process::ExitCode;

/// How a program ended, as its caller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// Everything asked for was done.
    Done,
    /// It was not done, and trying the same again is not expected to help.
    Failed,
    /// The arguments make no sense. Nothing was tried.
    Usage,
    /// It was done, but less well than asked for.
    Degraded,
    /// Somebody else owns or changed the object meanwhile.
    Fenced,
    /// It was not done, but the same may succeed later (`EX_TEMPFAIL`).
    TryLater,
}

impl ExitStatus {
    /// Returns the number given to the operating system.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Degraded => 3,
            Self::Fenced => 4,
            Self::TryLater => 75,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}
