//! A disk that acknowledges writes to the log before it makes them: a planted fault.

use std::{
    io::{self, IoSlice},
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use gazette_wal::{Disk, DiskFile, OpenMode, RealDisk};

/// How late a write is.
const LATE: Duration = Duration::from_millis(50);

/// The real disk, but for the log's files, which are written late.
#[derive(Debug, Default)]
pub struct LateDisk {
    disk: RealDisk,
}

#[derive(Debug)]
struct LateFile {
    file: Arc<dyn DiskFile>,
    writes: mpsc::Sender<(u64, Vec<u8>)>,
}

impl LateFile {
    fn new(file: Arc<dyn DiskFile>) -> Self {
        let (writes, queue) = mpsc::channel::<(u64, Vec<u8>)>();
        let written = Arc::clone(&file);
        thread::spawn(move || {
            for (offset, bytes) in queue {
                thread::sleep(LATE);
                written
                    .write_at(offset, &[IoSlice::new(&bytes)])
                    .expect("a test's disk writes");
            }
        });
        Self { file, writes }
    }
}

impl Disk for LateDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create_zeroed(&self, path: &Path, length: u64) -> io::Result<()> {
        self.disk.create_zeroed(path, length)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, mode)?;
        let is_log = path.extension().is_some_and(|extension| extension == "wal");
        Ok(if is_log {
            Arc::new(LateFile::new(file))
        } else {
            file
        })
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.disk.unlink(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
}

impl DiskFile for LateFile {
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes = slices
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .collect();
        self.writes.send((offset, bytes)).map_err(io::Error::other)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}
