//! A recorded directory over FUSE.
//!
//! What waits for the log is answered later: a call that found no room in it, by a thread of its
//! own, and one that needs a barrier, by whoever tells that it is done.

mod convert;
mod keeping;
mod passing;
mod waiting;

use std::{
    cell::RefCell, ffi::OsStr, io, os::unix::ffi::OsStrExt, path::Path, sync::Arc, time::SystemTime,
};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, PollEvents, PollFlags,
    PollNotifier, RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags};

pub use self::keeping::keep_right;
use self::{
    convert::{
        TTL, answer_attributes, answer_empty, answer_entry, answer_xattr, errno, file_attributes,
        file_type, ino, node_kind, open_flags, time,
    },
    passing::{Passing, fopen_flags, hand_over},
    waiting::{Waiting, Who},
};
use super::{SEEK_DATA, SEEK_HOLE, take};
use crate::recorded::{
    Allocation, Call, Change, FsError, HandleId, Line, RecordedFs, Seek, SetMode, Write, log::Log,
};

/// Answers the kernel's requests from a recorded directory.
#[derive(Debug)]
pub struct Adapter<L: Log> {
    fs: RecordedFs<L>,
    waiting: Waiting,
    passing: Arc<Passing>,
}

impl<L: Log> Adapter<L> {
    /// Creates an adapter of a file system.
    pub fn new(fs: RecordedFs<L>) -> io::Result<Self> {
        Ok(Self {
            fs,
            waiting: Waiting::start()?,
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
const WANTED: [InitFlags; 11] = [
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Without it each write is preceded by a look for security attributes.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_ASYNC_DIO,
    // Default access rights of a directory overrule the umask, so it is applied here.
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    // Nobody but this mount changes files.
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
];

impl<L: Log> Filesystem for Adapter<L> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        take(config, &WANTED);
        // Only a privileged daemon may hand files to the kernel, and not of each file system: the
        // first attempt shows it.
        let may_pass = config.set_max_stack_depth(1).is_ok()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok();
        self.fs.allow_passthrough(may_pass);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry(reply, self.fs.look_up(ino(parent), name.as_bytes()));
    }

    fn forget(&self, _: &Request, node: INodeNo, lookups: u64) {
        self.fs.forget(ino(node), lookups);
    }

    fn getattr(&self, _: &Request, node: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        answer_attributes(reply, self.fs.attributes(ino(node), handle.map(handle_id)));
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (node, handle) = (ino(node), handle.map(handle_id));
        let change = Change {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(time),
            mtime: mtime.map(time),
        };
        self.run(
            request,
            move |fs, call| fs.change(call, node, handle, &change),
            |changed| answer_attributes(reply, changed),
        );
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        match self.fs.read_link(ino(node)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (parent, name) = (ino(parent), name.to_owned());
        let kind = node_kind(mode);
        self.run(
            request,
            move |fs, call| {
                let call = Call { umask, ..*call };
                let name = name.as_bytes();
                fs.make_node(&call, parent, name, (kind, mode), u64::from(rdev))
            },
            |made| answer_entry(reply, made),
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (parent, name) = (ino(parent), name.to_owned());
        self.run(
            request,
            move |fs, call| {
                let call = Call { umask, ..*call };
                fs.make_directory(&call, parent, name.as_bytes(), mode)
            },
            |made| answer_entry(reply, made),
        );
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (ino(parent), name.to_owned());
        self.run(
            request,
            move |fs, call| fs.unlink(call, parent, name.as_bytes()),
            |gone| answer_empty(reply, gone),
        );
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (ino(parent), name.to_owned());
        self.run(
            request,
            move |fs, call| fs.remove_directory(call, parent, name.as_bytes()),
            |gone| answer_empty(reply, gone),
        );
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (parent, name, target) = (ino(parent), name.to_owned(), target.to_owned());
        self.run(
            request,
            move |fs, call| {
                let target = target.as_os_str().as_bytes();
                fs.make_symlink(call, parent, name.as_bytes(), target)
            },
            |made| answer_entry(reply, made),
        );
    }

    fn rename(
        &self,
        request: &Request,
        from_parent: INodeNo,
        from: &OsStr,
        to_parent: INodeNo,
        to: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from_parent, from) = (ino(from_parent), from.to_owned());
        let (to_parent, to) = (ino(to_parent), to.to_owned());
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        self.run(
            request,
            move |fs, call| {
                let from = (from_parent, from.as_bytes());
                fs.rename(call, from, (to_parent, to.as_bytes()), flags)
            },
            |renamed| answer_empty(reply, renamed),
        );
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (node, parent, name) = (ino(node), ino(parent), name.to_owned());
        self.run(
            request,
            move |fs, call| fs.link(call, node, parent, name.as_bytes()),
            |linked| answer_entry(reply, linked),
        );
    }

    fn open(&self, request: &Request, node: INodeNo, flags: fuser::OpenFlags, reply: ReplyOpen) {
        let (node, flags) = (ino(node), open_flags(flags.0));
        let (fs, passing) = (self.fs.clone(), Arc::clone(&self.passing));
        self.run(
            request,
            move |fs, call| fs.open(call, node, flags),
            move |opened| {
                let opened = match opened {
                    Ok(opened) => opened,
                    Err(error) => return reply.error(errno(error)),
                };
                let (opened, backing) = hand_over(&fs, &passing, node, opened, &reply);
                let handle = FileHandle(opened.handle.0);
                match backing {
                    None => reply.opened(handle, fopen_flags(opened)),
                    Some(backing) => {
                        reply.opened_passthrough(handle, fopen_flags(opened), &backing);
                    }
                }
            },
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (parent, name, flags) = (ino(parent), name.to_owned(), open_flags(flags));
        let (fs, passing) = (self.fs.clone(), Arc::clone(&self.passing));
        self.run(
            request,
            move |fs, call| {
                let call = Call { umask, ..*call };
                fs.create(&call, parent, name.as_bytes(), mode, flags)
            },
            move |created| {
                let created = match created {
                    Ok(created) => created,
                    Err(error) => return reply.error(errno(error)),
                };
                let attributes = file_attributes(&created.attributes);
                let generation = Generation(created.attributes.generation);
                let node = created.attributes.ino;
                let (opened, backing) = hand_over(&fs, &passing, node, created.opened, &reply);
                let (handle, flags) = (FileHandle(opened.handle.0), fopen_flags(opened));
                match backing {
                    None => reply.created(&TTL, &attributes, generation, handle, flags),
                    Some(backing) => {
                        reply.created_passthrough(
                            &TTL,
                            &attributes,
                            generation,
                            handle,
                            flags,
                            &backing,
                        );
                    }
                }
            },
        );
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let handle = handle_id(handle);
        let size = usize::try_from(size).unwrap_or(0);
        READ_BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.fs.try_read(handle, offset, &mut buffer[..size]) {
                Ok(length) => reply.data(&buffer[..length]),
                Err(FsError::Held) => {
                    let fs = self.fs.clone();
                    self.waiting.read(move || {
                        let mut buffer = vec![0; size];
                        match fs.read(handle, offset, &mut buffer) {
                            Ok(length) => reply.data(&buffer[..length]),
                            Err(error) => reply.error(errno(error)),
                        }
                    });
                }
                Err(error) => reply.error(errno(error)),
            }
        });
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
        let handle = handle_id(handle);
        let drops_privileges = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let flags = OFlags::from_bits_retain(flags.0.cast_unsigned());
        // After others the kernel asks for a barrier itself. O_SYNC contains the bit of O_DSYNC.
        let needs_barrier = flags.contains(OFlags::DSYNC)
            && (flags.contains(OFlags::DIRECT) || self.fs.is_direct(handle));
        let write = move |fs: &RecordedFs<L>, call: &Call<'_>, data: &[u8]| {
            let write = Write {
                handle,
                offset,
                data,
                drops_privileges,
            };
            fs.write(call, &write)
        };
        let answer = |reply: ReplyWrite, written: Result<usize, FsError>| match written {
            Ok(length) => reply.written(u32::try_from(length).unwrap_or(u32::MAX)),
            Err(error) => reply.error(errno(error)),
        };
        let who = Who::of(request);
        match write(&self.fs, &who.call(), data) {
            Err(FsError::Held) => {
                let (data, fs) = (data.to_vec(), self.fs.clone());
                waiting::spawn(move || {
                    let written = who.wait(|call| write(&fs, call, &data));
                    if needs_barrier && written.is_ok() {
                        fs.sync(move |synced| answer(reply, synced.and(written)));
                    } else {
                        answer(reply, written);
                    }
                });
            }
            Ok(length) if needs_barrier => {
                self.after_barrier(request, move |synced| {
                    answer(reply, synced.map(|()| length));
                });
            }
            written => answer(reply, written),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: fuser::OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let handle = handle_id(handle);
        if !self.fs.is_direct(handle) {
            self.fs.close(handle);
            self.passing.close(handle);
            return reply.ok();
        }
        let (fs, passing, who) = (self.fs.clone(), Arc::clone(&self.passing), Who::of(request));
        waiting::spawn(move || {
            if let Err(error) = who.wait(|call| fs.catch_up(call, handle)) {
                tracing::error!(err = %error, "what was stored through a mapping is not recorded");
            }
            fs.close(handle);
            passing.close(handle);
            reply.ok();
        });
    }

    fn fsync(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let handle = handle_id(handle);
        if !self.fs.is_direct(handle) {
            return self.after_barrier(request, |synced| answer_empty(reply, synced));
        }
        let who = Who::of(request);
        let done = self
            .waiting
            .until_killed(&who, |synced| answer_empty(reply, synced));
        let fs = self.fs.clone();
        waiting::spawn(move || match who.wait(|call| fs.catch_up(call, handle)) {
            Ok(()) => fs.sync(done),
            Err(error) => done(Err(error)),
        });
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: fuser::OpenFlags, reply: ReplyOpen) {
        match self.fs.open_directory(ino(node)) {
            Ok(handle) => reply.opened(FileHandle(handle.0), DIRECTORY_FLAGS),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let add = |line: Line<'_>| {
            let name = OsStr::from_bytes(line.name);
            reply.add(INodeNo(line.ino.0), line.next, file_type(line.kind), name)
        };
        match self.fs.read_directory(handle_id(handle), offset, add) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let directory = ino(node);
        let add = |line: Line<'_>| {
            let is_dots = matches!(line.name, b"." | b"..");
            let found = if is_dots {
                self.fs.attributes(directory, None)
            } else {
                self.fs.look_up(directory, line.name)
            };
            let Ok(mut attributes) = found else {
                // It went away meanwhile.
                return false;
            };
            attributes.ino = line.ino;
            let generation = Generation(attributes.generation);
            let name = OsStr::from_bytes(line.name);
            let attributes = file_attributes(&attributes);
            let ino = INodeNo(line.ino.0);
            let is_full = reply.add(ino, line.next, name, &TTL, &attributes, generation);
            if is_full && !is_dots {
                self.fs.forget(line.ino, 1);
            }
            is_full
        };
        match self.fs.read_directory(handle_id(handle), offset, add) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: fuser::OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.fs.close_directory(handle_id(handle));
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.after_barrier(request, |synced| answer_empty(reply, synced));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.fs.space() {
            Ok(space) => reply.statfs(
                space.blocks,
                space.free,
                space.available,
                space.files,
                space.files_free,
                space.block_bytes,
                space.name_bytes_max,
                space.block_bytes,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            0 => SetMode::Any,
            XATTR_CREATE => SetMode::Create,
            XATTR_REPLACE => SetMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let (node, name, value) = (ino(node), name.to_owned(), value.to_vec());
        self.run(
            request,
            move |fs, call| fs.set_xattr(call, node, name.as_bytes(), &value, mode),
            |set| answer_empty(reply, set),
        );
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer_xattr(reply, size, self.fs.xattr(ino(node), name.as_bytes()));
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.fs.xattr_names(&Who::of(request).call(), ino(node));
        answer_xattr(reply, size, names);
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (node, name) = (ino(node), name.to_owned());
        self.run(
            request,
            move |fs, call| fs.remove_xattr(call, node, name.as_bytes()),
            |removed| answer_empty(reply, removed),
        );
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
        // The kernel takes files for ready then, and does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
        let allocation = match flags - FallocateFlags::KEEP_SIZE {
            flags if flags.is_empty() => Allocation::Take { keep_size },
            FallocateFlags::PUNCH_HOLE if keep_size => Allocation::Punch,
            FallocateFlags::ZERO_RANGE => Allocation::Zero { keep_size },
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let handle = handle_id(handle);
        self.run(
            request,
            move |fs, call| fs.allocate(call, handle, offset, length, allocation),
            |done| answer_empty(reply, done),
        );
    }

    fn lseek(
        &self,
        _: &Request,
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
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        match self.fs.seek(handle_id(handle), offset, seek) {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(error) => reply.error(errno(error)),
        }
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

fn handle_id(handle: FileHandle) -> HandleId {
    HandleId(handle.0)
}

thread_local! {
    /// The reader's buffer: a new one would be filled with zeros for each read.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

const DIRECTORY_FLAGS: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_CACHE_DIR);

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
