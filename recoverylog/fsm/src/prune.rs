//! Which fragments of a log may go.
//!
//! A fragment stays if anything that must stay usable reads from it, and whatever is not known to be
//! needless stays: a log of which nothing is known to be kept is not pruned at all.

use std::sync::Arc;

use crate::{FsmHints, Segment};

/// A fragment of the log in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredRange {
    /// Its first byte.
    pub begin: i64,
    /// Behind its last byte.
    pub end: i64,
    /// It is in the store, and no broker holds it alone.
    pub is_persisted: bool,
}

/// What must stay usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep<T> {
    /// What it is, for whoever asks why a fragment stays.
    pub what: T,
    /// Ranges of the log that it reads, `[begin, end)`, in order; none touch.
    pub ranges: Vec<(i64, i64)>,
    /// It goes on reading from here to the log's head.
    pub tail: Option<i64>,
}

impl<T> Keep<T> {
    /// A recovery by hints, from there on to the head of the log that they are of.
    pub fn hints(what: T, log: &str, hints: &FsmHints) -> Self {
        let to = if hints.is_empty() { i64::MAX } else { 0 };
        let mut keep = Self::point(what, log, hints, (0, to));
        if *hints.log == *log {
            let ends = keep.ranges.iter().map(|(_, end)| *end);
            keep.tail = Some(ends.max().unwrap_or(0));
        }
        keep
    }

    /// A recovery by hints that goes on `from` where they end up `to` a point, and ends there: a kept
    /// moment, or what a fork shares with the log. Without hints it begins where the log does.
    pub fn point(what: T, log: &str, hints: &FsmHints, (from, to): (i64, i64)) -> Self {
        let segments = hints.live_nodes.iter().flat_map(|node| &node.segments);
        let here = segments.filter(|segment| is_in(segment, log, &hints.log));
        let mut ranges: Vec<(i64, i64)> = here
            .map(|segment| match segment.last_offset {
                0 => (segment.first_offset, i64::MAX),
                end => (segment.first_offset, end),
            })
            .collect();
        if *hints.log == *log {
            ranges.push((if hints.is_empty() { 0 } else { from }, to));
        }
        Self {
            what,
            ranges: joined(ranges),
            tail: None,
        }
    }

    /// A standby that has read up to an offset, and a recorder's own hints of what it recorded since.
    pub fn from(what: T, offset: i64) -> Self {
        Self {
            what,
            ranges: Vec::new(),
            tail: Some(offset),
        }
    }

    fn needs(&self, fragment: &StoredRange) -> bool {
        let first = self
            .ranges
            .partition_point(|(_, end)| *end <= fragment.begin);
        let in_range = self
            .ranges
            .get(first)
            .is_some_and(|(begin, _)| *begin < fragment.end);
        in_range || self.tail.is_some_and(|tail| fragment.end > tail)
    }
}

/// Puts ranges in order, and joins those that touch.
fn joined(mut ranges: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    ranges.retain(|(begin, end)| begin < end);
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let joins = next.0 <= before.1;
        if joins {
            before.1 = before.1.max(next.1);
        }
        joins
    });
    ranges
}

fn is_in(segment: &Segment, log: &str, hints_log: &Arc<str>) -> bool {
    match &*segment.log {
        "" => **hints_log == *log,
        other => other == log,
    }
}

/// What becomes of a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<T> {
    /// Nothing needs it.
    Goes,
    /// These need it.
    Needed(Vec<T>),
    /// It is not in the store.
    NotPersisted,
    /// Nothing is known that reads the log to its head, so nobody knows what is needed.
    NothingKept,
}

/// Decides about each fragment. `keeps` must be all that has to stay usable; one of them at least reads
/// to the head.
pub fn judge<T: Clone>(fragments: &[StoredRange], keeps: &[Keep<T>]) -> Vec<Verdict<T>> {
    let reads_to_head = keeps.iter().any(|keep| keep.tail.is_some());
    let verdict = |fragment: &StoredRange| {
        let needing = keeps.iter().filter(|keep| keep.needs(fragment));
        let needing: Vec<T> = needing.map(|keep| keep.what.clone()).collect();
        if !needing.is_empty() {
            Verdict::Needed(needing)
        } else if !fragment.is_persisted {
            Verdict::NotPersisted
        } else if reads_to_head {
            Verdict::Goes
        } else {
            Verdict::NothingKept
        }
    };
    fragments.iter().map(verdict).collect()
}

/// Returns the fragments that go by each of two readings of all lists: one list may be incomplete, or
/// may have been read while hints were published. Without a second reading nothing goes.
pub fn agreed<T>(
    first: (&[StoredRange], &[Verdict<T>]),
    second: (&[StoredRange], &[Verdict<T>]),
) -> Vec<StoredRange> {
    let going = |(fragments, verdicts): (&[StoredRange], &[Verdict<T>])| -> Vec<StoredRange> {
        let pairs = fragments.iter().zip(verdicts);
        let going = pairs.filter(|(_, verdict)| matches!(verdict, Verdict::Goes));
        going.map(|(fragment, _)| *fragment).collect()
    };
    let second = going(second);
    let mut agreed = going(first);
    agreed.retain(|fragment| second.contains(fragment));
    agreed
}

/// Returns how many bytes of fragments stay, and how many go.
pub fn bytes<'a, T: 'a>(
    judged: impl IntoIterator<Item = (i64, i64, &'a Verdict<T>)>,
) -> (u64, u64) {
    let mut bytes = (0, 0);
    for (begin, end, verdict) in judged {
        let length = end.abs_diff(begin);
        match verdict {
            Verdict::Goes => bytes.1 += length,
            Verdict::Needed(_) | Verdict::NotPersisted | Verdict::NothingKept => bytes.0 += length,
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
