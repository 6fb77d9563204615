//! The little of protobuf's wire format that ops and hints need.

use bytes::{Buf, Bytes, BytesMut};

/// Why bytes are not a protobuf message of the expected shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    /// The bytes end inside a field.
    #[error("the message is cut short")]
    Truncated,
    /// A varint has more than 64 bits.
    #[error("a varint is too long")]
    Overflow,
    /// Field number zero, or one too large.
    #[error("a field number is not valid")]
    Tag,
    /// A wire type that does not exist, or an end of a group that did not begin.
    #[error("wire type {0} is not valid here")]
    WireType(u8),
    /// A known field has another wire type than it must.
    #[error("field {0} has wire type {1}")]
    FieldType(u32, u8),
    /// Groups nest too deeply.
    #[error("groups nest too deeply")]
    Nesting,
}

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;
const GROUP_BEGIN: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// Unknown groups within groups that are skipped before the message is refused.
const GROUPS_MAX: u32 = 32;

/// One field as it lies in a message.
#[derive(Debug)]
pub(crate) enum Value {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(Bytes),
}

impl Value {
    fn wire_type(&self) -> u8 {
        match self {
            Self::Varint(_) => VARINT,
            Self::Fixed64(_) => FIXED64,
            Self::Fixed32(_) => FIXED32,
            Self::Bytes(_) => LENGTH,
        }
    }

    pub(crate) fn int64(self, field: u32) -> Result<i64, ProtoError> {
        self.uint64(field).map(u64::cast_signed)
    }

    pub(crate) fn uint64(self, field: u32) -> Result<u64, ProtoError> {
        match self {
            Self::Varint(value) => Ok(value),
            other @ (Self::Fixed64(_) | Self::Fixed32(_) | Self::Bytes(_)) => {
                Err(ProtoError::FieldType(field, other.wire_type()))
            }
        }
    }

    /// As protobuf has it: the low 32 bits.
    pub(crate) fn uint32(self, field: u32) -> Result<u32, ProtoError> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "protobuf keeps the low bits"
        )]
        self.uint64(field).map(|value| value as u32)
    }

    pub(crate) fn bool(self, field: u32) -> Result<bool, ProtoError> {
        self.uint64(field).map(|value| value != 0)
    }

    pub(crate) fn fixed32(self, field: u32) -> Result<u32, ProtoError> {
        match self {
            Self::Fixed32(value) => Ok(value),
            other @ (Self::Varint(_) | Self::Fixed64(_) | Self::Bytes(_)) => {
                Err(ProtoError::FieldType(field, other.wire_type()))
            }
        }
    }

    pub(crate) fn sfixed64(self, field: u32) -> Result<i64, ProtoError> {
        match self {
            Self::Fixed64(value) => Ok(value.cast_signed()),
            other @ (Self::Varint(_) | Self::Fixed32(_) | Self::Bytes(_)) => {
                Err(ProtoError::FieldType(field, other.wire_type()))
            }
        }
    }

    pub(crate) fn bytes(self, field: u32) -> Result<Bytes, ProtoError> {
        match self {
            Self::Bytes(value) => Ok(value),
            other @ (Self::Varint(_) | Self::Fixed64(_) | Self::Fixed32(_)) => {
                Err(ProtoError::FieldType(field, other.wire_type()))
            }
        }
    }
}

