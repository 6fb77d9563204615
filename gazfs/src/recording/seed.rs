//! Takes over an existing tree: it is copied into the recorded directory, as any program would copy
//! it, but without the kernel.

use std::{
    collections::HashMap,
    fs::{self, File, Metadata},
    io,
    os::{
        fd::AsFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{FileExt, FileTypeExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
};

use gazette_recoverylog::fsm::{Kind, Timestamp};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};
use thiserror::Error;

use super::xattrs::xattrs;
use crate::recorded::{
    Call, Change, FsError, HandleId, Ino, OpenFlags, Patience, RecordedFs, SetMode, TimeChange,
    Write, log::Log,
};

/// Why a tree was not taken over.
#[derive(Debug, Error)]
pub enum SeedError {
    /// It cannot be read.
    #[error("take over {}: {cause}; next: look at its owner and its mode", .path.display())]
    Read {
        /// What.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// It cannot be copied.
    #[error("take over {}: record a copy of it: {cause}; next: {}", .path.display(), next(*.cause))]
    Record {
        /// What.
        path: PathBuf,
        /// Why not.
        cause: FsError,
    },
    /// Somebody changes it.
    #[error(
        "take over {}: it changed while it was read; next: end the programs that use it, and start \
         again", .path.display()
    )]
    Changed {
        /// What.
        path: PathBuf,
    },
    /// The end is asked for.
    #[error("take over {}: cut short; next: start again, it is done anew", .path.display())]
    Cancelled {
        /// Where it was.
        path: PathBuf,
    },
}

fn next(cause: FsError) -> &'static str {
    match cause.errno() {
        Errno::PERM => "run as root, who may keep owners and make devices",
        Errno::NOSPC | Errno::DQUOT => "free space in the work folder's disk and in the log's",
        _ => "look at the log of this program",
    }
}

/// What was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seeded {
    /// Files of all kinds.
    pub files: u64,
    /// Bytes of content, without holes.
    pub bytes: u64,
}

/// Copies a tree into a file system that is empty. `is_cancelled` is asked now and then.
pub(super) fn seed<L: Log>(
    fs: &RecordedFs<L>,
    from: &Path,
    is_cancelled: &(dyn Fn() -> bool + Sync),
    tell: &dyn Fn(u64),
) -> Result<Seeded, SeedError> {
    let mut seeder = Seeder {
        fs,
        call: call(is_cancelled),
        is_cancelled,
        tell,
        linked: HashMap::new(),
        done: Seeded::default(),
        buffer: vec![0; CHUNK_BYTES],
    };
    let root = read(from, from.symlink_metadata())?;
    let entries = names(from)?;
    // A directory is finished after what lies in it, so that it keeps its time.
    let mut open = vec![(from.to_owned(), Ino::ROOT, root, entries)];
    while let Some((path, ino, metadata, entries)) = open.last_mut() {
        let Some(name) = entries.pop() else {
            seeder.attributes(path, *ino, metadata)?;
            if *ino != Ino::ROOT {
                fs.forget(*ino, 1);
            }
            open.pop();
            continue;
        };
        let below = path.join(std::ffi::OsStr::from_bytes(&name));
        let parent = *ino;
        let metadata = read(&below, below.symlink_metadata())?;
        if (seeder.is_cancelled)() {
            return Err(SeedError::Cancelled { path: below });
        }
        seeder.done.files += 1;
        if metadata.is_dir() {
            let made = fs.make_directory(&seeder.call, parent, &name, 0o700);
            let ino = seeder.recorded(&below, made)?.ino;
            let entries = names(&below)?;
            open.push((below, ino, metadata, entries));
        } else {
            seeder.entry(&below, parent, &name, &metadata)?;
        }
    }
    for ino in seeder.linked.into_values() {
        fs.forget(ino, 1);
    }
    Ok(seeder.done)
}

struct Seeder<'a, L: Log> {
    fs: &'a RecordedFs<L>,
    call: Call<'a>,
    is_cancelled: &'a (dyn Fn() -> bool + Sync),
    tell: &'a dyn Fn(u64),
    /// Files with several names, by device and inode of the source.
    linked: HashMap<(u64, u64), Ino>,
    done: Seeded,
    buffer: Vec<u8>,
}

