//! Which parts of a log are still needed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::op::{Body, Change, Mark, RecordedOp, Restated, Write};
use crate::{Applied, Fnode, Fsm, FsmHints, Mode, OpExtent, SizeChange};

mod chunks;
mod file;
mod kept;
mod pages;
mod stored;

use chunks::Chunk;
pub(crate) use chunks::{Chunks, Touched};
pub(crate) use file::File;
use file::Kill;
pub use kept::Estimate;
pub use pages::PAGE_BYTES;
pub use stored::LivenessError;

/// Number of a chunk, in order of the log. Zero is none.
pub(crate) type ChunkId = u32;

/// Bytes of a chunk: what a recovery reads or leaves out at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// A recovery reads over a dead range of this size rather than begin again behind it.
const GAP_BYTES: u64 = 2 << 20;

/// More chunks than these for one page, and the page had better be recorded again. With fewer, small
/// writes would cost a page each.
const PAGE_CHUNKS_MAX: usize = 8;

/// More chunks than these for one file's names and attributes, and they had better be said again.
const INODE_CHUNKS_MAX: usize = 4;

/// So many ranges of a file that read as zeros since ops of one chunk are told apart.
const CHUNK_KILLS_MAX: usize = 8;

/// Chunks are looked through for dead ones when there are twice as many as live ones were, and this
/// many more.
const COLLECT_CHUNKS: usize = 64;

/// What of a `native` log is live, as far as ops were applied: which page of which file, and what else
/// of each file, is in which chunk of the log. Ops that are acknowledged make it, and equally ops that
/// are replayed.
///
/// What it leaves out of hints may be pruned, and what the log has instead is recorded by a cleaner
/// ([`clean`](crate::clean)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liveness {
    /// Dead ranges up to this size are read too.
    gap_bytes: u64,
    chunks: Chunks,
    files: BTreeMap<Fnode, File>,
    /// Pages that need too many chunks.
    crowded: BTreeSet<(Fnode, u64)>,
    /// Files whose names and attributes need too many chunks.
    restless: BTreeSet<Fnode>,
    /// Files with ranges that read as zeros.
    zeroed: BTreeSet<Fnode>,
    /// The chunk in which a tree is being taken over since.
    seed: ChunkId,
    /// The chunks in which that began and ended.
    seeds: Vec<(ChunkId, ChunkId)>,
    content_bytes: u64,
    names: u64,
    xattrs: u64,
    /// Look for dead chunks when there are so many.
    collect_at: usize,
}

impl Default for Liveness {
    fn default() -> Self {
        Self::new()
    }
}

impl Liveness {
    /// Makes that of a log before its first op, or before the first that hints name.
    pub fn new() -> Self {
        Self::with_sizes(CHUNK_BYTES, GAP_BYTES)
    }

    /// As [`new`](Self::new), with chunks of another size, and hints that leave out dead ranges of more
    /// than `gap_bytes` only.
    pub fn with_sizes(chunk_bytes: u64, gap_bytes: u64) -> Self {
        Self {
            gap_bytes,
            chunks: Chunks::new(chunk_bytes),
            files: BTreeMap::new(),
            crowded: BTreeSet::new(),
            restless: BTreeSet::new(),
            zeroed: BTreeSet::new(),
            seed: 0,
            seeds: Vec::new(),
            content_bytes: 0,
            names: 0,
            xattrs: 0,
            collect_at: COLLECT_CHUNKS,
        }
    }

