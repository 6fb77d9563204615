//! Runs of ops, and how much of what is live each of them holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ChunkId;
use crate::op::RecordedOp;
use crate::{Fnode, OpExtent, Segment};

/// The first and the last page of a file that a chunk has content of, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Touched {
    const NOTHING: Self = Self {
        first: u64::MAX,
        last: 0,
    };

    pub(crate) fn has_content(self) -> bool {
        self.first <= self.last
    }
}

/// A run of ops by one author in one log, without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(super) log: Arc<str>,
    pub(super) author: u32,
    pub(super) first_seq_no: i64,
    pub(super) first_checksum: u32,
    pub(super) last_seq_no: i64,
    pub(super) begin: i64,
    pub(super) end: i64,
    /// How often a live page, inode, size or time needs it.
    pub(super) uses: u64,
    /// The files that its ops are about, in order. Empty for the open chunk.
    pub(super) touched: Vec<(Fnode, Touched)>,
}

impl Chunk {
    pub(super) fn bytes(&self) -> u64 {
        self.end.abs_diff(self.begin)
    }

    pub(super) fn goes_on_as(&self, next: &Self) -> bool {
        self.author == next.author
            && self.log == next.log
            && self.last_seq_no + 1 == next.first_seq_no
            && self.end <= next.begin
    }

    pub(super) fn segment(&self) -> Segment {
        Segment {
            author: self.author,
            first_seq_no: self.first_seq_no,
            first_offset: self.begin,
            first_checksum: self.first_checksum,
            last_seq_no: self.last_seq_no,
            last_offset: self.end,
            log: Arc::clone(&self.log),
        }
    }
}

/// All chunks that may still be needed, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunks {
    pub(super) size: u64,
    pub(super) chunks: BTreeMap<ChunkId, Chunk>,
    /// The last one, to which ops are added; zero if there is none.
    pub(super) open: ChunkId,
    pub(super) open_touched: BTreeMap<Fnode, Touched>,
    /// The last op's group goes on.
    pub(super) in_group: bool,
}

impl Chunks {
    pub(super) fn new(size: u64) -> Self {
        Self {
            size,
            chunks: BTreeMap::new(),
            open: 0,
            open_touched: BTreeMap::new(),
            in_group: false,
        }
    }

    /// Adds an op, and returns its chunk. A group is never in two.
    pub(super) fn add(&mut self, op: &RecordedOp, extent: OpExtent<'_>) -> ChunkId {
        let in_group = std::mem::replace(&mut self.in_group, !op.ends_group());
        if let Some(chunk) = self.chunks.get_mut(&self.open)
            && (in_group || chunk.bytes() < self.size)
            && chunk.author == op.author
            && chunk.log == *extent.log
            && chunk.last_seq_no.checked_add(1) == Some(op.seq_no)
            && chunk.end <= extent.begin
        {
            chunk.last_seq_no = op.seq_no;
            chunk.end = extent.end;
            return self.open;
        }
        self.close();
        // A chunk holds a MiB; four billion of them are more than any journal has.
        self.open = self.open.saturating_add(1);
        self.chunks.insert(
            self.open,
            Chunk {
                log: Arc::clone(extent.log),
                author: op.author,
                first_seq_no: op.seq_no,
                first_checksum: op.checksum,
                last_seq_no: op.seq_no,
                begin: extent.begin,
                end: extent.end,
                uses: 0,
                touched: Vec::new(),
            },
        );
        self.open
    }

    fn close(&mut self) {
        let touched = std::mem::take(&mut self.open_touched);
        if let Some(chunk) = self.chunks.get_mut(&self.open) {
            chunk.touched = touched.into_iter().collect();
        }
    }

    /// Notes that the open chunk has an op about a file.
    pub(super) fn touch(&mut self, fnode: Fnode) {
        self.open_touched.entry(fnode).or_insert(Touched::NOTHING);
    }

    /// Notes that the open chunk has content of pages of a file.
    pub(super) fn touch_pages(&mut self, fnode: Fnode, first: u64, last: u64) {
        let touched = self.open_touched.entry(fnode);
        let touched = touched.or_insert(Touched::NOTHING);
        touched.first = touched.first.min(first);
        touched.last = touched.last.max(last);
    }

    pub(super) fn hold(&mut self, chunk: ChunkId, count: u64) {
        if let Some(chunk) = self.chunks.get_mut(&chunk) {
            chunk.uses += count;
        }
    }

    pub(super) fn release(&mut self, chunk: ChunkId, count: u64) {
        if let Some(chunk) = self.chunks.get_mut(&chunk) {
            chunk.uses = chunk.uses.saturating_sub(count);
        }
    }

    /// Returns the last chunk, to which ops are added.
    pub(crate) fn open(&self) -> ChunkId {
        self.open
    }

    /// Returns how many bytes of a log a chunk takes.
    pub(crate) fn bytes(&self, chunk: ChunkId) -> u64 {
        self.chunks.get(&chunk).map_or(0, Chunk::bytes)
    }

    /// Iterates over the files that a chunk's ops are about.
    pub(crate) fn touched(&self, id: ChunkId) -> impl Iterator<Item = (Fnode, Touched)> {
        let closed = self.chunks.get(&id).into_iter();
        let closed = closed.flat_map(|chunk| chunk.touched.iter().copied());
        let open = (id == self.open).then_some(&self.open_touched).into_iter();
        let open =
            open.flat_map(|touched| touched.iter().map(|(fnode, touched)| (*fnode, *touched)));
        closed.chain(open)
    }

    /// Forgets the chunks that are not kept, and files that are gone.
    pub(super) fn retain(&mut self, kept: &BTreeSet<ChunkId>, is_live: impl Fn(Fnode) -> bool) {
        self.chunks.retain(|id, _| kept.contains(id));
        for chunk in self.chunks.values_mut() {
            let before = chunk.touched.len();
            chunk.touched.retain(|(fnode, _)| is_live(*fnode));
            if chunk.touched.len() < before {
                chunk.touched.shrink_to_fit();
            }
        }
        self.open_touched.retain(|fnode, _| is_live(*fnode));
    }
}
