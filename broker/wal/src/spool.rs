//! Spool files: the content of one fragment of one journal, while it grows and until it is stored.

use std::{
    fmt,
    io::{self, IoSlice},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    disk::{Disk, DiskFile, OpenMode},
    options::Durability,
};

mod open_files;

use open_files::OpenFiles;

/// Locks, also where another thread panicked: no state here is ever half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder of all spool files of a log.
#[derive(Debug)]
pub(crate) struct SpoolFolder {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    durability: Durability,
    open_files: OpenFiles,
    /// Number of files made so far.
    made: AtomicU64,
    /// Number of files, in the order of their making, whose names are durable.
    names_synced: Mutex<u64>,
}

impl SpoolFolder {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        durability: Durability,
        open_files_max: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            disk,
            dir,
            durability,
            open_files: OpenFiles::new(open_files_max),
            made: AtomicU64::new(0),
            names_synced: Mutex::new(0),
        })
    }

    /// A spool whose file is made at its first write.
    pub(crate) fn create(self: &Arc<Self>, id: u64, begin: i64) -> SpoolFile {
        self.spool(
            id,
            begin,
            Slot {
                file: None,
                made: None,
            },
        )
    }

    /// A spool whose file is there, with a durable name.
    pub(crate) fn existing(self: &Arc<Self>, id: u64, begin: i64) -> SpoolFile {
        let spool = self.spool(
            id,
            begin,
            Slot {
                file: None,
                made: Some(0),
            },
        );
        spool.keep();
        spool
    }

    fn spool(self: &Arc<Self>, id: u64, begin: i64, slot: Slot) -> SpoolFile {
        SpoolFile(Arc::new(Spool {
            id,
            begin,
            path: self.dir.join(file_name(id)),
            folder: Arc::clone(self),
            slot: Mutex::new(slot),
            syncing: Mutex::new(()),
            dirty: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
        }))
    }

    /// Closes the files that nobody used since the previous call, synced.
    pub(crate) fn close_idle(&self) -> io::Result<()> {
        self.open_files.close_idle()
    }

    /// Makes the names of the first `made` files durable. One call of the disk serves all callers
    /// that wait for it.
    fn sync_names(&self, made: u64) -> io::Result<()> {
        let mut synced = lock(&self.names_synced);
        if *synced < made {
            // A file that is made from here on may be missing from what the disk syncs.
            let now = self.made.load(Ordering::Acquire);
            self.disk.sync_dir(&self.dir)?;
            *synced = now;
        }
        Ok(())
    }
}

/// The name of a spool's file.
pub(crate) fn file_name(id: u64) -> String {
    format!("{id:016x}.spool")
}

/// The spool that a file name belongs to.
pub(crate) fn parse_file_name(name: &str) -> Option<u64> {
    let digits = name
        .strip_suffix(".spool")
        .filter(|digits| digits.len() == 16)?;
    let id = u64::from_str_radix(digits, 16).ok()?;
    (file_name(id) == name).then_some(id)
}

/// The file of one spool. A clone is the same spool.
///
/// Offsets are relative to the beginning of the spool. The file is made at the first write and is
/// opened when it is needed; descriptors are shared by all spools of a log and closed when they
/// are idle. All calls block, mostly only on the page cache.
///
/// A spool that no [`Commit`](crate::Commit) ever named vanishes with its last clone.
#[derive(Clone)]
pub struct SpoolFile(Arc<Spool>);

struct Spool {
    id: u64,
    begin: i64,
    path: PathBuf,
    folder: Arc<SpoolFolder>,
    slot: Mutex<Slot>,
    /// Held while the file is synced: who finds the file clean must not overtake a sync.
    syncing: Mutex<()>,
    /// There are bytes that no sync covers.
    dirty: AtomicBool,
    /// The descriptor was used since the last look at it.
    touched: AtomicBool,
    /// A commit named the spool, so that the file is the log's to remove.
    kept: AtomicBool,
    /// The spool is dropped; its file goes, or is gone.
    dropped: AtomicBool,
}

#[derive(Debug)]
struct Slot {
    file: Option<Arc<dyn DiskFile>>,
    /// The number of the file in the order of their making; none before it is made.
    made: Option<u64>,
}

impl SpoolFile {
    /// The journal's offset of the first byte of the file.
    pub fn begin(&self) -> i64 {
        self.0.begin
    }

