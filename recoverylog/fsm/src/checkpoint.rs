//! The state of a log as bytes, so that whoever has them need not read the log up to there again.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};

use crate::op::{Body, Change, LinkName, Mode, RecordedOp};
use crate::{Event, Fnode, Fsm, FsmHints, Liveness, OpReader, Rest, SizeChange, Tree, Unfinished};

/// The state of a `native` log up to an offset.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Behind the last op that it has.
    pub offset: i64,
    /// What counts.
    pub fsm: Fsm,
    /// Names and attributes.
    pub tree: Tree,
    /// What of the log is live, if that is known.
    pub liveness: Option<Liveness>,
}

/// Why bytes are no checkpoint, or a state cannot be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Something of the state cannot be said: a name without a place, or more names and attributes of
    /// a file than an op can hold. Or the log is not `native`.
    #[error("the state cannot be said")]
    Unsayable,
    /// The bytes are cut, damaged, or something else.
    #[error("the checkpoint is damaged")]
    Damaged,
}

impl From<TryGetError> for CheckpointError {
    fn from(_: TryGetError) -> Self {
        Self::Damaged
    }
}

impl Checkpoint {
    /// Returns it as bytes, which only this version reads.
    pub fn encode(&self) -> Result<Bytes, CheckpointError> {
        let Self {
            offset,
            fsm,
            tree,
            liveness,
        } = self;
        let is_whole = fsm.hinted_segments().is_empty() && tree.orphans().is_empty();
        if !is_whole || tree.mode() != Mode::Native {
            return Err(CheckpointError::Unsayable);
        }
        let mut out = BytesMut::new();
        out.put_i64_le(*offset);
        out.put_i64_le(fsm.next_seq_no());
        out.put_u32_le(fsm.next_checksum());
        let hints = fsm.hints(fsm.log()).encode();
        out.put_u64_le(hints.len() as u64);
        out.put_slice(&hints);
        out.put_u64_le(fsm.links().len() as u64);
        for (at, fnode) in fsm.links() {
            out.put_i64_le(at.parent.0);
            out.put_i64_le(fnode.0);
            let length = u32::try_from(at.path.len()).map_err(|_| CheckpointError::Unsayable)?;
            out.put_u32_le(length);
            out.put_slice(&at.path);
        }
        let liveness = liveness.as_ref().map(Liveness::encode).unwrap_or_default();
        out.put_u64_le(liveness.len() as u64);
        out.put_slice(&liveness);
        for fnode in tree.fnodes() {
            let size = tree.attributes(fnode).map_or(0, |known| known.size);
            let restated = tree.restated(fnode);
            let restated = restated.ok_or(CheckpointError::Unsayable)?;
            if size > 0 {
                say(fnode, Change::Size(SizeChange::Truncate { size }), &mut out)?;
            }
            say(fnode, Change::Restated(Box::new(restated)), &mut out)?;
        }
        let mut sealed = BytesMut::with_capacity(MAGIC.len() + 4 + out.len());
        sealed.put_slice(MAGIC);
        sealed.put_u32_le(crc32c::crc32c(&out));
        sealed.put_slice(&out);
        Ok(sealed.freeze())
    }

    /// Takes what [`encode`](Self::encode) returned.
    pub fn decode(bytes: &Bytes) -> Result<Self, CheckpointError> {
        let damaged = || CheckpointError::Damaged;
        if !bytes.starts_with(MAGIC) {
            return Err(damaged());
        }
        let mut rest = bytes.slice(MAGIC.len()..);
        if rest.try_get_u32_le()? != crc32c::crc32c(&rest) {
            return Err(damaged());
        }
        let offset = rest.try_get_i64_le()?;
        let (next_seq_no, next_checksum) = (rest.try_get_i64_le()?, rest.try_get_u32_le()?);
        let length = rest.try_get_u64_le()?;
        let hints = FsmHints::decode_proto(take(&mut rest, length)?).map_err(|_| damaged())?;
        let mut links = BTreeMap::new();
        for _ in 0..rest.try_get_u64_le()? {
            let (parent, fnode) = (Fnode(rest.try_get_i64_le()?), Fnode(rest.try_get_i64_le()?));
            let length = rest.try_get_u32_le()?;
            let path = Bytes::copy_from_slice(&take(&mut rest, length.into())?);
            links.insert(LinkName { parent, path }, fnode);
        }
        let length = rest.try_get_u64_le()?;
        let live = take(&mut rest, length)?;
        let liveness = match &live[..] {
            [] => None,
            live => Some(Liveness::decode(live).map_err(|_| damaged())?),
        };
        let kept = Rest {
            links,
            next_seq_no,
            next_checksum,
        };
        Ok(Self {
            offset,
            fsm: Fsm::resume(&hints, kept).map_err(|_| damaged())?,
            tree: tree(rest)?,
            liveness,
        })
    }
}

/// Names and attributes, out of ops that say them again.
fn tree(frames: Bytes) -> Result<Tree, CheckpointError> {
    let mut tree = Tree::new(Mode::Native);
    let mut reader = OpReader::new(0);
    reader.feed(frames);
    loop {
        match reader.next_event() {
            Event::Op(mut decoded) => {
                detach(&mut decoded.op.body);
                tree.apply(&decoded.op)
                    .map_err(|_| CheckpointError::Damaged)?;
            }
            Event::NeedMore if reader.unfinished() == Unfinished::Nothing => break,
            Event::NeedMore
            | Event::Content { .. }
            | Event::Desync { .. }
            | Event::Damaged { .. } => return Err(CheckpointError::Damaged),
        }
    }
    if tree.orphans().is_empty() {
        Ok(tree)
    } else {
        Err(CheckpointError::Damaged)
    }
}

/// Copies names and attributes: a part of the bytes would keep all of them.
fn detach(body: &mut Body) {
    let copy = |bytes: &mut Bytes| *bytes = Bytes::copy_from_slice(bytes);
    if let Body::Change {
        change: Change::Restated(restated),
        ..
    } = body
    {
        copy(&mut restated.inode.target);
        for at in &mut restated.links {
            copy(&mut at.path);
        }
        for (name, value) in &mut restated.xattrs {
            copy(name);
            copy(value);
        }
    }
}

fn say(fnode: Fnode, change: Change, out: &mut BytesMut) -> Result<(), CheckpointError> {
    let body = Body::Change {
        fnode,
        change,
        mtime: None,
    };
    let before = out.len();
    RecordedOp::new(1, 0, 1, body).encode_frame(out);
    if out.len() - before > crate::FRAME_BYTES_MAX as usize {
        return Err(CheckpointError::Unsayable);
    }
    Ok(())
}

fn take(rest: &mut Bytes, length: u64) -> Result<Bytes, CheckpointError> {
    let length = usize::try_from(length).map_err(|_| CheckpointError::Damaged)?;
    if length > rest.len() {
        return Err(CheckpointError::Damaged);
    }
    Ok(rest.split_to(length))
}

const MAGIC: &[u8] = b"gazette checkpoint 2\n";
