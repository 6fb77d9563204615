//! The copy that a standby has, over FUSE: to be looked at, and never changed.
//!
//! Names and attributes are as the log says, whoever owns the staged files. Each answer is of one moment; the kernel
//! is asked to believe none of it for longer.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gazette_recoverylog::{
    fsm::{Fnode, Kind, Tree},
    standby::Copied,
};
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};

use super::{
    Filesystem, NewFile, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, SetAttributes,
    WriteRequest,
    wire::{Attributes, Capabilities, OpenFlags, Space, Time},
};

/// Answers the kernel's requests from the copy of a standby.
#[derive(Debug)]
pub struct Adapter {
    copied: Arc<Copied>,
    /// Open files, which outlast their names. One without content has none.
    handles: Mutex<BTreeMap<u64, Handle>>,
    next_handle: AtomicU64,
}

#[derive(Debug, Clone)]
enum Handle {
    /// A regular file. Its content may begin to be there later.
    File(Fnode, Option<Arc<File>>),
    /// Names of a directory, as they were when it was opened, with their numbers and kinds.
    Directory(Arc<Vec<(u64, u32, Vec<u8>)>>),
}

impl Adapter {
    /// Creates an adapter of a copy.
    pub fn new(copied: Arc<Copied>) -> Self {
        Self {
            copied,
            handles: Mutex::default(),
            next_handle: AtomicU64::new(1),
        }
    }

    fn look<R>(&self, look: impl FnOnce(&Tree) -> Result<R, Errno>) -> Result<R, Errno> {
        let found = self.copied.look(SETTLES_WITHIN, |tree, _| look(tree));
        found.unwrap_or(Err(Errno::IO))
    }

    fn handle(&self, handle: u64) -> Result<Handle, Errno> {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.get(&handle).cloned().ok_or(Errno::BADF)
    }

    fn open_handle(&self, handle: Handle) -> u64 {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.insert(number, handle);
        number
    }

    fn close(&self, handle: u64, reply: ReplyEmpty) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        drop(handles.remove(&handle));
        reply.ok();
    }

    fn content(&self, fnode: Fnode) -> Result<Option<Arc<File>>, Errno> {
        let opened = self.copied.look(SETTLES_WITHIN, |_, content| {
            content(fnode).map(|path| File::open(path))
        });
        match opened.flatten() {
            Some(Ok(file)) => Ok(Some(Arc::new(file))),
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Some(Err(_)) | None => Err(Errno::IO),
        }
    }

    fn read_content(&self, handle: u64, offset: u64, room: &mut [u8]) -> Result<usize, Errno> {
        let Handle::File(fnode, file) = self.handle(handle)? else {
            return Err(Errno::ISDIR);
        };
        let file = match file {
            Some(file) => Some(file),
            None => self.content(fnode)?,
        };
        // While nothing is played, so that no write is seen in part.
        let read = self
            .copied
            .look(SETTLES_WITHIN, |tree, _| -> io::Result<usize> {
                let size = tree.attributes(fnode).map(|attributes| attributes.size);
                let left = size.map_or(u64::MAX, |size| size.saturating_sub(offset));
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(room.len());
                let room = &mut room[..length];
                let filled = match &file {
                    Some(file) => fill(file, offset, room)?,
                    None => 0,
                };
                // A hole at the end is not in the staged file.
                if size.is_some() {
                    room[filled..].fill(0);
                    return Ok(length);
                }
                Ok(filled)
            });
        match read {
            Some(Ok(length)) => Ok(length),
            Some(Err(_)) | None => Err(Errno::IO),
        }
    }
}

