//! A disk in memory that crashes, loses power, fails and fills up on request.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{self, IoSlice},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Disk, DiskFile, OpenMode};

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// How a [`SimDisk`] goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process ends; the system goes on, and has all that was written.
    Kill,
    /// The power goes: of each sector and each name that was not synced it is open whether it is
    /// the old one or the new one.
    PowerCut {
        /// Decides which.
        seed: u64,
    },
}

/// A disk in memory. A clone is the same disk, as the same process sees it.
///
/// It counts the calls that change something or sync.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    /// Who holds this handle, by the number of restarts before it.
    process: u64,
}

#[derive(Default)]
struct State {
    processes: u64,
    folders: BTreeMap<PathBuf, Folder>,
    files: BTreeMap<u64, Content>,
    next_file: u64,
    calls: u64,
    crash_at: Option<u64>,
    fail_at: Option<(u64, io::ErrorKind)>,
    free_bytes: Option<u64>,
}

#[derive(Default)]
struct Folder {
    names: BTreeMap<String, u64>,
    synced: BTreeMap<String, u64>,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    /// Sectors that differ, or may.
    dirty: BTreeSet<usize>,
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self {
            state: Arc::default(),
            process: 0,
        }
    }

    /// Calls so far in this process that changed something or synced.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Ends the process in the call with this number: that one, if it writes, is done by half,
    /// and all later ones fail.
    pub fn crash_at(&self, call: u64) {
        self.lock().crash_at = Some(call);
    }

    /// Whether the process was ended.
    pub fn is_crashed(&self) -> bool {
        let state = self.lock();
        state.crash_at.is_some_and(|at| state.calls > at)
    }

    /// Fails the call with this number, and no other.
    pub fn fail_at(&self, call: u64, kind: io::ErrorKind) {
        self.lock().fail_at = Some((call, kind));
    }

    /// Lets files grow by this many bytes in all from now on, or by any number.
    pub fn set_free_bytes(&self, free_bytes: Option<u64>) {
        self.lock().free_bytes = free_bytes;
    }

    /// Ends the process and starts another one, whose disk this returns. Handles of the old one
    /// are dead.
    #[must_use]
    pub fn restart(&self, crash: Crash) -> Self {
        let mut state = self.lock();
        if let Crash::PowerCut { seed } = crash {
            state.cut_power(seed);
        }
        state.processes += 1;
        state.calls = 0;
        state.crash_at = None;
        state.fail_at = None;
        let process = state.processes;
        drop(state);
        Self {
            state: Arc::clone(&self.state),
            process,
        }
    }

    /// The bytes of a file, for tests that damage it.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.lock();
        let file = state.find(path)?;
        Ok(state.files[&file].bytes.clone())
    }

    /// Puts other bytes into a file, synced.
    pub fn damage(&self, path: &Path, bytes: Vec<u8>) -> io::Result<()> {
        let mut state = self.lock();
        let file = state.find(path)?;
        let content = state.files.entry(file).or_default();
        *content = Content {
            synced: bytes.clone(),
            bytes,
            dirty: BTreeSet::new(),
        };
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if the process still runs.
    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.lock();
        let crashed = state.crash_at.is_some_and(|at| state.calls > at);
        if crashed || state.processes != self.process {
            return Err(io::Error::other("the process was ended"));
        }
        Ok(state)
    }

    /// Counts a call. Returns whether the process ends in it.
    fn count(&self) -> io::Result<(MutexGuard<'_, State>, bool)> {
        let mut state = self.alive()?;
        let call = state.calls;
        state.calls += 1;
        if let Some((at, kind)) = state.fail_at
            && at == call
        {
            return Err(kind.into());
        }
        let crashes = state.crash_at == Some(call);
        Ok((state, crashes))
    }

    /// Counts a call that has no halves.
    fn count_whole(&self) -> io::Result<MutexGuard<'_, State>> {
        match self.count()? {
            (state, false) => Ok(state),
            (_, true) => Err(io::Error::other("the process was ended")),
        }
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk")
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

