//! Which chunk holds the content of each page of a file.

use std::collections::BTreeMap;

use super::ChunkId;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Pages that are kept together: with one number if they are all in one chunk, else with one each.
const BLOCK_PAGES: u64 = 256;

/// The chunk that holds each page's newest full content; zero for pages that are holes. Four bytes a
/// page where chunks change from page to page, next to nothing where they do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pages {
    blocks: BTreeMap<u64, Block>,
    count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Block {
    Uniform(ChunkId),
    /// What is missing at the end is holes.
    Mixed(Vec<ChunkId>),
}

impl Pages {
    /// Returns how many pages are no holes.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn get(&self, page: u64) -> ChunkId {
        match self.blocks.get(&(page / BLOCK_PAGES)) {
            None => 0,
            Some(Block::Uniform(chunk)) => *chunk,
            Some(Block::Mixed(chunks)) => chunks.get(within(page)).copied().unwrap_or(0),
        }
    }

    /// Puts the pages from `first` to before `end` into a chunk, and tells runs of chunks that they
    /// were in before.
    pub(super) fn set(
        &mut self,
        first: u64,
        end: u64,
        chunk: ChunkId,
        mut was: impl FnMut(ChunkId, u64),
    ) {
        let mut page = first;
        while page < end {
            let number = page / BLOCK_PAGES;
            let behind = end.min((number + 1) * BLOCK_PAGES);
            self.set_in_block(
                number,
                within(page),
                within(behind - 1) + 1,
                chunk,
                &mut was,
            );
            page = behind;
        }
    }

    fn set_in_block(
        &mut self,
        number: u64,
        first: usize,
        end: usize,
        chunk: ChunkId,
        was: &mut impl FnMut(ChunkId, u64),
    ) {
        let whole = end - first == within(BLOCK_PAGES - 1) + 1;
        let block = self
            .blocks
            .entry(number)
            .or_insert_with(|| Block::Mixed(Vec::new()));
        let all = within(BLOCK_PAGES - 1) + 1;
        let before = match block {
            Block::Uniform(old) => vec![*old; all],
            Block::Mixed(chunks) => std::mem::take(chunks),
        };
        let mut held = 0;
        for index in first..end {
            let old = before.get(index).copied().unwrap_or(0);
            if old != 0 {
                held += 1;
                was(old, 1);
            }
        }
        self.count = self.count - held + (end - first) as u64;
        if whole {
            *block = Block::Uniform(chunk);
            return;
        }
        let mut chunks = before;
        if chunks.len() < end {
            chunks.resize(end, 0);
        }
        chunks[first..end].fill(chunk);
        *block = if chunks.len() == all && chunks.iter().all(|of| *of == chunk) {
            Block::Uniform(chunk)
        } else {
            Block::Mixed(chunks)
        };
    }

    /// Makes holes of the pages from `first` to before `end`, and tells where they were.
    pub(super) fn clear(&mut self, first: u64, end: u64, mut was: impl FnMut(u64, ChunkId)) {
        if first >= end {
            return;
        }
        let last = (end - 1) / BLOCK_PAGES;
        let mut empty = Vec::new();
        for (&number, block) in self.blocks.range_mut(first / BLOCK_PAGES..=last) {
            let base = number * BLOCK_PAGES;
            let mut chunks = match block {
                Block::Uniform(old) => vec![*old; within(BLOCK_PAGES - 1) + 1],
                Block::Mixed(chunks) => std::mem::take(chunks),
            };
            for (index, chunk) in (0..).zip(&mut chunks) {
                let page = base + index;
                if page >= first && page < end && *chunk != 0 {
                    was(page, *chunk);
                    self.count -= 1;
                    *chunk = 0;
                }
            }
            while chunks.last() == Some(&0) {
                chunks.pop();
            }
            chunks.shrink_to_fit();
            if chunks.is_empty() {
                empty.push(number);
            }
            *block = Block::Mixed(chunks);
        }
        for number in empty {
            self.blocks.remove(&number);
        }
    }

    /// Iterates over the pages from `first` to `last` that are no holes, and their chunks.
    pub(super) fn range(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, ChunkId)> {
        let blocks = self.blocks.range(first / BLOCK_PAGES..=last / BLOCK_PAGES);
        blocks
            .flat_map(move |(number, block)| {
                let base = number * BLOCK_PAGES;
                let from = first.max(base);
                let to = last.min(base + BLOCK_PAGES - 1);
                (from..=to).map(move |page| (page, block.get(page)))
            })
            .filter(|(_, chunk)| *chunk != 0)
    }

    /// Returns about how many bytes of memory it takes.
    pub(super) fn memory(&self) -> usize {
        let of = |block: &Block| match block {
            Block::Uniform(_) => 48,
            Block::Mixed(chunks) => 48 + chunks.capacity() * size_of::<ChunkId>(),
        };
        self.blocks.values().map(of).sum()
    }
}

impl Block {
    fn get(&self, page: u64) -> ChunkId {
        match self {
            Self::Uniform(chunk) => *chunk,
            Self::Mixed(chunks) => chunks.get(within(page)).copied().unwrap_or(0),
        }
    }
}

/// The index of a page in its block.
fn within(page: u64) -> usize {
    usize::try_from(page % BLOCK_PAGES).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pages_are_as_in_a_plain_map(
            steps in proptest::collection::vec((0..900u64, 1..600u64, 0..4u32), 1..40),
        ) {
            let (mut pages, mut plain) = (Pages::default(), BTreeMap::new());
            for (first, length, chunk) in steps {
                let end = first + length;
                let (mut was, mut expected) = (BTreeMap::new(), BTreeMap::new());
                for page in first..end {
                    if let Some(old) = plain.remove(&page) {
                        *expected.entry(old).or_insert(0) += 1;
                    }
                    if chunk != 0 {
                        plain.insert(page, chunk);
                    }
                }
                if chunk == 0 {
                    pages.clear(first, end, |_, old| *was.entry(old).or_insert(0) += 1);
                } else {
                    pages.set(first, end, chunk, |old, count| *was.entry(old).or_insert(0) += count);
                }
                prop_assert_eq!(was, expected);
                prop_assert_eq!(pages.count(), plain.len() as u64);
                let all: Vec<_> = pages.range(0, u64::MAX).collect();
                prop_assert_eq!(all, plain.iter().map(|(page, chunk)| (*page, *chunk)).collect::<Vec<_>>());
                for page in [first, end, end - 1, first + length / 2] {
                    prop_assert_eq!(pages.get(page), plain.get(&page).copied().unwrap_or(0));
                }
            }
        }
    }

    #[test]
    fn a_random_rewrite_takes_four_bytes_a_page_and_a_sequential_one_next_to_none() {
        let mut pages = Pages::default();
        for page in 0..100_000 {
            pages.set(
                page,
                page + 1,
                1 + u32::try_from(page).unwrap() % 7,
                |_, _| {},
            );
        }
        assert!(pages.memory() < 100_000 * 6, "{}", pages.memory());
        pages.set(0, 100_000, 9, |_, _| {});
        assert!(pages.memory() < 40_000, "{}", pages.memory());
    }
}
