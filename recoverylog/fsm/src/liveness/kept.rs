//! What hints name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{COLLECT_CHUNKS, Chunk, ChunkId, Liveness};
use crate::{Fnode, FnodeSegments, Segment};

/// How large what is live is, and what it takes of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// The live size: content that is no holes, and 512 bytes for each inode, name and extended
    /// attribute.
    pub live_bytes: u64,
    /// Bytes of logs that a recovery would read, if hints were made now.
    pub read_bytes: u64,
    /// Bytes of the log that is recorded into from the first that a recovery would read to its head.
    pub span_bytes: u64,
    /// Where that first byte is.
    pub horizon: i64,
    /// Bytes that a recovery would read in other logs, of which this one is a fork.
    pub other_logs_bytes: u64,
}

/// Bytes that an inode, a name or an extended attribute counts as.
pub(crate) const ENTRY_BYTES: u64 = 512;

impl Liveness {
    /// Returns the live size: content that is no holes, and 512 bytes for each inode, name and
    /// extended attribute.
    pub fn live_bytes(&self) -> u64 {
        let entries = self.files.len() as u64 + self.names + self.xattrs;
        self.content_bytes + entries * ENTRY_BYTES
    }

    /// Estimates what a recovery would read by hints that are made now.
    pub fn estimate(&self) -> Estimate {
        let kept = self.kept();
        let mut estimate = Estimate {
            live_bytes: self.live_bytes(),
            ..Estimate::default()
        };
        let Some(open) = self.chunks.chunks.get(&self.chunks.open) else {
            return estimate;
        };
        let is_here = |id: &ChunkId| {
            let chunk = self.chunks.chunks.get(id);
            chunk.filter(|chunk| chunk.log == open.log)
        };
        estimate.horizon = kept.iter().find_map(is_here).map_or(0, |chunk| chunk.begin);
        estimate.span_bytes = open.end.abs_diff(estimate.horizon);
        for segment in self.segments(&kept) {
            let bytes = segment.last_offset.abs_diff(segment.first_offset);
            estimate.read_bytes += bytes;
            if segment.log != open.log {
                estimate.other_logs_bytes += bytes;
            }
        }
        estimate
    }

    /// Returns the chunks that a recovery must read.
    ///
    /// A chunk is kept if something live is in it. Dead ops of a kept chunk are replayed as well: so
    /// one that makes zeros of a range is needed behind any replayed write of the same file, and the
    /// end of a take-over behind its beginning.
    pub(crate) fn kept(&self) -> BTreeSet<ChunkId> {
        let all = &self.chunks.chunks;
        let is_live = |(id, chunk): &(&ChunkId, &Chunk)| chunk.uses > 0 || **id == self.chunks.open;
        let mut kept: BTreeSet<ChunkId> = all.iter().filter(is_live).map(|(id, _)| *id).collect();
        self.coalesce(&mut kept);
        let mut zeros: BTreeMap<ChunkId, Vec<Fnode>> = BTreeMap::new();
        for fnode in &self.zeroed {
            for kill in self
                .files
                .get(fnode)
                .into_iter()
                .flat_map(|file| &file.kills)
            {
                zeros.entry(kill.chunk).or_default().push(*fnode);
            }
        }
        let mut replayed: BTreeSet<Fnode> = BTreeSet::new();
        for id in all.keys() {
            let is_needed = zeros
                .get(id)
                .is_some_and(|of| of.iter().any(|fnode| replayed.contains(fnode)))
                || self
                    .seeds
                    .iter()
                    .any(|(begin, end)| end == id && kept.contains(begin));
            if is_needed {
                kept.insert(*id);
            }
            if kept.contains(id) && !zeros.is_empty() {
                let written = self.chunks.touched(*id);
                let written = written.filter(|(_, touched)| touched.has_content());
                replayed.extend(written.map(|(fnode, _)| fnode));
            }
        }
        kept
    }

    /// Keeps short runs of dead chunks between live ones, so that hints have fewer segments. Runs of
    /// dead chunks only grow, so that what was left out once is left out for ever: it may be pruned.
    fn coalesce(&self, kept: &mut BTreeSet<ChunkId>) {
        let mut gap: Option<(u64, Vec<ChunkId>)> = None;
        let mut before: Option<&Chunk> = None;
        for (id, chunk) in &self.chunks.chunks {
            if before.is_some_and(|before| !before.goes_on_as(chunk)) {
                gap = None;
            }
            before = Some(chunk);
            if chunk.uses > 0 || *id == self.chunks.open {
                let (bytes, chunks) = gap.replace((0, Vec::new())).unwrap_or_default();
                if bytes <= self.gap_bytes {
                    kept.extend(chunks);
                }
            } else if let Some((bytes, chunks)) = &mut gap {
                *bytes += chunk.bytes();
                chunks.push(*id);
            }
        }
    }

    pub(crate) fn segments(&self, kept: &BTreeSet<ChunkId>) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut before: Option<&Chunk> = None;
        for chunk in kept.iter().filter_map(|id| self.chunks.chunks.get(id)) {
            match segments.last_mut() {
                Some(last) if before.is_some_and(|before| before.goes_on_as(chunk)) => {
                    last.last_seq_no = chunk.last_seq_no;
                    last.last_offset = chunk.end;
                }
                _ => segments.push(chunk.segment()),
            }
            before = Some(chunk);
        }
        segments
    }

    /// Returns the files of hints. The first of them has the segments.
    pub(super) fn hinted_nodes(&self, log: &Arc<str>) -> Vec<FnodeSegments> {
        let mut segments = self.segments(&self.kept());
        for segment in &mut segments {
            if segment.log == *log {
                segment.log = "".into();
            }
        }
        let files = self.files.iter();
        files
            .map(|(fnode, file)| FnodeSegments {
                fnode: *fnode,
                segments: std::mem::take(&mut segments),
                birth: Some(file.birth),
            })
            .collect()
    }

    /// Forgets the chunks that no hints will name any more.
    pub(super) fn collect(&mut self) {
        let kept = self.kept();
        let files = &self.files;
        self.chunks
            .retain(&kept, |fnode| files.contains_key(&fnode));
        let chunks = &self.chunks.chunks;
        for fnode in std::mem::take(&mut self.zeroed) {
            if let Some(file) = self.files.get_mut(&fnode) {
                file.kills.retain(|kill| chunks.contains_key(&kill.chunk));
                if !file.kills.is_empty() {
                    self.zeroed.insert(fnode);
                }
            }
        }
        self.seeds
            .retain(|(begin, end)| chunks.contains_key(begin) && chunks.contains_key(end));
        self.collect_at = 2 * chunks.len() + COLLECT_CHUNKS;
    }
}
