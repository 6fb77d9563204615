//! The disk of the machine.

use std::{
    fs::{self, File},
    io::{self, IoSlice},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use super::{Disk, DiskFile, OpenMode};

/// Zeros are written in pieces of this size: large enough that the calls do not count.
static ZEROS: [u8; 1 << 18] = [0; 1 << 18];

/// Slices in one `pwritev`, the limit of Linux.
const SLICES_MAX: usize = 1024;

/// Syncs that run side by side in [`Disk::sync_files`]. A file system commits the metadata of
/// all of them at once, so that this many take little longer than one.
const PARALLEL_SYNCS: usize = 16;

/// The disk of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut missing: Vec<PathBuf> = Vec::new();
        let mut at = dir;
        while !at.try_exists()? {
            missing.push(at.to_path_buf());
            match at.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => at = parent,
                _ => break,
            }
        }
        for folder in missing.iter().rev() {
            match fs::create_dir(folder) {
                Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
                _ => {}
            }
            let parent = folder
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            self.sync_dir(parent.unwrap_or_else(|| Path::new(".")))?;
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_zeroed(&self, path: &Path, length: u64) -> io::Result<()> {
        let file = File::create_new(path)?;
        let filled = (|| {
            let mut at = 0;
            while at < length {
                let count = (length - at).min(ZEROS.len() as u64);
                file.write_all_at(&ZEROS[..usize::try_from(count).unwrap_or(0)], at)?;
                at += count;
            }
            file.sync_all()
        })();
        if filled.is_err() {
            // The first error is the one to tell. A file that stays is removed at the next open.
            drop(fs::remove_file(path));
        }
        filled
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let create = mode == OpenMode::Create;
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create(create)
            .truncate(create)
            .open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn sync_files(&self, files: &[Arc<dyn DiskFile>]) -> io::Result<()> {
        if files.len() < 2 {
            return files.iter().try_for_each(|file| file.sync_data());
        }
        let share = files.len().div_ceil(PARALLEL_SYNCS);
        let result = Mutex::new(Ok(()));
        thread::scope(|scope| {
            for chunk in files.chunks(share) {
                scope.spawn(|| {
                    if let Err(err) = chunk.iter().try_for_each(|file| file.sync_data()) {
                        *result.lock().unwrap_or_else(PoisonError::into_inner) = Err(err);
                    }
                });
            }
        });
        result.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn write_at(&self, mut offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        if let [slice] = slices {
            return self.0.write_all_at(slice, offset);
        }
        let mut slices = slices.to_vec();
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let some = &rest[..rest.len().min(SLICES_MAX)];
            match rustix::io::pwritev(&self.0, some, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(err) => return Err(err.into()),
            }
        }
        Ok(())
    }

    fn read_at(&self, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len();
        while !buffer.is_empty() {
            match self.0.read_at(buffer, offset) {
                Ok(0) => break,
                Ok(count) => {
                    offset += count as u64;
                    buffer = &mut buffer[count..];
                }
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
            }
        }
        Ok(wanted - buffer.len())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
