//! Hints: which segments of a log a recovery must read.

use std::sync::Arc;

use bytes::Bytes;

use crate::op::Mode;
use crate::proto::{Message, ProtoError, next_field};
use crate::{Fnode, Segment, Timestamp};

mod json;

/// What a state of files was made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FsmHints {
    /// The log that is recorded into.
    pub log: Arc<str>,
    /// The live files, in order of their fnodes. A segment's log is empty where it is `log`.
    pub live_nodes: Vec<FnodeSegments>,
    /// Small files outside of fnodes.
    pub properties: Vec<Property>,
    /// The mode of the log, if it is not the reference's.
    pub mode: Option<Mode>,
    /// The latest time that an op said: those that say it may be among the ops that are not read.
    pub time: Option<Timestamp>,
}

/// The segments that hold a file's ops.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FnodeSegments {
    /// The file.
    pub fnode: Fnode,
    /// Its segments; the first op of the first is its Create, unless another birth is said.
    pub segments: Vec<Segment>,
    /// The sequence number of the op by which it comes to be, in hints that leave ops out. The
    /// segments of any file may hold that op, and ops of this file.
    pub birth: Option<i64>,
}

/// A small file outside of fnodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Property {
    /// Its path.
    pub path: Bytes,
    /// Its whole content.
    pub content: Bytes,
}

/// Why bytes are no hints.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HintsError {
    /// There are no bytes: no hints were ever written there, or they were lost.
    #[error("the hints are empty")]
    Empty,
    /// They look like JSON, but are not.
    #[error("the hints are no JSON (line {line}, column {column})")]
    Json {
        /// Line of the mistake, from 1.
        line: usize,
        /// Column of the mistake, from 1.
        column: usize,
    },
    /// A member of the JSON form has the wrong type or is out of range.
    #[error("the hints' member {0} is not valid")]
    Member(&'static str),
    /// They are no protobuf message of this shape.
    #[error("the hints are no protobuf message: {0}")]
    Proto(#[from] ProtoError),
    /// A text is not UTF-8.
    #[error("the name of a log in the hints is not UTF-8")]
    Text,
    /// A mode that does not exist.
    #[error("the hints are of the unknown mode {0}")]
    Mode(u64),
}

/// Fields of hints that old readers skip. The birth is a field of a file.
const BIRTH: u32 = 16;
const MODE: u32 = 16;
const TIME: u32 = 17;

impl FsmHints {
    /// Makes hints that name a log only.
    pub fn of_log(log: &str) -> Self {
        Self {
            log: log.into(),
            ..Self::default()
        }
    }

    /// Tells whether there is nothing to read by them, so that a log is played from its beginning.
    pub fn is_empty(&self) -> bool {
        self.live_nodes.is_empty()
    }

    /// Returns the protobuf form.
    pub fn encode(&self) -> Bytes {
        let mut message = Message::default();
        message.bytes(1, self.log.as_bytes());
        for node in &self.live_nodes {
            let mut inner = Message::default();
            inner.int64(1, node.fnode.0);
            for segment in &node.segments {
                inner.message(2, &encode_segment(segment));
            }
            inner.int64(BIRTH, node.birth.unwrap_or(0));
            message.message(2, &inner);
        }
        for property in &self.properties {
            let mut inner = Message::default();
            inner.bytes(1, &property.path);
            inner.bytes(2, &property.content);
            message.message(3, &inner);
        }
        if let Some(mode) = self.mode {
            message.uint64(MODE, crate::op::mode_number(mode));
        }
        if let Some(time) = self.time {
            message.message(TIME, &crate::op::encode_time(time));
        }
        message.into_bytes()
    }

    /// Returns the JSON form, byte for byte as the reference writes it into etcd. It cannot carry
    /// content of properties that is not UTF-8.
    pub fn to_json(&self) -> String {
        json::encode(self)
    }

    /// Decodes either form.
    pub fn decode(bytes: &[u8]) -> Result<Self, HintsError> {
        match bytes.first() {
            None => Err(HintsError::Empty),
            Some(b'{') => json::decode(bytes),
            Some(_) => Self::decode_proto(Bytes::copy_from_slice(bytes)),
        }
    }

    /// Decodes the protobuf form, of which no bytes are the empty message.
    pub fn decode_proto(mut bytes: Bytes) -> Result<Self, HintsError> {
        let mut hints = Self::default();
        while let Some((field, value)) = next_field(&mut bytes)? {
            match field {
                1 => hints.log = text(&value.bytes(field)?)?,
                2 => hints.live_nodes.push(decode_node(value.bytes(field)?)?),
                3 => hints.properties.push(decode_property(value.bytes(field)?)?),
                MODE => {
                    let number = value.uint64(field)?;
                    let mode = crate::op::mode_of(number).ok_or(HintsError::Mode(number))?;
                    hints.mode = Some(mode);
                }
                TIME => {
                    let time = crate::op::decode_time(value.bytes(field)?);
                    hints.time = Some(time.map_err(|_| HintsError::Member("time"))?);
                }
                _ => {}
            }
        }
        Ok(hints)
    }
}

fn encode_segment(segment: &Segment) -> Message {
    let mut message = Message::default();
    message.fixed32(1, segment.author);
    message.int64(2, segment.first_seq_no);
    message.int64(3, segment.first_offset);
    message.fixed32(4, segment.first_checksum);
    message.int64(5, segment.last_seq_no);
    message.int64(6, segment.last_offset);
    message.bytes(7, segment.log.as_bytes());
    message
}

fn text(bytes: &[u8]) -> Result<Arc<str>, HintsError> {
    std::str::from_utf8(bytes)
        .map(Into::into)
        .map_err(|_| HintsError::Text)
}

fn decode_node(mut bytes: Bytes) -> Result<FnodeSegments, HintsError> {
    let mut node = FnodeSegments::default();
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => node.fnode = Fnode(value.int64(field)?),
            2 => node.segments.push(decode_segment(value.bytes(field)?)?),
            BIRTH => node.birth = Some(value.int64(field)?).filter(|birth| *birth != 0),
            _ => {}
        }
    }
    Ok(node)
}

fn empty_segment() -> Segment {
    Segment {
        author: 0,
        first_seq_no: 0,
        first_offset: 0,
        first_checksum: 0,
        last_seq_no: 0,
        last_offset: 0,
        log: "".into(),
    }
}

fn decode_segment(mut bytes: Bytes) -> Result<Segment, HintsError> {
    let mut segment = empty_segment();
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => segment.author = value.fixed32(field)?,
            2 => segment.first_seq_no = value.int64(field)?,
            3 => segment.first_offset = value.int64(field)?,
            4 => segment.first_checksum = value.fixed32(field)?,
            5 => segment.last_seq_no = value.int64(field)?,
            6 => segment.last_offset = value.int64(field)?,
            7 => segment.log = text(&value.bytes(field)?)?,
            _ => {}
        }
    }
    Ok(segment)
}

fn decode_property(mut bytes: Bytes) -> Result<Property, HintsError> {
    let mut property = Property::default();
    while let Some((field, value)) = next_field(&mut bytes)? {
        match field {
            1 => property.path = value.bytes(field)?,
            2 => property.content = value.bytes(field)?,
            _ => {}
        }
    }
    Ok(property)
}
