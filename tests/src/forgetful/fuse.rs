//! The adapter between the kernel and the model.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FileType as Kind, OFlags};

use super::content::PAGE_BYTES;
use super::model::{Attr, Ino, Meta, Model, ModelError, New, RenameTo};
use super::shared::Shared;

/// The file system as the kernel calls it.
#[derive(Debug)]
pub(super) struct Forgetful(pub(super) Arc<Shared>);

impl Forgetful {
    /// Makes something new, and counts the kernel's reference.
    fn make(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        new: New,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        let now = SystemTime::now();
        let meta = Meta {
            mode,
            uid: request.uid(),
            gid: request.gid(),
            atime: now,
            mtime: now,
            ctime: now,
        };
        self.0.with(|model| {
            let ino = model.create(parent.0, name, new, meta)?;
            touch(model, parent.0, now)?;
            model.hold(ino);
            Ok(file_attr(&model.attr(ino)?))
        })
    }
}

impl Filesystem for Forgetful {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.0.with(|model| {
            let ino = model.lookup(parent.0, name)?;
            model.hold(ino);
            Ok(file_attr(&model.attr(ino)?))
        });
        reply_entry(reply, found);
    }

    fn forget(&self, _request: &Request, ino: INodeNo, count: u64) {
        self.0.locked().model.release(ino.0, count);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply_attr(
            reply,
            self.0.with(|model| Ok(file_attr(&model.attr(ino.0)?))),
        );
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let now = SystemTime::now();
        let time = |time| match time {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => now,
        };
        let changed = self.0.with(|model| {
            if let Some(size) = size {
                check_size(size)?;
                model.file_mut(ino.0)?.truncate(size);
            }
            model.change_meta(ino.0, |meta| {
                meta.mode = mode.map_or(meta.mode, |mode| meta.mode & !0o7777 | mode & 0o7777);
                meta.uid = uid.unwrap_or(meta.uid);
                meta.gid = gid.unwrap_or(meta.gid);
                meta.atime = atime.map_or(meta.atime, time);
                meta.mtime = size.map_or(meta.mtime, |_| now);
                meta.mtime = mtime.map_or(meta.mtime, time);
                meta.ctime = now;
            })?;
            Ok(file_attr(&model.attr(ino.0)?))
        });
        reply_attr(reply, changed);
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self
            .0
            .with(|model| Ok(model.link_target(ino.0)?.to_owned()));
        match target {
            Ok(target) => reply.data(target.as_encoded_bytes()),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let new = if Kind::from_raw_mode(mode) == Kind::RegularFile {
            New::File
        } else {
            New::Special
        };
        let made = self.make(request, (parent, name), new, mode & !umask);
        reply_entry(reply, made);
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
        let mode = Kind::Directory.as_raw_mode() | mode & !umask & 0o7777;
        let made = self.make(request, (parent, name), New::Folder, mode);
        reply_entry(reply, made);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let new = New::Link(target.as_os_str().to_owned());
        let mode = Kind::Symlink.as_raw_mode() | 0o777;
        reply_entry(reply, self.make(request, (parent, name), new, mode));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.0.with(|model| {
            model.unlink(parent.0, name)?;
            touch(model, parent.0, SystemTime::now())
        });
        reply_empty(reply, result);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.0.with(|model| {
            model.remove_folder(parent.0, name)?;
            touch(model, parent.0, SystemTime::now())
        });
        reply_empty(reply, result);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            RenameFlags::RENAME_NOREPLACE => RenameTo::Free,
            RenameFlags::RENAME_EXCHANGE => RenameTo::Exchange,
            flags if flags.is_empty() => RenameTo::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let now = SystemTime::now();
        let result = self.0.with(|model| {
            model.rename((parent.0, name), (newparent.0, newname), mode)?;
            touch(model, parent.0, now)?;
            touch(model, newparent.0, now)
        });
        reply_empty(reply, result);
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.0.with(|model| {
            model.link(ino.0, newparent.0, newname)?;
            touch(model, newparent.0, SystemTime::now())?;
            model.hold(ino.0);
            Ok(file_attr(&model.attr(ino.0)?))
        });
        reply_entry(reply, linked);
    }

    fn open(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.0.with(|model| model.attr(ino.0)) {
            Ok(_) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mode = Kind::RegularFile.as_raw_mode() | mode & !umask & 0o7777;
        match self.make(request, (parent, name), New::File, mode) {
            Ok(attr) => reply.created(
                &TTL,
                &attr,
                Generation(0),
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let read = |model: &mut Model| Ok(model.file(ino.0)?.current().read(offset, length));
        match self.0.with(read) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let now = SystemTime::now();
        let is_synced = flags.0.cast_unsigned() & OFlags::DSYNC.bits() != 0;
        let written = self.0.with(|model| {
            let end = offset.checked_add(data.len() as u64);
            let end = end.ok_or(ModelError::Invalid)?;
            check_size(end)?;
            let file = model.file_mut(ino.0)?;
            file.write(offset, data);
            if is_synced {
                file.sync_range(offset, end);
            }
            touch(model, ino.0, now)
        });
        match written {
            Ok(()) => {
                self.0.write_back(ino.0);
                reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
            }
            Err(error) => reply.error(error),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.0.with(|_| Ok(())));
    }

    fn fsync(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // Nothing is locked meanwhile: the power may go.
        thread::sleep(self.0.sync_time);
        let synced = self.0.with(|model| {
            model.file_mut(ino.0)?.sync();
            Ok(())
        });
        reply_empty(reply, synced);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.0.with(|model| model.sync_folder(ino.0)));
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keeps_size = mode & FALLOC_KEEP_SIZE != 0;
        let zeroes = mode & (FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE) != 0;
        if mode & !(FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE) != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let allocated = self.0.with(|model| {
            let end = offset.checked_add(length).ok_or(ModelError::Invalid)?;
            check_size(end)?;
            let file = model.file_mut(ino.0)?;
            if zeroes {
                file.zero(offset, end);
            }
            if !keeps_size && file.current().size() < end {
                file.truncate(end);
            }
            touch(model, ino.0, SystemTime::now())
        });
        reply_empty(reply, allocated);
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.0.with_state(|state| {
            state.model.parent(ino.0)?;
            state.listings_opened += 1;
            state.listings.insert(state.listings_opened, vec![]);
            Ok(state.listings_opened)
        });
        match opened {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.0.with_state(|state| {
            if offset == 0 {
                let listing = list(&state.model, ino.0)?;
                state.listings.insert(handle.0, listing);
            }
            let listing = state.listings.get(&handle.0).into_iter().flatten();
            let skip = usize::try_from(offset).unwrap_or(usize::MAX);
            for (position, (name, ino, kind)) in listing.enumerate().skip(skip) {
                if reply.add(INodeNo(*ino), position as u64 + 1, *kind, name) {
                    break;
                }
            }
            Ok(())
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.locked().listings.remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let blocks = SIZE_MAX / PAGE_BYTES as u64;
        let block_bytes = u32::try_from(PAGE_BYTES).unwrap_or(u32::MAX);
        reply.statfs(
            blocks,
            blocks,
            blocks,
            1 << 20,
            1 << 20,
            block_bytes,
            255,
            block_bytes,
        );
    }
}

/// Lists a folder as `readdir` shows it.
fn list(model: &Model, folder: Ino) -> Result<Vec<(OsString, Ino, FileType)>, ModelError> {
    let dots = [
        (OsStr::new("."), folder),
        (OsStr::new(".."), model.parent(folder)?),
    ];
    let names = dots.into_iter().chain(model.entries(folder)?);
    names
        .map(|(name, ino)| Ok((name.to_owned(), ino, file_attr(&model.attr(ino)?).kind)))
        .collect()
}

fn reply_entry(reply: ReplyEntry, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn reply_attr(reply: ReplyAttr, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attr) => reply.attr(&TTL, &attr),
        Err(error) => reply.error(error),
    }
}

fn reply_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn touch(model: &mut Model, ino: Ino, now: SystemTime) -> Result<(), ModelError> {
    model.change_meta(ino, |meta| {
        meta.mtime = now;
        meta.ctime = now;
    })
}

fn check_size(size: u64) -> Result<(), ModelError> {
    if size > SIZE_MAX {
        Err(ModelError::Invalid)
    } else {
        Ok(())
    }
}

fn file_attr(attr: &Attr) -> FileAttr {
    let kind = match Kind::from_raw_mode(attr.meta.mode) {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Socket => FileType::Socket,
        Kind::Fifo => FileType::NamedPipe,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::RegularFile | Kind::Unknown => FileType::RegularFile,
    };
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: attr.meta.atime,
        mtime: attr.meta.mtime,
        ctime: attr.meta.ctime,
        crtime: attr.meta.ctime,
        kind,
        perm: u16::try_from(attr.meta.mode & 0o7777).unwrap_or(0),
        nlink: attr.links,
        uid: attr.meta.uid,
        gid: attr.meta.gid,
        rdev: 0,
        blksize: u32::try_from(PAGE_BYTES).unwrap_or(u32::MAX),
        flags: 0,
    }
}

/// The kernel asks each time, so that it too forgets when the power goes.
const TTL: Duration = Duration::ZERO;
/// Largest file, and the size that the file system claims to have.
const SIZE_MAX: u64 = 1 << 40;

const FALLOC_KEEP_SIZE: i32 = 1;
const FALLOC_PUNCH_HOLE: i32 = 2;
const FALLOC_ZERO_RANGE: i32 = 16;
