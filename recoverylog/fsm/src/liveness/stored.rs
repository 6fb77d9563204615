//! What is live, as bytes, so that it need not be found out again by a replay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::chunks::{Chunk, Touched};
use super::file::{File, Kill};
use super::{ChunkId, INODE_CHUNKS_MAX, Liveness, PAGE_CHUNKS_MAX};
use crate::Fnode;

const MAGIC: &[u8; 4] = b"gzl1";

/// Why bytes are none that [`Liveness::encode`] made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LivenessError {
    /// They are cut, damaged, or something else.
    #[error("the stored record of what is live is damaged")]
    Damaged,
}

impl Liveness {
    /// Returns it as bytes, which only this version reads.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_slice(MAGIC);
        out.put_u64_le(self.gap_bytes);
        out.put_u64_le(self.chunks.size);
        out.put_u32_le(self.chunks.open);
        out.put_u8(self.chunks.in_group.into());
        let chunks = self.chunks.chunks.iter();
        list(&mut out, chunks, |out, (id, chunk)| {
            out.put_u32_le(*id);
            encode_chunk(out, chunk);
        });
        let open = self.chunks.open_touched.iter();
        list(&mut out, open, |out, (fnode, touched)| {
            put_touched(out, *fnode, *touched);
        });
        list(&mut out, self.files.iter(), |out, (fnode, file)| {
            out.put_i64_le(fnode.0);
            encode_file(out, file);
        });
        out.put_u32_le(self.seed);
        list(&mut out, self.seeds.iter(), |out, (begin, end)| {
            out.put_u32_le(*begin);
            out.put_u32_le(*end);
        });
        out.put_u32_le(crc32c::crc32c(&out));
        out.freeze()
    }

    /// Takes what [`encode`](Self::encode) returned.
    pub fn decode(bytes: &[u8]) -> Result<Self, LivenessError> {
        let (body, mut crc) = bytes
            .split_last_chunk::<4>()
            .map(|(body, crc)| (body, &crc[..]))
            .ok_or(LivenessError::Damaged)?;
        if crc.get_u32_le() != crc32c::crc32c(body) {
            return Err(LivenessError::Damaged);
        }
        decode(body).ok_or(LivenessError::Damaged)
    }

    /// Counts what follows from the rest.
    fn count(&mut self) {
        let chunks = &mut self.chunks;
        chunks.hold(self.seed, 1);
        for (fnode, file) in &self.files {
            for (_, chunk) in file.pages.range(0, u64::MAX) {
                chunks.hold(chunk, 1);
            }
            for (page, parts) in &file.parts {
                for chunk in parts {
                    chunks.hold(*chunk, 1);
                }
                if parts.len() >= PAGE_CHUNKS_MAX {
                    self.crowded.insert((*fnode, *page));
                }
            }
            for chunk in file.inode.iter().chain([&file.mtime, &file.sized]) {
                chunks.hold(*chunk, 1);
            }
            if file.inode.len() > INODE_CHUNKS_MAX {
                self.restless.insert(*fnode);
            }
            if !file.kills.is_empty() {
                self.zeroed.insert(*fnode);
            }
            self.content_bytes += file.content_bytes();
            self.names += file.names;
            self.xattrs += file.xattrs.len() as u64;
        }
    }
}

fn list<T>(
    out: &mut BytesMut,
    items: impl Iterator<Item = T>,
    mut item: impl FnMut(&mut BytesMut, T),
) {
    let at = out.len();
    out.put_u64_le(0);
    let mut count = 0u64;
    for of in items {
        item(out, of);
        count += 1;
    }
    out[at..at + 8].copy_from_slice(&count.to_le_bytes());
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u64_le(bytes.len() as u64);
    out.put_slice(bytes);
}

fn put_touched(out: &mut BytesMut, fnode: Fnode, touched: Touched) {
    out.put_i64_le(fnode.0);
    out.put_u64_le(touched.first);
    out.put_u64_le(touched.last);
}

fn encode_chunk(out: &mut BytesMut, chunk: &Chunk) {
    put_bytes(out, chunk.log.as_bytes());
    out.put_u32_le(chunk.author);
    out.put_i64_le(chunk.first_seq_no);
    out.put_u32_le(chunk.first_checksum);
    out.put_i64_le(chunk.last_seq_no);
    out.put_i64_le(chunk.begin);
    out.put_i64_le(chunk.end);
    list(out, chunk.touched.iter(), |out, (fnode, touched)| {
        put_touched(out, *fnode, *touched);
    });
}