impl State {
    fn find(&self, path: &Path) -> io::Result<u64> {
        let (dir, name) = split(path)?;
        let folder = self.folders.get(dir).ok_or(io::ErrorKind::NotFound)?;
        folder
            .names
            .get(name)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn grow(&mut self, by: usize) -> io::Result<()> {
        if let Some(free) = &mut self.free_bytes {
            *free = free
                .checked_sub(by as u64)
                .ok_or(io::ErrorKind::StorageFull)?;
        }
        Ok(())
    }

    fn cut_power(&mut self, seed: u64) {
        let mut coin = Coin(seed);
        for folder in self.folders.values_mut() {
            let names: BTreeSet<String> = folder
                .names
                .keys()
                .chain(folder.synced.keys())
                .cloned()
                .collect();
            for name in names {
                let old = folder.synced.get(&name).copied();
                if folder.names.get(&name).copied() != old && coin.flip() {
                    match old {
                        Some(file) => folder.names.insert(name, file),
                        None => folder.names.remove(&name),
                    };
                }
            }
            folder.synced = folder.names.clone();
        }
        let named: BTreeSet<u64> = self
            .folders
            .values()
            .flat_map(|folder| folder.names.values().copied())
            .collect();
        self.files.retain(|file, _| named.contains(file));
        for content in self.files.values_mut() {
            let Content {
                bytes,
                synced,
                dirty,
            } = content;
            let length = if coin.flip() {
                bytes.len()
            } else {
                synced.len()
            };
            let mut kept = synced.clone();
            kept.resize(length.max(synced.len()), 0);
            for sector in std::mem::take(dirty) {
                let begin = sector * SECTOR_BYTES;
                let end = (begin + SECTOR_BYTES).min(bytes.len()).min(kept.len());
                if begin < end && coin.flip() {
                    kept[begin..end].copy_from_slice(&bytes[begin..end]);
                }
            }
            kept.truncate(length);
            synced.clone_from(&kept);
            *bytes = kept;
        }
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.alive()?.folders.entry(dir.to_path_buf()).or_default();
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.alive()?;
        let folder = state.folders.get(dir).ok_or(io::ErrorKind::NotFound)?;
        Ok(folder.names.keys().cloned().collect())
    }

    fn create_zeroed(&self, path: &Path, length: u64) -> io::Result<()> {
        let (mut state, crashes) = self.count()?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        // A crash leaves a part of it.
        let length = if crashes { length / 2 } else { length };
        state.grow(length)?;
        let content = Content {
            bytes: vec![0; length],
            synced: vec![0; length],
            dirty: BTreeSet::new(),
        };
        let file = state.next_file;
        state.next_file += 1;
        state.files.insert(file, content);
        let (dir, name) = split(path)?;
        let folder = state.folders.get_mut(dir).ok_or(io::ErrorKind::NotFound)?;
        folder.names.insert(name.to_owned(), file);
        if crashes {
            Err(io::Error::other("the process was ended"))
        } else {
            Ok(())
        }
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = match mode {
            OpenMode::Existing => self.alive()?.find(path)?,
            OpenMode::Create => {
                let mut state = self.count_whole()?;
                let (dir, name) = split(path)?;
                let next = state.next_file;
                let folder = state.folders.get_mut(dir).ok_or(io::ErrorKind::NotFound)?;
                let file = *folder.names.entry(name.to_owned()).or_insert(next);
                state.next_file = next + 1;
                state.files.entry(file).or_default().set_len(0);
                file
            }
        };
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            file,
        }))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut state = self.count_whole()?;
        let (dir, name) = split(path)?;
        let folder = state.folders.get_mut(dir).ok_or(io::ErrorKind::NotFound)?;
        folder.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.count_whole()?;
        let folder = state.folders.get_mut(dir).ok_or(io::ErrorKind::NotFound)?;
        folder.synced = folder.names.clone();
        Ok(())
    }
}

struct SimFile {
    disk: SimDisk,
    file: u64,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFile")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Content {
    fn set_len(&mut self, length: usize) {
        let from = self.bytes.len().min(length) / SECTOR_BYTES;
        let to = self.bytes.len().max(length).div_ceil(SECTOR_BYTES);
        self.dirty.extend(from..to);
        self.bytes.resize(length, 0);
    }
}

impl DiskFile for SimFile {
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let (mut state, crashes) = self.disk.count()?;
        let mut written: Vec<u8> = slices
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .collect();
        if crashes {
            written.truncate(written.len() / 2);
        }
        let begin = usize::try_from(offset).map_err(io::Error::other)?;
        let end = begin + written.len();
        let length = state
            .files
            .get(&self.file)
            .map_or(0, |content| content.bytes.len());
        state.grow(end.saturating_sub(length))?;
        let content = state
            .files
            .get_mut(&self.file)
            .ok_or(io::ErrorKind::NotFound)?;
        if end > length {
            content.set_len(end);
        }
        content.bytes[begin..end].copy_from_slice(&written);
        content
            .dirty
            .extend(begin / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
        if crashes {
            Err(io::Error::other("the process was ended"))
        } else {
            Ok(())
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.alive()?;
        let content = state.files.get(&self.file).ok_or(io::ErrorKind::NotFound)?;
        let begin = usize::try_from(offset).map_err(io::Error::other)?;
        let rest = content.bytes.get(begin..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.disk.alive()?;
        let content = state.files.get(&self.file).ok_or(io::ErrorKind::NotFound)?;
        Ok(content.bytes.len() as u64)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.count_whole()?;
        let content = state
            .files
            .get_mut(&self.file)
            .ok_or(io::ErrorKind::NotFound)?;
        content.set_len(usize::try_from(length).map_err(io::Error::other)?);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.count_whole()?;
        let content = state
            .files
            .get_mut(&self.file)
            .ok_or(io::ErrorKind::NotFound)?;
        let Content {
            bytes,
            synced,
            dirty,
        } = content;
        synced.resize(bytes.len(), 0);
        for sector in std::mem::take(dirty) {
            let begin = sector * SECTOR_BYTES;
            let end = (begin + SECTOR_BYTES).min(bytes.len());
            if begin < end {
                synced[begin..end].copy_from_slice(&bytes[begin..end]);
            }
        }
        Ok(())
    }
}

/// Folder and name of a path.
fn split(path: &Path) -> io::Result<(&Path, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    path.parent()
        .zip(name)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// A seed of coin flips (splitmix64).
struct Coin(u64);

impl Coin {
    fn flip(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) & 1 == 1
    }
}
