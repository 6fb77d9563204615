//! Segments: runs of a log's ops by one author, which hints name.

use std::collections::VecDeque;
use std::sync::Arc;

use gazette_protocol::{ValidationError, journal_name};

/// A run of ops by one author in one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Number of the author.
    pub author: u32,
    /// Sequence number of the first op.
    pub first_seq_no: i64,
    /// Where the first op begins, or an offset before it.
    pub first_offset: i64,
    /// The chain's checksum before the first op.
    pub first_checksum: u32,
    /// Sequence number of the last op.
    pub last_seq_no: i64,
    /// Where the last op ends; zero if that is not known.
    pub last_offset: i64,
    /// The log. In hints empty for the log that the hints are of.
    pub log: Arc<str>,
}

/// Why a segment does not fit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SegmentError {
    /// The author is zero.
    #[error("the author is zero")]
    Author,
    /// The first sequence number is zero or less.
    #[error("the first sequence number {0} is below 1")]
    FirstSeqNo(i64),
    /// The first offset is negative.
    #[error("the first offset {0} is negative")]
    FirstOffset(i64),
    /// The last sequence number is before the first.
    #[error("the last sequence number {last} is before the first, {first}")]
    LastSeqNo {
        /// The first.
        first: i64,
        /// The last.
        last: i64,
    },
    /// The last offset is not after the first.
    #[error("the last offset {last} is not after the first, {first}")]
    LastOffset {
        /// The first.
        first: i64,
        /// The last.
        last: i64,
    },
    /// The log is no name of a journal.
    #[error("the log's name: {0}")]
    Log(ValidationError),
    /// Two segments contradict each other.
    #[error("segments of ops {0}.. and {1}..: {2}")]
    Conflict(i64, i64, SegmentConflict),
}

/// How two segments contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SegmentConflict {
    /// The later one begins at a lower offset.
    #[error("first offsets do not rise")]
    FirstOffset,
    /// They begin with the same op, and differ in its checksum.
    #[error("first checksums differ")]
    FirstChecksum,
    /// The end of the earlier one is not known, that of the later one is.
    #[error("the end of the earlier one is not known")]
    UnknownEnd,
    /// The end of the earlier one is not known, and the later one is in another log.
    #[error("the end of the earlier one is not known, and they are in different logs")]
    UnknownEndOfLog,
    /// The later one ends at a lower offset.
    #[error("last offsets do not rise")]
    LastOffset,
    /// They overlap, and are by different authors.
    #[error("they overlap, and their authors differ")]
    Author,
    /// They overlap, and are in different logs.
    #[error("they overlap, and their logs differ")]
    Log,
}

impl Segment {
    /// Checks a segment whose log is named.
    pub fn validate(&self) -> Result<(), SegmentError> {
        if self.author == 0 {
            return Err(SegmentError::Author);
        }
        let (first, last) = (self.first_seq_no, self.last_seq_no);
        if first <= 0 {
            return Err(SegmentError::FirstSeqNo(first));
        }
        if self.first_offset < 0 {
            return Err(SegmentError::FirstOffset(self.first_offset));
        }
        if last < first {
            return Err(SegmentError::LastSeqNo { first, last });
        }
        let (first, last) = (self.first_offset, self.last_offset);
        if last != 0 && last <= first {
            return Err(SegmentError::LastOffset { first, last });
        }
        journal_name::validate(&self.log).map_err(SegmentError::Log)
    }

    fn order(&self) -> (i64, std::cmp::Reverse<i64>) {
        (self.first_seq_no, std::cmp::Reverse(self.last_seq_no))
    }
}

/// Segments in order of their ops, without overlaps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentSet {
    segments: VecDeque<Segment>,
}

