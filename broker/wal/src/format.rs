#![doc = include_str!("../FORMAT.md")]
//!
//! This module is pure: no I/O.

pub(crate) mod payload;

/// Version of the format.
pub(crate) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"GZWALSEG";

/// Length of a segment's header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 72;

/// Length of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 40;

/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;

const FLAG_SYNCED: u32 = 1;
const FLAG_FOLLOWS: u32 = 2;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) synced: bool,
    pub(crate) follows: bool,
    pub(crate) generation: u64,
    pub(crate) first_lsn: u64,
    pub(crate) run: u64,
    pub(crate) salt: u64,
    pub(crate) previous_end: u64,
    pub(crate) segment_bytes: u64,
}

/// What the first bytes of a segment file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderState {
    Valid(SegmentHeader),
    /// Never used.
    Blank,
    /// Neither valid nor blank.
    Damaged,
    UnknownVersion(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let flags =
            if self.synced { FLAG_SYNCED } else { 0 } | if self.follows { FLAG_FOLLOWS } else { 0 };
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..20].copy_from_slice(&flags.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first_lsn.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.run.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.salt.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.previous_end.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.segment_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(segment: &[u8]) -> HeaderState {
        let Some(mut bytes) = segment.first_chunk::<SEGMENT_HEADER_BYTES>().copied() else {
            return HeaderState::Damaged;
        };
        if bytes.iter().all(|byte| *byte == 0) {
            return HeaderState::Blank;
        }
        let crc = u32_at(&bytes, 12);
        bytes[12..16].fill(0);
        if bytes[..8] != MAGIC || crc32c::crc32c(&bytes) != crc {
            return HeaderState::Damaged;
        }
        let version = u32_at(&bytes, 8);
        if version != VERSION {
            return HeaderState::UnknownVersion(version);
        }
        let flags = u32_at(&bytes, 16);
        HeaderState::Valid(Self {
            synced: flags & FLAG_SYNCED != 0,
            follows: flags & FLAG_FOLLOWS != 0,
            generation: u64_at(&bytes, 24),
            first_lsn: u64_at(&bytes, 32),
            run: u64_at(&bytes, 40),
            salt: u64_at(&bytes, 48),
            previous_end: u64_at(&bytes, 56),
            segment_bytes: u64_at(&bytes, 64),
        })
    }

    /// The LSN of an offset in the segment.
    pub(crate) fn lsn(&self, offset: usize) -> u64 {
        self.first_lsn.wrapping_add(offset as u64)
    }

    /// The first LSN of the segment that follows.
    pub(crate) fn end_lsn(&self) -> u64 {
        self.first_lsn.wrapping_add(self.segment_bytes)
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The log begins with a generation; an older one is not needed.
    Trim = 1,
    /// An append, with its content.
    CommitInline = 2,
    /// An append whose content was synced in its spool.
    CommitInSpool = 3,
    /// A spool is complete, the journal goes on elsewhere.
    Roll = 4,
    /// A spool is not needed.
    DropSpool = 5,
    /// A journal is not needed.
    Forget = 6,
    /// Copy of a journal's state, so that its older records are not needed.
    Journal = 7,
    /// Copy of a spool's state, so that its older records are not needed.
    Spool = 8,
    /// Nothing, but its durable LSN.
    Mark = 9,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Trim,
            2 => Self::CommitInline,
            3 => Self::CommitInSpool,
            4 => Self::Roll,
            5 => Self::DropSpool,
            6 => Self::Forget,
            7 => Self::Journal,
            8 => Self::Spool,
            9 => Self::Mark,
            _ => return None,
        })
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: Kind,
    pub(crate) payload_length: u32,
    pub(crate) payload_crc: u32,
    pub(crate) generation: u64,
    pub(crate) lsn: u64,
    pub(crate) durable_lsn: u64,
}

impl RecordHeader {
    pub(crate) fn encode(&self, salt: u64) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[4..8].copy_from_slice(&self.payload_length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[12] = self.kind as u8;
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.durable_lsn.to_le_bytes());
        let crc = header_crc(salt, &bytes);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header at an offset of a segment, if there is a valid one of this generation.
    pub(crate) fn decode(
        segment: &[u8],
        offset: usize,
        expect: &SegmentHeader,
        checks: Checks,
    ) -> Option<Self> {
        let bytes = segment
            .get(offset..)?
            .first_chunk::<RECORD_HEADER_BYTES>()?;
        let header = Self {
            kind: Kind::from_byte(bytes[12])?,
            payload_length: u32_at(bytes, 4),
            payload_crc: u32_at(bytes, 8),
            generation: u64_at(bytes, 16),
            lsn: u64_at(bytes, 24),
            durable_lsn: u64_at(bytes, 32),
        };
        let here = header.lsn == expect.lsn(offset) && header.generation == expect.generation;
        let valid = here
            && (!checks.records || u32_at(bytes, 0) == header_crc(expect.salt, bytes))
            && offset + RECORD_HEADER_BYTES + header.payload_length as usize <= segment.len();
        valid.then_some(header)
    }

    /// The LSN that a header at an offset of a segment would have.
    pub(crate) fn decode_lsn(segment: &[u8], offset: usize) -> u64 {
        u64_at(segment, offset + 24)
    }

    /// The payload of the record at an offset of a segment, if it is whole.
    pub(crate) fn payload<'a>(
        &self,
        segment: &'a [u8],
        offset: usize,
        checks: Checks,
    ) -> Option<&'a [u8]> {
        let begin = offset + RECORD_HEADER_BYTES;
        let payload = segment.get(begin..begin + self.payload_length as usize)?;
        (!checks.records || crc32c::crc32c(payload) == self.payload_crc).then_some(payload)
    }

    /// Length of the record with the zeros that follow it.
    pub(crate) fn record_bytes(&self) -> usize {
        record_bytes(self.payload_length as usize)
    }
}

/// Length of a record in the log: its header, its payload, and zeros up to the next record.
pub(crate) const fn record_bytes(payload_bytes: usize) -> usize {
    (RECORD_HEADER_BYTES + payload_bytes).next_multiple_of(ALIGNMENT)
}

/// What recovery checks. Tests leave one out to show that they would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checks {
    pub(crate) records: bool,
}

impl Checks {
    pub(crate) const ALL: Self = Self { records: true };
}

fn header_crc(salt: u64, header: &[u8; RECORD_HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &header[4..])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..]
        .first_chunk()
        .copied()
        .map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .copied()
        .map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests;
