//! The door to the disk: what the log and its spools need of one, at the level of meaning.

use std::{
    fmt::Debug,
    io::{self, IoSlice},
    path::Path,
    sync::Arc,
};

mod real;
#[cfg(feature = "test-util")]
mod sim;

pub use real::RealDisk;
#[cfg(feature = "test-util")]
pub use sim::{Crash, SimDisk};

/// How [`Disk::open`] treats the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file must be there.
    Existing,
    /// The file is made, or emptied where it is there. Neither is durable before
    /// [`DiskFile::sync_data`] and [`Disk::sync_dir`].
    Create,
}

/// Folders and names. All calls block.
pub trait Disk: Debug + Send + Sync {
    /// Makes a folder and those above it where they are missing, and their names durable.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Names of the files in a folder, in ascending order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes a file of `length` zero bytes which are written and synced, so that a later sync of
    /// overwritten bytes has no metadata to write. Its name is not synced. Where it fails, no file
    /// is left.
    fn create_zeroed(&self, path: &Path, length: u64) -> io::Result<()>;

    /// Opens a file to read and write.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Removes a name. Files that are open stay readable.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Syncs several files. Where one fails, the others may or may not be synced.
    fn sync_files(&self, files: &[Arc<dyn DiskFile>]) -> io::Result<()> {
        files.iter().try_for_each(|file| file.sync_data())
    }
}

/// An open file. All calls block. `&self`: several threads may use one file.
#[expect(
    clippy::len_without_is_empty,
    reason = "a length on disk, not a collection"
)]
pub trait DiskFile: Debug + Send + Sync {
    /// Writes all slices, one after the other, from `offset` on.
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()>;

    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// The length of the file.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the file, or extends it by zeros.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Makes content and length durable.
    fn sync_data(&self) -> io::Result<()>;
}

#[cfg(test)]
mod tests;
