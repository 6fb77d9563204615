//! Ops from protobuf messages.

use bytes::Bytes;

use super::fields::{base, extension};
use super::{
    Body, Change, Group, LinkName, Mark, Mode, OpError, RecordedOp, Restated, Write, mode_of,
};
use crate::proto::{ProtoError, next_field};
use crate::{AttributeChange, Fnode, Inode, Kind, SizeChange, Timestamp};

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
            extension::RESTATED => {
                Change::Restated(Box::new(decode_restated(value.bytes(field)?)?))
            }
            _ => continue,
        };
        if change.replace(said).is_some() {
            return Err(OpError::Ambiguous);
        }
    }
    Ok(())
}

fn decode_restated(mut bytes: Bytes) -> Result<Restated, OpError> {
    let mut restated = Restated::default();
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => restated.inode = decode_inode(value.bytes(field)?)?,
            2 => restated.atime = Some(decode_time(value.bytes(field)?)?),
            3 => {
                let mut link = RawLink::default();
                decode_link(value.bytes(field)?, &mut link)?;
                restated.links.push(link.at);
            }
            4 => {
                let mut pair = <(Bytes, Bytes)>::default();
                decode_pair(value.bytes(field)?, &mut pair)?;
                restated.xattrs.push(pair);
            }
            _ => {}
        }
    }
    Ok(restated)
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
