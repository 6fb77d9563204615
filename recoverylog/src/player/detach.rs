//! Frees ops from the bytes that they were read from.

use bytes::Bytes;
use gazette_recoverylog_fsm::{Body, Change, DecodedOp, Mark};

/// Copies what an op has of the bytes that it was read from: names that the tree keeps would keep those whole.
pub(super) fn detached(mut decoded: DecodedOp) -> DecodedOp {
    let detach = |bytes: &mut Bytes| *bytes = Bytes::copy_from_slice(bytes);
    match &mut decoded.op.body {
        Body::Create { at, inode } => {
            detach(&mut at.path);
            if let Some(inode) = inode {
                detach(&mut inode.target);
            }
        }
        Body::Link { at, .. } | Body::Unlink { at, .. } => detach(&mut at.path),
        Body::Change { change, .. } => match change {
            Change::SetXattr { name, value } => {
                detach(name);
                detach(value);
            }
            Change::RemoveXattr { name } => detach(name),
            Change::Restated(restated) => {
                detach(&mut restated.inode.target);
                for at in &mut restated.links {
                    detach(&mut at.path);
                }
                for (name, value) in &mut restated.xattrs {
                    detach(name);
                    detach(value);
                }
            }
            Change::Attributes(_) | Change::Size(_) => {}
        },
        Body::Property { path, content } => {
            detach(path);
            detach(content);
        }
        Body::NoOp { mark } => match mark {
            Some(Mark::Checkpoint(content) | Mark::Text(content) | Mark::Other { content, .. }) => {
                detach(content);
            }
            Some(
                Mark::Claim
                | Mark::Idle
                | Mark::SnapshotBegin
                | Mark::SnapshotEnd
                | Mark::SeedBegin
                | Mark::SeedEnd,
            )
            | None => {}
        },
        Body::Write(_) => {}
    }
    decoded
}