    /// Where the file is, for messages.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Writes at an offset of the file. Nothing is promised about the bytes before a commit that
    /// covers them is acknowledged. A full disk fails with
    /// [`StorageFull`](io::ErrorKind::StorageFull); write again at the same place when there is
    /// room.
    pub fn write_at(&self, offset: u64, content: &[u8]) -> io::Result<()> {
        let file = self.open(true)?;
        let written = file.write_at(offset, &[IoSlice::new(content)]);
        // After the write, so that a sync that clears it covers the write. Also where it failed:
        // a part may be there.
        self.0.dirty.store(true, Ordering::Release);
        written
    }

    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file. What lies beyond the
    /// acknowledged end of the spool is nobody's business.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.open(false)?.read_at(offset, buffer)
    }

    /// Opens the file to read for as long as the reader lives, also when the spool is dropped
    /// meanwhile. It counts on top of the limit of open files.
    pub fn reader(&self) -> io::Result<SpoolReader> {
        Ok(SpoolReader {
            file: self.open(false)?,
        })
    }

    /// Makes the bytes written so far durable, and the name of the file. [`Content::InSpool`]
    /// does it by itself. A failure is final for the broker: the system may have dropped the bytes,
    /// and a later call that succeeds proves nothing.
    ///
    /// [`Content::InSpool`]: crate::Content::InSpool
    pub fn sync(&self) -> io::Result<()> {
        let spool = &self.0;
        if spool.folder.durability == Durability::Replicated {
            return Ok(());
        }
        let _syncing = lock(&spool.syncing);
        if spool.dropped.load(Ordering::Acquire) {
            return Ok(());
        }
        let synced = self.sync_held();
        if synced.is_err() && spool.dropped.load(Ordering::Acquire) {
            // Dropped meanwhile: the file is gone, and nobody needs it.
            return Ok(());
        }
        synced
    }

    fn sync_held(&self) -> io::Result<()> {
        let spool = &self.0;
        if spool.dirty.swap(false, Ordering::AcqRel) {
            let synced = self.open(false).and_then(|file| file.sync_data());
            if synced.is_err() {
                spool.dirty.store(true, Ordering::Release);
                return synced;
            }
        }
        let made = lock(&spool.slot).made;
        made.map_or(Ok(()), |made| spool.folder.sync_names(made))
    }

    /// The length of the file, garbage of unacknowledged appends included; zero before the first
    /// write.
    pub fn len(&self) -> io::Result<u64> {
        if lock(&self.0.slot).made.is_none() {
            return Ok(0);
        }
        self.open(false)?.len()
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// A commit names the spool: from here on only its drop removes the file.
    pub(crate) fn keep(&self) {
        self.0.kept.store(true, Ordering::Release);
    }

    /// The spool is no more. From here on its file is neither made nor synced.
    pub(crate) fn mark_dropped(&self) {
        self.0.dropped.store(true, Ordering::Release);
    }

    /// Removes the file of a dropped spool. Not durable: a file that comes back after a power cut
    /// is removed when the log is opened.
    pub(crate) fn unlink(&self) -> io::Result<()> {
        let mut slot = lock(&self.0.slot);
        slot.file = None;
        if slot.made.is_none() {
            return Ok(());
        }
        match self.0.folder.disk.unlink(&self.0.path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
            _ => Ok(()),
        }
    }

    fn open(&self, to_write: bool) -> io::Result<Arc<dyn DiskFile>> {
        let spool = &self.0;
        spool.touched.store(true, Ordering::Relaxed);
        let mut slot = lock(&spool.slot);
        if let Some(file) = &slot.file {
            return Ok(Arc::clone(file));
        }
        let file = match slot.made {
            Some(_) => spool.folder.disk.open(&spool.path, OpenMode::Existing)?,
            None if to_write && !spool.dropped.load(Ordering::Acquire) => {
                let file = spool.folder.disk.open(&spool.path, OpenMode::Create)?;
                slot.made = Some(spool.folder.made.fetch_add(1, Ordering::AcqRel) + 1);
                file
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        slot.file = Some(Arc::clone(&file));
        drop(slot);
        spool.folder.open_files.opened(spool);
        Ok(file)
    }
}

impl fmt::Debug for SpoolFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpoolFile")
            .field("id", &self.0.id)
            .field("begin", &self.0.begin)
            .finish()
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
        if slot.made.is_some() && !*self.kept.get_mut() {
            // Best effort: what stays is removed when the log is opened.
            drop(self.folder.disk.unlink(&self.path));
        }
    }
}

/// An open spool file that outlives the drop of its spool.
#[derive(Clone, Debug)]
pub struct SpoolReader {
    file: Arc<dyn DiskFile>,
}

impl SpoolReader {
    /// Reads up to `buffer.len()` bytes at an offset of the file; fewer only at its end.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buffer)
    }
}

#[cfg(test)]
mod tests;
