//! Why files could not be rebuilt.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Why files could not be rebuilt.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImageError {
    /// The target holds something.
    #[error("recover to {}: it is not empty; next: name a new directory, or empty this one", .0.display())]
    NotEmpty(PathBuf),
    /// The target is something else than a directory.
    #[error("recover to {}: it is not a directory; next: name a new directory", .0.display())]
    NotDirectory(PathBuf),
    /// The target is a mount point, which cannot appear at once.
    #[error("recover to {}: it is a mount point, and a tree appears by a rename; next: name a new directory below it", .0.display())]
    MountPoint(PathBuf),
    /// The target has no name, as `/` and `..` have none.
    #[error("recover to {}: it has no name; next: name a new directory", .0.display())]
    NoName(PathBuf),
    /// What looks like unfinished work was not made by a recovery.
    #[error("recover: {} is in the way, and no recovery made it; next: move it away", .0.display())]
    Foreign(PathBuf),
    /// Another process recovers to the same target.
    #[error("recover: another process works in {}; next: wait for it, or end it", .0.display())]
    Busy(PathBuf),
    /// An operation on a file failed.
    #[error("{operation} {}: {cause}; next: {}", path.display(), next_of(cause))]
    Io {
        /// What was done.
        operation: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        cause: Arc<io::Error>,
    },
    /// Something of a file needs a privilege that this process lacks, or a file system that has it.
    #[error("{operation} {}: {cause}; next: recover as root to a file system that has it, or without owners (--no-owner), which restores what it can and lists the rest", path.display())]
    Unprivileged {
        /// What was done.
        operation: &'static str,
        /// To which file of the tree.
        path: PathBuf,
        /// Why it failed.
        cause: Arc<io::Error>,
    },
}

impl ImageError {
    pub(super) fn io(operation: &'static str, path: &Path, cause: impl Into<io::Error>) -> Self {
        Self::Io {
            operation,
            path: path.to_owned(),
            cause: Arc::new(cause.into()),
        }
    }
}

fn next_of(cause: &io::Error) -> &'static str {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the standard library adds kinds; the others have no better advice"
    )]
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space there, and recover again"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "let this process write there"
        }
        io::ErrorKind::NotFound => "make the directory above it first",
        _ => "look at the file system there, and recover again",
    }
}
