//! Journals as files over FUSE.
//!
//! One thread reads requests. It answers what does not block, and hands the rest to the runtime,
//! whose threads answer later: a second reader would cost more in wake-ups than it brings.

mod convert;

use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt, path::Path, time::SystemTime};

use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, PollEvents, PollFlags,
    PollNotifier, RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FileType, OFlags};

use self::convert::{
    Cache, ENTRY_TTL, answer_attributes, answer_empty, answer_entry, answer_open, answer_xattr,
    caller, errno, file_attributes, ino, open_flags, time,
};
use super::{SEEK_DATA, SEEK_HOLE, take};
use crate::journals::{Change, FsError, HandleId, Ino, JournalFs, Kind, Read, Seek, Write};

/// Answers the kernel's requests from journals.
#[derive(Debug)]
pub struct Adapter {
    fs: JournalFs,
    cache: Cache,
}

impl Adapter {
    /// Creates an adapter of a file system.
    pub fn new(fs: JournalFs) -> Self {
        Self {
            fs,
            cache: Cache::Stale,
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

/// What the kernel offers and we take, if it does. Not `FUSE_DO_READDIRPLUS`: names and sizes are
/// asked for each time, so attributes with a listing would be thrown away.
const WANTED: [InitFlags; 4] = [
    // The mount refuses to empty a journal while it opens it, not after that.
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Without it each write is preceded by a look for security attributes.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // Where files are read without the page cache, they can be mapped all the same.
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
];

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        take(config, &WANTED);
        // It came with what makes direct writes drop pages.
        if config
            .capabilities()
            .contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
        {
            self.cache = Cache::Coherent;
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (fs, parent) = (self.fs.clone(), ino(parent));
        if let Some(found) = fs.try_lookup(parent, name.as_bytes()) {
            return answer_entry(reply, found);
        }
        let (caller, name) = (caller(request), name.to_owned());
        self.later(
            async move { fs.lookup(caller, parent, name.as_bytes()).await },
            |found| answer_entry(reply, found),
        );
    }

    fn forget(&self, _: &Request, _: INodeNo, _: u64) {}

    fn getattr(
        &self,
        request: &Request,
        node: INodeNo,
        handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let (fs, node) = (self.fs.clone(), ino(node));
        if let Some(attributes) = fs.try_attributes(node)
            && (attributes.is_ok() || handle.is_none())
        {
            return answer_attributes(reply, attributes);
        }
        let (caller, handle) = (caller(request), handle.map(|handle| HandleId(handle.0)));
        self.later(
            async move { fs.attributes(caller, node, handle).await },
            |attributes| answer_attributes(reply, attributes),
        );
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (fs, node, caller) = (self.fs.clone(), ino(node), caller(request));
        let handle = handle.map(|handle| HandleId(handle.0));
        let change = Change {
            size,
            mode,
            uid,
            gid,
            mtime: mtime.map(time),
        };
        self.later(
            async move { fs.change(caller, node, handle, change).await },
            |attributes| answer_attributes(reply, attributes),
        );
    }

    fn readlink(&self, _: &Request, _: INodeNo, reply: ReplyData) {
        reply.error(Errno::EINVAL);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        if FileType::from_raw_mode(mode) != FileType::RegularFile {
            return reply.error(Errno::EPERM);
        }
        let (fs, parent) = (self.fs.clone(), ino(parent));
        let (caller, name) = (caller(request), name.to_owned());
        self.later(
            async move { fs.make_node(caller, parent, name.as_bytes()).await },
            |made| answer_entry(reply, made),
        );
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        answer_entry(reply, self.fs.make_directory(ino(parent), name.as_bytes()));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (fs, parent) = (self.fs.clone(), ino(parent));
        let (caller, name) = (caller(request), name.to_owned());
        self.later(
            async move { fs.unlink(caller, parent, name.as_bytes()).await },
            |gone| answer_empty(reply, gone),
        );
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(
            reply,
            self.fs.remove_directory(ino(parent), name.as_bytes()),
        );
    }

    fn symlink(&self, _: &Request, _: INodeNo, name: &OsStr, _: &Path, reply: ReplyEntry) {
        answer_entry(reply, Err(JournalFs::refuse_move("link", name.as_bytes())));
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer_empty(
            reply,
            Err(JournalFs::refuse_move("rename", name.as_bytes())),
        );
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry(reply, Err(JournalFs::refuse_move("link", name.as_bytes())));
    }

    fn open(&self, request: &Request, node: INodeNo, flags: fuser::OpenFlags, reply: ReplyOpen) {
        let (fs, node, flags) = (self.fs.clone(), ino(node), open_flags(flags.0));
        if let Some(opened) = fs.try_open(node, flags) {
            return answer_open(reply, opened, self.cache);
        }
        let (caller, cache) = (caller(request), self.cache);
        self.later(
            async move { fs.open(caller, node, flags).await },
            move |opened| answer_open(reply, opened, cache),
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (fs, parent, flags) = (self.fs.clone(), ino(parent), open_flags(flags));
        let (caller, name, cache) = (caller(request), name.to_owned(), self.cache);
        self.later(
            async move { fs.create(caller, parent, name.as_bytes(), flags).await },
            move |created| match created {
                Ok((attributes, opened)) => reply.created(
                    &ENTRY_TTL,
                    &file_attributes(&attributes),
                    Generation(attributes.generation),
                    FileHandle(opened.handle.0),
                    convert::fopen_flags(opened, cache),
                ),
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = Read {
            handle: HandleId(handle.0),
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
        let (fs, caller) = (self.fs.clone(), caller(request));
        self.later(async move { fs.read(caller, read).await }, answer);
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let flags = OFlags::from_bits_retain(flags.0.cast_unsigned());
        let write = Write {
            handle: HandleId(handle.0),
            offset,
            content: Bytes::copy_from_slice(data),
            is_append: flags.contains(OFlags::APPEND),
            // O_SYNC contains the bit of O_DSYNC.
            is_sync: flags.contains(OFlags::DSYNC),
            is_mapped: write_flags.contains(WriteFlags::FUSE_WRITE_CACHE),
        };
        let (fs, caller) = (self.fs.clone(), caller(request));
        self.later(
            async move { fs.write(caller, write).await },
            |written| match written {
                Ok(length) => reply.written(u32::try_from(length).unwrap_or(u32::MAX)),
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn flush(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        let (fs, handle, caller) = (self.fs.clone(), HandleId(handle.0), caller(request));
        if fs.is_flushed(handle) {
            return reply.ok();
        }
        self.later(async move { fs.flush(caller, handle).await }, |flushed| {
            answer_empty(reply, flushed);
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: fuser::OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.release(HandleId(handle.0));
        reply.ok();
    }

    fn fsync(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let (fs, handle, caller) = (self.fs.clone(), HandleId(handle.0), caller(request));
        if let Some(synced) = fs.try_sync(handle) {
            return answer_empty(reply, synced);
        }
        self.later(async move { fs.sync(caller, handle).await }, |synced| {
            answer_empty(reply, synced);
        });
    }

    fn opendir(&self, request: &Request, node: INodeNo, _: fuser::OpenFlags, reply: ReplyOpen) {
        let (fs, node, caller) = (self.fs.clone(), ino(node), caller(request));
        self.later(
            async move { fs.open_directory(caller, node).await },
            |opened| match opened {
                Ok(handle) => reply.opened(FileHandle(handle.0), FopenFlags::empty()),
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let lines = match self.lines(ino(node), HandleId(handle.0), offset) {
            Ok(lines) => lines,
            Err(error) => return reply.error(errno(&error)),
        };
        for line in &lines {
            let kind = convert::file_type(line.kind);
            if reply.add(INodeNo(line.ino.0), line.next, kind, &line.name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: fuser::OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.fs.close_directory(HandleId(handle.0));
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // A journal that was made is in the coordination store already.
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let space = self.fs.space();
        reply.statfs(
            space.blocks,
            space.free,
            space.available,
            space.files,
            u64::from(u32::MAX),
            space.block_bytes,
            convert::NAME_BYTES_MAX,
            space.block_bytes,
        );
    }

    fn setxattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }

    fn getxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let (fs, node) = (self.fs.clone(), ino(node));
        if let Some(error) = fs.try_attribute(node, name.as_bytes()) {
            return reply.error(errno(&error));
        }
        let (caller, name) = (caller(request), name.to_owned());
        self.later(
            async move { fs.attribute(caller, node, name.as_bytes()).await },
            move |value| answer_xattr(reply, size, value),
        );
    }

    fn listxattr(&self, _: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        answer_xattr(reply, size, Ok(self.fs.attribute_names(ino(node))));
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks modes itself.
        reply.ok();
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        // As any regular file a journal is always ready: a program that waits for its end with
        // poll(2) must not hang.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }

    fn lseek(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let seek = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let (fs, handle, caller) = (self.fs.clone(), HandleId(handle.0), caller(request));
        self.later(
            async move { fs.seek(caller, handle, offset, seek).await },
            |found| match found {
                Ok(offset) => reply.offset(offset),
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The kernel copies by reading and writing then.
        reply.error(Errno::ENOSYS);
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
