//! Ops to protobuf messages.

use super::fields::{base, extension};
use super::{Body, Change, Group, LinkName, Mark, Mode, RecordedOp, Restated, Write};
use crate::proto::Message;
use crate::{AttributeChange, Fnode, Inode, Kind, SizeChange, Timestamp};

pub(super) fn encode(op: &RecordedOp) -> Message {
    let mut message = Message::default();
    message.int64(base::SEQ_NO, op.seq_no);
    message.fixed32(base::CHECKSUM, op.checksum);
    message.fixed32(base::AUTHOR, op.author);
    let mut mark = None;
    match &op.body {
        Body::NoOp { mark: said } => mark = said.as_ref(),
        Body::Create { at, inode } => {
            let mut create = Message::default();
            create.bytes(1, &at.path);
            create.int64(extension::PARENT, at.parent.0);
            if let Some(inode) = inode {
                create.message(extension::INODE, &encode_inode(inode));
            }
            message.message(base::CREATE, &create);
        }
        Body::Link { fnode, at } => message.message(base::LINK, &encode_link(*fnode, at)),
        Body::Unlink { fnode, at } => message.message(base::UNLINK, &encode_link(*fnode, at)),
        Body::Write(write) => message.message(base::WRITE, &encode_write(write)),
        Body::Change {
            fnode,
            change,
            mtime,
        } => {
            message.message(base::WRITE, &encode_change(*fnode, change, *mtime));
        }
        Body::Property { path, content } => {
            let mut property = Message::default();
            property.bytes(1, path);
            property.bytes(2, content);
            message.message(base::PROPERTY, &property);
        }
    }
    if let Some(Group { first, last }) = op.group {
        let mut group = Message::default();
        group.int64(1, first);
        group.bool(2, last);
        message.message(extension::GROUP, &group);
    }
    if let Some(mark) = mark {
        let mut said = Message::default();
        let (kind, content) = mark_parts(mark);
        said.uint64(1, kind);
        said.bytes(2, content);
        message.message(extension::MARK, &said);
    }
    if let Some(mode) = op.mode {
        message.uint64(extension::MODE, mode_number(mode));
    }
    if let Some(time) = op.time {
        message.message(extension::TIME, &encode_time(time));
    }
    message
}

pub(crate) const fn mode_number(mode: Mode) -> u64 {
    match mode {
        Mode::Native => 1,
        Mode::Compat => 2,
    }
}

pub(crate) const fn mode_of(number: u64) -> Option<Mode> {
    match number {
        1 => Some(Mode::Native),
        2 => Some(Mode::Compat),
        _ => None,
    }
}

fn encode_link(fnode: Fnode, at: &LinkName) -> Message {
    let mut link = Message::default();
    link.int64(1, fnode.0);
    link.bytes(2, &at.path);
    link.int64(extension::PARENT, at.parent.0);
    link
}

fn encode_write(write: &Write) -> Message {
    let mut message = Message::default();
    message.int64(1, write.fnode.0);
    message.int64(2, write.offset);
    message.int64(3, write.length);
    if let Some(crc) = write.crc32c {
        message.fixed32_always(extension::CRC32C, crc);
    }
    if let Some(mtime) = write.mtime {
        message.message(extension::MTIME, &encode_time(mtime));
    }
    message.bool(extension::RERECORDED, write.rerecorded);
    message
}

fn encode_change(fnode: Fnode, change: &Change, mtime: Option<Timestamp>) -> Message {
    let mut message = Message::default();
    message.int64(1, fnode.0);
    if let Some(mtime) = mtime {
        message.message(extension::MTIME, &encode_time(mtime));
    }
    let mut inner = Message::default();
    let field = match change {
        Change::Attributes(change) => {
            encode_attributes(change, &mut inner);
            extension::ATTRIBUTES
        }
        Change::SetXattr { name, value } => {
            inner.bytes(1, name);
            inner.bytes(2, value);
            extension::SET_XATTR
        }
        Change::RemoveXattr { name } => {
            inner.bytes(1, name);
            extension::REMOVE_XATTR
        }
        Change::Size(SizeChange::Truncate { size }) => {
            inner.uint64(1, *size);
            extension::TRUNCATE
        }
        Change::Size(SizeChange::Punch { offset, length }) => {
            inner.uint64(1, *offset);
            inner.uint64(2, *length);
            extension::PUNCH
        }
        Change::Size(SizeChange::Zero {
            offset,
            length,
            keep_size,
        }) => {
            inner.uint64(1, *offset);
            inner.uint64(2, *length);
            inner.bool(3, *keep_size);
            extension::ZERO
        }
        Change::Restated(restated) => {
            encode_restated(restated, &mut inner);
            extension::RESTATED
        }
    };
    message.message(field, &inner);
    message
}

fn encode_restated(restated: &Restated, inner: &mut Message) {
    inner.message(1, &encode_inode(&restated.inode));
    if let Some(atime) = restated.atime {
        inner.message(2, &encode_time(atime));
    }
    for at in &restated.links {
        let mut link = Message::default();
        link.bytes(2, &at.path);
        link.int64(extension::PARENT, at.parent.0);
        inner.message(3, &link);
    }
    for (name, value) in &restated.xattrs {
        let mut pair = Message::default();
        pair.bytes(1, name);
        pair.bytes(2, value);
        inner.message(4, &pair);
    }
}

fn encode_attributes(change: &AttributeChange, inner: &mut Message) {
    for (field, value) in [(1, change.mode), (2, change.uid), (3, change.gid)] {
        if let Some(value) = value {
            inner.uint64_always(field, value.into());
        }
    }
    for (field, value) in [(4, change.atime), (5, change.mtime)] {
        if let Some(value) = value {
            inner.message(field, &encode_time(value));
        }
    }
}

/// A time always takes as many bytes, so that the mtime of a write that grows does not move it.
pub(crate) fn encode_time(time: Timestamp) -> Message {
    let mut message = Message::default();
    message.sfixed64_always(1, time.seconds);
    message.fixed32_always(2, time.nanos);
    message
}

fn encode_inode(inode: &Inode) -> Message {
    let mut message = Message::default();
    message.uint64(1, kind_number(inode.kind));
    message.uint32(2, inode.mode);
    message.uint32(3, inode.uid);
    message.uint32(4, inode.gid);
    message.uint64(5, inode.rdev);
    message.bytes(6, &inode.target);
    message.message(7, &encode_time(inode.mtime));
    message
}

const fn kind_number(kind: Kind) -> u64 {
    match kind {
        Kind::Regular => 0,
        Kind::Directory => 1,
        Kind::Symlink => 2,
        Kind::Fifo => 3,
        Kind::Socket => 4,
        Kind::CharDevice => 5,
        Kind::BlockDevice => 6,
    }
}

fn mark_parts(mark: &Mark) -> (u64, &[u8]) {
    match mark {
        Mark::Idle => (0, &[]),
        Mark::Claim => (1, &[]),
        Mark::Checkpoint(content) => (2, content),
        Mark::SnapshotBegin => (3, &[]),
        Mark::SnapshotEnd => (4, &[]),
        Mark::SeedBegin => (5, &[]),
        Mark::SeedEnd => (6, &[]),
        Mark::Text(content) => (7, content),
        Mark::Other { kind, content } => (*kind, content),
    }
}
