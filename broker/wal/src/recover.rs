//! What the segments of a log say. Pure: no I/O.
//!
//! The segments that belong together are those since the log was last opened, a run. A run begins
//! with copies of all state and is established by the [`Kind::Trim`] record after them; before
//! that it never acknowledged anything, and the run before it counts. The last `Trim` of a run
//! says with which generation the log begins. From there on every record up to the last one must
//! be there:
//!
//! - In a segment which another one follows, up to where that one says that it ends.
//! - In the last segment, up to the first record that fails its check. It and what follows were
//!   being written when the log ended, and none of it was acknowledged, unless a record further on
//!   shows that a sync had covered the place: its durable LSN is greater. Then it is damage.
//!
//! Damage is an error: nothing that was acknowledged is dropped silently. Only damage to the very
//! last records, after which nothing was written, cannot be told from an unfinished write. A log
//! that idles or is closed writes a [`Kind::Mark`], so that it has none such.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use bytes::Bytes;
use prost::Message;

use crate::{
    error::{Corruption, CorruptionCause},
    format::{
        ALIGNMENT, Checks, HeaderState, Kind, RECORD_HEADER_BYTES, RecordHeader,
        SEGMENT_HEADER_BYTES, SegmentHeader, payload::TrimMessage,
    },
    ledger::Ledger,
};

mod replay;

/// A segment file as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Bytes,
}

/// What a spool file lacks, or may lack.
#[derive(Debug, Default)]
pub(crate) struct SpoolWrites {
    /// Content that the log has, in order, and the offset of the file at which it belongs. It may
    /// be there already. All bytes before the first of them are there, and synced.
    pub(crate) writes: Vec<(u64, Bytes)>,
}

/// What was in the log.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    pub(crate) ledger: Ledger<SpoolWrites>,
    /// Spools whose files lack what the log cannot give them.
    pub(crate) damaged: BTreeMap<u64, Corruption>,
    /// No journal or spool of the log has this number or a greater one.
    pub(crate) next_id: u64,
    /// Not used before, nor is any greater one.
    pub(crate) next_generation: u64,
    /// Not used before, nor is any greater one.
    pub(crate) next_lsn: u64,
    /// There is a run with state.
    pub(crate) established: bool,
    /// The run with state was synced.
    pub(crate) synced: bool,
    /// Segments that hold the state; all others may be used again.
    pub(crate) live: Vec<PathBuf>,
    /// Where the log ended, if in the middle of something that was not acknowledged.
    pub(crate) torn_at: Option<(PathBuf, u64)>,
}

/// A segment with a valid header.
#[derive(Clone, Copy)]
struct Segment<'a> {
    header: SegmentHeader,
    image: &'a Image,
}

/// A record that passed its check.
struct Record {
    offset: usize,
    header: RecordHeader,
    payload: Bytes,
}

/// Recovers what the segments say.
pub(crate) fn recover(images: &[Image], checks: Checks) -> Result<Recovery, Corruption> {
    let mut segments: BTreeMap<u64, Segment<'_>> = BTreeMap::new();
    let mut damaged = Vec::new();
    for image in images {
        match SegmentHeader::decode(&image.bytes) {
            HeaderState::Valid(header) => {
                if (image.bytes.len() as u64) < header.segment_bytes {
                    let cause = CorruptionCause::ShortSegment {
                        actual: image.bytes.len() as u64,
                        expected: header.segment_bytes,
                    };
                    return Err(corruption(image, image.bytes.len(), cause));
                }
                if segments
                    .insert(header.generation, Segment { header, image })
                    .is_some()
                {
                    let cause = CorruptionCause::Malformed("another segment has its generation");
                    return Err(corruption(image, 0, cause));
                }
            }
            HeaderState::Blank => {}
            HeaderState::Damaged => damaged.push(image),
            HeaderState::UnknownVersion(found) => {
                return Err(corruption(
                    image,
                    0,
                    CorruptionCause::UnknownVersion { found },
                ));
            }
        }
    }
    let Some((_, newest)) = segments.last_key_value() else {
        return empty(&damaged);
    };
    check_damaged(&newest.header, &damaged, checks)?;

    let mut recovery = Recovery {
        next_id: 1,
        next_generation: newest.header.generation.saturating_add(1),
        next_lsn: segments
            .values()
            .map(|s| s.header.end_lsn())
            .max()
            .unwrap_or_default(),
        ..Recovery::default()
    };
    let mut runs: BTreeMap<u64, Vec<Segment<'_>>> = BTreeMap::new();
    for segment in segments.into_values() {
        runs.entry(segment.header.run).or_default().push(segment);
    }
    let mut needs_older = None;
    for (age, run) in runs.values().rev().enumerate() {
        if replay_run(run, age == 0, &damaged, checks, &mut recovery)? {
            return Ok(recovery);
        }
        needs_older = run
            .iter()
            .find(|segment| segment.header.follows)
            .or(needs_older);
    }
    match needs_older {
        Some(segment) => Err(corruption(segment.image, 0, CorruptionCause::NoTrim)),
        None => Ok(recovery),
    }
}

