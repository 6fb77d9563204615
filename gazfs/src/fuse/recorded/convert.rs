//! The kernel's words for ours.

use std::time::Duration;

use gazette_recoverylog_fsm::Timestamp;
use rustix::{fs::OFlags, io::Errno};

use crate::{
    fuse::{
        ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr,
        wire::{self, SetTime},
    },
    recorded::{Attributes, FsError, Kind, OpenFlags, TimeChange},
};

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

pub(super) fn time(time: SetTime) -> TimeChange {
    match time {
        SetTime::To(wire::Time { seconds, nanos }) => TimeChange::To(Timestamp { seconds, nanos }),
        SetTime::Now => TimeChange::Now,
    }
}

pub(super) fn wire_time(Timestamp { seconds, nanos }: Timestamp) -> wire::Time {
    wire::Time { seconds, nanos }
}

/// The bits of a mode that tell the kind.
pub(super) fn kind_bits(kind: Kind) -> u32 {
    use rustix::fs::FileType;
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

/// Returns the kind that mknod(2) was asked for.
pub(super) fn node_kind(mode: u32) -> Kind {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => Kind::Directory,
        rustix::fs::FileType::Symlink => Kind::Symlink,
        rustix::fs::FileType::Fifo => Kind::Fifo,
        rustix::fs::FileType::Socket => Kind::Socket,
        rustix::fs::FileType::CharacterDevice => Kind::CharDevice,
        rustix::fs::FileType::BlockDevice => Kind::BlockDevice,
        rustix::fs::FileType::RegularFile | rustix::fs::FileType::Unknown => Kind::Regular,
    }
}

pub(super) fn file_attributes(attributes: &Attributes) -> wire::Attributes {
    wire::Attributes {
        ino: attributes.ino.0,
        generation: attributes.generation,
        size: attributes.size,
        blocks: attributes.blocks,
        atime: wire_time(attributes.atime),
        mtime: wire_time(attributes.mtime),
        ctime: wire_time(attributes.ctime),
        btime: None,
        mode: kind_bits(attributes.kind) | attributes.mode,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        // The kernel has 32 bits for it.
        rdev: u32::try_from(attributes.rdev).unwrap_or(0),
        block_bytes: attributes.block_bytes,
    }
}

/// A name that is not there is remembered too: nobody else makes one.
pub(super) fn answer_lookup(reply: ReplyEntry, found: Result<Attributes, FsError>) {
    match found {
        Err(FsError::System(Errno::NOENT)) => reply.no_entry(TTL),
        found => answer_entry(reply, found),
    }
}

pub(super) fn answer_entry(reply: ReplyEntry, made: Result<Attributes, FsError>) {
    match made {
        Ok(attributes) => reply.entry(&file_attributes(&attributes), TTL, TTL),
        Err(error) => reply.error(error.errno()),
    }
}

pub(super) fn answer_attributes(reply: ReplyAttr, attributes: Result<Attributes, FsError>) {
    match attributes {
        Ok(attributes) => reply.attr(&file_attributes(&attributes), TTL),
        Err(error) => reply.error(error.errno()),
    }
}

pub(super) fn answer_empty(reply: ReplyEmpty, done: Result<(), FsError>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.errno()),
    }
}

/// Answers with a value, or with its length if the program asks for that first.
pub(super) fn answer_xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, FsError>) {
    let value = match value {
        Ok(value) => value,
        Err(error) => return reply.error(error.errno()),
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

/// Only this mount changes names and attributes, so what the kernel knows stays right.
pub(super) const TTL: Duration = Duration::from_hours(24 * 365);