fn fill(file: &File, offset: u64, room: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < room.len() {
        match file.read_at(&mut room[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Numbers of files for the kernel, to which 1 is the root directory.
fn ino(fnode: Fnode) -> u64 {
    match u64::try_from(fnode.0) {
        Ok(number) => number + 1,
        // A directory that only paths mention.
        Err(_) => IMPLICIT | fnode.0.unsigned_abs(),
    }
}

fn fnode(ino: u64) -> Fnode {
    let number = if ino & IMPLICIT == 0 {
        ino.saturating_sub(1).cast_signed()
    } else {
        -(ino & !IMPLICIT).cast_signed()
    };
    Fnode(number)
}

fn kind_bits(kind: Kind) -> u32 {
    match kind {
        Kind::Regular => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
    .as_raw_mode()
}

fn attributes(tree: &Tree, fnode: Fnode) -> Result<Attributes, Errno> {
    let kind = tree.kind(fnode).ok_or(Errno::NOENT)?;
    let unknown = gazette_recoverylog::fsm::Attributes::default();
    let found = tree.attributes(fnode).unwrap_or(&unknown);
    let usual = if kind == Kind::Directory {
        0o755
    } else {
        0o644
    };
    let mtime = found.mtime.unwrap_or_default();
    let time = |time: gazette_recoverylog::fsm::Timestamp| Time {
        seconds: time.seconds,
        nanos: time.nanos,
    };
    let links = if kind == Kind::Directory {
        let is_directory = |child| tree.kind(child) == Some(Kind::Directory);
        2 + tree
            .children(fnode)
            .filter(|(_, child)| is_directory(*child))
            .count()
    } else {
        tree.links(fnode).count()
    };
    let size = if kind == Kind::Symlink {
        found.target.len() as u64
    } else {
        found.size
    };
    Ok(Attributes {
        ino: ino(fnode),
        generation: 0,
        size,
        blocks: size.div_ceil(512),
        atime: time(found.atime.unwrap_or(mtime)),
        mtime: time(mtime),
        ctime: time(mtime),
        btime: None,
        mode: kind_bits(kind) | (found.mode.unwrap_or(usual) & 0o7777),
        nlink: u32::try_from(links).unwrap_or(u32::MAX),
        uid: found
            .uid
            .unwrap_or_else(|| rustix::process::geteuid().as_raw()),
        gid: found
            .gid
            .unwrap_or_else(|| rustix::process::getegid().as_raw()),
        rdev: u32::try_from(found.rdev).unwrap_or(0),
        block_bytes: 4096,
    })
}

impl Filesystem for Adapter {
    fn init(&self, _: Capabilities) -> Capabilities {
        Capabilities::NONE
    }

    fn lookup(&self, _: &Request, parent: u64, name: &[u8], reply: ReplyEntry) {
        let found = self.look(|tree| {
            let child = tree.lookup(fnode(parent), name).ok_or(Errno::NOENT)?;
            attributes(tree, child)
        });
        match found {
            Ok(found) => reply.entry(&found, Duration::ZERO, Duration::ZERO),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: u64, _: u64) {}

    fn getattr(&self, _: &Request, node: u64, _: Option<u64>, reply: ReplyAttr) {
        match self.look(|tree| attributes(tree, fnode(node))) {
            Ok(found) => reply.attr(&found, Duration::ZERO),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(&self, _: &Request, _: u64, _: Option<u64>, _: &SetAttributes, reply: ReplyAttr) {
        reply.error(Errno::ROFS);
    }

    fn readlink(&self, _: &Request, node: u64, reply: ReplyData) {
        let target = self.look(|tree| {
            let found = tree.attributes(fnode(node)).ok_or(Errno::NOENT)?;
            Ok(found.target.clone())
        });
        match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(&self, _: &Request, _: u64, _: &[u8], _: NewFile, _: u32, reply: ReplyEntry) {
        reply.error(Errno::ROFS);
    }

    fn mkdir(&self, _: &Request, _: u64, _: &[u8], _: NewFile, reply: ReplyEntry) {
        reply.error(Errno::ROFS);
    }

    fn unlink(&self, _: &Request, _: u64, _: &[u8], reply: ReplyEmpty) {
        reply.error(Errno::ROFS);
    }

    fn rmdir(&self, _: &Request, _: u64, _: &[u8], reply: ReplyEmpty) {
        reply.error(Errno::ROFS);
    }

    fn symlink(&self, _: &Request, _: u64, _: &[u8], _: &[u8], reply: ReplyEntry) {
        reply.error(Errno::ROFS);
    }

    fn rename(&self, _: &Request, _: (u64, &[u8]), _: (u64, &[u8]), _: u32, reply: ReplyEmpty) {
        reply.error(Errno::ROFS);
    }

    fn link(&self, _: &Request, _: u64, _: u64, _: &[u8], reply: ReplyEntry) {
        reply.error(Errno::ROFS);
    }

    fn open(&self, _: &Request, node: u64, flags: u32, reply: ReplyOpen) {
        let flags = OFlags::from_bits_retain(flags);
        if flags & OFlags::ACCMODE != OFlags::RDONLY || flags.contains(OFlags::TRUNC) {
            return reply.error(Errno::ROFS);
        }
        let fnode = fnode(node);
        match self.content(fnode) {
            // What was read before may have changed since.
            Ok(file) => reply.opened(
                self.open_handle(Handle::File(fnode, file)),
                OpenFlags::DIRECT,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn create(&self, _: &Request, _: u64, _: &[u8], _: NewFile, _: u32, reply: ReplyCreate) {
        reply.error(Errno::ROFS);
    }

    fn read(&self, _: &Request, handle: u64, offset: u64, size: u32, mut reply: ReplyData) {
        let size = usize::try_from(size).unwrap_or(0);
        match self.read_content(handle, offset, reply.room(size)) {
            Ok(length) => reply.filled(length),
            Err(error) => reply.error(error),
        }
    }

    fn write(&self, _: &Request, _: &WriteRequest<'_>, reply: ReplyWrite) {
        reply.error(Errno::ROFS);
    }

    fn release(&self, _: &Request, handle: u64, reply: ReplyEmpty) {
        self.close(handle, reply);
    }

    fn fsync(&self, _: &Request, _: u64, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _: &Request, node: u64, reply: ReplyOpen) {
        let directory = fnode(node);
        let lines = self.look(|tree| {
            let bits = kind_bits(Kind::Directory);
            let parent = tree.links(directory).next();
            let parent = parent.map_or(Fnode::ROOT, |(parent, _)| parent);
            let mut lines = vec![
                (node, bits, b".".to_vec()),
                (ino(parent), bits, b"..".to_vec()),
            ];
            for (name, child) in tree.children(directory) {
                let kind = tree.kind(child).unwrap_or_default();
                lines.push((ino(child), kind_bits(kind), name.to_vec()));
            }
            Ok(lines)
        });
        match lines {
            Ok(lines) => {
                let handle = Handle::Directory(Arc::new(lines));
                reply.opened(self.open_handle(handle), OpenFlags::NONE);
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, _: u64, handle: u64, offset: u64, mut reply: ReplyDirectory) {
        let lines = match self.handle(handle) {
            Ok(Handle::Directory(lines)) => lines,
            Ok(Handle::File(..)) => return reply.error(Errno::NOTDIR),
            Err(error) => return reply.error(error),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, (ino, bits, name)) in lines.iter().enumerate().skip(from) {
            if reply.add(*ino, index as u64 + 1, *bits, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, handle: u64, reply: ReplyEmpty) {
        self.close(handle, reply);
    }

    fn fsyncdir(&self, _: &Request, _: u64, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, reply: ReplyStatfs) {
        let counted = self.look(|tree| {
            let size = |fnode| tree.attributes(fnode).map_or(0, |found| found.size);
            let bytes: u64 = tree.fnodes().map(size).fold(0, u64::saturating_add);
            Ok((bytes, tree.fnodes().count() as u64))
        });
        match counted {
            Ok((bytes, files)) => reply.statfs(&Space {
                block_bytes: 4096,
                blocks: bytes.div_ceil(4096),
                free: 0,
                available: 0,
                files,
                files_free: 0,
                name_bytes_max: 255,
            }),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(&self, _: &Request, _: u64, _: &[u8], _: &[u8], _: u32, reply: ReplyEmpty) {
        reply.error(Errno::ROFS);
    }

    fn getxattr(&self, _: &Request, node: u64, name: &[u8], size: u32, reply: ReplyXattr) {
        let value = self.look(|tree| {
            let found = tree.attributes(fnode(node)).ok_or(Errno::NODATA)?;
            found.xattrs.get(name).cloned().ok_or(Errno::NODATA)
        });
        answer_xattr(reply, size, value.map(|value| value.to_vec()));
    }

    fn listxattr(&self, _: &Request, node: u64, size: u32, reply: ReplyXattr) {
        let names = self.look(|tree| {
            let mut names = Vec::new();
            for name in tree
                .attributes(fnode(node))
                .iter()
                .flat_map(|found| found.xattrs.keys())
            {
                names.extend_from_slice(name);
                names.push(0);
            }
            Ok(names)
        });
        answer_xattr(reply, size, names);
    }

    fn removexattr(&self, _: &Request, _: u64, _: &[u8], reply: ReplyEmpty) {
        reply.error(Errno::ROFS);
    }

    fn fallocate(&self, _: &Request, _: u64, _: u64, _: u64, _: u32, reply: ReplyEmpty) {
        reply.error(Errno::ROFS);
    }

    fn lseek(&self, _: &Request, handle: u64, offset: i64, whence: u32, reply: ReplyLseek) {
        // All of it is data: that is always right.
        let size = self.handle(handle).and_then(|handle| match handle {
            Handle::File(fnode, _) => self.look(|tree| Ok(attributes(tree, fnode)?.size)),
            Handle::Directory(_) => Err(Errno::INVAL),
        });
        match (size, u64::try_from(offset)) {
            (Err(error), _) => reply.error(error),
            (Ok(size), Ok(offset)) if offset < size => reply.offset(match whence {
                super::SEEK_HOLE => size,
                _ => offset,
            }),
            (Ok(_), _) => reply.error(Errno::NXIO),
        }
    }

    fn interrupt(&self, _: u64) {}
}

fn answer_xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    let value = match value {
        Ok(value) => value,
        Err(error) => return reply.error(error),
    };
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    if size == 0 {
        reply.size(length);
    } else if length > size {
        reply.error(Errno::RANGE);
    } else {
        reply.data(&value);
    }
}

/// How long a change may be under way of which only a part was read yet.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// Marks numbers of directories that only paths mention.
const IMPLICIT: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_a_number_that_leads_back_to_it() {
        assert_eq!(ino(Fnode::ROOT), 1);
        for number in [0, 1, 7, 1 << 40, -1, -9] {
            assert_eq!(fnode(ino(Fnode(number))), Fnode(number));
        }
    }
}
