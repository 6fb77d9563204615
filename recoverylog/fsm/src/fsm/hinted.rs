//! What hints name, as a playback needs it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{FromHintsError, LiveNode};
use crate::op::{Body, Change, RecordedOp};
use crate::{Fnode, FsmHints, Segment, SegmentSet};

/// Tells whether a file comes to be by an op, if hints say so.
pub(super) fn is_birth(op: &RecordedOp, of: Fnode) -> bool {
    match &op.body {
        Body::Create { .. } => op.seq_no == of.0,
        Body::Change { fnode, change, .. } => *fnode == of && matches!(change, Change::Restated(_)),
        Body::NoOp { .. }
        | Body::Link { .. }
        | Body::Unlink { .. }
        | Body::Write(_)
        | Body::Property { .. } => false,
    }
}

pub(super) fn unborn(births: &BTreeMap<i64, Fnode>) -> BTreeMap<Fnode, LiveNode> {
    let later = births.iter().filter(|(birth, fnode)| **birth != fnode.0);
    later
        .map(|(_, fnode)| (*fnode, LiveNode::default()))
        .collect()
}

pub(super) fn is_gap(segment: &Segment, next_first: i64) -> bool {
    segment.last_seq_no.saturating_add(1) < next_first
}

/// Returns the segments of hints, and their files by the ops by which they come to be.
pub(super) fn flatten(
    hints: &FsmHints,
) -> Result<(SegmentSet, BTreeMap<i64, Fnode>), FromHintsError> {
    let mut all = Vec::new();
    let mut births = BTreeMap::new();
    let mut before: Option<Fnode> = None;
    for node in &hints.live_nodes {
        if let Some(before) = before
            && node.fnode <= before
        {
            return Err(FromHintsError::FnodeOrder(before, node.fnode));
        }
        before = Some(node.fnode);
        let first = node.segments.first();
        if node.birth.is_none() && first.is_none_or(|first| first.first_seq_no != node.fnode.0) {
            return Err(FromHintsError::FnodeSegments(node.fnode));
        }
        let birth = node.birth.unwrap_or(node.fnode.0);
        if birth < node.fnode.0 || births.insert(birth, node.fnode).is_some() {
            return Err(FromHintsError::Birth(node.fnode));
        }
        for segment in &node.segments {
            let mut segment = segment.clone();
            if segment.log.is_empty() {
                segment.log = Arc::clone(&hints.log);
            }
            all.push(segment);
        }
    }
    // In order each segment goes to the end of the set, so that large hints take no quadratic time.
    all.sort_by_key(|segment| (segment.first_seq_no, Reverse(segment.last_seq_no)));
    let mut segments = SegmentSet::default();
    for segment in all {
        segments.add(segment)?;
    }
    match births.iter().find(|(birth, _)| !holds(&segments, **birth)) {
        Some((_, fnode)) => Err(FromHintsError::Birth(*fnode)),
        None => Ok((segments, births)),
    }
}

fn holds(segments: &SegmentSet, seq_no: i64) -> bool {
    let before = segments.up_to(seq_no);
    before.is_some_and(|segment| segment.last_seq_no >= seq_no)
}
