//! Records of an input, and the journals that they map to. Pure.

use bytes::{Buf, Bytes, BytesMut};
use clap::ValueEnum;
use gazette_protocol::list_response;
use thiserror::Error;

/// How an input is cut into records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Framing {
    /// All of the input is one record
    None,
    /// A record is a line, with its newline
    Lines,
    /// A record has a header of four magic bytes and its length, which belongs to it
    Fixed,
}

/// How the journal of a record is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mapping {
    /// Any journal
    Random,
    /// The journal at the hash of the key, modulo their number, in the order of the names
    Modulo,
    /// The journal whose hash goes best with that of the key: few keys move when journals are added
    Rendezvous,
    /// The journal whose name is the key
    Direct,
}

/// An input that is not framed as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum FramingError {
    /// No record begins here.
    #[error(
        "byte {offset}: expected the header of a record of fixed framing, 66 33 93 36 and a \
             length"
    )]
    NoHeader { offset: u64 },
    /// A record longer than any append.
    #[error("byte {offset}: a record of {length} bytes is longer than {RECORD_MAX_BYTES}")]
    TooLong { offset: u64, length: usize },
    /// The input ends within a record.
    #[error("byte {offset}: the input ends within a record")]
    Truncated { offset: u64 },
}

/// Cuts an input, which comes in pieces, into records.
#[derive(Debug)]
pub(crate) struct Splitter {
    framing: Framing,
    buffer: BytesMut,
    /// Bytes of the buffer that are known to hold no newline.
    scanned: usize,
    /// Offset of the buffer in the input.
    offset: u64,
}

impl Splitter {
    pub(crate) fn new(framing: Framing) -> Self {
        Self {
            framing,
            buffer: BytesMut::new(),
            scanned: 0,
            offset: 0,
        }
    }

    /// Adds the next piece of the input.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next whole record, or `None` if the next piece is needed.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, FramingError> {
        let length = match self.framing {
            Framing::None => None,
            Framing::Lines => self.line_length()?,
            Framing::Fixed => self.fixed_length()?,
        };
        Ok(length.map(|length| self.take(length)))
    }

    /// Returns the last record, at the end of the input. A last line gets the newline that it lacks:
    /// whoever appends next must find the beginning of a line.
    pub(crate) fn finish(&mut self) -> Result<Option<Bytes>, FramingError> {
        if let Some(record) = self.next()? {
            return Ok(Some(record));
        }
        match self.framing {
            _ if self.buffer.is_empty() => Ok(None),
            Framing::None => Ok(Some(self.take(self.buffer.len()))),
            Framing::Lines => {
                self.buffer.extend_from_slice(b"\n");
                Ok(Some(self.take(self.buffer.len())))
            }
            // Editors and shells leave one behind.
            Framing::Fixed if self.buffer[..] == *b"\n" => Ok(None),
            Framing::Fixed => Err(FramingError::Truncated {
                offset: self.offset,
            }),
        }
    }

    fn take(&mut self, length: usize) -> Bytes {
        self.scanned = 0;
        self.offset += u64::try_from(length).unwrap_or(u64::MAX);
        self.buffer.split_to(length).freeze()
    }

    fn line_length(&mut self) -> Result<Option<usize>, FramingError> {
        let newline = self.buffer[self.scanned..]
            .iter()
            .position(|byte| *byte == b'\n');
        let length = newline.map(|at| self.scanned + at + 1);
        self.scanned = self.buffer.len();
        match length.unwrap_or(self.buffer.len()) {
            long if long > RECORD_MAX_BYTES => Err(FramingError::TooLong {
                offset: self.offset,
                length: long,
            }),
            _ => Ok(length),
        }
    }

    fn fixed_length(&self) -> Result<Option<usize>, FramingError> {
        let offset = self.offset;
        let magic = self.buffer.len().min(FIXED_MAGIC.len());
        // A lone newline may yet be the end of the input.
        let at_end = self.buffer[..] == *b"\n";
        if self.buffer[..magic] != FIXED_MAGIC[..magic] && !at_end {
            return Err(FramingError::NoHeader { offset });
        }
        let mut header = self.buffer.as_ref();
        if at_end || header.len() < FIXED_HEADER_BYTES {
            return Ok(None);
        }
        header.advance(FIXED_MAGIC.len());
        let length = usize::try_from(header.get_u32_le()).unwrap_or(usize::MAX);
        let length = length.saturating_add(FIXED_HEADER_BYTES);
        if length > RECORD_MAX_BYTES {
            return Err(FramingError::TooLong { offset, length });
        }
        Ok((self.buffer.len() >= length).then_some(length))
    }
}

/// Returns the key in a key record: its content without newline or header.
pub(crate) fn key_of(framing: Framing, record: &Bytes) -> Bytes {
    match framing {
        Framing::None => record.clone(),
        Framing::Lines => {
            let end = record.len() - usize::from(record.ends_with(b"\n"));
            record.slice(..end)
        }
        Framing::Fixed => record.slice(FIXED_HEADER_BYTES.min(record.len())..),
    }
}

/// Returns the journal that a key maps to, if there is one. `random` is any number.
pub(crate) fn map<'a>(
    mapping: Mapping,
    key: &[u8],
    journals: &'a [list_response::Journal],
    random: usize,
) -> Option<&'a str> {
    let at = |index: usize| {
        journals
            .get(index)
            .map(|journal| journal.spec.name.as_str())
    };
    if journals.is_empty() {
        return None;
    }
    match mapping {
        Mapping::Random => at(random % journals.len()),
        Mapping::Modulo => at(usize::try_from(fnv1a(key)).ok()? % journals.len()),
        Mapping::Rendezvous => {
            let hash = fnv1a(key);
            let score = |index: usize| hash ^ fnv1a(journals[index].spec.name.as_bytes());
            // The first of equals.
            let best = (0..journals.len())
                .rev()
                .max_by_key(|index| score(*index))?;
            at(best)
        }
        Mapping::Direct => {
            let named = |journal: &&list_response::Journal| journal.spec.name.as_bytes() == key;
            journals
                .iter()
                .find(named)
                .map(|journal| journal.spec.name.as_str())
        }
    }
}

/// The hash that all clients must share: FNV-1a of 32 bits.
fn fnv1a(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

const FIXED_MAGIC: [u8; 4] = [0x66, 0x33, 0x93, 0x36];
const FIXED_HEADER_BYTES: usize = 8;

/// Longest record: it is held in memory whole.
const RECORD_MAX_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests;