fn varint(bytes: &mut Bytes) -> Result<u64, ProtoError> {
    let mut value = 0u64;
    for index in 0..10u32 {
        if bytes.is_empty() {
            return Err(ProtoError::Truncated);
        }
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(ProtoError::Overflow)
}

fn take(bytes: &mut Bytes, length: u64) -> Result<Bytes, ProtoError> {
    match usize::try_from(length) {
        Ok(length) if length <= bytes.len() => Ok(bytes.split_to(length)),
        _ => Err(ProtoError::Truncated),
    }
}

fn tag(bytes: &mut Bytes) -> Result<(u32, u8), ProtoError> {
    let tag = varint(bytes)?;
    let field = u32::try_from(tag >> 3).map_err(|_| ProtoError::Tag)?;
    if field == 0 || field > i32::MAX.cast_unsigned() {
        return Err(ProtoError::Tag);
    }
    Ok((field, (tag & 7) as u8))
}

/// Takes the next field off `bytes`; `None` at their end. Groups, which nothing here uses, are
/// skipped.
pub(crate) fn next_field(bytes: &mut Bytes) -> Result<Option<(u32, Value)>, ProtoError> {
    while !bytes.is_empty() {
        let (field, wire_type) = tag(bytes)?;
        if wire_type == GROUP_BEGIN {
            skip_group(bytes)?;
            continue;
        }
        return value(bytes, wire_type).map(|value| Some((field, value)));
    }
    Ok(None)
}

fn value(bytes: &mut Bytes, wire_type: u8) -> Result<Value, ProtoError> {
    match wire_type {
        VARINT => varint(bytes).map(Value::Varint),
        FIXED64 => bytes
            .try_get_u64_le()
            .map(Value::Fixed64)
            .map_err(|_| ProtoError::Truncated),
        LENGTH => {
            let length = varint(bytes)?;
            take(bytes, length).map(Value::Bytes)
        }
        FIXED32 => bytes
            .try_get_u32_le()
            .map(Value::Fixed32)
            .map_err(|_| ProtoError::Truncated),
        other => Err(ProtoError::WireType(other)),
    }
}

fn skip_group(bytes: &mut Bytes) -> Result<(), ProtoError> {
    let mut depth = 1u32;
    while depth > 0 {
        if bytes.is_empty() {
            return Err(ProtoError::Truncated);
        }
        match tag(bytes)?.1 {
            GROUP_BEGIN if depth == GROUPS_MAX => return Err(ProtoError::Nesting),
            GROUP_BEGIN => depth += 1,
            GROUP_END => depth -= 1,
            wire_type => {
                let _ignored = value(bytes, wire_type)?;
            }
        }
    }
    Ok(())
}

/// Writes one message. Zero values are left out, as proto3 does, unless a method says otherwise.
/// Fields must be written in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Message {
    bytes: BytesMut,
}

impl Message {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes.freeze()
    }

    fn put_tag(&mut self, field: u32, wire_type: u8) {
        put_varint(
            &mut self.bytes,
            u64::from(field) << 3 | u64::from(wire_type),
        );
    }

    pub(crate) fn int64(&mut self, field: u32, value: i64) {
        self.uint64(field, value.cast_unsigned());
    }

    pub(crate) fn uint64(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.uint64_always(field, value);
        }
    }

    pub(crate) fn uint64_always(&mut self, field: u32, value: u64) {
        self.put_tag(field, VARINT);
        put_varint(&mut self.bytes, value);
    }

    pub(crate) fn uint32(&mut self, field: u32, value: u32) {
        self.uint64(field, value.into());
    }

    pub(crate) fn bool(&mut self, field: u32, value: bool) {
        self.uint64(field, value.into());
    }

    pub(crate) fn fixed32(&mut self, field: u32, value: u32) {
        if value != 0 {
            self.fixed32_always(field, value);
        }
    }

    pub(crate) fn fixed32_always(&mut self, field: u32, value: u32) {
        self.put_tag(field, FIXED32);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn sfixed64_always(&mut self, field: u32, value: i64) {
        self.put_tag(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, field: u32, value: &[u8]) {
        if !value.is_empty() {
            self.bytes_always(field, value);
        }
    }

    pub(crate) fn bytes_always(&mut self, field: u32, value: &[u8]) {
        self.put_tag(field, LENGTH);
        put_varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    pub(crate) fn message(&mut self, field: u32, message: &Self) {
        self.bytes_always(field, &message.bytes);
    }
}

fn put_varint(bytes: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        bytes.extend_from_slice(&[(value & 0x7f) as u8 | 0x80]);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
    bytes.extend_from_slice(&[value as u8]);
}
