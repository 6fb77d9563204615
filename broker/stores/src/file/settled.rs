//! Which folders hold only entries that would survive a loss of power. Pure: the caller does the syncs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Remembers for each folder whether a sync has covered all its entries.
///
/// Folders are taken to be unsettled at first, as the process before this one may have died between a change
/// and its sync.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    folders: BTreeMap<PathBuf, Folder>,
}

#[derive(Debug, Default)]
struct Folder {
    is_settled: bool,
    /// Changes begun so far. A sync covers those that ended before it began.
    changes_begun: u64,
    /// Changes that are under way.
    changes_open: u32,
}

/// A sync of a folder that is about to begin.
#[derive(Debug)]
#[must_use]
pub(crate) struct Sync {
    changes_begun: u64,
    changes_open: u32,
}

impl Settled {
    /// Tells whether all entries of the folder last.
    pub(crate) fn is_settled(&self, folder: &Path) -> bool {
        self.folders
            .get(folder)
            .is_some_and(|folder| folder.is_settled)
    }

    /// To be called before an entry is changed.
    pub(crate) fn begin_change(&mut self, folder: &Path) {
        let folder = self.folders.entry(folder.to_owned()).or_default();
        folder.is_settled = false;
        folder.changes_begun += 1;
        folder.changes_open += 1;
    }

    /// To be called after the change, whether or not it worked, and before the sync that is to cover it.
    pub(crate) fn end_change(&mut self, folder: &Path) {
        let folder = self.folders.entry(folder.to_owned()).or_default();
        folder.changes_open = folder.changes_open.saturating_sub(1);
    }

    /// To be called before the folder is synced.
    pub(crate) fn begin_sync(&self, folder: &Path) -> Sync {
        let folder = self.folders.get(folder);
        Sync {
            changes_begun: folder.map_or(0, |folder| folder.changes_begun),
            changes_open: folder.map_or(0, |folder| folder.changes_open),
        }
    }

    /// To be called after the folder was synced without error.
    pub(crate) fn end_sync(&mut self, folder: &Path, sync: &Sync) {
        let folder = self.folders.entry(folder.to_owned()).or_default();
        // A change that was open, or begun since, may have missed the sync.
        folder.is_settled |= sync.changes_open == 0 && sync.changes_begun == folder.changes_begun;
    }
}

#[cfg(test)]
mod tests;