fn encode_file(out: &mut BytesMut, file: &File) {
    out.put_i64_le(file.birth);
    out.put_u64_le(file.names);
    out.put_u64_le(file.size);
    out.put_u8(file.made.into());
    out.put_u32_le(file.mtime);
    out.put_u32_le(file.sized);
    list(out, file.inode.iter(), |out, chunk| out.put_u32_le(*chunk));
    list(out, file.kills.iter(), |out, kill| {
        out.put_u64_le(kill.begin);
        out.put_u64_le(kill.end);
        out.put_u32_le(kill.chunk);
    });
    list(out, file.xattrs.iter(), |out, name| put_bytes(out, name));
    list(out, file.parts.iter(), |out, (page, parts)| {
        out.put_u64_le(*page);
        list(out, parts.iter(), |out, chunk| out.put_u32_le(*chunk));
    });
    list(out, runs(file).into_iter(), |out, (first, end, chunk)| {
        out.put_u64_le(first);
        out.put_u64_le(end);
        out.put_u32_le(chunk);
    });
}

/// The pages of a file as runs in one chunk each.
fn runs(file: &File) -> Vec<(u64, u64, ChunkId)> {
    let mut runs: Vec<(u64, u64, ChunkId)> = Vec::new();
    for (page, chunk) in file.pages.range(0, u64::MAX) {
        match runs.last_mut() {
            Some((_, end, of)) if *end == page && *of == chunk => *end += 1,
            _ => runs.push((page, page + 1, chunk)),
        }
    }
    runs
}

fn decode(mut body: &[u8]) -> Option<Liveness> {
    let input = &mut body;
    if input.get(..MAGIC.len())? != MAGIC {
        return None;
    }
    input.advance(MAGIC.len());
    let (gap_bytes, chunk_bytes) = (get_u64(input)?, get_u64(input)?);
    let mut liveness = Liveness::with_sizes(chunk_bytes, gap_bytes);
    liveness.chunks.open = get_u32(input)?;
    liveness.chunks.in_group = input.try_get_u8().ok()? != 0;
    let mut logs = BTreeSet::new();
    let chunks = items(input, |input| {
        Some((get_u32(input)?, decode_chunk(input, &mut logs)?))
    })?;
    liveness.chunks.chunks = chunks.into_iter().collect();
    liveness.chunks.open_touched = items(input, get_touched)?.into_iter().collect();
    let files = items(input, |input| {
        Some((Fnode(get_i64(input)?), decode_file(input)?))
    })?;
    liveness.files = files.into_iter().collect();
    liveness.seed = get_u32(input)?;
    liveness.seeds = items(input, |input| Some((get_u32(input)?, get_u32(input)?)))?;
    liveness.count();
    input.is_empty().then_some(liveness)
}

fn decode_chunk(input: &mut &[u8], logs: &mut BTreeSet<Arc<str>>) -> Option<Chunk> {
    let log = std::str::from_utf8(get_bytes(input)?).ok()?;
    let log = logs.get(log).cloned().unwrap_or_else(|| log.into());
    logs.insert(Arc::clone(&log));
    Some(Chunk {
        log,
        author: get_u32(input)?,
        first_seq_no: get_i64(input)?,
        first_checksum: get_u32(input)?,
        last_seq_no: get_i64(input)?,
        begin: get_i64(input)?,
        end: get_i64(input)?,
        uses: 0,
        touched: items(input, get_touched)?,
    })
}

fn decode_file(input: &mut &[u8]) -> Option<File> {
    let mut file = File {
        birth: get_i64(input)?,
        names: get_u64(input)?,
        size: get_u64(input)?,
        made: input.try_get_u8().ok()? != 0,
        mtime: get_u32(input)?,
        sized: get_u32(input)?,
        inode: items(input, get_u32)?,
        ..File::default()
    };
    file.kills = items(input, |input| {
        Some(Kill {
            begin: get_u64(input)?,
            end: get_u64(input)?,
            chunk: get_u32(input)?,
        })
    })?;
    let xattrs = items(input, |input| get_bytes(input).map(Bytes::copy_from_slice))?;
    file.xattrs = xattrs.into_iter().collect();
    let parts = items(input, |input| {
        Some((get_u64(input)?, items(input, get_u32)?))
    })?;
    file.parts = parts.into_iter().collect::<BTreeMap<_, _>>();
    for (first, end, chunk) in items(input, |input| {
        Some((get_u64(input)?, get_u64(input)?, get_u32(input)?))
    })? {
        file.pages.set(first, end, chunk, |_, _| {});
    }
    Some(file)
}

fn items<T>(input: &mut &[u8], mut item: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = get_u64(input)?;
    (0..count).map(|_| item(input)).collect()
}

fn get_u64(input: &mut &[u8]) -> Option<u64> {
    input.try_get_u64_le().ok()
}

fn get_i64(input: &mut &[u8]) -> Option<i64> {
    input.try_get_i64_le().ok()
}

fn get_u32(input: &mut &[u8]) -> Option<u32> {
    input.try_get_u32_le().ok()
}

fn get_touched(input: &mut &[u8]) -> Option<(Fnode, Touched)> {
    let fnode = Fnode(get_i64(input)?);
    let (first, last) = (get_u64(input)?, get_u64(input)?);
    Some((fnode, Touched { first, last }))
}

fn get_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(get_u64(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(bytes)
}
