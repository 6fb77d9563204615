//! The payloads of records: protobuf messages.
//!
//! The payload of [`Kind::CommitInline`] is the length of the message in four bytes, the message,
//! and the content up to the end. All others are the message alone; [`Kind::Mark`] has none.
//!
//! [`Kind::CommitInline`]: super::Kind::CommitInline
//! [`Kind::Mark`]: super::Kind::Mark

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use gazette_protocol::{Fragment, LabelSet};
use prost::{
    Message,
    encoding::{self, WireType},
};

/// A journal. Part of several messages, and [`Kind::Journal`](super::Kind::Journal) alone.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct JournalPart {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(int64, tag = "3")]
    pub(crate) create_revision: i64,
    /// The write head.
    #[prost(int64, tag = "4")]
    pub(crate) end: i64,
    #[prost(message, required, tag = "5")]
    pub(crate) registers: LabelSet,
}

/// A spool.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SpoolPart {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// Without the journal's name.
    #[prost(message, required, tag = "2")]
    pub(crate) fragment: Fragment,
    /// Nanoseconds since the Unix epoch.
    #[prost(int64, optional, tag = "3")]
    pub(crate) first_append_nanos: Option<i64>,
    #[prost(bool, tag = "4")]
    pub(crate) complete: bool,
    /// Missing where they are the journal's.
    #[prost(message, optional, tag = "5")]
    pub(crate) registers: Option<LabelSet>,
}

/// [`Kind::CommitInline`](super::Kind::CommitInline) and
/// [`Kind::CommitInSpool`](super::Kind::CommitInSpool).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CommitMessage {
    #[prost(message, required, tag = "1")]
    pub(crate) journal: JournalPart,
    #[prost(message, required, tag = "2")]
    pub(crate) spool: SpoolPart,
    #[prost(int64, tag = "3")]
    pub(crate) append_begin: i64,
}

/// [`Kind::Roll`](super::Kind::Roll), with the completed spool if there is one, and
/// [`Kind::Spool`](super::Kind::Spool).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StateMessage {
    #[prost(message, required, tag = "1")]
    pub(crate) journal: JournalPart,
    #[prost(message, optional, tag = "2")]
    pub(crate) spool: Option<SpoolPart>,
}

/// [`Kind::DropSpool`](super::Kind::DropSpool).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DropSpoolMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) journal_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) spool_id: u64,
}

/// [`Kind::Forget`](super::Kind::Forget).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ForgetMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) journal_id: u64,
}

/// [`Kind::Trim`](super::Kind::Trim).
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct TrimMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) oldest_generation: u64,
    /// Journals and spools with this number or a greater one have no record before.
    #[prost(uint64, tag = "2")]
    pub(crate) next_id: u64,
}

/// Who a journal is. It does not change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) create_revision: i64,
    /// The fields of [`JournalPart`] above, encoded once.
    encoded: Vec<u8>,
}

impl Identity {
    pub(crate) fn new(id: u64, name: String, create_revision: i64) -> Self {
        let mut encoded = Vec::new();
        if id != 0 {
            encoding::uint64::encode(1, &id, &mut encoded);
        }
        if !name.is_empty() {
            encoding::string::encode(2, &name, &mut encoded);
        }
        if create_revision != 0 {
            encoding::int64::encode(3, &create_revision, &mut encoded);
        }
        Self {
            id,
            name,
            create_revision,
            encoded,
        }
    }
}

/// A journal's state by reference, to encode it without a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalRef<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) end: i64,
    pub(crate) registers: &'a LabelSet,
}

impl JournalRef<'_> {
    pub(crate) fn encoded_len(&self) -> usize {
        let end = if self.end == 0 {
            0
        } else {
            encoding::int64::encoded_len(4, &self.end)
        };
        self.identity.encoded.len() + end + encoding::message::encoded_len(5, self.registers)
    }

    pub(crate) fn encode(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(&self.identity.encoded);
        if self.end != 0 {
            encoding::int64::encode(4, &self.end, buffer);
        }
        encoding::message::encode(5, self.registers, buffer);
    }
}

/// A spool's state by reference, to encode it without a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpoolRef<'a> {
    pub(crate) id: u64,
    pub(crate) fragment: &'a Fragment,
    pub(crate) first_append: Option<SystemTime>,
    pub(crate) complete: bool,
    pub(crate) registers: Option<&'a LabelSet>,
}

impl SpoolRef<'_> {
    pub(crate) fn encoded_len(&self) -> usize {
        let first_append = self.first_append.map(to_nanos);
        (if self.id == 0 {
            0
        } else {
            encoding::uint64::encoded_len(1, &self.id)
        }) + encoding::message::encoded_len(2, self.fragment)
            + first_append.map_or(0, |nanos| encoding::int64::encoded_len(3, &nanos))
            + if self.complete {
                encoding::bool::encoded_len(4, &true)
            } else {
                0
            }
            + self
                .registers
                .map_or(0, |set| encoding::message::encoded_len(5, set))
    }

    pub(crate) fn encode(&self, buffer: &mut Vec<u8>) {
        if self.id != 0 {
            encoding::uint64::encode(1, &self.id, buffer);
        }
        encoding::message::encode(2, self.fragment, buffer);
        if let Some(time) = self.first_append {
            encoding::int64::encode(3, &to_nanos(time), buffer);
        }
        if self.complete {
            encoding::bool::encode(4, &true, buffer);
        }
        if let Some(set) = self.registers {
            encoding::message::encode(5, set, buffer);
        }
    }
}

