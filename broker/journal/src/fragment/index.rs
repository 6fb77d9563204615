//! The index of a replica: what of its journal can be read, and from where.
//!
//! It holds the fragments of the last listing of the stores and, until a listing shows them,
//! the local ones. Only acknowledged extents may be committed to it: what it answers is
//! visible to readers (P2).
//!
//! Where fragments overlap, a local one is what this replica acknowledged, while a stored one
//! may be a left-over of a broker that was cut off. So a local fragment is preferred to a
//! stored one of the same span, a stored one is read only up to the next local one, and a
//! stored one of the same span with another sum never takes its place.

use std::{collections::BTreeMap, mem};

use gazette_protocol::{Fragment, StoredFragment};

use super::CoverSet;

/// Age after which a hole before a stored fragment is taken for good, and skipped. A younger
/// one may be filled: the fragment before it may still be on its way to the store, from the
/// broker that had the journal before.
pub const OFFSET_JUMP_AGE_SECONDS: i64 = 6 * 60 * 60;

/// What can be read of one journal. `L` is how the caller reads a local fragment.
#[derive(Debug, Clone)]
pub struct Index<L> {
    set: CoverSet<Source<L>>,
    local: BTreeMap<i64, (Fragment, L)>,
    is_refreshed: bool,
}

/// Where the content of a fragment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source<L> {
    /// Only this broker has it.
    Local(L),
    /// In the fragment's backing store.
    Stored {
        /// Path below the journal's folder, where that is not the canonical one.
        relative_path: Option<Box<str>>,
    },
}

/// A question to the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexQuery {
    /// Offset to read, or -1 for the end of what is known.
    pub offset: i64,
    /// Skip fragments that were stored before this Unix second.
    pub begin_mod_time: i64,
}

/// What the index knows about an offset.
#[derive(Debug, Clone, PartialEq)]
pub enum QueryResult<L> {
    /// There is content.
    Found(Found<L>),
    /// There is none yet.
    NotYet {
        /// The offset at which it is awaited, at or after the one asked for.
        offset: i64,
        /// End of what is known.
        write_head: i64,
        /// Unix second at which a hole at the offset becomes old enough to be skipped, if
        /// nothing fills it.
        jump_at: Option<i64>,
    },
}

/// Content that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found<L> {
    /// Offset of the content. It is greater than the one asked for if nothing is there.
    pub offset: i64,
    /// The fragment that holds it.
    pub fragment: Fragment,
    /// Where the fragment is.
    pub source: Source<L>,
    /// Up to where the fragment should be read: its end, or the begin of a local fragment.
    pub end: i64,
    /// End of what is known.
    pub write_head: i64,
}

/// The extent of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Begin of the first fragment, or zero.
    pub begin: i64,
    /// End of the last fragment, or zero.
    pub end: i64,
    /// Unix second at which the last fragment was stored; zero if it is local, or if there
    /// is none.
    pub last_mod_time: i64,
    /// Whether the stores were listed once.
    pub is_refreshed: bool,
}

impl<L> Default for Index<L> {
    fn default() -> Self {
        Self {
            set: CoverSet::default(),
            local: BTreeMap::new(),
            is_refreshed: false,
        }
    }
}

impl<L: Clone> Index<L> {
    /// An index of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an acknowledged extent that this replica holds. One that began at the same offset
    /// and was shorter, as a growing spool was, is replaced by it.
    pub fn commit_local(&mut self, fragment: Fragment, local: L) {
        if fragment.begin >= fragment.end {
            return;
        }
        self.set.add(fragment.clone(), Source::Local(local.clone()));
        self.local.insert(fragment.begin, (fragment, local));
    }