/// No segment has a valid header: the log is new, or its first page was being written.
fn empty(damaged: &[&Image]) -> Result<Recovery, Corruption> {
    const PAGE_BYTES: usize = 4096;
    for image in damaged {
        let rest = image.bytes.get(PAGE_BYTES..).unwrap_or_default();
        if let Some(at) = rest.iter().position(|byte| *byte != 0) {
            return Err(corruption(
                image,
                PAGE_BYTES + at,
                CorruptionCause::NoHeader,
            ));
        }
    }
    Ok(Recovery {
        next_id: 1,
        next_generation: 1,
        ..Recovery::default()
    })
}

/// The header after the newest one may have been about to be written, unless a record in its
/// segment shows that it was synced.
fn check_damaged(
    newest: &SegmentHeader,
    damaged: &[&Image],
    checks: Checks,
) -> Result<(), Corruption> {
    let expect = SegmentHeader {
        generation: newest.generation.wrapping_add(1),
        first_lsn: newest.end_lsn(),
        ..*newest
    };
    for image in damaged {
        let from = SEGMENT_HEADER_BYTES;
        if let Some(witness) = witness(&image.bytes, from, expect.first_lsn, &expect, checks) {
            return Err(corruption(
                image,
                0,
                CorruptionCause::DamagedHeader { witness },
            ));
        }
    }
    Ok(())
}

/// The LSN of the first record from an offset on that shows that `lsn` was synced.
fn witness(
    segment: &[u8],
    from: usize,
    lsn: u64,
    expect: &SegmentHeader,
    checks: Checks,
) -> Option<u64> {
    let mut at = from.next_multiple_of(ALIGNMENT);
    while at + RECORD_HEADER_BYTES <= segment.len() {
        if RecordHeader::decode_lsn(segment, at) != expect.lsn(at) {
            at += ALIGNMENT;
            continue;
        }
        match RecordHeader::decode(segment, at, expect, checks) {
            Some(header) if header.durable_lsn > lsn => return Some(header.lsn),
            // Content is not searched for what looks like a record.
            Some(header) => at += header.record_bytes(),
            None => at += ALIGNMENT,
        }
    }
    None
}

