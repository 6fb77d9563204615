//! Who calls, and how long he waits.

use std::fmt;

/// Who calls, and how long he waits.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The user as whom he acts.
    pub uid: u32,
    /// The group as which he acts.
    pub gid: u32,
    /// Bits that new files do not get, unless their directory has default access rights.
    pub umask: u32,
    /// How long he waits for room in the log.
    pub patience: Patience<'a>,
}

impl Call<'_> {
    /// Says whether he may write to files without losing their set-user-ID bits. The transport does
    /// not tell capabilities.
    pub(super) fn keeps_privileges(&self) -> bool {
        self.uid == 0
    }
}

/// How long a call waits for room in the log.
#[derive(Clone, Copy)]
pub enum Patience<'a> {
    /// Not at all: it ends with [`FsError::Held`](super::FsError::Held).
    None,
    /// Until this says that it gives up.
    Until(&'a dyn Fn() -> bool),
}

impl fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Until(_) => f.write_str("Until"),
        }
    }
}