    /// Replaces what the stores hold by a complete listing of all of them. Returns the local
    /// fragments that the listing covers, which are no longer needed.
    pub fn replace_stored(
        &mut self,
        listing: impl IntoIterator<Item = StoredFragment>,
    ) -> Vec<(Fragment, L)> {
        let mut set = CoverSet::default();
        // Covers what stores hold, less what contradicts a local fragment.
        let mut agreed = CoverSet::default();
        for stored in listing {
            let relative_path = (!stored.is_canonical()).then(|| stored.relative_path.into());
            let fragment = stored.fragment;
            if !self.contradicts_local(&fragment) {
                let span = Fragment {
                    begin: fragment.begin,
                    end: fragment.end,
                    ..Fragment::default()
                };
                agreed.add(span, ());
            }
            set.add(fragment, Source::Stored { relative_path });
        }
        let mut dropped = Vec::new();
        let local = mem::take(&mut self.local);
        for (begin, (fragment, local)) in local {
            if agreed.covers(fragment.begin, fragment.end) {
                dropped.push((fragment, local));
            } else {
                set.add(fragment.clone(), Source::Local(local.clone()));
                self.local.insert(begin, (fragment, local));
            }
        }
        self.set = set;
        self.is_refreshed = true;
        dropped
    }

    fn contradicts_local(&self, stored: &Fragment) -> bool {
        let same_begin = self.local.get(&stored.begin);
        same_begin.is_some_and(|(local, _)| local.end == stored.end && local.sum != stored.sum)
    }

    /// What there is at an offset, at Unix second `now`.
    pub fn query(&self, query: IndexQuery, now: i64) -> QueryResult<L> {
        let write_head = self.set.end();
        let mut offset = if query.offset == -1 {
            write_head
        } else {
            query.offset
        };
        loop {
            let Some((fragment, source)) = self.set.covering(offset) else {
                let jump = self.jump_from(offset);
                match jump {
                    Some((begin, at)) if at <= now => {
                        offset = begin;
                        continue;
                    }
                    _ => {
                        let jump_at = jump.map(|(_, at)| at);
                        return QueryResult::NotYet {
                            offset,
                            write_head,
                            jump_at,
                        };
                    }
                }
            };
            if fragment.mod_time != 0 && fragment.mod_time < query.begin_mod_time {
                offset = fragment.end;
                continue;
            }
            return QueryResult::Found(Found {
                offset,
                end: self.readable_end(fragment, source, offset),
                fragment: fragment.clone(),
                source: source.clone(),
                write_head,
            });
        }
    }

    /// The offset after a hole at `offset`, and the Unix second from which on the hole may be
    /// skipped.
    fn jump_from(&self, offset: i64) -> Option<(i64, i64)> {
        let (next, _) = self.set.next_from(offset)?;
        if next.mod_time == 0 {
            return None;
        }
        let is_first = self.set.begin() == next.begin;
        let at = next
            .mod_time
            .saturating_add(OFFSET_JUMP_AGE_SECONDS)
            .saturating_add(1);
        Some((next.begin, if is_first { i64::MIN } else { at }))
    }

    fn readable_end(&self, fragment: &Fragment, source: &Source<L>, offset: i64) -> i64 {
        let next_local = match source {
            Source::Local(_) => None,
            Source::Stored { .. } => self.local.range(offset + 1..).next(),
        };
        next_local.map_or(fragment.end, |(&begin, _)| begin.min(fragment.end))
    }

    /// The extent of what is known.
    pub fn summary(&self) -> Summary {
        Summary {
            begin: self.set.begin(),
            end: self.set.end(),
            last_mod_time: self.set.last().map_or(0, |(last, _)| last.mod_time),
            is_refreshed: self.is_refreshed,
        }
    }

    /// Whether the stores were listed once.
    pub fn is_refreshed(&self) -> bool {
        self.is_refreshed
    }

    /// What readers choose from.
    pub fn cover(&self) -> &CoverSet<Source<L>> {
        &self.set
    }

    /// Local fragments that no listing has covered yet, in order.
    pub fn local(&self) -> impl Iterator<Item = (&Fragment, &L)> {
        self.local
            .values()
            .map(|(fragment, local)| (fragment, local))
    }
}

#[cfg(test)]
mod tests;
