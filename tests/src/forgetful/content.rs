//! The bytes of one file: as programs see them, and as they are on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::luck::Luck;

/// Bytes that a disk writes or loses together.
pub const PAGE_BYTES: usize = 4096;

const PAGE: u64 = PAGE_BYTES as u64;

type Page = [u8; PAGE_BYTES];

/// A sparse sequence of bytes. Pages that are absent are zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    pages: BTreeMap<u64, Arc<Page>>,
    size: u64,
}

impl Content {
    /// Returns the length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the bytes from `offset`, at most `length` of them.
    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(length as u64));
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(offset)).unwrap_or(0)];
        for (page, within, range) in pieces(offset, bytes.len()) {
            if let Some(page) = self.pages.get(&page) {
                let length = range.len();
                bytes[range].copy_from_slice(&page[within..within + length]);
            }
        }
        bytes
    }

    /// Returns the pages that hold bytes, in order, with their offsets. The last may reach beyond the end.
    pub fn pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let pages = self.pages.iter();
        pages.map(|(page, bytes)| (page * PAGE, bytes.as_slice()))
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, range) in pieces(offset, bytes.len()) {
            let page = self
                .pages
                .entry(page)
                .or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            let page = Arc::make_mut(page);
            page[within..within + range.len()].copy_from_slice(&bytes[range]);
        }
    }

    fn zero(&mut self, begin: u64, end: u64) {
        let whole = begin.div_ceil(PAGE)..end / PAGE;
        let pages: Vec<u64> = self
            .pages
            .range(begin / PAGE..end.div_ceil(PAGE))
            .map(|(p, _)| *p)
            .collect();
        for page in pages {
            if whole.contains(&page) {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                let from = begin.max(page * PAGE) - page * PAGE;
                let to = end.min((page + 1) * PAGE) - page * PAGE;
                Arc::make_mut(bytes)[at(from)..at(to)].fill(0);
            }
        }
    }
}

/// Both states of a file's bytes.
#[derive(Debug, Clone, Default)]
pub struct FileBytes {
    current: Content,
    durable: Content,
    /// Pages that may differ between the two.
    dirty: BTreeSet<u64>,
}

impl FileBytes {
    /// Returns the bytes as programs see them.
    pub fn current(&self) -> &Content {
        &self.current
    }

    /// Writes bytes, and makes the file longer if need be.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.current.write(offset, bytes);
        let end = offset + bytes.len() as u64;
        self.dirty.extend(offset / PAGE..end.div_ceil(PAGE));
        self.current.size = self.current.size.max(end);
    }

    /// Cuts the file, or makes it longer by zeros.
    pub fn truncate(&mut self, size: u64) {
        if size < self.current.size {
            let end = self.current.size;
            self.zero(size, end);
        }
        self.current.size = size;
    }

    /// Makes bytes zero, as far as there are any.
    pub fn zero(&mut self, begin: u64, end: u64) {
        let end = end.min(self.current.size);
        if begin < end {
            let touched = self.current.pages.range(begin / PAGE..end.div_ceil(PAGE));
            self.dirty.extend(touched.map(|(page, _)| *page));
            self.current.zero(begin, end);
        }
    }

    /// Makes all bytes and the length last.
    pub fn sync(&mut self) {
        for page in std::mem::take(&mut self.dirty) {
            self.settle(page);
        }
        self.durable.size = self.current.size;
    }

    /// Makes the bytes of `[begin, end)` last, and the length as far as it is needed to read them.
    pub fn sync_range(&mut self, begin: u64, end: u64) {
        let pages: Vec<u64> = self
            .dirty
            .range(begin / PAGE..end.div_ceil(PAGE))
            .copied()
            .collect();
        for page in pages {
            self.dirty.remove(&page);
            self.settle(page);
        }
        let end = end.min(self.current.size);
        self.durable.size = self.durable.size.max(end);
    }

    /// Makes one page last, as a system does on its own: the `nth` of those that are dirty.
    pub fn write_back(&mut self, nth: usize) {
        let count = self.dirty.len().max(1);
        if let Some(&page) = self.dirty.iter().nth(nth % count) {
            self.sync_range(page * PAGE, (page + 1) * PAGE);
        }
    }

    /// Returns what is left when the power goes.
    pub fn survivor(&self, luck: &mut dyn Luck) -> Content {
        let mut left = self.durable.clone();
        left.size = luck.size(self.durable.size, self.current.size);
        for page in &self.dirty {
            match self.current.pages.get(page) {
                Some(bytes) if luck.page() => drop(left.pages.insert(*page, Arc::clone(bytes))),
                // Cut off, which shows only with the new length.
                None if left.size == self.current.size && luck.page() => {
                    drop(left.pages.remove(page));
                }
                Some(_) | None => {}
            }
        }
        let end = left.size;
        left.zero(end, u64::MAX - PAGE);
        left
    }

    fn settle(&mut self, page: u64) {
        match self.current.pages.get(&page) {
            Some(bytes) => drop(self.durable.pages.insert(page, Arc::clone(bytes))),
            None => drop(self.durable.pages.remove(&page)),
        }
    }
}

/// Cuts a range of bytes at page bounds: page, offset in it, and which of the bytes.
fn pieces(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let offset = offset + done as u64;
        let within = at(offset % PAGE);
        let end = length.min(done + PAGE_BYTES - within);
        let piece = (offset / PAGE, within, done..end);
        done = end;
        Some(piece)
    })
}

fn at(within_page: u64) -> usize {
    usize::try_from(within_page).expect("an offset in a page is small")
}

#[cfg(test)]
mod tests;
