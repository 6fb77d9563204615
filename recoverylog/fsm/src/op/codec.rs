//! Ops as protobuf messages. FORMAT.md has the table of fields.

use bytes::Bytes;

use super::{Body, Change, Group, LinkName, Mark, Mode, OpError, RecordedOp, Write};
use crate::proto::{Message, ProtoError, next_field};
use crate::{AttributeChange, Fnode, Inode, Kind, SizeChange, Timestamp};

/// Fields of an op, as the reference has them.
mod base {
    pub(super) const SEQ_NO: u32 = 1;
    pub(super) const CHECKSUM: u32 = 2;
    pub(super) const AUTHOR: u32 = 3;
    pub(super) const CREATE: u32 = 4;
    pub(super) const LINK: u32 = 5;
    pub(super) const UNLINK: u32 = 6;
    pub(super) const WRITE: u32 = 7;
    pub(super) const PROPERTY: u32 = 8;
}

/// Fields of an op that old readers skip.
mod extension {
    pub(super) const GROUP: u32 = 101;
    pub(super) const MARK: u32 = 102;
    pub(super) const MODE: u32 = 103;
    pub(super) const TIME: u32 = 104;
    /// In Create, Link and Unlink.
    pub(super) const PARENT: u32 = 16;
    /// In Create.
    pub(super) const INODE: u32 = 17;
    /// In Write.
    pub(super) const CRC32C: u32 = 16;
    pub(super) const MTIME: u32 = 17;
    pub(super) const RERECORDED: u32 = 18;
    pub(super) const ATTRIBUTES: u32 = 20;
    pub(super) const SET_XATTR: u32 = 21;
    pub(super) const REMOVE_XATTR: u32 = 22;
    pub(super) const TRUNCATE: u32 = 23;
    pub(super) const PUNCH: u32 = 24;
    pub(super) const ZERO: u32 = 25;
}

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
    };
    message.message(field, &inner);
    message
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

/// What several occurrences of an op's fields add up to.
#[derive(Default)]
struct Raw {
    seq_no: i64,
    checksum: u32,
    author: u32,
    create: Option<RawCreate>,
    link: Option<RawLink>,
    unlink: Option<RawLink>,
    write: Option<RawWrite>,
    property: Option<(Bytes, Bytes)>,
    time: Option<Timestamp>,
    group: Option<Group>,
    mark: Option<Mark>,
    mode: Option<Mode>,
}

#[derive(Default)]
struct RawCreate {
    at: LinkName,
    inode: Option<Inode>,
}

#[derive(Default)]
struct RawLink {
    fnode: Fnode,
    at: LinkName,
}

#[derive(Default)]
struct RawWrite {
    write: Write,
    change: Option<Change>,
}

pub(super) fn decode(mut bytes: Bytes) -> Result<RecordedOp, OpError> {
    let mut raw = Raw::default();
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            base::SEQ_NO => raw.seq_no = value.int64(field)?,
            base::CHECKSUM => raw.checksum = value.fixed32(field)?,
            base::AUTHOR => raw.author = value.fixed32(field)?,
            base::CREATE => {
                decode_create(value.bytes(field)?, raw.create.get_or_insert_default())?;
            }
            base::LINK => decode_link(value.bytes(field)?, raw.link.get_or_insert_default())?,
            base::UNLINK => decode_link(value.bytes(field)?, raw.unlink.get_or_insert_default())?,
            base::WRITE => decode_write(value.bytes(field)?, raw.write.get_or_insert_default())?,
            base::PROPERTY => {
                decode_pair(value.bytes(field)?, raw.property.get_or_insert_default())?;
            }
            // What readers put in. Types are checked, as the reference does; values are not used.
            9 | 10 => {
                let _offset = value.int64(field)?;
            }
            11 => {
                let _log = value.bytes(field)?;
            }
            extension::TIME => raw.time = Some(decode_time(value.bytes(field)?)?),
            extension::GROUP => raw.group = Some(decode_group(value.bytes(field)?)?),
            extension::MARK => raw.mark = Some(decode_mark(value.bytes(field)?)?),
            extension::MODE => {
                let number = value.uint64(field)?;
                raw.mode = Some(mode_of(number).ok_or(OpError::Mode(number))?);
            }
            _ => {}
        }
    }
    let stray = raw.write.as_ref().map_or(0, |write| write.write.length);
    let body = body(&mut raw)?;
    let stray_content = match &body {
        Body::Write(_) | Body::Change { .. } => 0,
        Body::NoOp { .. }
        | Body::Create { .. }
        | Body::Link { .. }
        | Body::Unlink { .. }
        | Body::Property { .. } => stray,
    };
    Ok(RecordedOp {
        seq_no: raw.seq_no,
        checksum: raw.checksum,
        author: raw.author,
        time: raw.time,
        group: raw.group,
        mode: raw.mode,
        body,
        stray_content,
    })
}

