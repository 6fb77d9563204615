//! A recorded directory over FUSE.
//!
//! What waits for the log is answered later: a call that found no room in it, by a thread of its
//! own, and one that needs a barrier, by whoever tells that it is done.

mod content;
mod convert;
mod keeping;
mod listing;
mod passing;
mod waiting;

use std::{io, os::fd::BorrowedFd, sync::Arc};

use rustix::{fs::FallocateFlags, io::Errno};

pub use self::keeping::keep_right;
use self::{
    convert::{
        TTL, answer_attributes, answer_empty, answer_entry, answer_lookup, answer_xattr,
        file_attributes, node_kind, open_flags, time, wire_time,
    },
    passing::{Passing, fopen_flags, hand_over},
    waiting::{Waiting, Who},
};
use super::{
    Filesystem, NewFile, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, Request, SEEK_DATA,
    SEEK_HOLE, SetAttributes, WriteRequest,
    wire::{self, Capabilities, OpenFlags, Space},
};
use crate::recorded::{
    Allocation, Call, Change, Created, FsError, HandleId, Ino, RecordedFs, Seek, SetMode, log::Log,
};

/// Answers the kernel's requests from a recorded directory.
#[derive(Debug)]
pub struct Adapter<L: Log> {
    fs: RecordedFs<L>,
    waiting: Arc<Waiting>,
    passing: Arc<Passing>,
}

impl<L: Log> Adapter<L> {
    /// Creates an adapter of a file system.
    pub fn new(fs: RecordedFs<L>) -> io::Result<Self> {
        Ok(Self {
            fs,
            waiting: Arc::new(Waiting::start()?),
            passing: Arc::default(),
        })
    }

