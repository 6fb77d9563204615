//! Few descriptors for many staged files.

use std::{
    collections::BTreeMap,
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use gazette_recoverylog_fsm::Fnode;

/// Keeps the files open that were used last.
#[derive(Debug)]
pub(super) struct OpenFiles {
    files: BTreeMap<Fnode, Open>,
    /// By the time of their last use, oldest first.
    used: BTreeMap<u64, Fnode>,
    clock: u64,
    max: usize,
}

#[derive(Debug)]
struct Open {
    file: File,
    used: u64,
}

impl OpenFiles {
    /// Keeps at most `max` files open.
    pub(super) fn new(max: usize) -> Self {
        Self {
            files: BTreeMap::new(),
            used: BTreeMap::new(),
            clock: 0,
            max,
        }
    }

    /// Returns the file, which is opened or made at `path` if it is not open.
    pub(super) fn get(
        &mut self,
        fnode: Fnode,
        path: impl FnOnce() -> PathBuf,
    ) -> io::Result<&File> {
        self.clock += 1;
        let now = self.clock;
        if !self.files.contains_key(&fnode) {
            if self.files.len() >= self.max
                && let Some((_, oldest)) = self.used.pop_first()
            {
                self.files.remove(&oldest);
            }
            let file = open(&path())?;
            self.files.insert(fnode, Open { file, used: now });
            self.used.insert(now, fnode);
        }
        let Some(open) = self.files.get_mut(&fnode) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if open.used != now {
            self.used.remove(&open.used);
            self.used.insert(now, fnode);
            open.used = now;
        }
        Ok(&open.file)
    }

    /// Closes a file, if it is open.
    pub(super) fn close(&mut self, fnode: Fnode) {
        if let Some(open) = self.files.remove(&fnode) {
            self.used.remove(&open.used);
        }
    }

    /// Closes all files.
    pub(super) fn clear(&mut self) {
        self.files.clear();
        self.used.clear();
    }
}

/// Opens or makes a file, and the folder of it.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    match (options.open(path), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().mode(0o700).create(folder)?;
            options.open(path)
        }
        (opened, _) => opened,
    }
}
