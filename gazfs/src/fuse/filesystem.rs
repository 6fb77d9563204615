//! What a file system does for the kernel, whatever way its requests come.

use rustix::io::Errno;

use super::{
    reply::{
        ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek,
        ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr,
    },
    wire::{Capabilities, Header, SetTime},
};

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Tells requests apart that are not answered yet.
    pub unique: u64,
    /// The user.
    pub uid: u32,
    /// His group.
    pub gid: u32,
    /// The thread, or zero if it is not visible here.
    pub pid: u32,
}

impl Request {
    pub(super) fn of(header: &Header) -> Self {
        Self {
            unique: header.unique,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
        }
    }
}

/// A change of attributes. What is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
}

/// What a new file is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFile {
    /// Kind and permission bits.
    pub mode: u32,
    /// Bits that it does not get, unless its directory has default access rights.
    pub umask: u32,
}

/// A write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRequest<'a> {
    /// The handle.
    pub handle: u64,
    /// Where.
    pub offset: u64,
    /// What.
    pub data: &'a [u8],
    /// How the file was opened.
    pub flags: u32,
    /// It was stored through a mapping, so the handle is guessed.
    pub is_mapped: bool,
    /// It takes set-user-ID bits away.
    pub drops_privileges: bool,
}

/// Answers requests. Each answer is given by its reply, at once or later, by any thread. A reply that is
/// dropped is answered with EIO.
///
/// Requests come on several threads at once. A thread that waits holds up others, so what waits is left
/// to another. What is not there is refused as the kernel expects of a file system without it.
pub trait Filesystem: Send + Sync + 'static {
    /// The kernel offers something. Returns what is wanted of it; what is not offered is not taken.
    fn init(&self, offered: Capabilities) -> Capabilities;

    /// lookup
    fn lookup(&self, request: &Request, parent: u64, name: &[u8], reply: ReplyEntry);

    /// The kernel forgot a file so many times.
    fn forget(&self, node: u64, lookups: u64);

    /// stat(2)
    fn getattr(&self, request: &Request, node: u64, handle: Option<u64>, reply: ReplyAttr);

    /// statx(2)
    fn statx(&self, _: &Request, _node: u64, _handle: Option<u64>, reply: ReplyStatx) {
        reply.error(Errno::NOSYS);
    }

    /// chmod(2), chown(2), truncate(2), utimensat(2)
    fn setattr(
        &self,
        request: &Request,
        node: u64,
        handle: Option<u64>,
        change: &SetAttributes,
        reply: ReplyAttr,
    );

    /// readlink(2)
    fn readlink(&self, _: &Request, _node: u64, reply: ReplyData) {
        reply.error(Errno::INVAL);
    }

    /// mknod(2)
    fn mknod(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        new: NewFile,
        rdev: u32,
        reply: ReplyEntry,
    );

    /// mkdir(2)
    fn mkdir(&self, request: &Request, parent: u64, name: &[u8], new: NewFile, reply: ReplyEntry);

    /// unlink(2)
    fn unlink(&self, request: &Request, parent: u64, name: &[u8], reply: ReplyEmpty);

    /// rmdir(2)
    fn rmdir(&self, request: &Request, parent: u64, name: &[u8], reply: ReplyEmpty);

    /// symlink(2)
    fn symlink(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        target: &[u8],
        reply: ReplyEntry,
    );

    /// rename(2)
    fn rename(
        &self,
        request: &Request,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
        reply: ReplyEmpty,
    );

    /// link(2)
    fn link(&self, request: &Request, node: u64, parent: u64, name: &[u8], reply: ReplyEntry);

    /// open(2)
    fn open(&self, request: &Request, node: u64, flags: u32, reply: ReplyOpen);

    /// open(2) with `O_CREAT`
    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        new: NewFile,
        flags: u32,
        reply: ReplyCreate,
    );

    /// open(2) with `O_TMPFILE`
    fn tmpfile(&self, _: &Request, _parent: u64, _new: NewFile, _flags: u32, reply: ReplyCreate) {
        reply.error(Errno::NOSYS);
    }

    /// read(2)
    fn read(&self, request: &Request, handle: u64, offset: u64, size: u32, reply: ReplyData);

    /// write(2)
    fn write(&self, request: &Request, write: &WriteRequest<'_>, reply: ReplyWrite);

    /// close(2)
    fn flush(&self, _: &Request, _handle: u64, reply: ReplyEmpty) {
        reply.ok();
    }

    /// The last descriptor of a handle was closed.
    fn release(&self, request: &Request, handle: u64, reply: ReplyEmpty);

    /// fsync(2)
    fn fsync(&self, request: &Request, handle: u64, reply: ReplyEmpty);

    /// syncfs(2), where the kernel says so.
    fn syncfs(&self, _: &Request, reply: ReplyEmpty) {
        reply.error(Errno::NOSYS);
    }

    /// opendir(3)
    fn opendir(&self, request: &Request, node: u64, reply: ReplyOpen);

    /// readdir(3)
    fn readdir(
        &self,
        request: &Request,
        node: u64,
        handle: u64,
        offset: u64,
        reply: ReplyDirectory,
    );

    /// readdir(3) with attributes
    fn readdirplus(
        &self,
        _: &Request,
        _node: u64,
        _handle: u64,
        _offset: u64,
        reply: ReplyDirectory,
    ) {
        reply.error(Errno::NOSYS);
    }

    /// closedir(3)
    fn releasedir(&self, request: &Request, handle: u64, reply: ReplyEmpty);

    /// fsync(2) of a directory
    fn fsyncdir(&self, request: &Request, handle: u64, reply: ReplyEmpty);

    /// statfs(2)
    fn statfs(&self, request: &Request, reply: ReplyStatfs);

    /// setxattr(2)
    fn setxattr(
        &self,
        request: &Request,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        reply: ReplyEmpty,
    );

    /// getxattr(2)
    fn getxattr(&self, request: &Request, node: u64, name: &[u8], size: u32, reply: ReplyXattr);

    /// listxattr(2)
    fn listxattr(&self, request: &Request, node: u64, size: u32, reply: ReplyXattr);

    /// removexattr(2)
    fn removexattr(&self, request: &Request, node: u64, name: &[u8], reply: ReplyEmpty);

    /// fallocate(2)
    fn fallocate(
        &self,
        request: &Request,
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
        reply: ReplyEmpty,
    );

    /// lseek(2) to data or a hole
    fn lseek(&self, request: &Request, handle: u64, offset: i64, whence: u32, reply: ReplyLseek);

    /// Whoever made a request got a signal. The request may have been answered meanwhile.
    fn interrupt(&self, unique: u64);
}
