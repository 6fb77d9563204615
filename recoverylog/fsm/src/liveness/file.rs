//! What is live of one file.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::pages::{PAGE_BYTES, Pages};
use super::{CHUNK_KILLS_MAX, ChunkId};

/// A range that reads as zeros since an op of a chunk: an older write, if one is replayed, needs that
/// op behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) chunk: ChunkId,
}

/// A live file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct File {
    /// The op by which it comes to be, in hints; zero if that is still to come.
    pub(super) birth: i64,
    pub(super) names: u64,
    pub(super) size: u64,
    pub(super) pages: Pages,
    /// The chunks of later partial writes to a page, oldest first.
    pub(super) parts: BTreeMap<u64, Vec<ChunkId>>,
    /// The chunks of the ops that say what it is, its names, and its attributes.
    pub(super) inode: Vec<ChunkId>,
    /// The chunk of the op that set the mtime, unless that is one of those.
    pub(super) mtime: ChunkId,
    /// The chunk of the op that set the size; zero if it is zero.
    pub(super) sized: ChunkId,
    pub(super) kills: Vec<Kill>,
    pub(super) xattrs: BTreeSet<Bytes>,
    /// An op wrote to it, or made it longer.
    pub(super) made: bool,
}

impl File {
    /// Notes that a range reads as zeros. It takes the place of those within it. Where one chunk has many
    /// of them, as of a program that punches holes all over a file, they count as the whole file: any
    /// older write needs the chunk then. It is the newest chunk, which hints name in any case, so that
    /// none that they left out comes back.
    pub(super) fn kill(&mut self, kill: Kill) {
        self.kills
            .retain(|before| before.begin < kill.begin || before.end > kill.end);
        let newest = self.kills.iter().rev();
        let of_chunk = newest.take_while(|before| before.chunk == kill.chunk);
        let is_within = |before: &Kill| before.begin <= kill.begin && before.end >= kill.end;
        if of_chunk.clone().any(is_within) {
            return;
        }
        let of_chunk = of_chunk.count();
        if of_chunk < CHUNK_KILLS_MAX {
            self.kills.push(kill);
            return;
        }
        self.kills.truncate(self.kills.len() - of_chunk);
        self.kills.push(Kill {
            begin: 0,
            end: u64::MAX,
            chunk: kill.chunk,
        });
    }

    /// Returns how many bytes of content are no holes.
    pub(super) fn content_bytes(&self) -> u64 {
        let tail = self.size % PAGE_BYTES;
        let missing = if tail != 0 && self.pages.get(self.size / PAGE_BYTES) != 0 {
            PAGE_BYTES - tail
        } else {
            0
        };
        (self.pages.count() * PAGE_BYTES).saturating_sub(missing)
    }

    /// Tells whether an op of a chunk says something of it that is no content.
    pub(crate) fn inode_is_in(&self, chunk: ChunkId) -> bool {
        self.mtime == chunk || self.inode.contains(&chunk)
    }

    /// Tells whether an op of a chunk says its size.
    pub(crate) fn size_is_in(&self, chunk: ChunkId) -> bool {
        self.sized == chunk
    }

    /// Iterates over the pages in a range that need a chunk.
    pub(crate) fn pages_in(
        &self,
        chunk: ChunkId,
        first: u64,
        last: u64,
    ) -> impl Iterator<Item = u64> {
        let pages = self.pages.range(first, last);
        pages
            .filter(move |(page, base)| {
                *base == chunk
                    || self
                        .parts
                        .get(page)
                        .is_some_and(|parts| parts.contains(&chunk))
            })
            .map(|(page, _)| page)
    }

    /// Returns the file's size.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn memory(&self) -> usize {
        let parts: usize = self.parts.values().map(|of| 64 + of.capacity() * 4).sum();
        let xattrs: usize = self.xattrs.iter().map(|name| 48 + name.len()).sum();
        let lists = self.inode.capacity() * 4 + self.kills.capacity() * size_of::<Kill>();
        size_of::<Self>() + 16 + self.pages.memory() + parts + xattrs + lists
    }
}
