//! Writes of the file store that survive a crash at any point.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, DiskFile};
use super::settled::Settled;
use super::{PARTIAL_PREFIX, is_absent};
use crate::Content;

/// Changes the files of one store.
#[derive(Debug)]
pub(crate) struct Writer {
    disk: Arc<dyn Disk>,
    base: PathBuf,
    settled: Mutex<Settled>,
    partials: AtomicU64,
}

impl Writer {
    pub(crate) fn new(disk: Arc<dyn Disk>, base: PathBuf) -> Self {
        Self {
            disk,
            base,
            settled: Mutex::default(),
            partials: AtomicU64::new(0),
        }
    }

    /// Writes `content` to `path`, which is below the base. All or nothing, and for good once it is `Ok`.
    pub(crate) fn put(&self, path: &Path, content: &dyn Content) -> io::Result<()> {
        let folder = parent(path)?;
        let (partial, mut file) = self.create_partial(folder)?;

        let written = copy(content, file.as_mut())
            .and_then(|()| file.sync())
            .and_then(|()| self.change(folder, || self.disk.rename(&partial, path)));
        if written.is_err() {
            // Best effort: a leftover is never listed, and is removed in a day.
            drop(self.disk.remove_file(&partial));
        }
        written?;
        self.settle_parents(path)
    }

    /// Removes the file at `path`, if there is one, for good.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        let folder = parent(path)?;
        match self.change(folder, || self.disk.remove_file(path)) {
            Ok(()) => self.settle(folder),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes sure that the entries on the way from the base to `path` last.
    pub(crate) fn settle_parents(&self, path: &Path) -> io::Result<()> {
        path.ancestors()
            .skip(1)
            .take_while(|folder| folder.starts_with(&self.base))
            .try_for_each(|folder| self.settle(folder))
    }

    /// Makes sure that the entries of `folder` last.
    pub(crate) fn settle(&self, folder: &Path) -> io::Result<()> {
        let sync = {
            let settled = self.settled();
            if settled.is_settled(folder) {
                return Ok(());
            }
            settled.begin_sync(folder)
        };
        self.disk.sync_folder(folder)?;
        self.settled().end_sync(folder, &sync);
        Ok(())
    }

    /// Makes the file that is renamed once it is whole, and the folders that are missing.
    fn create_partial(&self, folder: &Path) -> io::Result<(PathBuf, Box<dyn DiskFile>)> {
        let mut may_create_folders = true;
        loop {
            let number = self.partials.fetch_add(1, Ordering::Relaxed);
            let name = format!("{PARTIAL_PREFIX}{:x}-{number:x}", std::process::id());
            let path = folder.join(name);
            match self.disk.create_file(&path) {
                Ok(file) => return Ok((path, file)),
                // Left behind by another process of the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && may_create_folders => {
                    self.create_folders(folder)?;
                    may_create_folders = false;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the folders from the base, which must be there, down to `folder`.
    fn create_folders(&self, folder: &Path) -> io::Result<()> {
        if folder == self.base {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("the store's folder {} is gone", folder.display()),
            ));
        }
        let above = parent(folder)?;
        let mut created = self.create_folder(above, folder);
        if matches!(&created, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            self.create_folders(above)?;
            created = self.create_folder(above, folder);
        }
        match created {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn create_folder(&self, above: &Path, folder: &Path) -> io::Result<()> {
        self.change(above, || self.disk.create_folder(folder))
    }

    /// Changes an entry of `folder`, which is unsettled from then on.
    fn change(&self, folder: &Path, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.settled().begin_change(folder);
        let result = call();
        self.settled().end_change(folder);
        result
    }

    fn settled(&self) -> MutexGuard<'_, Settled> {
        // A panic under the lock leaves a folder unsettled at worst.
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn copy(content: &dyn Content, file: &mut dyn DiskFile) -> io::Result<()> {
    let mut reader = content.open()?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut length = 0;
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                length += read as u64;
                file.write_all(&buffer[..read])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if length != content.len() {
        let promised = content.len();
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("content has {length} bytes where it promised {promised}"),
        ));
    }
    Ok(())
}

fn parent(path: &Path) -> io::Result<&Path> {
    path.parent()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Few calls for a fragment, little memory for many puts at a time.
const COPY_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests;