/// Replays a run, if it is established.
fn replay_run(
    run: &[Segment<'_>],
    newest: bool,
    damaged: &[&Image],
    checks: Checks,
    recovery: &mut Recovery,
) -> Result<bool, Corruption> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return Ok(false);
    };
    let number = first.header.run;
    let mut segments = Vec::with_capacity(run.len());
    for segment in run {
        segments.push((*segment, read_segment(segment, checks)));
    }
    // The last `Trim` says where the log begins.
    let trim = segments.iter().rev().find_map(|(segment, (records, _))| {
        let trim = records
            .iter()
            .rev()
            .find(|record| record.header.kind == Kind::Trim)?;
        Some(decode::<TrimMessage>(segment.image, trim))
    });
    let trim = trim.transpose()?;
    if trim.is_none() && !newest {
        // It never began, or its segments would not have been used again.
        return Ok(false);
    }
    let oldest = trim.map_or(number, |trim| trim.oldest_generation);
    recovery.next_id = recovery.next_id.max(trim.map_or(1, |trim| trim.next_id));
    segments.retain(|(segment, _)| segment.header.generation >= oldest);
    check_chain(
        oldest,
        segments.iter().map(|(segment, _)| *segment),
        damaged,
    )?;

    let mut torn_at = None;
    for index in 0..segments.len() {
        let (segment, (records, end)) = &segments[index];
        let header = &segment.header;
        let end_lsn = header.lsn(*end);
        let witness = match segments.get(index + 1) {
            Some((next, _)) if next.header.previous_end == end_lsn => continue,
            Some((next, _)) if header.synced => Some(next.header.first_lsn),
            Some(_) => None,
            None => witness(&segment.image.bytes, *end, end_lsn, header, checks),
        };
        if let Some(witness) = witness {
            let cause = CorruptionCause::DamagedRecord { witness };
            return Err(Corruption {
                journal: replay::last_journal(segment.image, records),
                ..corruption(segment.image, *end, cause)
            });
        }
        torn_at = is_torn(segment, *end).then(|| (segment.image.path.clone(), *end as u64));
        // Only where nothing is synced, segments may follow: they go too.
        segments.truncate(index + 1);
        break;
    }
    let trimmed = segments.iter().any(|(_, (records, _))| {
        records
            .iter()
            .any(|record| record.header.kind == Kind::Trim)
    });
    if !trimmed {
        if trim.is_some() {
            return Err(corruption(last.image, 0, CorruptionCause::NoTrim));
        }
        return Ok(false);
    }
    recovery.established = true;
    recovery.synced = last.header.synced;
    recovery.torn_at = torn_at;
    recovery.live = segments
        .iter()
        .map(|(segment, _)| segment.image.path.clone())
        .collect();
    for (segment, (records, _)) in segments {
        for record in records {
            replay::apply(segment.header.generation, segment.image, &record, recovery)?;
        }
    }
    Ok(true)
}

/// Whether something other than an earlier use of the segment is at its end: the beginning of a
/// record, or its remains.
fn is_torn(segment: &Segment<'_>, end: usize) -> bool {
    let rest = segment
        .image
        .bytes
        .get(end..end + RECORD_HEADER_BYTES)
        .unwrap_or_default();
    rest.iter().any(|byte| *byte != 0)
}

/// All generations from the oldest one on must be there.
fn check_chain<'a>(
    oldest: u64,
    segments: impl Iterator<Item = Segment<'a>>,
    damaged: &[&Image],
) -> Result<(), Corruption> {
    let mut generation = oldest;
    for segment in segments {
        let header = &segment.header;
        if header.generation != generation {
            let lost = damaged.first().copied();
            let cause = match lost {
                Some(_) => CorruptionCause::DamagedHeader {
                    witness: header.first_lsn,
                },
                None => CorruptionCause::MissingSegment { generation },
            };
            return Err(corruption(lost.unwrap_or(segment.image), 0, cause));
        }
        generation = generation.wrapping_add(1);
    }
    Ok(())
}

/// All valid records of a segment up to the first that is not, and where that is.
fn read_segment(segment: &Segment<'_>, checks: Checks) -> (Vec<Record>, usize) {
    let bytes = &segment.image.bytes;
    let mut records = Vec::new();
    let mut offset = SEGMENT_HEADER_BYTES;
    while let Some(header) = RecordHeader::decode(bytes, offset, &segment.header, checks) {
        let Some(payload) = header.payload(bytes, offset, checks) else {
            break;
        };
        let payload = bytes.slice_ref(payload);
        records.push(Record {
            offset,
            header,
            payload,
        });
        offset += header.record_bytes();
    }
    (records, offset)
}

fn decode<M: Message + Default>(image: &Image, record: &Record) -> Result<M, Corruption> {
    M::decode(record.payload.clone()).map_err(|_| {
        corruption(
            image,
            record.offset,
            CorruptionCause::Malformed("its payload does not decode"),
        )
    })
}

fn corruption(image: &Image, offset: usize, cause: CorruptionCause) -> Corruption {
    Corruption {
        path: image.path.clone(),
        offset: offset as u64,
        journal: None,
        cause,
    }
}

/// Shares a journal's identity between its records.
fn share<X>(
    ledger: &Ledger<X>,
    identity: crate::format::payload::Identity,
) -> Arc<crate::format::payload::Identity> {
    match ledger.journal(identity.id) {
        Some(journal) if *journal.identity == identity => Arc::clone(&journal.identity),
        _ => Arc::new(identity),
    }
}

#[cfg(test)]
mod tests;