    /// Takes an op that is part of the chain, after the FSM applied it.
    pub fn apply(&mut self, op: &RecordedOp, applied: Applied, extent: OpExtent<'_>) {
        let chunk = self.chunks.add(op, extent);
        if self.chunks.chunks.len() > self.collect_at {
            self.collect();
        }
        match &op.body {
            Body::NoOp { mark } => self.mark(mark.as_ref(), chunk),
            _ if applied == Applied::NotTracked => {}
            Body::Create { inode: _, at: _ } => {
                let fnode = Fnode(op.seq_no);
                self.forget(fnode);
                let file = self.files.entry(fnode).or_default();
                file.birth = op.seq_no;
                file.names = 1;
                self.names += 1;
                self.inode(fnode, chunk, false);
            }
            Body::Link { fnode, .. } => {
                if let Some(file) = self.files.get_mut(fnode) {
                    file.names += 1;
                    self.names += 1;
                }
                self.inode(*fnode, chunk, false);
            }
            Body::Unlink { fnode, .. } => {
                if let Some(file) = self.files.get_mut(fnode)
                    && file.names > 1
                {
                    file.names -= 1;
                    self.names -= 1;
                    self.inode(*fnode, chunk, false);
                } else {
                    self.forget(*fnode);
                }
            }
            Body::Write(write) => self.write(write, chunk),
            Body::Change {
                fnode,
                change,
                mtime,
            } => self.change(*fnode, change, mtime.is_some(), op.seq_no, chunk),
            Body::Property { .. } => {}
        }
    }

    fn mark(&mut self, mark: Option<&Mark>, chunk: ChunkId) {
        match mark {
            Some(Mark::SeedBegin) => {
                self.chunks.release(self.seed, 1);
                self.chunks.hold(chunk, 1);
                self.seed = chunk;
            }
            Some(Mark::SeedEnd) => {
                let begin = std::mem::take(&mut self.seed);
                self.chunks.release(begin, 1);
                if begin != 0 {
                    self.seeds.push((begin, chunk));
                }
            }
            Some(
                Mark::Claim
                | Mark::Idle
                | Mark::Checkpoint(_)
                | Mark::SnapshotBegin
                | Mark::SnapshotEnd
                | Mark::Text(_)
                | Mark::Other { .. },
            )
            | None => {}
        }
    }

    fn change(
        &mut self,
        fnode: Fnode,
        change: &Change,
        has_mtime: bool,
        seq_no: i64,
        chunk: ChunkId,
    ) {
        match change {
            Change::Attributes(change) => {
                self.inode(fnode, chunk, change.mtime.is_some() || has_mtime);
            }
            Change::SetXattr { name, .. } => {
                if let Some(file) = self.files.get_mut(&fnode)
                    && file.xattrs.insert(name.clone())
                {
                    self.xattrs += 1;
                }
                self.inode(fnode, chunk, has_mtime);
            }
            Change::RemoveXattr { name } => {
                if let Some(file) = self.files.get_mut(&fnode)
                    && file.xattrs.remove(name)
                {
                    self.xattrs -= 1;
                }
                self.inode(fnode, chunk, has_mtime);
            }
            Change::Size(change) => self.resize(fnode, *change, has_mtime, chunk),
            Change::Restated(restated) => self.restate(fnode, restated, seq_no, chunk),
        }
    }

    /// All earlier ops about a file but for its content are not needed any more.
    fn restate(&mut self, fnode: Fnode, restated: &Restated, seq_no: i64, chunk: ChunkId) {
        let file = self.files.entry(fnode).or_default();
        for old in file.inode.drain(..).chain([file.mtime]) {
            self.chunks.release(old, 1);
        }
        file.mtime = 0;
        self.names = self.names - file.names + restated.links.len() as u64;
        file.names = restated.links.len() as u64;
        self.xattrs -= file.xattrs.len() as u64;
        let xattrs = restated.xattrs.iter().map(|(name, _)| name.clone());
        file.xattrs = xattrs.collect();
        self.xattrs += file.xattrs.len() as u64;
        file.birth = seq_no;
        self.restless.remove(&fnode);
        self.inode(fnode, chunk, true);
    }

    /// An op of a chunk says something about a file that is no content.
    fn inode(&mut self, fnode: Fnode, chunk: ChunkId, has_mtime: bool) {
        let Some(file) = self.files.get_mut(&fnode) else {
            return;
        };
        self.chunks.touch(fnode);
        if file.inode.last() != Some(&chunk) {
            file.inode.push(chunk);
            self.chunks.hold(chunk, 1);
            if file.inode.len() > INODE_CHUNKS_MAX {
                self.restless.insert(fnode);
            }
        }
        if has_mtime {
            self.chunks.release(file.mtime, 1);
            file.mtime = 0;
        }
    }

