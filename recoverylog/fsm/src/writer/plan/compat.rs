//! Changes of size and holes, said in the reference's ops.

use super::{EXPANSION_BYTES_MAX, Plan, Planner, Refusal, Step, WriteError};
use crate::op::{Body, Change};
use crate::tree::hidden;
use crate::{AttributeChange, Fnode, Kind, Mode, SizeChange, Timestamp};

/// Bytes of content in one op.
const CHUNK_BYTES: u64 = 1 << 20;

pub(super) fn size<'m>(
    planner: &Planner<'_>,
    fnode: Fnode,
    change: SizeChange,
    mtime: Timestamp,
) -> Result<Plan<'m>, WriteError> {
    let size = planner
        .tree
        .attributes(fnode)
        .map_or(0, |attributes| attributes.size);
    let steps = match change {
        SizeChange::Truncate { size: new } if new < size => {
            return cut(planner, fnode, new, mtime);
        }
        SizeChange::Truncate { size: new } => grow(fnode, size, new, mtime),
        SizeChange::Punch { offset, length } => {
            let end = offset.saturating_add(length).min(size);
            zeros(fnode, offset, end, mtime)?
        }
        SizeChange::Zero {
            offset,
            length,
            keep_size,
        } => {
            let end = offset.saturating_add(length);
            let mut steps = zeros(fnode, offset, end.min(size), mtime)?;
            if !keep_size && end > size {
                steps.extend(grow(fnode, size, end, mtime));
            }
            steps
        }
    };
    let steps = if steps.is_empty() {
        vec![touch(fnode, mtime)]
    } else {
        steps
    };
    Ok(Plan {
        steps,
        ..Plan::default()
    })
}

fn touch<'m>(fnode: Fnode, mtime: Timestamp) -> Step<'m> {
    let change = Change::Attributes(AttributeChange::default());
    Step::Op(Body::Change {
        fnode,
        change,
        mtime: Some(mtime),
    })
}

/// A zero behind a hole makes a file larger.
fn grow<'m>(fnode: Fnode, size: u64, new: u64, mtime: Timestamp) -> Vec<Step<'m>> {
    match new.checked_sub(1) {
        Some(offset) if new > size => vec![Step::Zeros {
            fnode,
            offset,
            length: 1,
            mtime,
        }],
        _ => Vec::new(),
    }
}

fn zeros<'m>(
    fnode: Fnode,
    mut offset: u64,
    end: u64,
    mtime: Timestamp,
) -> Result<Vec<Step<'m>>, Refusal> {
    check_expansion(end.saturating_sub(offset))?;
    let mut steps = Vec::new();
    while offset < end {
        let length = CHUNK_BYTES.min(end - offset);
        steps.push(Step::Zeros {
            fnode,
            offset,
            length,
            mtime,
        });
        offset += length;
    }
    Ok(steps)
}

fn check_expansion(bytes: u64) -> Result<(), Refusal> {
    if bytes > EXPANSION_BYTES_MAX {
        Err(Refusal::TooLarge(bytes))
    } else {
        Ok(())
    }
}

/// A file that was cut becomes another file with the same names: created out of sight, so that the
/// old one stays until it is complete.
fn cut<'m>(
    planner: &Planner<'_>,
    old: Fnode,
    size: u64,
    mtime: Timestamp,
) -> Result<Plan<'m>, WriteError> {
    check_expansion(size)?;
    let Some(attributes) = planner.tree.attributes(old) else {
        return Ok(Plan::default());
    };
    let new = Fnode(planner.next_seq_no);
    let at = hidden(Mode::Compat, new.0);
    let inode = Some(attributes.inode(mtime));
    let mut steps = vec![Step::Op(Body::Create {
        at: at.clone(),
        inode,
    })];
    for offset in (0..size).step_by(usize::try_from(CHUNK_BYTES).unwrap_or(usize::MAX)) {
        let length = CHUNK_BYTES.min(size - offset);
        steps.push(Step::Copy {
            fnode: new,
            offset,
            length,
            mtime,
            sparse: true,
        });
    }
    if let Some(offset) = size.checked_sub(1) {
        // The content may end with a hole.
        steps.push(Step::Copy {
            fnode: new,
            offset,
            length: 1,
            mtime,
            sparse: false,
        });
    }
    for (name, value) in &attributes.xattrs {
        let change = Change::SetXattr {
            name: name.clone(),
            value: value.clone(),
        };
        steps.push(Step::Op(Body::Change {
            fnode: new,
            change,
            mtime: None,
        }));
    }
    if let Some(atime) = attributes.atime {
        let change = AttributeChange {
            atime: Some(atime),
            ..AttributeChange::default()
        };
        let change = Change::Attributes(change);
        steps.push(Step::Op(Body::Change {
            fnode: new,
            change,
            mtime: None,
        }));
    }
    let hidden_before = planner.tree.hidden_link(old);
    let unnamed = hidden_before.is_some();
    for (parent, name) in planner.tree.links(old) {
        let Some(at) = planner.tree.link_name(parent, name, Kind::Regular) else {
            continue;
        };
        steps.push(Step::Op(Body::Unlink {
            fnode: old,
            at: at.clone(),
        }));
        steps.push(Step::Op(Body::Link { fnode: new, at }));
    }
    if let Some(at) = hidden_before {
        steps.push(Step::Op(Body::Unlink { fnode: old, at }));
    }
    if !unnamed {
        steps.push(Step::Op(Body::Unlink { fnode: new, at }));
    }
    Ok(Plan {
        steps,
        created: None,
        replaced: Some(old),
    })
}
