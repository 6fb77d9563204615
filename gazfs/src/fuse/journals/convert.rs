//! The kernel's words for ours.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};

use crate::{
    fuse::{
        ReplyAttr, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyXattr,
        wire::{self, SetTime, Time},
    },
    journals::{Attributes, COMPONENT_BYTES_MAX, Cause, FsError, Kind, OpenFlags, Opened},
};

/// Logs an error, and returns its number.
pub(super) fn errno(error: &FsError) -> Errno {
    error.log();
    error.errno()
}

pub(super) fn time(time: SetTime) -> SystemTime {
    match time {
        SetTime::To(Time { seconds, nanos }) => {
            let whole = Duration::from_secs(seconds.unsigned_abs());
            let whole = if seconds < 0 {
                UNIX_EPOCH.checked_sub(whole)
            } else {
                UNIX_EPOCH.checked_add(whole)
            };
            whole
                .and_then(|whole| whole.checked_add(Duration::from_nanos(nanos.into())))
                .unwrap_or(UNIX_EPOCH)
        }
        SetTime::Now => SystemTime::now(),
    }
}

/// Before 1970 there were no journals.
fn wire_time(time: SystemTime) -> Time {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Time {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: since.subsec_nanos(),
    }
}

pub(super) fn open_flags(flags: u32) -> OpenFlags {
    let flags = OFlags::from_bits_retain(flags);
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
pub(super) fn fopen_flags(opened: Opened, cache: Cache) -> wire::OpenFlags {
    let flags = if opened.may_cache && cache == Cache::Coherent {
        wire::OpenFlags::KEEP_PAGES
    } else {
        wire::OpenFlags::DIRECT
    };
    if opened.wants_flush {
        flags
    } else {
        flags.and(wire::OpenFlags::NO_FLUSH)
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

/// The bits of a mode that tell the kind.
pub(super) fn kind_bits(kind: Kind) -> u32 {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Journal => FileType::RegularFile,
    }
    .as_raw_mode()
}

pub(super) fn file_attributes(attributes: &Attributes) -> wire::Attributes {
    let time = wire_time(attributes.mtime);
    wire::Attributes {
        ino: attributes.ino.0,
        generation: attributes.generation,
        size: attributes.size,
        blocks: attributes.blocks,
        atime: time,
        mtime: time,
        ctime: time,
        btime: None,
        mode: kind_bits(attributes.kind) | u32::from(attributes.mode),
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: 0,
        block_bytes: READ_BYTES,
    }
}

pub(super) fn answer_entry(reply: ReplyEntry, found: Result<Attributes, FsError>) {
    match found {
        Ok(attributes) => reply.entry(
            &file_attributes(&attributes),
            ENTRY_TTL,
            attributes_ttl(&attributes),
        ),
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) fn answer_attributes(reply: ReplyAttr, attributes: Result<Attributes, FsError>) {
    match attributes {
        Ok(attributes) => {
            reply.attr(&file_attributes(&attributes), attributes_ttl(&attributes));
        }
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) fn answer_open(reply: ReplyOpen, opened: Result<Opened, FsError>, cache: Cache) {
    match opened {
        Ok(opened) => reply.opened(opened.handle.0, fopen_flags(opened, cache)),
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