    fn write(&mut self, write: &Write, chunk: ChunkId) {
        let fnode = write.fnode;
        let (Ok(offset), Ok(length)) = (u64::try_from(write.offset), u64::try_from(write.length))
        else {
            return;
        };
        let file = self.files.entry(fnode).or_default();
        self.chunks.touch(fnode);
        if write.mtime.is_some() {
            set(&mut self.chunks, &mut file.mtime, chunk);
        }
        if length == 0 {
            return;
        }
        let before = file.content_bytes();
        let end = offset.saturating_add(length);
        if end > file.size {
            file.size = end;
            set(&mut self.chunks, &mut file.sized, chunk);
        }
        file.made = true;
        let (first, last) = (offset / PAGE_BYTES, (end - 1) / PAGE_BYTES);
        self.chunks.touch_pages(fnode, first, last);
        let from = offset.div_ceil(PAGE_BYTES);
        let is_last_whole = end.is_multiple_of(PAGE_BYTES) || end >= file.size;
        let to = if is_last_whole { last + 1 } else { last };
        if from < to {
            let (mut chunks_used, chunks) = (to - from, &mut self.chunks);
            file.pages.set(from, to, chunk, |old, count| {
                if old == chunk {
                    chunks_used -= count;
                } else {
                    chunks.release(old, count);
                }
            });
            self.chunks.hold(chunk, chunks_used);
            drop_parts(&mut self.chunks, &mut self.crowded, fnode, file, from, to);
        }
        if from > first {
            self.part(fnode, first, chunk);
        }
        if !is_last_whole && (last > first || from == first) {
            self.part(fnode, last, chunk);
        }
        self.recount(fnode, before);
    }

    /// A part of a page was written.
    fn part(&mut self, fnode: Fnode, page: u64, chunk: ChunkId) {
        let Some(file) = self.files.get_mut(&fnode) else {
            return;
        };
        let base = file.pages.get(page);
        if base == 0 {
            file.pages.set(page, page + 1, chunk, |_, _| {});
            self.chunks.hold(chunk, 1);
            return;
        }
        let newest = file.parts.get(&page).and_then(|parts| parts.last());
        if newest.copied().unwrap_or(base) == chunk {
            return;
        }
        let parts = file.parts.entry(page).or_default();
        parts.push(chunk);
        self.chunks.hold(chunk, 1);
        if parts.len() >= PAGE_CHUNKS_MAX {
            self.crowded.insert((fnode, page));
        }
    }

    fn resize(&mut self, fnode: Fnode, change: SizeChange, has_mtime: bool, chunk: ChunkId) {
        let file = self.files.entry(fnode).or_default();
        self.chunks.touch(fnode);
        if has_mtime {
            set(&mut self.chunks, &mut file.mtime, chunk);
        }
        let before = file.content_bytes();
        let was_made = file.made;
        let (begin, end) = match change {
            SizeChange::Truncate { size } => {
                if size > 0 {
                    file.made = true;
                    self.chunks.touch_pages(fnode, 0, 0);
                }
                file.size = size;
                set(
                    &mut self.chunks,
                    &mut file.sized,
                    if size == 0 { 0 } else { chunk },
                );
                (size, u64::MAX)
            }
            SizeChange::Punch { offset, length } => (offset, offset.saturating_add(length)),
            SizeChange::Zero {
                offset,
                length,
                keep_size,
            } => {
                let end = offset.saturating_add(length);
                if !keep_size {
                    // It may make a file longer in a replay that leaves ops out, whose size is another.
                    file.made = true;
                    self.chunks.touch_pages(fnode, 0, 0);
                }
                if !keep_size && end > file.size {
                    file.size = end;
                    set(&mut self.chunks, &mut file.sized, chunk);
                }
                (offset, end)
            }
        };
        if was_made && begin < end {
            let first = begin.div_ceil(PAGE_BYTES);
            // Where the file ended then does not count: a replay that leaves ops out may see another end.
            let behind = if end == u64::MAX {
                u64::MAX
            } else {
                end / PAGE_BYTES
            };
            let chunks = &mut self.chunks;
            file.pages
                .clear(first, behind, |_, old| chunks.release(old, 1));
            if first < behind {
                drop_parts(chunks, &mut self.crowded, fnode, file, first, behind);
            }
            file.kill(Kill { begin, end, chunk });
            self.zeroed.insert(fnode);
        }
        self.recount(fnode, before);
    }

