//! The open descriptors of all spools: bounded, and closed when they are idle.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, Weak, atomic::Ordering},
};

use super::{Spool, SpoolFile, lock};

/// A clock (second-chance) list of the spools with an open descriptor.
///
/// A lock of a spool's slot may be taken while the list is locked, never the other way round.
#[derive(Debug)]
pub(super) struct OpenFiles {
    max: usize,
    spools: Mutex<VecDeque<Weak<Spool>>>,
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl OpenFiles {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            spools: Mutex::new(VecDeque::new()),
        }
    }

    /// Takes note of an opened file, and closes others where there are too many.
    pub(super) fn opened(&self, spool: &Arc<Spool>) {
        let mut spools = lock(&self.spools);
        spools.push_back(Arc::downgrade(spool));
        // Twice round at most: the first round may only clear marks.
        let mut looks = spools.len() * 2;
        while spools.len() > self.max && looks > 0 {
            looks -= 1;
            let Some(other) = spools.pop_front() else {
                break;
            };
            let Some(open) = other.upgrade() else {
                continue;
            };
            if open.touched.swap(false, Ordering::Relaxed) {
                spools.push_back(other);
            } else {
                lock(&open.slot).file = None;
            }
        }
    }

    /// Closes what was not used since the previous call. It is synced first: a file that fails to
    /// be written back while nobody has it open might never tell.
    pub(super) fn close_idle(&self) -> io::Result<()> {
        let idle: Vec<Arc<Spool>> = lock(&self.spools)
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|spool| !spool.touched.swap(false, Ordering::Relaxed))
            .collect();
        for spool in idle {
            SpoolFile(Arc::clone(&spool)).sync()?;
            // Only now used again, or by the sync: look next time.
            if !spool.dirty.load(Ordering::Acquire) {
                lock(&spool.slot).file = None;
            }
        }
        lock(&self.spools).retain(|spool| {
            spool
                .upgrade()
                .is_some_and(|spool| lock(&spool.slot).file.is_some())
        });
        Ok(())
    }

    /// Number of open files.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        lock(&self.spools).len()
    }
}
