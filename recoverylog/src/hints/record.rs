//! What a journal of hints holds, as bytes: publications of hints, and notes of what must stay.
//!
//! A publication:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | magic word, `gzh1` |
//! | 4 | bytes of the hints |
//! | 4 | CRC-32C of all that follows |
//! | 4 | author |
//! | 4 | checksum of the chain after the last op |
//! | 8 | offset of the log after the last op |
//! | 8 | sequence number of the last op |
//! | 8 | time: seconds since 1970 |
//! | 4 | time: nanoseconds |
//! | | the hints, as a protobuf message `FSMHints` |
//!
//! Numbers are in little-endian order. Each record is one append.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use gazette_recoverylog_fsm::{Author, FsmHints, HintsError, Timestamp};

use super::note::{self, Note};

/// Hints, and what they are hints of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedHints {
    /// Who published them.
    pub author: Author,
    /// Offset of the log after the last op that they tell of. Everything before it is in them; the ops
    /// after it are not.
    pub offset: i64,
    /// Sequence number of that op.
    pub seq_no: i64,
    /// The chain's checksum after that op: what the next op must have.
    pub checksum: u32,
    /// When they were noted, as the log tells the time.
    pub time: Timestamp,
    /// The hints.
    pub hints: FsmHints,
}

/// Why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Its bytes are not those that were written.
    #[error("its bytes were changed")]
    Crc,
    /// It claims more bytes than any has.
    #[error("it claims {0} bytes")]
    TooLong(u32),
    /// It is cut short by the end of the journal.
    #[error("it is cut short")]
    Cut,
    /// A number is out of its range.
    #[error("its {0} is out of range")]
    Range(&'static str),
    /// The hints are none.
    #[error(transparent)]
    Hints(#[from] HintsError),
    /// It says something that this version does not know.
    #[error("it is of a kind that is not known here: {0}")]
    Kind(u8),
    /// A name is none.
    #[error("its name is not one")]
    Name,
}

/// Most bytes that hints may have: those of some five million files.
pub const HINTS_BYTES_MAX: u32 = 256 << 20;

const MAGIC: [u8; 4] = *b"gzh1";
const HEADER_BYTES: usize = 48;
/// Where what the CRC covers begins.
const COVERED_FROM: usize = 12;

/// Returns the record of what its CRC covers, of which `counted` bytes are told in front.
pub(super) fn seal(magic: [u8; 4], counted: usize, covered: &[u8]) -> Result<Bytes, RecordError> {
    let length = u32::try_from(counted)
        .ok()
        .filter(|length| *length <= HINTS_BYTES_MAX)
        .ok_or(RecordError::Range("length"))?;
    let mut record = BytesMut::with_capacity(COVERED_FROM + covered.len());
    record.put_slice(&magic);
    record.put_u32_le(length);
    record.put_u32_le(crc32c::crc32c(covered));
    record.put_slice(covered);
    Ok(record.freeze())
}

/// Returns what the CRC of a whole record covers. `uncounted` bytes of it are not told in front.
pub(super) fn open(
    magic: [u8; 4],
    uncounted: usize,
    mut record: Bytes,
) -> Result<Bytes, RecordError> {
    if record.len() < COVERED_FROM + uncounted || !record.starts_with(&magic) {
        return Err(RecordError::Cut);
    }
    record.advance(magic.len());
    let (counted, crc) = (record.get_u32_le() as usize, record.get_u32_le());
    if counted + uncounted != record.len() {
        return Err(RecordError::Cut);
    }
    if crc32c::crc32c(&record) != crc {
        return Err(RecordError::Crc);
    }
    Ok(record)
}

impl PublishedHints {
    /// Returns the record.
    pub fn encode(&self) -> Result<Bytes, RecordError> {
        let hints = self.hints.encode();
        let mut covered = BytesMut::with_capacity(HEADER_BYTES + hints.len());
        covered.put_u32_le(self.author.get());
        covered.put_u32_le(self.checksum);
        covered.put_i64_le(self.offset);
        covered.put_i64_le(self.seq_no);
        covered.put_i64_le(self.time.seconds);
        covered.put_u32_le(self.time.nanos);
        covered.put_slice(&hints);
        seal(MAGIC, hints.len(), &covered)
    }

    /// Decodes a whole record.
    pub fn decode(record: Bytes) -> Result<Self, RecordError> {
        let mut record = open(MAGIC, HEADER_BYTES - COVERED_FROM, record)?;
        let author = Author::new(record.get_u32_le()).ok_or(RecordError::Range("author"))?;
        let checksum = record.get_u32_le();
        let offset = record.get_i64_le();
        let seq_no = record.get_i64_le();
        let seconds = record.get_i64_le();
        let nanos = record.get_u32_le();
        if offset < 0 || seq_no < 0 {
            return Err(RecordError::Range("offset"));
        }
        if nanos >= 1_000_000_000 {
            return Err(RecordError::Range("time"));
        }
        Ok(Self {
            author,
            offset,
            seq_no,
            checksum,
            time: Timestamp { seconds, nanos },
            hints: FsmHints::decode_proto(record)?,
        })
    }
}

/// What a scan of a journal of hints comes upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scanned {
    /// Hints.
    Record {
        /// Where the record lies in the journal: its first byte.
        begin: i64,
        /// And behind its last one.
        end: i64,
        /// The hints.
        hints: PublishedHints,
    },
    /// A note.
    Note {
        /// Where the record lies in the journal: its first byte.
        begin: i64,
        /// And behind its last one.
        end: i64,
        /// The note.
        note: Note,
    },
    /// One that cannot be read. The scan goes on behind its magic word.
    Damaged {
        /// Where it begins in the journal.
        offset: i64,
        /// What is wrong.
        error: RecordError,
    },
}

