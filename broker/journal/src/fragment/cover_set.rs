//! An ordered set of fragments of one journal, of which none lies within another.

use std::collections::BTreeMap;

use gazette_protocol::Fragment;

/// Fragments, each with a value, that together cover every offset of any fragment added.
///
/// Longer fragments win: one that lies within another is not in the set. So both begins and
/// ends ascend strictly, whatever the order in which fragments were added. Of two with the same
/// span the one added later is kept.
#[derive(Debug, Clone)]
pub struct CoverSet<V> {
    by_begin: BTreeMap<i64, (Fragment, V)>,
}

impl<V> Default for CoverSet<V> {
    fn default() -> Self {
        Self {
            by_begin: BTreeMap::new(),
        }
    }
}

impl<V> CoverSet<V> {
    /// Adds a fragment and returns whether the set now holds it. It does not if the fragment is
    /// empty, or lies within one that is longer. Fragments that lie within it leave the set.
    pub fn add(&mut self, fragment: Fragment, value: V) -> bool {
        let (begin, end) = (fragment.begin, fragment.end);
        if begin >= end {
            return false;
        }
        // As ends ascend, only the last of those that begin no later can hold this one.
        let before = self.by_begin.range(..=begin).next_back();
        if let Some((_, (other, _))) = before
            && other.end >= end
            && (other.begin, other.end) != (begin, end)
        {
            return false;
        }
        while let Some((&within, (other, _))) = self.by_begin.range(begin..).next()
            && other.end <= end
        {
            self.by_begin.remove(&within);
        }
        self.by_begin.insert(begin, (fragment, value));
        true
    }

    /// The fragment that reaches furthest of those that cover `offset`.
    pub fn covering(&self, offset: i64) -> Option<(&Fragment, &V)> {
        let (_, (fragment, value)) = self.by_begin.range(..=offset).next_back()?;
        (offset < fragment.end).then_some((fragment, value))
    }

    /// The first fragment that begins at `offset` or later.
    pub fn next_from(&self, offset: i64) -> Option<(&Fragment, &V)> {
        let (_, (fragment, value)) = self.by_begin.range(offset..).next()?;
        Some((fragment, value))
    }

    /// Fragments that begin at `offset` or later, in order.
    pub fn iter_from(&self, offset: i64) -> impl Iterator<Item = (&Fragment, &V)> {
        self.by_begin
            .range(offset..)
            .map(|(_, (fragment, value))| (fragment, value))
    }

    /// All fragments, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Fragment, &V)> {
        self.by_begin
            .values()
            .map(|(fragment, value)| (fragment, value))
    }

    /// The fragment that begins first.
    pub fn first(&self) -> Option<(&Fragment, &V)> {
        self.by_begin
            .first_key_value()
            .map(|(_, (fragment, value))| (fragment, value))
    }

    /// The fragment that ends last.
    pub fn last(&self) -> Option<(&Fragment, &V)> {
        self.by_begin
            .last_key_value()
            .map(|(_, (fragment, value))| (fragment, value))
    }

    /// The least offset of any fragment, or zero.
    pub fn begin(&self) -> i64 {
        self.first().map_or(0, |(fragment, _)| fragment.begin)
    }

    /// The end of the last fragment, or zero.
    pub fn end(&self) -> i64 {
        self.last().map_or(0, |(fragment, _)| fragment.end)
    }

    /// How many fragments there are.
    pub fn len(&self) -> usize {
        self.by_begin.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_begin.is_empty()
    }

    /// Whether fragments of the set cover every offset of `[begin, end)`.
    pub fn covers(&self, begin: i64, end: i64) -> bool {
        let mut covered = begin;
        while covered < end {
            match self.covering(covered) {
                Some((fragment, _)) => covered = fragment.end,
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
