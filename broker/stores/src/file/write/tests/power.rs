//! A disk in memory that can fail, and whose power can be cut.

use std::collections::BTreeMap;

use super::super::*;

/// Where each entry and byte is: in the memory of the machine, or on the disk for good.
#[derive(Debug)]
pub(super) struct PowerDisk {
    state: Arc<Mutex<State>>,
    trouble: Trouble,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trouble {
    /// This call fails, counted from 0.
    pub(super) fail: Option<usize>,
    /// This call and all after it fail, as the power is gone.
    pub(super) cut: Option<usize>,
    /// Syncs of this kind say that they worked, but do nothing.
    pub(super) ignore: Option<Ignore>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ignore {
    FileSyncs,
    /// Syncs of folders as many levels below the root of the disk.
    FolderSyncs(usize),
}

/// What survives of what was not synced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Luck {
    /// Bit n: the entries of the n-th folder do.
    pub(super) folders: u32,
    /// How much of the unsynced bytes does.
    pub(super) bytes: Part,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    None,
    Half,
    All,
}

#[derive(Debug)]
struct State {
    calls: usize,
    inodes: Vec<Inode>,
}

#[derive(Debug, Clone)]
enum Inode {
    File { bytes: Vec<u8>, synced: usize },
    Folder { entries: Entries, synced: Entries },
}

type Entries = BTreeMap<String, usize>;

impl PowerDisk {
    /// Makes a disk with nothing but the folder `/`.
    pub(super) fn new(trouble: Trouble) -> Self {
        let root = Inode::Folder {
            entries: Entries::new(),
            synced: Entries::new(),
        };
        let state = State {
            calls: 0,
            inodes: vec![root],
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            trouble,
        }
    }

    /// Returns the same disk with other trouble to come.
    pub(super) fn with(&self, trouble: Trouble) -> Self {
        self.state.lock().unwrap().calls = 0;
        Self {
            state: Arc::clone(&self.state),
            trouble,
        }
    }

    pub(super) fn calls(&self) -> usize {
        self.state.lock().unwrap().calls
    }

    pub(super) fn folders(&self) -> u32 {
        let state = self.state.lock().unwrap();
        let folders = state.inodes.iter();
        let count = folders
            .filter(|i| matches!(i, Inode::Folder { .. }))
            .count();
        u32::try_from(count).unwrap()
    }

    /// Returns all files as they are now.
    pub(super) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.survivors(Luck {
            folders: u32::MAX,
            bytes: Part::All,
        })
    }

    /// Returns all files that are there after the power was cut.
    pub(super) fn survivors(&self, luck: Luck) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.lock().unwrap();
        let folders: Vec<usize> = (0..state.inodes.len())
            .filter(|at| matches!(state.inodes[*at], Inode::Folder { .. }))
            .collect();
        let mut files = BTreeMap::new();
        let mut pending = vec![(0, String::new())];
        while let Some((at, path)) = pending.pop() {
            match &state.inodes[at] {
                Inode::File { bytes, synced } => {
                    let length = match luck.bytes {
                        Part::None => *synced,
                        Part::Half => usize::midpoint(*synced, bytes.len()),
                        Part::All => bytes.len(),
                    };
                    files.insert(path, bytes[..length].to_vec());
                }
                Inode::Folder { entries, synced } => {
                    let number = folders.iter().position(|folder| *folder == at).unwrap();
                    let is_lucky = luck.folders >> number & 1 == 1;
                    let survived = if is_lucky { entries } else { synced };
                    for (name, inode) in survived {
                        pending.push((*inode, format!("{path}/{name}")));
                    }
                }
            }
        }
        files
    }

    fn call<T>(&self, call: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock().unwrap();
        let number = state.calls;
        state.calls += 1;
        let is_cut = self.trouble.cut.is_some_and(|cut| number >= cut);
        if is_cut || self.trouble.fail == Some(number) {
            return Err(io::Error::other("the disk failed"));
        }
        call(&mut state)
    }
}

impl State {
    fn find(&self, path: &Path) -> io::Result<usize> {
        let mut at = 0;
        for name in path.components().skip(1) {
            let name = name.as_os_str().to_str().unwrap();
            let Inode::Folder { entries, .. } = &self.inodes[at] else {
                return Err(io::ErrorKind::NotADirectory.into());
            };
            at = *entries.get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    fn entries(&mut self, folder: &Path) -> io::Result<&mut Entries> {
        let at = self.find(folder)?;
        match &mut self.inodes[at] {
            Inode::Folder { entries, .. } => Ok(entries),
            Inode::File { .. } => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn create(&mut self, path: &Path, inode: Inode) -> io::Result<usize> {
        let at = self.inodes.len();
        let entries = self.entries(path.parent().unwrap())?;
        if entries.contains_key(name(path)) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        entries.insert(name(path).to_owned(), at);
        self.inodes.push(inode);
        Ok(at)
    }

    fn take(&mut self, path: &Path) -> io::Result<usize> {
        let entries = self.entries(path.parent().unwrap())?;
        let taken = entries.remove(name(path));
        taken.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for PowerDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let folder = Inode::Folder {
            entries: Entries::new(),
            synced: Entries::new(),
        };
        self.call(|state| state.create(path, folder).map(drop))
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = Inode::File {
            bytes: vec![],
            synced: 0,
        };
        let at = self.call(|state| state.create(path, file))?;
        let disk = Self {
            state: Arc::clone(&self.state),
            trouble: self.trouble,
        };
        Ok(Box::new(PowerFile { disk, at }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| {
            let at = state.take(from)?;
            state
                .entries(to.parent().unwrap())?
                .insert(name(to).to_owned(), at);
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call(|state| state.take(path).map(drop))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let depth = path.components().count() - 1;
        let is_ignored = self.trouble.ignore == Some(Ignore::FolderSyncs(depth));
        self.call(|state| {
            let at = state.find(path)?;
            if let Inode::Folder { entries, synced } = &mut state.inodes[at]
                && !is_ignored
            {
                synced.clone_from(entries);
            }
            Ok(())
        })
    }
}

struct PowerFile {
    disk: PowerDisk,
    at: usize,
}

impl DiskFile for PowerFile {
    fn write_all(&mut self, new: &[u8]) -> io::Result<()> {
        self.disk.call(|state| {
            if let Inode::File { bytes, .. } = &mut state.inodes[self.at] {
                bytes.extend_from_slice(new);
            }
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let is_ignored = self.disk.trouble.ignore == Some(Ignore::FileSyncs);
        self.disk.call(|state| {
            if let Inode::File { bytes, synced } = &mut state.inodes[self.at]
                && !is_ignored
            {
                *synced = bytes.len();
            }
            Ok(())
        })
    }
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}
