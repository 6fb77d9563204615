//! Journals as files over FUSE.
//!
//! The thread that a request comes to answers what does not block, and hands the rest to the runtime,
//! whose threads answer later.

mod convert;

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};

use self::convert::{
    Cache, ENTRY_TTL, answer_attributes, answer_empty, answer_entry, answer_open, answer_xattr,
    errno, file_attributes, open_flags, time,
};
use super::{
    Filesystem, NewFile, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, SEEK_DATA, SEEK_HOLE,
    SetAttributes, WriteRequest,
    wire::{self, Capabilities, OpenFlags},
};
use crate::journals::{Caller, Change, FsError, HandleId, Ino, JournalFs, Kind, Read, Seek, Write};

/// Answers the kernel's requests from journals.
#[derive(Debug)]
pub struct Adapter {
    fs: JournalFs,
    /// Pages do not get stale by writes that go past them.
    is_coherent: AtomicBool,
}

impl Adapter {
    /// Creates an adapter of a file system.
    pub fn new(fs: JournalFs) -> Self {
        Self {
            fs,
            is_coherent: AtomicBool::new(false),
        }
    }

    fn cache(&self) -> Cache {
        if self.is_coherent.load(Ordering::Relaxed) {
            Cache::Coherent
        } else {
            Cache::Stale
        }
    }

    /// Leaves an answer to the runtime. If the runtime ends before it, the kernel gets EIO.
    fn later<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, FsError>> + Send + 'static,
        answer: impl FnOnce(Result<T, FsError>) + Send + 'static,
    ) {
        let _handle = self.fs.spawn(async move { answer(work.await) });
    }
}

/// What the kernel offers and we take, if it does. Not [`Capabilities::LINES_PLUS`]: names and sizes are
/// asked for each time, so attributes with a listing would be thrown away.
const WANTED: Capabilities =
    // The mount refuses to empty a journal while it opens it, not after that.
    Capabilities::ATOMIC_TRUNCATE
        .and(Capabilities::PARALLEL_DIRECTORY)
        // Without it each write is preceded by a look for security attributes.
        .and(Capabilities::HANDLE_KILL_PRIVILEGES)
        // Where files are read without the page cache, they can be mapped all the same.
        .and(Capabilities::DIRECT_MAP);

impl Filesystem for Adapter {
    fn init(&self, offered: Capabilities) -> Capabilities {
        // It came with what makes direct writes drop pages.
        let is_coherent = offered.has(Capabilities::DIRECT_MAP);
        self.is_coherent.store(is_coherent, Ordering::Relaxed);
        WANTED
    }

    fn lookup(&self, request: &Request, parent: u64, name: &[u8], reply: ReplyEntry) {
        let (fs, parent) = (self.fs.clone(), Ino(parent));
        if let Some(found) = fs.try_lookup(parent, name) {
            return answer_entry(reply, found);
        }
        let (caller, name) = (Caller::new(request.pid), name.to_owned());
        self.later(
            async move { fs.lookup(caller, parent, &name).await },
            |found| answer_entry(reply, found),
        );
    }

    fn forget(&self, _: u64, _: u64) {}

    fn getattr(&self, request: &Request, node: u64, handle: Option<u64>, reply: ReplyAttr) {
        let (fs, node) = (self.fs.clone(), Ino(node));
        if let Some(attributes) = fs.try_attributes(node)
            && (attributes.is_ok() || handle.is_none())
        {
            return answer_attributes(reply, attributes);
        }
        let (caller, handle) = (Caller::new(request.pid), handle.map(HandleId));
        self.later(
            async move { fs.attributes(caller, node, handle).await },
            |attributes| answer_attributes(reply, attributes),
        );
    }

    fn setattr(
        &self,
        request: &Request,
        node: u64,
        handle: Option<u64>,
        change: &SetAttributes,
        reply: ReplyAttr,
    ) {
        let (fs, node, caller) = (self.fs.clone(), Ino(node), Caller::new(request.pid));
        let handle = handle.map(HandleId);
        let change = Change {
            size: change.size,
            mode: change.mode,
            uid: change.uid,
            gid: change.gid,
            mtime: change.mtime.map(time),
        };
        self.later(
            async move { fs.change(caller, node, handle, change).await },
            |attributes| answer_attributes(reply, attributes),
        );
    }

    fn mknod(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        NewFile { mode, .. }: NewFile,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        if FileType::from_raw_mode(mode) != FileType::RegularFile {
            return reply.error(Errno::PERM);
        }
        let (fs, parent) = (self.fs.clone(), Ino(parent));
        let (caller, name) = (Caller::new(request.pid), name.to_owned());
        self.later(
            async move { fs.make_node(caller, parent, &name).await },
            |made| answer_entry(reply, made),
        );
    }

