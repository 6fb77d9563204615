//! The same operations on a real directory, so that the model is no opinion. Only root may do all of
//! them; others compare nothing.
#![expect(
    clippy::disallowed_types,
    reason = "the crate does no I/O, but its model is checked by some"
)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File as Handle;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use gazette_recoverylog_fsm::image::BLOCK_BYTES;
use gazette_recoverylog_fsm::{
    AttributeChange, Attributes, Inode, Kind, Mutation, SizeChange, Timestamp,
};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec,
    Timestamps, Uid, XattrFlags,
};

use crate::files::{Files, View, Views};

pub(super) struct Real {
    root: tempfile::TempDir,
    /// Files that were created without a name, by their numbers in the model.
    unnamed: BTreeMap<usize, Handle>,
}

const KEEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: rustix::fs::UTIME_OMIT,
};

fn timespec(time: Timestamp) -> Timespec {
    Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanos.into(),
    }
}

impl Real {
    /// Makes an empty directory; `None` without the privilege to do all that the model does.
    pub(super) fn new(inode: &Inode) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let real = Self {
            root: tempfile::tempdir().unwrap(),
            unnamed: BTreeMap::new(),
        };
        Self::set_inode(real.root.path(), inode);
        Some(real)
    }

    fn path(&self, files: &Files, id: usize) -> PathBuf {
        if let Some(handle) = self.unnamed.get(&id) {
            use std::os::fd::AsRawFd as _;
            return format!("/proc/self/fd/{}", handle.as_raw_fd()).into();
        }
        if id == 0 {
            return self.root.path().to_owned();
        }
        let names = files.names();
        let (parent, name, _) = names.iter().find(|(_, _, of)| *of == id).unwrap();
        self.path(files, *parent).join(OsStr::from_bytes(name))
    }

    fn set_inode(path: &Path, inode: &Inode) {
        let owner = (
            Some(Uid::from_raw(inode.uid)),
            Some(Gid::from_raw(inode.gid)),
        );
        rustix::fs::chownat(CWD, path, owner.0, owner.1, Self::follow(path)).unwrap();
        if inode.kind != Kind::Symlink {
            rustix::fs::chmod(path, Mode::from_raw_mode(inode.mode)).unwrap();
        }
        Self::set_times(path, None, Some(inode.mtime));
    }

    /// Files without a name are reached through a link.
    fn follow(path: &Path) -> AtFlags {
        if path.starts_with("/proc") {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        }
    }

    fn set_times(path: &Path, atime: Option<Timestamp>, mtime: Option<Timestamp>) {
        let times = Timestamps {
            last_access: atime.map_or(KEEP, timespec),
            last_modification: mtime.map_or(KEEP, timespec),
        };
        rustix::fs::utimensat(CWD, path, &times, Self::follow(path)).unwrap();
    }

    /// Does a mutation of file `id`, before the model does. `id_of` finds the directories of places.
    pub(super) fn apply(
        &mut self,
        files: &Files,
        mutation: &Mutation<'_>,
        id: usize,
        id_of: impl Fn(gazette_recoverylog_fsm::Fnode) -> usize,
    ) {
        let place = |real: &Self, at: gazette_recoverylog_fsm::Place<'_>| {
            real.path(files, id_of(at.parent))
                .join(OsStr::from_bytes(at.name))
        };
        match *mutation {
            Mutation::Create { at: None, inode } => {
                let flags = OFlags::TMPFILE | OFlags::RDWR;
                let mode = Mode::from_raw_mode(0o600);
                let handle = rustix::fs::open(self.root.path(), flags, mode).unwrap();
                self.unnamed.insert(id, handle.into());
                Self::set_inode(&self.path(files, id), inode);
            }
            Mutation::Create {
                at: Some(at),
                inode,
            } => {
                let path = place(self, at);
                make(&path, inode);
                Self::set_inode(&path, inode);
            }
            Mutation::Link { at, .. } => {
                let (from, to) = (self.path(files, id), place(self, at));
                rustix::fs::linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW).unwrap();
                self.unnamed.remove(&id);
            }
            Mutation::Unlink { at } => {
                let is_directory = files.files[id].inode.kind == Kind::Directory;
                let flags = if is_directory {
                    AtFlags::REMOVEDIR
                } else {
                    AtFlags::empty()
                };
                rustix::fs::unlinkat(CWD, place(self, at), flags).unwrap();
            }
            Mutation::Rename { from, to, exchange } => {
                let flags = if exchange {
                    RenameFlags::EXCHANGE
                } else {
                    RenameFlags::empty()
                };
                let (from, to) = (place(self, from), place(self, to));
                rustix::fs::renameat_with(CWD, from, CWD, to, flags).unwrap();
            }
            Mutation::Write {
                offset,
                data,
                mtime,
                ..
            } => {
                let path = self.path(files, id);
                open(&path).write_all_at(data, offset).unwrap();
                Self::set_times(&path, None, Some(mtime));
            }
            Mutation::Size { change, mtime, .. } => {
                let path = self.path(files, id);
                resize(&open(&path), change);
                Self::set_times(&path, None, Some(mtime));
            }
            Mutation::Attributes { change, .. } => {
                let path = self.path(files, id);
                let AttributeChange {
                    mode,
                    uid,
                    gid,
                    atime,
                    mtime,
                } = change;
                let owner = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                rustix::fs::chownat(CWD, &path, owner.0, owner.1, Self::follow(&path)).unwrap();
                if let Some(mode) = mode.filter(|_| files.files[id].inode.kind != Kind::Symlink) {
                    rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).unwrap();
                }
                Self::set_times(&path, atime, mtime);
            }
            Mutation::SetXattr { name, value, .. } => {
                let path = self.path(files, id);
                if path.starts_with("/proc") {
                    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
                } else {
                    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
                }
            }
            Mutation::RemoveXattr { name, .. } => {
                let path = self.path(files, id);
                // What is not there cannot be removed; the model does not mind.
                let _removed = if path.starts_with("/proc") {
                    rustix::fs::removexattr(path, name)
                } else {
                    rustix::fs::lremovexattr(path, name)
                };
            }
            Mutation::Release { .. } => {
                self.unnamed.remove(&id);
            }
        }
    }

    /// A program that ends closes its files.
    pub(super) fn forget_unnamed(&mut self) {
        self.unnamed.clear();
    }

    /// What the directory shows, as far as the model has an opinion on it.
    pub(super) fn views(&self) -> Views {
        let mut paths = vec![(b"/".to_vec(), self.root.path().to_owned())];
        let mut waiting = vec![(Vec::new(), self.root.path().to_owned())];
        while let Some((base, directory)) = waiting.pop() {
            for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
                let path = [&base[..], b"/", entry.file_name().as_bytes()].concat();
                paths.push((path.clone(), entry.path()));
                if entry.file_type().unwrap().is_dir() {
                    waiting.push((path, entry.path()));
                }
            }
        }
        paths.sort();
        let mut first: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut views = Views::new();
        for (name, path) in paths {
            let inode = path.symlink_metadata().unwrap().ino();
            let same_as = first.entry(inode).or_insert_with(|| name.clone()).clone();
            views.insert(name, view(&path, same_as));
        }
        views
    }
}

