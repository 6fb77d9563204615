//! Ops into the open batch.

use bytes::BytesMut;

use super::plan::{Step, WriteError};
use super::{Extra, OpWriter, PendingOp, ReadContent};
use crate::op::{Body, FRAME_HEADER_BYTES, Group, Mark, RecordedOp, Write};
use crate::tree::root;
use crate::{Fnode, Mode, Timestamp};

/// Most bytes of a write that others are merged into. A damaged payload costs the whole op, and a
/// reader hands content on before it has checked it.
const MERGED_BYTES_MAX: usize = 1 << 20;

/// Zeros are left out by blocks of this size, at multiples of it.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// What an op carries besides its body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub(super) group: Option<Group>,
    pub(super) now: Timestamp,
}

impl OpWriter {
    pub(super) fn put_step(
        &mut self,
        step: Step<'_>,
        context: Context,
        content: &mut ReadContent<'_>,
        out: &mut BytesMut,
    ) -> Result<(), WriteError> {
        match step {
            Step::Op(body) => self.put(body, context, out),
            Step::Content {
                fnode,
                offset,
                data,
                mtime,
            } => self.put_content(fnode, offset, data, Extra::mtime(mtime), context, out),
            Step::Zeros {
                fnode,
                offset,
                length,
                mtime,
            } => {
                let zeros = vec![0; usize::try_from(length).unwrap_or(0)];
                self.put_content(fnode, offset, &zeros, Extra::mtime(mtime), context, out)
            }
            Step::Copy {
                fnode,
                offset,
                length,
                mtime,
                sparse,
            } => {
                let data = read(content, offset, length);
                let mut at = offset;
                for piece in blocks(&data) {
                    if !sparse || piece.iter().any(|byte| *byte != 0) {
                        self.put_content(fnode, at, piece, Extra::mtime(mtime), context, out)?;
                    }
                    at += piece.len() as u64;
                }
                Ok(())
            }
            Step::Property { path, length } => {
                let content = read(content, 0, length).into();
                self.put(Body::Property { path, content }, context, out)
            }
        }
    }

    pub(super) fn put_content(
        &mut self,
        fnode: Fnode,
        offset: u64,
        data: &[u8],
        extra: Extra,
        context: Context,
        out: &mut BytesMut,
    ) -> Result<(), WriteError> {
        let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(data.len())) else {
            return Err(crate::TreeError::Range(fnode).into());
        };
        let crc32c = Some(crc32c::crc32c(data));
        let Extra { mtime, rerecorded } = extra;
        let write = Write {
            fnode,
            offset,
            length,
            crc32c,
            mtime,
            rerecorded,
        };
        self.put(Body::Write(write), context, out)?;
        out.extend_from_slice(data);
        if let Some(pending) = self.open.last_mut() {
            pending.end = out.len();
        }
        Ok(())
    }

    pub(super) fn put(
        &mut self,
        body: Body,
        context: Context,
        out: &mut BytesMut,
    ) -> Result<(), WriteError> {
        let op = self.next_op(body, context);
        self.tree.apply(&op)?;
        self.append(op, out);
        Ok(())
    }

    /// Makes the next op. The first of a batch has the time, which never decreases.
    pub(super) fn next_op(&mut self, body: Body, context: Context) -> RecordedOp {
        let mut op = RecordedOp::new(
            self.next_seq_no,
            self.next_checksum,
            self.author.get(),
            body,
        );
        op.group = context.group;
        let says_mode = match &op.body {
            Body::NoOp { mark } => *mark == Some(Mark::Claim),
            Body::Create { at, .. } => *at == root(self.mode),
            Body::Link { .. }
            | Body::Unlink { .. }
            | Body::Write(_)
            | Body::Change { .. }
            | Body::Property { .. } => false,
        };
        op.mode = (says_mode && self.mode == Mode::Native).then_some(self.mode);
        if self.open.is_empty() {
            let time = self
                .last_time
                .map_or(context.now, |last| last.max(context.now));
            self.last_time = Some(time);
            op.time = Some(time);
        }
        op
    }

    pub(super) fn append(&mut self, op: RecordedOp, out: &mut BytesMut) {
        let begin = out.len();
        let next_checksum = op.encode_frame(out);
        // Only a hostile log comes near the end; mutations are refused long before it.
        self.next_seq_no = self.next_seq_no.saturating_add(1);
        self.next_checksum = next_checksum;
        let end = out.len();
        self.open.push(PendingOp {
            op,
            next_checksum,
            begin,
            frame_end: end,
            end,
        });
    }

    /// Makes the last op of the open batch longer, if the content lies directly behind its.
    pub(super) fn merge(
        &mut self,
        fnode: Fnode,
        offset: u64,
        data: &[u8],
        mtime: Timestamp,
        out: &mut BytesMut,
    ) -> Option<i64> {
        let fnode = self.tree.recorded(fnode)?;
        let pending = self.open.last_mut()?;
        let Body::Write(write) = &mut pending.op.body else {
            return None;
        };
        let length = usize::try_from(write.length)
            .ok()?
            .checked_add(data.len())?;
        let is_behind = u64::try_from(write.offset.checked_add(write.length)?).ok()? == offset;
        if write.fnode != fnode
            || write.rerecorded
            || !is_behind
            || length > MERGED_BYTES_MAX
            || pending.op.group.is_some()
            || pending.end != out.len()
        {
            return None;
        }
        let crc = write.crc32c?;
        write.offset.checked_add(i64::try_from(length).ok()?)?;
        write.length = i64::try_from(length).ok()?;
        write.crc32c = Some(crc32c::crc32c_append(crc, data));
        write.mtime = Some(mtime);
        let mut frame = BytesMut::with_capacity(FRAME_HEADER_BYTES + 128);
        let next_checksum = pending.op.encode_frame(&mut frame);
        let grown = frame.len() - (pending.frame_end - pending.begin);
        if grown > 0 {
            // The length takes another byte: the content moves.
            out.resize(out.len() + grown, 0);
            out.copy_within(pending.frame_end..pending.end, pending.frame_end + grown);
            pending.frame_end += grown;
        }
        out[pending.begin..pending.frame_end].copy_from_slice(&frame);
        out.extend_from_slice(data);
        pending.end = out.len();
        pending.next_checksum = next_checksum;
        self.next_checksum = next_checksum;
        // The file has a name, and is regular, since the op that grows was applied.
        self.tree.apply(&pending.op).ok()?;
        Some(pending.op.seq_no)
    }
}

/// Reads a range of the backing file; what is missing there reads as zeros.
fn read(content: &mut ReadContent<'_>, offset: u64, length: u64) -> Vec<u8> {
    let mut data = vec![0; usize::try_from(length).unwrap_or(0)];
    let mut filled = 0;
    while filled < data.len() {
        match content(offset + filled as u64, &mut data[filled..]) {
            0 => break,
            read => filled = data.len().min(filled + read),
        }
    }
    data
}

/// Splits content at blocks, so that neighbours are either both zeros or both not.
fn blocks(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let mut rest = data;
    std::iter::from_fn(move || {
        let mut blocks = rest.chunks(usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX));
        let first = blocks.next()?;
        let kind = is_zero(first);
        let same = blocks
            .take_while(|block| is_zero(block) == kind)
            .map(<[u8]>::len)
            .sum::<usize>();
        let (piece, behind) = rest.split_at(first.len() + same);
        rest = behind;
        Some(piece)
    })
}
