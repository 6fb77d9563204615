//! Files that are being rebuilt: staged by fnode while ops are played, and a tree at the end.
//!
//! While ops are played, each regular file that has content is `WORK/XX/FNODE` in a hidden folder beside the
//! target; names and attributes are in memory only. Whatever an op that turns out to be dead, torn or damaged
//! would have done to names is therefore never on the disk. At the end the tree is built in a second hidden
//! folder, which is then renamed to the target: the target appears complete, or not at all.

mod build;
mod error;
mod open_files;
mod target;

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use gazette_recoverylog_fsm::Fnode;
use rustix::fs::FallocateFlags;

pub(crate) use build::{BuildOptions, Built};
pub use build::{NotRestored, Refused};
pub use error::ImageError;

use open_files::OpenFiles;
use target::Target;

/// Files that are being rebuilt.
#[derive(Debug)]
pub(crate) struct Image {
    target: Target,
    open: OpenFiles,
}

impl Image {
    /// Claims the target, and starts without any file. Unfinished work of an earlier recovery to the same
    /// target is removed; anything else that stands in the way is an error.
    pub(crate) fn begin(target: &Path, log: &str) -> Result<Self, ImageError> {
        Ok(Self {
            target: Target::claim(target, log)?,
            open: OpenFiles::new(OPEN_FILES_MAX),
        })
    }

    /// Removes all staged files, so that the same target can be rebuilt anew.
    pub(crate) fn restart(&mut self) -> Result<(), ImageError> {
        self.open.clear();
        self.target.clear()
    }

    /// Writes content.
    pub(crate) fn write(
        &mut self,
        fnode: Fnode,
        offset: u64,
        data: &[u8],
    ) -> Result<(), ImageError> {
        self.with(fnode, "write", |file| file.write_all_at(data, offset))
    }

    /// Cuts a file, or grows it by a hole.
    pub(crate) fn truncate(&mut self, fnode: Fnode, size: u64) -> Result<(), ImageError> {
        self.with(fnode, "truncate", |file| file.set_len(size))
    }

    /// Makes a range a hole.
    pub(crate) fn punch(
        &mut self,
        fnode: Fnode,
        offset: u64,
        length: u64,
    ) -> Result<(), ImageError> {
        self.with(fnode, "punch a hole into", |file| {
            punch(file, offset, length)
        })
    }

    /// Makes a range read as zeros; the file grows if it ends before the range does, unless `keep_size`.
    pub(crate) fn zero(
        &mut self,
        fnode: Fnode,
        offset: u64,
        length: u64,
        keep_size: bool,
    ) -> Result<(), ImageError> {
        self.with(fnode, "zero", |file| {
            let mut flags = FallocateFlags::ZERO_RANGE;
            if keep_size {
                flags |= FallocateFlags::KEEP_SIZE;
            }
            match rustix::fs::fallocate(file, flags, offset, length) {
                Ok(()) => return Ok(()),
                Err(error) if is_unsupported(error) => {}
                Err(error) => return Err(error.into()),
            }
            let end = offset.saturating_add(length);
            punch(file, offset, length)?;
            if !keep_size && end > file.metadata()?.len() {
                file.set_len(end)?;
            }
            Ok(())
        })
    }

    /// Where the content of a file is, if it has any.
    pub(crate) fn content_path(&self, fnode: Fnode) -> PathBuf {
        self.target.staged(fnode)
    }

    /// Removes what is staged of a file.
    pub(crate) fn forget(&mut self, fnode: Fnode) -> Result<(), ImageError> {
        self.open.close(fnode);
        let path = self.target.staged(fnode);
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            // Without content, it was never staged.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(cause) => Err(ImageError::io("remove", &path, cause)),
        }
    }

    fn with(
        &mut self,
        fnode: Fnode,
        operation: &'static str,
        change: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), ImageError> {
        let target = &self.target;
        let file = self.open.get(fnode, || target.staged(fnode));
        file.and_then(change)
            .map_err(|cause| ImageError::io(operation, &target.staged(fnode), cause))
    }
}

fn punch(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, offset, length) {
        Ok(()) => Ok(()),
        Err(error) if is_unsupported(error) => write_zeros(file, offset, length),
        Err(error) => Err(error.into()),
    }
}

/// Where the file system knows no holes, zeros read the same.
fn write_zeros(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let end = offset.saturating_add(length).min(file.metadata()?.len());
    let zeros = vec![0; 1 << 16];
    let mut at = offset;
    while at < end {
        let count = usize::try_from(end - at).map_or(zeros.len(), |left| left.min(zeros.len()));
        file.write_all_at(&zeros[..count], at)?;
        at += count as u64;
    }
    Ok(())
}

fn is_unsupported(error: rustix::io::Errno) -> bool {
    matches!(
        error,
        rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS
    )
}

/// Where a file is staged below the folder of the work.
fn staged(work: &Path, fnode: Fnode) -> PathBuf {
    // Folders of some thousands of files stay fast.
    work.join(format!("{:02x}", fnode.0.rem_euclid(SHARDS)))
        .join(fnode.0.to_string())
}

/// Folders over which staged files are spread.
const SHARDS: i64 = 256;

/// A quarter of the usual limit of descriptors of a process.
const OPEN_FILES_MAX: usize = 256;

#[cfg(test)]
mod tests;