    fn mkdir(&self, _: &Request, parent: u64, name: &[u8], _: NewFile, reply: ReplyEntry) {
        answer_entry(reply, self.fs.make_directory(Ino(parent), name));
    }

    fn unlink(&self, request: &Request, parent: u64, name: &[u8], reply: ReplyEmpty) {
        let (fs, parent) = (self.fs.clone(), Ino(parent));
        let (caller, name) = (Caller::new(request.pid), name.to_owned());
        self.later(
            async move { fs.unlink(caller, parent, &name).await },
            |gone| answer_empty(reply, gone),
        );
    }

    fn rmdir(&self, _: &Request, parent: u64, name: &[u8], reply: ReplyEmpty) {
        answer_empty(reply, self.fs.remove_directory(Ino(parent), name));
    }

    fn symlink(&self, _: &Request, _: u64, name: &[u8], _: &[u8], reply: ReplyEntry) {
        answer_entry(reply, Err(JournalFs::refuse_move("link", name)));
    }

    fn rename(
        &self,
        _: &Request,
        (_, name): (u64, &[u8]),
        _: (u64, &[u8]),
        _: u32,
        reply: ReplyEmpty,
    ) {
        answer_empty(reply, Err(JournalFs::refuse_move("rename", name)));
    }

    fn link(&self, _: &Request, _: u64, _: u64, name: &[u8], reply: ReplyEntry) {
        answer_entry(reply, Err(JournalFs::refuse_move("link", name)));
    }

