//! Listing of a folder and all below it.

use std::fs::{DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{PARTIAL_PREFIX, is_absent};
use crate::Listed;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Whole files, in the order of their paths, without the listed prefix.
    pub(super) objects: Vec<Listed>,
    /// Folders that hold them or lead to them.
    pub(super) folders: Vec<PathBuf>,
    /// Files being written, or left behind in that, with the times of their last change.
    pub(super) partials: Vec<(PathBuf, SystemTime)>,
}

/// Lists the files below `top` whose path there starts with `name_prefix`.
pub(super) fn walk(top: &Path, name_prefix: &str) -> io::Result<Walked> {
    let mut walked = Walked::default();
    // Folders still to be read, and their paths below the top, with a slash at the end.
    let mut pending = vec![(top.to_owned(), String::new())];
    while let Some((folder, relative)) = pending.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                tracing::warn!(path = %entry.path().display(), "skipped a file whose name is not UTF-8");
                continue;
            };
            let path = format!("{relative}{name}");
            // The prefix ends within the name of an entry of the top folder.
            if !path.starts_with(name_prefix) {
                continue;
            }
            let Some(metadata) = metadata_of(&entry)? else {
                continue;
            };
            if metadata.is_dir() {
                pending.push((entry.path(), format!("{path}/")));
            } else if name.starts_with(PARTIAL_PREFIX) {
                walked.partials.push((entry.path(), metadata.modified()?));
            } else if metadata.is_file() {
                walked.objects.push(Listed {
                    path: path[name_prefix.len()..].to_owned(),
                    mod_time: unix_seconds(metadata.modified()?),
                    size: metadata.len(),
                });
            }
        }
        walked.folders.push(folder);
    }
    walked.objects.sort_unstable();
    Ok(walked)
}

/// Removes the files that nobody can be writing any more.
pub(super) fn remove_stale(partials: &[(PathBuf, SystemTime)], now: SystemTime) {
    for (path, modified) in partials {
        let age = now.duration_since(*modified).unwrap_or_default();
        if age > PARTIAL_MAX_AGE {
            match std::fs::remove_file(path) {
                Ok(()) => tracing::info!(path = %path.display(), "removed an unfinished file"),
                Err(error) => {
                    tracing::debug!(path = %path.display(), %error, "kept an unfinished file");
                }
            }
        }
    }
}

/// Looks at an entry, through a link if it leads to a file. Links to folders may go in circles.
fn metadata_of(entry: &DirEntry) -> io::Result<Option<Metadata>> {
    let looked = entry.metadata().and_then(|metadata| {
        if !metadata.is_symlink() {
            return Ok(Some(metadata));
        }
        let target = std::fs::metadata(entry.path())?;
        Ok(target.is_file().then_some(target))
    });
    match looked {
        // It went away since the folder was read.
        Err(error) if is_absent(&error) => Ok(None),
        looked => looked,
    }
}

/// Returns whole seconds, and never 0, which would mean that the object is not stored.
fn unix_seconds(time: SystemTime) -> i64 {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(seconds.as_secs()).unwrap_or(i64::MAX).max(1)
}

/// No put takes a day.
const PARTIAL_MAX_AGE: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests;