/// Leaves out of the model's views what a real directory has its own mind about.
pub(super) fn comparable(mut views: Views) -> Views {
    for view in views.values_mut() {
        // A block of zeros is a hole or not, as the kernel likes; a hole reads as zeros.
        let is_zeros = |block: &u64| {
            let begin = (block * BLOCK_BYTES) as usize;
            let blocks = view.content.get(begin..).unwrap_or_default().iter();
            blocks.take(BLOCK_BYTES as usize).all(|byte| *byte == 0)
        };
        if let Some(data) = &mut view.data {
            data.retain(|block| !is_zeros(block));
        }
        let attributes = &mut view.attributes;
        attributes.atime = None;
        match attributes.kind {
            Kind::Directory => attributes.mtime = None,
            Kind::Symlink => attributes.mode = None,
            Kind::Regular | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {}
        }
    }
    views
}

fn open(path: &Path) -> Handle {
    Handle::options().read(true).write(true).open(path).unwrap()
}

fn make(path: &Path, inode: &Inode) {
    let node = |kind| {
        rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), inode.rdev).unwrap();
    };
    match inode.kind {
        Kind::Regular => node(FileType::RegularFile),
        Kind::Directory => std::fs::create_dir(path).unwrap(),
        Kind::Symlink => {
            std::os::unix::fs::symlink(OsStr::from_bytes(&inode.target), path).unwrap();
        }
        Kind::Fifo => node(FileType::Fifo),
        Kind::Socket => node(FileType::Socket),
        Kind::CharDevice => node(FileType::CharacterDevice),
        Kind::BlockDevice => node(FileType::BlockDevice),
    }
}

