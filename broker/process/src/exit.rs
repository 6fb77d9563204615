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

/// Returns the message of an error with those of its causes, but for causes that it tells
/// already.
pub fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_that_is_told_already_is_not_told_again() {
        let error = anyhow!("disk full")
            .context("write log: disk full")
            .context("start");
        assert_eq!(message(&error), "start: write log: disk full");
    }
}