impl<L: Log> Seeder<'_, L> {
    /// Takes anything over that is not a directory.
    fn entry(
        &mut self,
        path: &Path,
        parent: Ino,
        name: &[u8],
        metadata: &Metadata,
    ) -> Result<(), SeedError> {
        let key = (metadata.dev(), metadata.ino());
        if let Some(ino) = self.linked.get(&key) {
            let linked = self.fs.link(&self.call, *ino, parent, name);
            self.recorded(path, linked)?;
            // It is known from its first name on already.
            self.fs.forget(*ino, 1);
            return Ok(());
        }
        let kind = metadata.file_type();
        let ino = if kind.is_file() {
            self.file(path, parent, name, metadata)?
        } else if kind.is_symlink() {
            let target = read(path, fs::read_link(path))?;
            let made =
                self.fs
                    .make_symlink(&self.call, parent, name, target.as_os_str().as_bytes());
            self.recorded(path, made)?.ino
        } else {
            let (kind, rdev) = if kind.is_fifo() {
                (Kind::Fifo, 0)
            } else if kind.is_socket() {
                (Kind::Socket, 0)
            } else if kind.is_block_device() {
                (Kind::BlockDevice, metadata.rdev())
            } else {
                (Kind::CharDevice, metadata.rdev())
            };
            let made = self
                .fs
                .make_node(&self.call, parent, name, (kind, 0o600), rdev);
            self.recorded(path, made)?.ino
        };
        self.attributes(path, ino, metadata)?;
        if metadata.nlink() > 1 {
            self.linked.insert(key, ino);
        } else {
            self.fs.forget(ino, 1);
        }
        Ok(())
    }

    fn file(
        &mut self,
        path: &Path,
        parent: Ino,
        name: &[u8],
        metadata: &Metadata,
    ) -> Result<Ino, SeedError> {
        let source = read(path, File::open(path))?;
        let flags = OpenFlags {
            may_read: false,
            may_write: true,
            is_truncating: false,
            is_exclusive: true,
        };
        let made = self.fs.create(&self.call, parent, name, 0o600, flags);
        let created = self.recorded(path, made)?;
        let (ino, handle) = (created.attributes.ino, created.opened.handle);
        let copied = self.content(path, &source, handle, metadata.len());
        let copied = copied.and_then(|()| {
            let change = Change {
                size: Some(metadata.len()),
                ..Change::default()
            };
            let changed = self.fs.change(&self.call, ino, Some(handle), &change);
            self.recorded(path, changed).map(drop)
        });
        self.fs.close(handle);
        copied?;
        let after = read(path, source.metadata())?;
        if (after.len(), after.modified().ok()) != (metadata.len(), metadata.modified().ok()) {
            return Err(SeedError::Changed {
                path: path.to_owned(),
            });
        }
        Ok(ino)
    }

    /// Copies what is no hole.
    fn content(
        &mut self,
        path: &Path,
        source: &File,
        handle: HandleId,
        end: u64,
    ) -> Result<(), SeedError> {
        let mut at = 0;
        while at < end {
            let data = match seek(source.as_fd(), SeekFrom::Data(at)) {
                Ok(data) => data,
                // There is none behind it.
                Err(Errno::NXIO) => break,
                Err(error) => return read(path, Err(error.into())),
            };
            let hole = read(
                path,
                seek(source.as_fd(), SeekFrom::Hole(data)).map_err(Into::into),
            )?;
            at = data;
            while at < hole.min(end) {
                if (self.is_cancelled)() {
                    let path = path.to_owned();
                    return Err(SeedError::Cancelled { path });
                }
                let wanted = usize::try_from(hole.min(end) - at).unwrap_or(usize::MAX);
                let wanted = wanted.min(self.buffer.len());
                let length = read(path, source.read_at(&mut self.buffer[..wanted], at))?;
                if length == 0 {
                    let path = path.to_owned();
                    return Err(SeedError::Changed { path });
                }
                let write = Write {
                    handle,
                    offset: at,
                    data: &self.buffer[..length],
                    drops_privileges: false,
                };
                let written = self.fs.write(&self.call, &write);
                let written = self.recorded(path, written)? as u64;
                at += written;
                self.done.bytes += written;
                (self.tell)(self.done.bytes);
            }
        }
        Ok(())
    }

    /// Sets what is not content: the owner first, as that takes rights away; the time last.
    fn attributes(&self, path: &Path, ino: Ino, metadata: &Metadata) -> Result<(), SeedError> {
        let change = |change: Change| {
            let changed = self.fs.change(&self.call, ino, None, &change);
            self.recorded(path, changed).map(drop)
        };
        let now = self.fs.attributes(ino, None);
        let now = self.recorded(path, now)?;
        if (now.uid, now.gid) != (metadata.uid(), metadata.gid()) {
            change(Change {
                uid: Some(metadata.uid()),
                gid: Some(metadata.gid()),
                ..Change::default()
            })?;
        }
        if !metadata.is_symlink() {
            change(Change {
                mode: Some(metadata.mode() & 0o7777),
                ..Change::default()
            })?;
        }
        for (name, value) in read(path, xattrs(path))? {
            let set = self
                .fs
                .set_xattr(&self.call, ino, &name, &value, SetMode::Any);
            self.recorded(path, set)?;
        }
        let mtime = Timestamp {
            seconds: metadata.mtime(),
            nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or_default(),
        };
        change(Change {
            mtime: Some(TimeChange::To(mtime)),
            ..Change::default()
        })
    }

    fn recorded<T>(&self, path: &Path, result: Result<T, FsError>) -> Result<T, SeedError> {
        let path = || path.to_owned();
        result.map_err(|cause| match cause.errno() {
            Errno::INTR if (self.is_cancelled)() => SeedError::Cancelled { path: path() },
            _ => SeedError::Record {
                path: path(),
                cause,
            },
        })
    }
}

