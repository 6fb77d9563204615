//! Faults planted on purpose, to show that tests of crashes would notice them.

use std::{io, io::IoSlice, path::Path, sync::Arc};

use crate::{
    disk::{Disk, DiskFile, OpenMode},
    error::OpenError,
    format::Checks,
    log::{Log, RecoveredJournal},
    options::Options,
};

/// What is left out.
#[expect(
    clippy::struct_excessive_bools,
    reason = "faults are planted one by one or together"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// The log is not synced.
    pub no_log_sync: bool,
    /// Spool files are not synced.
    pub no_spool_sync: bool,
    /// Folders are not synced.
    pub no_dir_sync: bool,
    /// Recovery does not check the sums of records.
    pub no_record_check: bool,
}

impl Log {
    /// The same as [`Log::open`], with faults.
    pub fn open_planted(
        options: Options,
        disk: Arc<dyn Disk>,
        planted: Planted,
    ) -> Result<(Self, Vec<RecoveredJournal>), OpenError> {
        let checks = Checks {
            records: !planted.no_record_check,
        };
        Self::open_checked(options, planted.wrap(disk), checks)
    }
}

impl Planted {
    /// A disk on which these syncs do nothing.
    pub(crate) fn wrap(self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        Arc::new(PlantedDisk {
            disk,
            planted: self,
        })
    }
}

#[derive(Debug)]
struct PlantedDisk {
    disk: Arc<dyn Disk>,
    planted: Planted,
}

#[derive(Debug)]
struct PlantedFile {
    file: Arc<dyn DiskFile>,
    no_sync: bool,
}

impl Disk for PlantedDisk {
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
        let no_sync = if is_log {
            self.planted.no_log_sync
        } else {
            self.planted.no_spool_sync
        };
        Ok(Arc::new(PlantedFile { file, no_sync }))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.disk.unlink(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.planted.no_dir_sync {
            Ok(())
        } else {
            self.disk.sync_dir(dir)
        }
    }
}

impl DiskFile for PlantedFile {
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.file.write_at(offset, slices)
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
        if self.no_sync {
            Ok(())
        } else {
            self.file.sync_data()
        }
    }
}