    fn open(&self, request: &Request, node: u64, flags: u32, reply: ReplyOpen) {
        let (fs, node, flags) = (self.fs.clone(), Ino(node), open_flags(flags));
        let cache = self.cache();
        if let Some(opened) = fs.try_open(node, flags) {
            return answer_open(reply, opened, cache);
        }
        let caller = Caller::new(request.pid);
        self.later(
            async move { fs.open(caller, node, flags).await },
            move |opened| answer_open(reply, opened, cache),
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        _: NewFile,
        flags: u32,
        reply: ReplyCreate,
    ) {
        let (fs, parent, flags) = (self.fs.clone(), Ino(parent), open_flags(flags));
        let (caller, name) = (Caller::new(request.pid), name.to_owned());
        let cache = self.cache();
        self.later(
            async move { fs.create(caller, parent, &name, flags).await },
            move |created| match created {
                Ok((attributes, opened)) => {
                    let opened = (opened.handle.0, convert::fopen_flags(opened, cache));
                    reply.created(&file_attributes(&attributes), ENTRY_TTL, opened, None);
                }
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn read(&self, request: &Request, handle: u64, offset: u64, size: u32, reply: ReplyData) {
        let handle = HandleId(handle);
        let read = Read {
            handle,
            offset,
            size,
        };
        let answer = |bytes: Result<Bytes, FsError>| match bytes {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        };
        if let Some(bytes) = self.fs.try_read(read) {
            return answer(bytes);
        }
        let (fs, caller) = (self.fs.clone(), Caller::new(request.pid));
        self.later(async move { fs.read(caller, read).await }, answer);
    }

    fn write(&self, request: &Request, write: &WriteRequest<'_>, reply: ReplyWrite) {
        let flags = OFlags::from_bits_retain(write.flags);
        let write = Write {
            handle: HandleId(write.handle),
            offset: write.offset,
            content: Bytes::copy_from_slice(write.data),
            is_append: flags.contains(OFlags::APPEND),
            // O_SYNC contains the bit of O_DSYNC.
            is_sync: flags.contains(OFlags::DSYNC),
            is_mapped: write.is_mapped,
        };
        let (fs, caller) = (self.fs.clone(), Caller::new(request.pid));
        self.later(
            async move { fs.write(caller, write).await },
            |written| match written {
                Ok(length) => reply.written(u32::try_from(length).unwrap_or(u32::MAX)),
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn flush(&self, request: &Request, handle: u64, reply: ReplyEmpty) {
        let (fs, handle, caller) = (self.fs.clone(), HandleId(handle), Caller::new(request.pid));
        if fs.is_flushed(handle) {
            return reply.ok();
        }
        self.later(async move { fs.flush(caller, handle).await }, |flushed| {
            answer_empty(reply, flushed);
        });
    }

    fn release(&self, _: &Request, handle: u64, reply: ReplyEmpty) {
        self.fs.release(HandleId(handle));
        reply.ok();
    }

    fn fsync(&self, request: &Request, handle: u64, reply: ReplyEmpty) {
        let (fs, handle, caller) = (self.fs.clone(), HandleId(handle), Caller::new(request.pid));
        if let Some(synced) = fs.try_sync(handle) {
            return answer_empty(reply, synced);
        }
        self.later(async move { fs.sync(caller, handle).await }, |synced| {
            answer_empty(reply, synced);
        });
    }

    fn opendir(&self, request: &Request, node: u64, reply: ReplyOpen) {
        let (fs, node, caller) = (self.fs.clone(), Ino(node), Caller::new(request.pid));
        self.later(
            async move { fs.open_directory(caller, node).await },
            |opened| match opened {
                Ok(handle) => reply.opened(handle.0, OpenFlags::NONE),
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn readdir(&self, _: &Request, node: u64, handle: u64, offset: u64, mut reply: ReplyDirectory) {
        let lines = match self.lines(Ino(node), HandleId(handle), offset) {
            Ok(lines) => lines,
            Err(error) => return reply.error(errno(&error)),
        };
        for line in &lines {
            let kind = convert::kind_bits(line.kind);
            if reply.add(line.ino.0, line.next, kind, line.name.as_bytes()) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, handle: u64, reply: ReplyEmpty) {
        self.fs.close_directory(HandleId(handle));
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: u64, reply: ReplyEmpty) {
        // A journal that was made is in the coordination store already.
        reply.ok();
    }

    fn statfs(&self, _: &Request, reply: ReplyStatfs) {
        let space = self.fs.space();
        reply.statfs(&wire::Space {
            block_bytes: space.block_bytes,
            blocks: space.blocks,
            free: space.free,
            available: space.available,
            files: space.files,
            files_free: u64::from(u32::MAX),
            name_bytes_max: convert::NAME_BYTES_MAX,
        });
    }

    fn setxattr(&self, _: &Request, _: u64, _: &[u8], _: &[u8], _: u32, reply: ReplyEmpty) {
        reply.error(Errno::PERM);
    }

    fn getxattr(&self, request: &Request, node: u64, name: &[u8], size: u32, reply: ReplyXattr) {
        let (fs, node) = (self.fs.clone(), Ino(node));
        if let Some(error) = fs.try_attribute(node, name) {
            return reply.error(errno(&error));
        }
        let (caller, name) = (Caller::new(request.pid), name.to_owned());
        self.later(
            async move { fs.attribute(caller, node, &name).await },
            move |value| answer_xattr(reply, size, value),
        );
    }

    fn listxattr(&self, _: &Request, node: u64, size: u32, reply: ReplyXattr) {
        answer_xattr(reply, size, Ok(self.fs.attribute_names(Ino(node))));
    }

    fn removexattr(&self, _: &Request, _: u64, _: &[u8], reply: ReplyEmpty) {
        reply.error(Errno::PERM);
    }

    fn fallocate(&self, _: &Request, _: u64, _: u64, _: u64, _: u32, reply: ReplyEmpty) {
        reply.error(Errno::PERM);
    }

    fn lseek(&self, request: &Request, handle: u64, offset: i64, whence: u32, reply: ReplyLseek) {
        let seek = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::INVAL),
        };
        let (fs, handle, caller) = (self.fs.clone(), HandleId(handle), Caller::new(request.pid));
        self.later(
            async move { fs.seek(caller, handle, offset, seek).await },
            |found| match found {
                // It is never negative.
                Ok(offset) => reply.offset(offset.cast_unsigned()),
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn interrupt(&self, _unique: u64) {
        // Each call that waits looks after its program by itself.
    }
}

/// A line of a directory with the position after it.
struct Line {
    ino: Ino,
    kind: Kind,
    name: String,
    next: u64,
}

impl Adapter {
    /// Returns the lines of a directory from a position on: as many as one answer can hold.
    fn lines(&self, node: Ino, handle: HandleId, offset: u64) -> Result<Vec<Line>, FsError> {
        let entries = self.fs.read_directory(node, handle, offset == 0)?;
        let dots = [(node, "."), (self.fs.parent(node), "..")];
        let dots = dots
            .into_iter()
            .map(|(ino, name)| (ino, Kind::Directory, name.to_owned()));
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = entries
            .iter()
            .map(|entry| (entry.ino, entry.kind, entry.name.clone()));
        let lines = dots
            .chain(rest)
            .zip(1..)
            .skip(skipped)
            .take(LINES_PER_ANSWER);
        Ok(lines
            .map(|((ino, kind, name), next)| Line {
                ino,
                kind,
                name,
                next,
            })
            .collect())
    }
}

/// An answer has 4 KiB to 128 KiB, and a line 24 bytes at least.
const LINES_PER_ANSWER: usize = 4096;