    /// Does what may find no room in the log. Then it is done again by a thread that waits.
    fn run<T>(
        &self,
        request: &Request,
        work: impl Fn(&RecordedFs<L>, &Call<'_>) -> Result<T, FsError> + Send + 'static,
        answer: impl FnOnce(Result<T, FsError>) + Send + 'static,
    ) {
        let who = Who::of(request);
        match work(&self.fs, &who.call()) {
            Err(FsError::Held) => self.run_waiting(who, work, answer),
            done => answer(done),
        }
    }

    fn run_waiting<T>(
        &self,
        who: Who,
        work: impl Fn(&RecordedFs<L>, &Call<'_>) -> Result<T, FsError> + Send + 'static,
        answer: impl FnOnce(Result<T, FsError>) + Send + 'static,
    ) {
        let fs = self.fs.clone();
        waiting::spawn(move || answer(who.wait(|call| work(&fs, call))));
    }

    /// Answers when all that happened so far is durable, or the caller is killed.
    fn after_barrier(
        &self,
        request: &Request,
        answer: impl FnOnce(Result<(), FsError>) + Send + 'static,
    ) {
        let done = self.waiting.until_killed(&Who::of(request), answer);
        self.fs.sync(done);
    }
}

/// What the kernel offers and we take, if it does. Not the write-back cache: with it a rename
/// overtakes the data. Not locks: those that the kernel keeps itself are right for one mount.
const WANTED: Capabilities = Capabilities::ATOMIC_TRUNCATE
    .and(Capabilities::PARALLEL_DIRECTORY)
    // Without it each write is preceded by a look for security attributes.
    .and(Capabilities::HANDLE_KILL_PRIVILEGES)
    .and(Capabilities::LINES_PLUS)
    .and(Capabilities::LINES_PLUS_AUTO)
    .and(Capabilities::ASYNC_DIRECT)
    // Default access rights of a directory overrule the umask, so it is applied here.
    .and(Capabilities::DONT_MASK)
    .and(Capabilities::POSIX_ACL)
    .and(Capabilities::KEEP_LINKS)
    .and(Capabilities::DIRECT_MAP)
    // Nobody but this mount changes files.
    .and(Capabilities::EXPLICIT_STALE);

impl<L: Log> Filesystem for Adapter<L> {
    fn init(&self, offered: Capabilities) -> Capabilities {
        // Only a privileged daemon may hand files to the kernel, and not of each file system: the
        // first attempt shows it.
        self.fs
            .allow_passthrough(offered.has(Capabilities::PASSTHROUGH));
        WANTED.and(Capabilities::PASSTHROUGH)
    }

    fn lookup(&self, _: &Request, parent: u64, name: &[u8], reply: ReplyEntry) {
        answer_lookup(reply, self.fs.look_up(Ino(parent), name));
    }

    fn forget(&self, node: u64, lookups: u64) {
        self.fs.forget(Ino(node), lookups);
    }

    fn getattr(&self, _: &Request, node: u64, handle: Option<u64>, reply: ReplyAttr) {
        answer_attributes(reply, self.fs.attributes(Ino(node), handle.map(HandleId)));
    }

    fn statx(&self, _: &Request, node: u64, handle: Option<u64>, reply: ReplyStatx) {
        let node = Ino(node);
        let attributes = self.fs.attributes(node, handle.map(HandleId));
        let found = attributes.and_then(|attributes| Ok((attributes, self.fs.born(node)?)));
        match found {
            Ok((attributes, born)) => {
                let attributes = wire::Attributes {
                    btime: born.map(wire_time),
                    ..file_attributes(&attributes)
                };
                reply.attr(&attributes, TTL);
            }
            Err(error) => reply.error(error.errno()),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        node: u64,
        handle: Option<u64>,
        change: &SetAttributes,
        reply: ReplyAttr,
    ) {
        let (node, handle) = (Ino(node), handle.map(HandleId));
        let change = Change {
            mode: change.mode,
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            atime: change.atime.map(time),
            mtime: change.mtime.map(time),
        };
        self.run(
            request,
            move |fs, call| fs.change(call, node, handle, &change),
            |changed| answer_attributes(reply, changed),
        );
    }

    fn readlink(&self, _: &Request, node: u64, reply: ReplyData) {
        match self.fs.read_link(Ino(node)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error.errno()),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        NewFile { mode, umask }: NewFile,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (parent, name) = (Ino(parent), name.to_owned());
        let kind = node_kind(mode);
        self.run(
            request,
            move |fs, call| {
                let call = Call { umask, ..*call };
                fs.make_node(&call, parent, &name, (kind, mode), u64::from(rdev))
            },
            |made| answer_entry(reply, made),
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        NewFile { mode, umask }: NewFile,
        reply: ReplyEntry,
    ) {
        let (parent, name) = (Ino(parent), name.to_owned());
        self.run(
            request,
            move |fs, call| {
                let call = Call { umask, ..*call };
                fs.make_directory(&call, parent, &name, mode)
            },
            |made| answer_entry(reply, made),
        );
    }

    fn unlink(&self, request: &Request, parent: u64, name: &[u8], reply: ReplyEmpty) {
        let (parent, name) = (Ino(parent), name.to_owned());
        self.run(
            request,
            move |fs, call| fs.unlink(call, parent, &name),
            |gone| answer_empty(reply, gone),
        );
    }

    fn rmdir(&self, request: &Request, parent: u64, name: &[u8], reply: ReplyEmpty) {
        let (parent, name) = (Ino(parent), name.to_owned());
        self.run(
            request,
            move |fs, call| fs.remove_directory(call, parent, &name),
            |gone| answer_empty(reply, gone),
        );
    }

    fn symlink(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        target: &[u8],
        reply: ReplyEntry,
    ) {
        let (parent, name, target) = (Ino(parent), name.to_owned(), target.to_owned());
        self.run(
            request,
            move |fs, call| fs.make_symlink(call, parent, &name, &target),
            |made| answer_entry(reply, made),
        );
    }

    fn rename(
        &self,
        request: &Request,
        (from_parent, from): (u64, &[u8]),
        (to_parent, to): (u64, &[u8]),
        flags: u32,
        reply: ReplyEmpty,
    ) {
        let (from_parent, from) = (Ino(from_parent), from.to_owned());
        let (to_parent, to) = (Ino(to_parent), to.to_owned());
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags);
        self.run(
            request,
            move |fs, call| fs.rename(call, (from_parent, &from), (to_parent, &to), flags),
            |renamed| answer_empty(reply, renamed),
        );
    }

    fn link(&self, request: &Request, node: u64, parent: u64, name: &[u8], reply: ReplyEntry) {
        let (node, parent, name) = (Ino(node), Ino(parent), name.to_owned());
        self.run(
            request,
            move |fs, call| fs.link(call, node, parent, &name),
            |linked| answer_entry(reply, linked),
        );
    }

    fn open(&self, request: &Request, node: u64, flags: u32, reply: ReplyOpen) {
        let (node, flags) = (Ino(node), open_flags(flags));
        let (fs, passing) = (self.fs.clone(), Arc::clone(&self.passing));
        self.run(
            request,
            move |fs, call| fs.open(call, node, flags),
            move |opened| {
                let opened = match opened {
                    Ok(opened) => opened,
                    Err(error) => return reply.error(error.errno()),
                };
                let register = |file: BorrowedFd<'_>| reply.register(file);
                let (opened, backing) = hand_over(&fs, &passing, node, opened, register);
                let (handle, flags) = (opened.handle.0, fopen_flags(opened));
                match backing {
                    None => reply.opened(handle, flags),
                    Some(backing) => reply.opened_passthrough(handle, flags, &backing),
                }
            },
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        NewFile { mode, umask }: NewFile,
        flags: u32,
        reply: ReplyCreate,
    ) {
        let (parent, name, flags) = (Ino(parent), name.to_owned(), open_flags(flags));
        let (fs, passing) = (self.fs.clone(), Arc::clone(&self.passing));
        self.run(
            request,
            move |fs, call| {
                let call = Call { umask, ..*call };
                fs.create(&call, parent, &name, mode, flags)
            },
            move |created| answer_created(&fs, &passing, reply, created),
        );
    }

    fn tmpfile(
        &self,
        request: &Request,
        directory: u64,
        NewFile { mode, umask }: NewFile,
        flags: u32,
        reply: ReplyCreate,
    ) {
        let (directory, flags) = (Ino(directory), open_flags(flags));
        let (fs, passing) = (self.fs.clone(), Arc::clone(&self.passing));
        self.run(
            request,
            move |fs, call| {
                let call = Call { umask, ..*call };
                fs.create_unnamed(&call, directory, mode, flags)
            },
            move |created| answer_created(&fs, &passing, reply, created),
        );
    }

    fn read(&self, _: &Request, handle: u64, offset: u64, size: u32, reply: ReplyData) {
        self.read_content(HandleId(handle), offset, size, reply);
    }

    fn write(&self, request: &Request, write: &WriteRequest<'_>, reply: ReplyWrite) {
        self.write_content(request, write, reply);
    }

    fn release(&self, request: &Request, handle: u64, reply: ReplyEmpty) {
        self.close_handle(request, HandleId(handle), reply);
    }

    fn fsync(&self, request: &Request, handle: u64, reply: ReplyEmpty) {
        self.sync_content(request, HandleId(handle), reply);
    }

    fn syncfs(&self, request: &Request, reply: ReplyEmpty) {
        self.after_barrier(request, |synced| answer_empty(reply, synced));
    }

    fn opendir(&self, _: &Request, node: u64, reply: ReplyOpen) {
        match self.fs.open_directory(Ino(node)) {
            Ok(handle) => reply.opened(handle.0, DIRECTORY_FLAGS),
            Err(error) => reply.error(error.errno()),
        }
    }

    fn readdir(&self, _: &Request, _: u64, handle: u64, offset: u64, reply: ReplyDirectory) {
        self.list(HandleId(handle), offset, reply);
    }

    fn readdirplus(&self, _: &Request, node: u64, handle: u64, offset: u64, reply: ReplyDirectory) {
        self.list_plus(Ino(node), HandleId(handle), offset, reply);
    }

    fn releasedir(&self, _: &Request, handle: u64, reply: ReplyEmpty) {
        self.fs.close_directory(HandleId(handle));
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, _: u64, reply: ReplyEmpty) {
        self.after_barrier(request, |synced| answer_empty(reply, synced));
    }

    fn statfs(&self, _: &Request, reply: ReplyStatfs) {
        match self.fs.space() {
            Ok(space) => reply.statfs(&Space {
                block_bytes: space.block_bytes,
                blocks: space.blocks,
                free: space.free,
                available: space.available,
                files: space.files,
                files_free: space.files_free,
                name_bytes_max: space.name_bytes_max,
            }),
            Err(error) => reply.error(error.errno()),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            0 => SetMode::Any,
            XATTR_CREATE => SetMode::Create,
            XATTR_REPLACE => SetMode::Replace,
            _ => return reply.error(Errno::INVAL),
        };
        let (node, name, value) = (Ino(node), name.to_owned(), value.to_vec());
        self.run(
            request,
            move |fs, call| fs.set_xattr(call, node, &name, &value, mode),
            |set| answer_empty(reply, set),
        );
    }

    fn getxattr(&self, _: &Request, node: u64, name: &[u8], size: u32, reply: ReplyXattr) {
        answer_xattr(reply, size, self.fs.xattr(Ino(node), name));
    }

    fn listxattr(&self, request: &Request, node: u64, size: u32, reply: ReplyXattr) {
        let names = self.fs.xattr_names(&Who::of(request).call(), Ino(node));
        answer_xattr(reply, size, names);
    }

    fn removexattr(&self, request: &Request, node: u64, name: &[u8], reply: ReplyEmpty) {
        let (node, name) = (Ino(node), name.to_owned());
        self.run(
            request,
            move |fs, call| fs.remove_xattr(call, node, &name),
            |removed| answer_empty(reply, removed),
        );
    }

    fn fallocate(
        &self,
        request: &Request,
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_retain(mode);
        let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
        let allocation = match flags - FallocateFlags::KEEP_SIZE {
            flags if flags.is_empty() => Allocation::Take { keep_size },
            FallocateFlags::PUNCH_HOLE if keep_size => Allocation::Punch,
            FallocateFlags::ZERO_RANGE => Allocation::Zero { keep_size },
            _ => return reply.error(Errno::OPNOTSUPP),
        };
        let handle = HandleId(handle);
        self.run(
            request,
            move |fs, call| fs.allocate(call, handle, offset, length, allocation),
            |done| answer_empty(reply, done),
        );
    }

    fn lseek(&self, _: &Request, handle: u64, offset: i64, whence: u32, reply: ReplyLseek) {
        let seek = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::INVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::NXIO);
        };
        match self.fs.seek(HandleId(handle), offset, seek) {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(error.errno()),
        }
    }

    fn interrupt(&self, unique: u64) {
        self.waiting.look_at(unique);
    }
}

/// Answers with a new file that is open.
fn answer_created<L: Log>(
    fs: &RecordedFs<L>,
    passing: &Passing,
    reply: ReplyCreate,
    created: Result<Created, FsError>,
) {
    let created = match created {
        Ok(created) => created,
        Err(error) => return reply.error(error.errno()),
    };
    let attributes = file_attributes(&created.attributes);
    let register = |file: BorrowedFd<'_>| reply.register(file);
    let node = created.attributes.ino;
    let (opened, backing) = hand_over(fs, passing, node, created.opened, register);
    let opened = (opened.handle.0, fopen_flags(opened));
    reply.created(&attributes, TTL, opened, backing.as_deref());
}

const DIRECTORY_FLAGS: OpenFlags = OpenFlags::KEEP_PAGES.and(OpenFlags::KEEP_LINES);

const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