impl SegmentSet {
    /// Adds a segment, and merges it with those that it overlaps or adjoins. The set stays as it was
    /// if the segment does not fit.
    pub fn add(&mut self, segment: Segment) -> Result<(), SegmentError> {
        segment.validate()?;
        let order = segment.order();
        let position = self
            .segments
            .partition_point(|other| other.order() <= order);
        // Only neighbours can be concerned: those before are disjoint from it and from each other.
        let mut current = segment;
        let mut begin = position;
        if let Some(index) = position.checked_sub(1)
            && let Some(merged) = reduce(&self.segments[index], &current)?
        {
            current = merged;
            begin = index;
        }
        let mut end = position;
        while let Some(next) = self.segments.get(end) {
            match reduce(&current, next)? {
                Some(merged) => current = merged,
                None => break,
            }
            end += 1;
        }
        if begin == end {
            self.segments.insert(begin, current);
        } else {
            self.segments[begin] = current;
            self.segments.drain(begin + 1..end);
        }
        Ok(())
    }

    /// Iterates over the segments, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Segment> + ExactSizeIterator {
        self.segments.iter()
    }

    /// Returns the first segment.
    pub fn first(&self) -> Option<&Segment> {
        self.segments.front()
    }

    /// Returns the last segment.
    pub fn last(&self) -> Option<&Segment> {
        self.segments.back()
    }

    /// Tells whether there is none.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns how many segments there are.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Iterates over the segments of `log` that may have ops in the range of offsets.
    pub fn intersect<'a>(
        &'a self,
        log: &'a str,
        begin: i64,
        end: i64,
    ) -> impl Iterator<Item = &'a Segment> {
        self.segments.iter().filter(move |segment| {
            &*segment.log == log
                && segment.first_offset < end
                && (segment.last_offset == 0 || segment.last_offset > begin)
        })
    }

    /// Returns the last segment that begins with an op or before it.
    pub(crate) fn up_to(&self, seq_no: i64) -> Option<&Segment> {
        let behind = self
            .segments
            .partition_point(|segment| segment.first_seq_no <= seq_no);
        self.segments.get(behind.checked_sub(1)?)
    }

    /// Takes the first segment out.
    pub(crate) fn pop_first(&mut self) -> Option<Segment> {
        self.segments.pop_front()
    }
}

/// Merges two segments, of which `a` is first in order; `None` if both stay.
fn reduce(a: &Segment, b: &Segment) -> Result<Option<Segment>, SegmentError> {
    let conflict = |how| SegmentError::Conflict(a.first_seq_no, b.first_seq_no, how);
    let (same_author, same_log) = (a.author == b.author, a.log == b.log);
    let same_first = a.first_seq_no == b.first_seq_no;
    let same_range = same_first && a.last_seq_no == b.last_seq_no;

    if same_log && !same_first && a.first_offset > b.first_offset {
        return Err(conflict(SegmentConflict::FirstOffset));
    }
    if a.last_offset == 0 && !same_range {
        if b.last_offset != 0 {
            return Err(conflict(SegmentConflict::UnknownEnd));
        }
        if !same_log {
            return Err(conflict(SegmentConflict::UnknownEndOfLog));
        }
    }
    if same_log && a.last_offset != 0 && b.last_offset != 0 {
        let broken = if b.last_seq_no <= a.last_seq_no {
            b.last_offset > a.last_offset
        } else {
            b.last_offset < a.last_offset
        };
        if broken {
            return Err(conflict(SegmentConflict::LastOffset));
        }
    }
    // The numbers are positive, so that this cannot overflow.
    if b.first_seq_no - 1 > a.last_seq_no {
        return Ok(None);
    }
    if b.first_seq_no - 1 == a.last_seq_no && !(same_author && same_log) {
        return Ok(None);
    }
    if !same_author {
        return Err(conflict(SegmentConflict::Author));
    }
    if !same_log {
        return Err(conflict(SegmentConflict::Log));
    }
    if same_first && a.first_checksum != b.first_checksum {
        return Err(conflict(SegmentConflict::FirstChecksum));
    }
    let mut merged = a.clone();
    if same_first {
        merged.first_offset = a.first_offset.max(b.first_offset);
    }
    if b.last_seq_no > a.last_seq_no {
        merged.last_seq_no = b.last_seq_no;
        merged.last_offset = b.last_offset;
    } else if b.last_seq_no == a.last_seq_no && a.last_offset == 0 {
        merged.last_offset = b.last_offset;
    }
    Ok(Some(merged))
}