/// Of several actions in one op the first counts, in the order of their fields.
fn body(raw: &mut Raw) -> Result<Body, OpError> {
    Ok(if let Some(RawCreate { at, inode }) = raw.create.take() {
        Body::Create { at, inode }
    } else if let Some(RawLink { fnode, at }) = raw.link.take() {
        Body::Link { fnode, at }
    } else if let Some(RawLink { fnode, at }) = raw.unlink.take() {
        Body::Unlink { fnode, at }
    } else if let Some(RawWrite { write, change }) = raw.write.take() {
        match change {
            None => Body::Write(write),
            Some(_) if write.length != 0 => return Err(OpError::Ambiguous),
            Some(change) => Body::Change {
                fnode: write.fnode,
                change,
                mtime: write.mtime,
            },
        }
    } else if let Some((path, content)) = raw.property.take() {
        Body::Property { path, content }
    } else {
        Body::NoOp {
            mark: raw.mark.take(),
        }
    })
}

fn decode_create(mut bytes: Bytes, create: &mut RawCreate) -> Result<(), OpError> {
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => create.at.path = value.bytes(field)?,
            extension::PARENT => create.at.parent = Fnode(value.int64(field)?),
            extension::INODE => create.inode = Some(decode_inode(value.bytes(field)?)?),
            _ => {}
        }
    }
    Ok(())
}

fn decode_link(mut bytes: Bytes, link: &mut RawLink) -> Result<(), ProtoError> {
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => link.fnode = Fnode(value.int64(field)?),
            2 => link.at.path = value.bytes(field)?,
            extension::PARENT => link.at.parent = Fnode(value.int64(field)?),
            _ => {}
        }
    }
    Ok(())
}

fn decode_write(mut bytes: Bytes, raw: &mut RawWrite) -> Result<(), OpError> {
    let RawWrite { write, change } = raw;
    while let Some((field, value)) = next_field(&mut bytes)? {
        let said = match field {
            1 => {
                write.fnode = Fnode(value.int64(field)?);
                continue;
            }
            2 => {
                write.offset = value.int64(field)?;
                continue;
            }
            3 => {
                write.length = value.int64(field)?;
                continue;
            }
            extension::CRC32C => {
                write.crc32c = Some(value.fixed32(field)?);
                continue;
            }
            extension::MTIME => {
                write.mtime = Some(decode_time(value.bytes(field)?)?);
                continue;
            }
            extension::RERECORDED => {
                write.rerecorded = value.bool(field)?;
                continue;
            }
            extension::ATTRIBUTES => Change::Attributes(decode_attributes(value.bytes(field)?)?),
            extension::SET_XATTR => {
                let mut pair = <(Bytes, Bytes)>::default();
                decode_pair(value.bytes(field)?, &mut pair)?;
                Change::SetXattr {
                    name: pair.0,
                    value: pair.1,
                }
            }
            extension::REMOVE_XATTR => {
                let mut pair = <(Bytes, Bytes)>::default();
                decode_pair(value.bytes(field)?, &mut pair)?;
                Change::RemoveXattr { name: pair.0 }
            }
            extension::TRUNCATE => {
                let (size, _, _) = decode_range(value.bytes(field)?)?;
                Change::Size(SizeChange::Truncate { size })
            }
            extension::PUNCH => {
                let (offset, length, _) = decode_range(value.bytes(field)?)?;
                Change::Size(SizeChange::Punch { offset, length })
            }
            extension::ZERO => {
                let (offset, length, keep_size) = decode_range(value.bytes(field)?)?;
                Change::Size(SizeChange::Zero {
                    offset,
                    length,
                    keep_size,
                })
            }
            _ => continue,
        };
        if change.replace(said).is_some() {
            return Err(OpError::Ambiguous);
        }
    }
    Ok(())
}