/// Finds records in the bytes of a journal of hints, from any offset on, as they arrive. It holds one record
/// besides what it is given.
#[derive(Debug)]
pub struct HintsScanner {
    /// Offset of the first byte that is held.
    offset: i64,
    held: BytesMut,
}

impl HintsScanner {
    /// Begins at an offset of the journal.
    pub fn new(offset: i64) -> Self {
        Self {
            offset,
            held: BytesMut::new(),
        }
    }

    /// Takes the next bytes, which lie at `offset`. What is missing between is taken for gone.
    pub fn feed(&mut self, offset: i64, bytes: &[u8]) {
        let end = self.offset.saturating_add_unsigned(self.held.len() as u64);
        if offset != end {
            self.held.clear();
            self.offset = offset;
        }
        self.held.extend_from_slice(bytes);
    }

    /// Returns what is found next, or `None` if more bytes are needed.
    pub fn next_record(&mut self) -> Option<Scanned> {
        self.skip_junk();
        let is_note = self.held.starts_with(&note::MAGIC);
        let header = if is_note { COVERED_FROM } else { HEADER_BYTES };
        if self.held.len() < header {
            return None;
        }
        let begin = self.offset;
        let damaged = |error| Scanned::Damaged {
            offset: begin,
            error,
        };
        let length = (&self.held[MAGIC.len()..]).get_u32_le();
        if length > HINTS_BYTES_MAX {
            self.advance(1);
            return Some(damaged(RecordError::TooLong(length)));
        }
        let whole = header + length as usize;
        if self.held.len() < whole {
            return None;
        }
        let record = Bytes::copy_from_slice(&self.held[..whole]);
        let end = begin.saturating_add_unsigned(whole as u64);
        let scanned = if is_note {
            Note::decode(record).map(|note| Scanned::Note { begin, end, note })
        } else {
            PublishedHints::decode(record).map(|hints| Scanned::Record { begin, end, hints })
        };
        self.advance(if scanned.is_ok() { whole } else { 1 });
        Some(scanned.unwrap_or_else(damaged))
    }

    /// Says where a record begins that the end of the bytes cuts short, if one is.
    pub fn unfinished(&self) -> Option<i64> {
        let is_begun = self.held.starts_with(&MAGIC) || self.held.starts_with(&note::MAGIC);
        is_begun.then_some(self.offset)
    }

    /// Gives up on the record that is cut short, and looks behind its magic word.
    pub fn skip_unfinished(&mut self) {
        if self.unfinished().is_some() {
            self.advance(1);
        }
    }

    fn advance(&mut self, count: usize) {
        self.held.advance(count);
        self.offset = self.offset.saturating_add_unsigned(count as u64);
    }

    /// Drops what cannot be the beginning of a record.
    fn skip_junk(&mut self) {
        let is_beginning = |at: &usize| {
            let rest = &self.held[*at..];
            let word = &rest[..rest.len().min(MAGIC.len())];
            MAGIC.starts_with(word) || note::MAGIC.starts_with(word)
        };
        let junk = (0..self.held.len()).find(is_beginning);
        self.advance(junk.unwrap_or(self.held.len()));
    }
}

#[cfg(test)]
mod tests;