/// Encodes a [`CommitMessage`], after its length where content follows it.
pub(crate) fn encode_commit(
    journal: JournalRef<'_>,
    spool: SpoolRef<'_>,
    append_begin: i64,
    content_follows: bool,
) -> Vec<u8> {
    let (journal_len, spool_len) = (journal.encoded_len(), spool.encoded_len());
    // Keys, lengths and the offset on top.
    let mut buffer = Vec::with_capacity(journal_len + spool_len + 32);
    if content_follows {
        buffer.extend_from_slice(&[0; 4]);
    }
    encode_part(1, journal_len, &mut buffer, |buffer| journal.encode(buffer));
    encode_part(2, spool_len, &mut buffer, |buffer| spool.encode(buffer));
    if append_begin != 0 {
        encoding::int64::encode(3, &append_begin, &mut buffer);
    }
    if content_follows {
        let length = u32::try_from(buffer.len() - 4).unwrap_or(u32::MAX);
        buffer[..4].copy_from_slice(&length.to_le_bytes());
    }
    buffer
}

/// Encodes a [`StateMessage`].
pub(crate) fn encode_state(journal: JournalRef<'_>, spool: Option<SpoolRef<'_>>) -> Vec<u8> {
    let mut buffer = Vec::new();
    encode_part(1, journal.encoded_len(), &mut buffer, |buffer| {
        journal.encode(buffer);
    });
    if let Some(spool) = spool {
        encode_part(2, spool.encoded_len(), &mut buffer, |buffer| {
            spool.encode(buffer);
        });
    }
    buffer
}

fn encode_part(tag: u32, length: usize, buffer: &mut Vec<u8>, part: impl FnOnce(&mut Vec<u8>)) {
    encoding::encode_key(tag, WireType::LengthDelimited, buffer);
    encoding::encode_varint(length as u64, buffer);
    part(buffer);
}

/// Splits the payload of a [`Kind::CommitInline`](super::Kind::CommitInline) into message and
/// content.
pub(crate) fn split_inline(payload: &Bytes) -> Option<(Bytes, Bytes)> {
    let length = u32::from_le_bytes(*payload.first_chunk()?) as usize;
    let content_at = length.checked_add(4).filter(|at| *at <= payload.len())?;
    Some((payload.slice(4..content_at), payload.slice(content_at..)))
}

/// Nanoseconds since the Unix epoch, as far as they fit (years 1678 to 2262).
fn to_nanos(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
    }
}

/// The opposite of [`to_nanos`].
pub(crate) fn from_nanos(nanos: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanos.unsigned_abs());
    if nanos < 0 {
        SystemTime::UNIX_EPOCH - distance
    } else {
        SystemTime::UNIX_EPOCH + distance
    }
}

/// A record before it has a place in the log: what can be encoded without knowing it.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: super::Kind,
    message: Vec<u8>,
    content: Vec<Bytes>,
    length: u32,
    crc: u32,
}

impl Frame {
    pub(crate) fn new(kind: super::Kind, message: Vec<u8>, content: Vec<Bytes>) -> Self {
        let mut crc = crc32c::crc32c(&message);
        let mut length = message.len();
        for bytes in &content {
            crc = crc32c::crc32c_append(crc, bytes);
            length += bytes.len();
        }
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        Self {
            kind,
            message,
            content,
            length,
            crc,
        }
    }

    /// A record with nothing but a message.
    pub(crate) fn message(kind: super::Kind, message: &impl Message) -> Self {
        Self::new(kind, message.encode_to_vec(), Vec::new())
    }

    /// Length of the record in the log.
    pub(crate) fn record_bytes(&self) -> usize {
        super::record_bytes(self.length as usize)
    }

    /// The header of the record at a place.
    pub(crate) fn header(
        &self,
        generation: u64,
        lsn: u64,
        durable_lsn: u64,
    ) -> super::RecordHeader {
        super::RecordHeader {
            kind: self.kind,
            payload_length: self.length,
            payload_crc: self.crc,
            generation,
            lsn,
            durable_lsn,
        }
    }

    /// The pieces of the payload, in order.
    pub(crate) fn into_payload(self) -> (Vec<u8>, Vec<Bytes>) {
        (self.message, self.content)
    }
}

impl JournalPart {
    /// Splits into what changes and what does not.
    pub(crate) fn into_state(self) -> (Identity, i64, Arc<LabelSet>) {
        let identity = Identity::new(self.id, self.name, self.create_revision);
        (identity, self.end, Arc::new(self.registers))
    }
}
