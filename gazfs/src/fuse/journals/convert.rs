//! The kernel's words for ours.

use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyXattr, Request, TimeOrNow,
};
use rustix::fs::OFlags;

use crate::journals::{
    Attributes, COMPONENT_BYTES_MAX, Caller, Cause, FsError, Ino, Kind, OpenFlags, Opened,
};

pub(super) fn caller(request: &Request) -> Caller {
    Caller::new(request.pid())
}

pub(super) fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

/// Logs an error, and returns its number.
pub(super) fn errno(error: &FsError) -> Errno {
    error.log();
    Errno::from_i32(error.errno().raw_os_error())
}

pub(super) fn time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

pub(super) fn open_flags(flags: i32) -> OpenFlags {
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    let access = flags & OFlags::ACCMODE;
    OpenFlags {
        may_read: access != OFlags::WRONLY,
        may_write: access != OFlags::RDONLY,
        is_truncating: flags.contains(OFlags::TRUNC),
        is_exclusive: flags.contains(OFlags::EXCL),
    }
}

/// Without the page cache each request is one of a program, as it made it, and a reader never
/// sees a stale end. With it, which only a reader of a journal at rest gets, the kernel reads ahead
/// and reads no byte twice. A close is only sent where it has something to wait for: it takes the
/// lock under which another program's write may be waiting.
pub(super) fn fopen_flags(opened: Opened, cache: Cache) -> FopenFlags {
    let flags = if opened.may_cache && cache == Cache::Coherent {
        FopenFlags::FOPEN_KEEP_CACHE
    } else {
        FopenFlags::FOPEN_DIRECT_IO
    };
    if opened.wants_flush {
        flags
    } else {
        flags | FopenFlags::FOPEN_NOFLUSH
    }
}

/// What the page cache is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cache {
    /// A write that goes past it makes the kernel drop the pages that it changes: Linux 6.6 and
    /// later.
    Coherent,
    /// Pages may get stale.
    Stale,
}

pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Journal => FileType::RegularFile,
    }
}

pub(super) fn file_attributes(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.ino.0),
        size: attributes.size,
        blocks: attributes.blocks,
        atime: attributes.mtime,
        mtime: attributes.mtime,
        ctime: attributes.mtime,
        crtime: attributes.mtime,
        kind: file_type(attributes.kind),
        perm: attributes.mode,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: 0,
        blksize: READ_BYTES,
        flags: 0,
    }
}

pub(super) fn answer_entry(reply: ReplyEntry, found: Result<Attributes, FsError>) {
    match found {
        Ok(attributes) => reply.entry_with_ttls(
            &attributes_ttl(&attributes),
            &ENTRY_TTL,
            &file_attributes(&attributes),
            Generation(attributes.generation),
        ),
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) fn answer_attributes(reply: ReplyAttr, attributes: Result<Attributes, FsError>) {
    match attributes {
        Ok(attributes) => {
            reply.attr(&attributes_ttl(&attributes), &file_attributes(&attributes));
        }
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) fn answer_open(reply: ReplyOpen, opened: Result<Opened, FsError>, cache: Cache) {
    match opened {
        Ok(opened) => reply.opened(FileHandle(opened.handle.0), fopen_flags(opened, cache)),
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) fn answer_empty(reply: ReplyEmpty, done: Result<(), FsError>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

/// Answers with a value, or with its length if the program asks for that first.
pub(super) fn answer_xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, FsError>) {
    let value = match value {
        Ok(value) => value,
        Err(error) => return reply.error(errno(&error)),
    };
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    if size == 0 {
        reply.size(length);
    } else if length > size {
        let error = FsError::new("get attribute", "", Cause::BufferTooSmall);
        reply.error(errno(&error));
    } else {
        reply.data(&value);
    }
}

fn attributes_ttl(attributes: &Attributes) -> Duration {
    match attributes.kind {
        Kind::Directory => DIRECTORY_TTL,
        Kind::Journal => JOURNAL_TTL,
    }
}

/// Names come and go by others, so the kernel asks each time. That takes some microseconds.
pub(super) const ENTRY_TTL: Duration = Duration::ZERO;

/// The size of a journal is asked for each time: a program that polls sees growth at once.
const JOURNAL_TTL: Duration = Duration::ZERO;

/// Owner and mode of directories do not change, and the kernel needs them for each path.
const DIRECTORY_TTL: Duration = Duration::from_mins(1);

/// What programs like cat read at once. It is the most that they take from here.
const READ_BYTES: u32 = 1 << 20;

#[expect(clippy::cast_possible_truncation, reason = "255 fits")]
pub(super) const NAME_BYTES_MAX: u32 = COMPONENT_BYTES_MAX as u32;