/// Removes what is there: what an earlier try took over.
pub(super) fn clear<L: Log>(
    fs: &RecordedFs<L>,
    is_cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<(), SeedError> {
    let call = call(is_cancelled);
    let record = |name: &[u8], cause| SeedError::Record {
        path: PathBuf::from(std::ffi::OsStr::from_bytes(name)),
        cause,
    };
    // Directories, each with the one it lies in and its name there.
    let mut open = vec![(Ino::ROOT, Ino::ROOT, Vec::new())];
    while let Some((ino, parent, name)) = open.last().cloned() {
        let entries = children(fs, ino).map_err(|cause| record(&name, cause))?;
        let mut directories = Vec::new();
        for child in entries {
            if is_cancelled() {
                let path = PathBuf::from(std::ffi::OsStr::from_bytes(&child));
                return Err(SeedError::Cancelled { path });
            }
            let found = fs.look_up(ino, &child);
            let found = found.map_err(|cause| record(&child, cause))?;
            if found.kind == Kind::Directory {
                directories.push((found.ino, ino, child));
            } else {
                let removed = fs.unlink(&call, ino, &child);
                fs.forget(found.ino, 1);
                removed.map_err(|cause| record(&child, cause))?;
            }
        }
        if directories.is_empty() {
            open.pop();
            if ino != Ino::ROOT {
                fs.remove_directory(&call, parent, &name)
                    .map_err(|cause| record(&name, cause))?;
                fs.forget(ino, 1);
            }
        } else {
            open.append(&mut directories);
        }
    }
    Ok(())
}

/// Names in a recorded directory.
fn children<L: Log>(fs: &RecordedFs<L>, ino: Ino) -> Result<Vec<Vec<u8>>, FsError> {
    let handle = fs.open_directory(ino)?;
    let mut names = Vec::new();
    let listed = fs.read_directory(handle, 0, |line| {
        if line.name != b"." && line.name != b".." {
            names.push(line.name.to_vec());
        }
        false
    });
    fs.close_directory(handle);
    listed.map(|()| names)
}

/// Lists a directory, last name first.
fn names(path: &Path) -> Result<Vec<Vec<u8>>, SeedError> {
    let entries = read(path, fs::read_dir(path))?;
    let names = entries.map(|entry| Ok(entry?.file_name().into_vec()));
    let mut names = read(path, names.collect::<io::Result<Vec<_>>>())?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// Root, who may do anything.
fn call(is_cancelled: &(dyn Fn() -> bool + Sync)) -> Call<'_> {
    Call {
        uid: 0,
        gid: 0,
        umask: 0,
        patience: Patience::Until(is_cancelled),
    }
}

fn read<T>(path: &Path, result: io::Result<T>) -> Result<T, SeedError> {
    result.map_err(|cause| SeedError::Read {
        path: path.to_owned(),
        cause,
    })
}

const CHUNK_BYTES: usize = 1 << 20;