    fn recount(&mut self, fnode: Fnode, before: u64) {
        let after = self.files.get(&fnode).map_or(0, File::content_bytes);
        self.content_bytes = (self.content_bytes + after).saturating_sub(before);
    }

    /// A file lost its last name.
    fn forget(&mut self, fnode: Fnode) {
        let Some(mut file) = self.files.remove(&fnode) else {
            return;
        };
        self.content_bytes = self.content_bytes.saturating_sub(file.content_bytes());
        self.names -= file.names;
        self.xattrs -= file.xattrs.len() as u64;
        let chunks = &mut self.chunks;
        file.pages
            .clear(0, u64::MAX, |_, old| chunks.release(old, 1));
        drop_parts(chunks, &mut self.crowded, fnode, &mut file, 0, u64::MAX);
        for old in file.inode.iter().chain([&file.mtime, &file.sized]) {
            chunks.release(*old, 1);
        }
        self.restless.remove(&fnode);
        self.zeroed.remove(&fnode);
    }

    /// Builds hints that leave out what is dead. `fsm` is the state of the same ops, which must not
    /// wait for hinted ones.
    pub fn hints(&self, fsm: &Fsm, log: &Arc<str>) -> FsmHints {
        if !self.files.keys().eq(fsm.live_nodes().keys()) {
            // It was not told the same ops. Hints without gaps are right in any case.
            return fsm.hints(log);
        }
        FsmHints {
            log: Arc::clone(log),
            live_nodes: self.hinted_nodes(log),
            properties: Vec::new(),
            mode: Some(Mode::Native),
            time: fsm.last_time(),
        }
    }

    /// Returns about how many bytes of memory this takes.
    pub fn memory(&self) -> usize {
        let files: usize = self.files.values().map(File::memory).sum();
        let chunk = |chunk: &Chunk| size_of::<Chunk>() + 16 + chunk.touched.capacity() * 24;
        files + self.chunks.chunks.values().map(chunk).sum::<usize>()
    }

    pub(crate) fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    pub(crate) fn file(&self, fnode: Fnode) -> Option<&File> {
        self.files.get(&fnode)
    }

    pub(crate) fn crowded(&self) -> &BTreeSet<(Fnode, u64)> {
        &self.crowded
    }

    pub(crate) fn restless(&self) -> &BTreeSet<Fnode> {
        &self.restless
    }
}

/// Sets the chunk that something is in.
fn set(chunks: &mut Chunks, place: &mut ChunkId, chunk: ChunkId) {
    if *place != chunk {
        chunks.release(*place, 1);
        chunks.hold(chunk, 1);
        *place = chunk;
    }
}

fn drop_parts(
    chunks: &mut Chunks,
    crowded: &mut BTreeSet<(Fnode, u64)>,
    fnode: Fnode,
    file: &mut File,
    first: u64,
    end: u64,
) {
    if file.parts.is_empty() {
        return;
    }
    let pages = file
        .parts
        .range((Bound::Included(first), Bound::Excluded(end)));
    let pages: Vec<u64> = pages.map(|(page, _)| *page).collect();
    for page in pages {
        for old in file.parts.remove(&page).unwrap_or_default() {
            chunks.release(old, 1);
        }
        crowded.remove(&(fnode, page));
    }
}

#[cfg(test)]
mod tests;