fn resize(handle: &Handle, change: SizeChange) {
    let keep = FallocateFlags::KEEP_SIZE;
    match change {
        SizeChange::Truncate { size } => handle.set_len(size).unwrap(),
        SizeChange::Punch { offset, length } => {
            let flags = FallocateFlags::PUNCH_HOLE | keep;
            rustix::fs::fallocate(handle, flags, offset, length).unwrap();
        }
        SizeChange::Zero {
            offset,
            length,
            keep_size,
        } => {
            let flags = FallocateFlags::ZERO_RANGE;
            let flags = if keep_size { flags | keep } else { flags };
            rustix::fs::fallocate(handle, flags, offset, length).unwrap();
        }
    }
}

fn view(path: &Path, same_as: Vec<u8>) -> View {
    let meta = path.symlink_metadata().unwrap();
    let kind = match FileType::from_raw_mode(meta.mode()) {
        FileType::RegularFile => Kind::Regular,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Unknown => panic!("{}", path.display()),
    };
    let is_regular = kind == Kind::Regular;
    let target = if kind == Kind::Symlink {
        std::fs::read_link(path)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .to_vec()
    } else {
        Vec::new()
    };
    let nanos = u32::try_from(meta.mtime_nsec()).unwrap();
    let attributes = Attributes {
        kind,
        mode: (kind != Kind::Symlink).then(|| meta.mode() & 0o7777),
        uid: Some(meta.uid()),
        gid: Some(meta.gid()),
        rdev: meta.rdev(),
        target: target.into(),
        atime: None,
        mtime: (kind != Kind::Directory).then_some(Timestamp {
            seconds: meta.mtime(),
            nanos,
        }),
        size: if is_regular { meta.size() } else { 0 },
        xattrs: xattrs(path),
    };
    let (content, data) = if is_regular {
        (
            std::fs::read(path).unwrap(),
            data_blocks(&open(path), meta.size()),
        )
    } else {
        (Vec::new(), Vec::new())
    };
    View {
        same_as,
        attributes,
        content,
        data: Some(data),
    }
}

fn xattrs(path: &Path) -> BTreeMap<bytes::Bytes, bytes::Bytes> {
    let mut names = vec![0u8; 65_536];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap();
    let names = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"trusted."));
    let value = |name: &[u8]| {
        let mut value = vec![0u8; 65_536];
        let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        value.truncate(length);
        value
    };
    names
        .map(|name| (name.to_vec().into(), value(name).into()))
        .collect()
}

fn data_blocks(handle: &Handle, size: u64) -> Vec<u64> {
    let mut blocks = Vec::new();
    let mut offset = 0;
    while offset < size {
        let Ok(begin) = rustix::fs::seek(handle, SeekFrom::Data(offset)) else {
            break;
        };
        let end = rustix::fs::seek(handle, SeekFrom::Hole(begin)).unwrap();
        blocks.extend(begin / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES));
        offset = end;
    }
    blocks
}
