//! The door to the file system for what changes it.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Changes a file system. Nothing but what was synced is sure to survive a loss of power.
pub(crate) trait Disk: Send + Sync + fmt::Debug {
    /// Makes a folder whose parent exists.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes an empty file. It is an error if there is one.
    fn create_file(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file, in place of one that may be there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Makes the entries of a folder last.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// A new file.
pub(crate) trait DiskFile {
    /// Appends bytes.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes the bytes last.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file system of the operating system.
#[derive(Debug)]
pub(crate) struct OsDisk;

impl Disk for OsDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(FOLDER_MODE).create(path)
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(path)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl DiskFile for File {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Folders are not for everybody to look into.
const FOLDER_MODE: u32 = 0o750;
/// Nor are files; the group is that of other readers of the store.
const FILE_MODE: u32 = 0o640;