fn decode_pair(mut bytes: Bytes, pair: &mut (Bytes, Bytes)) -> Result<(), ProtoError> {
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => pair.0 = value.bytes(field)?,
            2 => pair.1 = value.bytes(field)?,
            _ => {}
        }
    }
    Ok(())
}

fn decode_range(mut bytes: Bytes) -> Result<(u64, u64, bool), OpError> {
    let mut range = (0u64, 0u64, false);
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => range.0 = value.uint64(field)?,
            2 => range.1 = value.uint64(field)?,
            3 => range.2 = value.bool(field)?,
            _ => {}
        }
    }
    match range.0.checked_add(range.1) {
        Some(end) if i64::try_from(end).is_ok() => Ok(range),
        _ => Err(OpError::Range),
    }
}

fn decode_attributes(mut bytes: Bytes) -> Result<AttributeChange, OpError> {
    let mut change = AttributeChange::default();
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => change.mode = Some(value.uint32(field)? & 0o7777),
            2 => change.uid = Some(value.uint32(field)?),
            3 => change.gid = Some(value.uint32(field)?),
            4 => change.atime = Some(decode_time(value.bytes(field)?)?),
            5 => change.mtime = Some(decode_time(value.bytes(field)?)?),
            _ => {}
        }
    }
    Ok(change)
}

pub(crate) fn decode_time(mut bytes: Bytes) -> Result<Timestamp, OpError> {
    let mut time = Timestamp::default();
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => time.seconds = value.sfixed64(field)?,
            2 => time.nanos = value.fixed32(field)?,
            _ => {}
        }
    }
    if time.nanos >= 1_000_000_000 {
        return Err(OpError::Time);
    }
    Ok(time)
}

fn decode_inode(mut bytes: Bytes) -> Result<Inode, OpError> {
    let mut inode = Inode::default();
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => {
                inode.kind = match value.uint64(field)? {
                    0 => Kind::Regular,
                    1 => Kind::Directory,
                    2 => Kind::Symlink,
                    3 => Kind::Fifo,
                    4 => Kind::Socket,
                    5 => Kind::CharDevice,
                    6 => Kind::BlockDevice,
                    other => return Err(OpError::Kind(other)),
                }
            }
            2 => inode.mode = value.uint32(field)? & 0o7777,
            3 => inode.uid = value.uint32(field)?,
            4 => inode.gid = value.uint32(field)?,
            5 => inode.rdev = value.uint64(field)?,
            6 => inode.target = value.bytes(field)?,
            7 => inode.mtime = decode_time(value.bytes(field)?)?,
            _ => {}
        }
    }
    Ok(inode)
}

fn decode_group(mut bytes: Bytes) -> Result<Group, ProtoError> {
    let mut group = Group {
        first: 0,
        last: false,
    };
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => group.first = value.int64(field)?,
            2 => group.last = value.bool(field)?,
            _ => {}
        }
    }
    Ok(group)
}

fn decode_mark(mut bytes: Bytes) -> Result<Mark, ProtoError> {
    let (mut kind, mut content) = (0, Bytes::new());
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => kind = value.uint64(field)?,
            2 => content = value.bytes(field)?,
            _ => {}
        }
    }
    Ok(match kind {
        0 => Mark::Idle,
        1 => Mark::Claim,
        2 => Mark::Checkpoint(content),
        3 => Mark::SnapshotBegin,
        4 => Mark::SnapshotEnd,
        5 => Mark::SeedBegin,
        6 => Mark::SeedEnd,
        7 => Mark::Text(content),
        kind => Mark::Other { kind, content },
    })
}
