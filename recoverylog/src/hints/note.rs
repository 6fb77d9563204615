//! Notes in a journal of hints: what must stay in the log, and what went.
//!
//! `gzn1`, the bytes of what follows the CRC, the CRC-32C of that; then the kind, the time, the name, and what the
//! kind has: see `FORMAT.md`. Their order in the journal decides who comes first.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use gazette_recoverylog_fsm::{FsmHints, Timestamp};

use super::{
    RecordError,
    record::{open, seal},
};

pub(super) const MAGIC: [u8; 4] = *b"gzn1";

/// A note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// When it was written, by the clock of its writer.
    pub time: Timestamp,
    /// What it says.
    pub body: NoteBody,
}

/// What a note says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoteBody {
    /// Something must stay.
    Pin(Pin),
    /// The pin of this name is over.
    Release {
        /// The name.
        name: String,
    },
    /// These ranges of the log go.
    Prune {
        /// Ranges `[begin, end)`, in order.
        ranges: Vec<(i64, i64)>,
    },
}

/// What must stay in a log for somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Whose it is: `keep/...`, `fork/LOG`, `standby/ID`. A later pin of the same name takes its place.
    pub name: String,
    /// It is over at this second since 1970; never if `None`.
    pub until: Option<i64>,
    /// Offset up to which the hints tell of the log.
    pub from: i64,
    /// Offset up to which it is read from there; [`i64::MAX`] if it follows the log to its head.
    pub to: i64,
    /// Hints of the log up to `from`.
    pub hints: FsmHints,
}

const KIND_PIN: u8 = 1;
const KIND_RELEASE: u8 = 2;
const KIND_PRUNE: u8 = 3;

impl Note {
    /// Returns the record.
    pub fn encode(&self) -> Result<Bytes, RecordError> {
        let mut covered = BytesMut::new();
        let (kind, name) = match &self.body {
            NoteBody::Pin(pin) => (KIND_PIN, pin.name.as_str()),
            NoteBody::Release { name } => (KIND_RELEASE, name.as_str()),
            NoteBody::Prune { .. } => (KIND_PRUNE, ""),
        };
        covered.put_u8(kind);
        covered.put_i64_le(self.time.seconds);
        covered.put_u32_le(self.time.nanos);
        covered.put_u16_le(u16::try_from(name.len()).map_err(|_| RecordError::Name)?);
        covered.put_slice(name.as_bytes());
        match &self.body {
            NoteBody::Pin(pin) => {
                covered.put_i64_le(pin.until.unwrap_or(0));
                covered.put_i64_le(pin.from);
                covered.put_i64_le(pin.to);
                covered.put_slice(&pin.hints.encode());
            }
            NoteBody::Release { .. } => {}
            NoteBody::Prune { ranges } => {
                for (begin, end) in ranges {
                    covered.put_i64_le(*begin);
                    covered.put_i64_le(*end);
                }
            }
        }
        seal(MAGIC, covered.len(), &covered)
    }

    /// Decodes a whole record.
    pub fn decode(record: Bytes) -> Result<Self, RecordError> {
        let mut record = open(MAGIC, 0, record)?;
        let cut = |_| RecordError::Cut;
        let kind = record.try_get_u8().map_err(cut)?;
        let seconds = record.try_get_i64_le().map_err(cut)?;
        let nanos = record.try_get_u32_le().map_err(cut)?;
        let length = usize::from(record.try_get_u16_le().map_err(cut)?);
        if nanos >= 1_000_000_000 {
            return Err(RecordError::Range("time"));
        }
        if record.len() < length {
            return Err(RecordError::Cut);
        }
        let name = record.split_to(length);
        let name = || String::from_utf8(name.to_vec()).map_err(|_| RecordError::Name);
        let body = match kind {
            KIND_PIN => {
                let until = record.try_get_i64_le().map_err(cut)?;
                let from = record.try_get_i64_le().map_err(cut)?;
                let to = record.try_get_i64_le().map_err(cut)?;
                if from < 0 || to < from {
                    return Err(RecordError::Range("offset"));
                }
                NoteBody::Pin(Pin {
                    name: name()?,
                    until: (until != 0).then_some(until),
                    from,
                    to,
                    hints: FsmHints::decode_proto(record)?,
                })
            }
            KIND_RELEASE => NoteBody::Release { name: name()? },
            KIND_PRUNE => {
                let mut ranges = Vec::new();
                while !record.is_empty() {
                    let begin = record.try_get_i64_le().map_err(cut)?;
                    let end = record.try_get_i64_le().map_err(cut)?;
                    ranges.push((begin, end));
                }
                NoteBody::Prune { ranges }
            }
            other => return Err(RecordError::Kind(other)),
        };
        Ok(Self {
            time: Timestamp { seconds, nanos },
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hints::{HintsScanner, Scanned};

    fn notes() -> Vec<Note> {
        let pin = Pin {
            name: "fork/b/log".into(),
            until: Some(99),
            from: 10,
            to: i64::MAX,
            hints: FsmHints::of_log("a/log"),
        };
        let name = "keep/monday".to_owned();
        let ranges = vec![(0, 100), (100, 250)];
        [
            NoteBody::Pin(pin),
            NoteBody::Release { name },
            NoteBody::Prune { ranges },
        ]
        .map(|body| Note {
            time: Timestamp {
                seconds: 7,
                nanos: 8,
            },
            body,
        })
        .into()
    }

    #[test]
    fn notes_come_back_from_bytes_wherever_these_are_parted() {
        let mut bytes = b"junk gz".to_vec();
        for note in notes() {
            bytes.extend_from_slice(&note.encode().unwrap());
            bytes.extend_from_slice(b"gzh");
        }
        for at in 0..bytes.len() {
            let mut scanner = HintsScanner::new(0);
            let mut found = Vec::new();
            let parted = i64::try_from(at).unwrap();
            for (offset, piece) in [(0, &bytes[..at]), (parted, &bytes[at..])] {
                scanner.feed(offset, piece);
                while let Some(Scanned::Note { begin, end, note }) = scanner.next_record() {
                    let range = usize::try_from(begin).unwrap()..usize::try_from(end).unwrap();
                    let record = Bytes::copy_from_slice(&bytes[range]);
                    assert_eq!(Note::decode(record), Ok(note.clone()));
                    found.push(note);
                }
            }
            assert_eq!(found, notes(), "parted at {at}");
        }
    }

    #[test]
    fn changed_bytes_are_refused() {
        for note in notes() {
            let good = note.encode().unwrap();
            for at in 0..good.len() {
                for bit in [1, 16, 128] {
                    let mut bytes = good.to_vec();
                    bytes[at] ^= bit;
                    assert!(Note::decode(bytes.into()).is_err());
                }
                assert!(Note::decode(good.slice(..at)).is_err());
            }
        }
    }
}
