//! A state that is gone on from where it was left, without anything that is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{FromHintsError, Fsm, LiveNode, flatten, is_gap};
use crate::op::LinkName;
use crate::{Fnode, FsmHints, SegmentSet};

/// What hints do not say of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    /// The names.
    pub links: BTreeMap<LinkName, Fnode>,
    /// Sequence number of the next op.
    pub next_seq_no: i64,
    /// Its checksum.
    pub next_checksum: u32,
}

/// Why a state cannot be gone on from.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ResumeError {
    /// The hints contradict themselves.
    #[error(transparent)]
    Hints(#[from] FromHintsError),
    /// The hints know another number of names.
    #[error("file {0} has another number of names")]
    Links(Fnode),
    /// The next op is none that can follow.
    #[error("op {0} cannot be the next one")]
    SeqNo(i64),
}

impl Fsm {
    /// Returns what hints do not say of this state, which must not wait for hinted ops.
    pub fn rest(&self) -> Rest {
        Rest {
            links: self.links.clone(),
            next_seq_no: self.next_seq_no,
            next_checksum: self.next_checksum,
        }
    }

    /// Goes on from a state of which hints and the rest were kept. Nothing has to be played.
    pub fn resume(hints: &FsmHints, rest: Rest) -> Result<Self, ResumeError> {
        // The checks of hints that are played.
        let mut fsm = Self::new(hints)?;
        let (segments, _) = flatten(hints)?;
        let last = segments.iter().map(|segment| segment.last_seq_no).max();
        if rest.next_seq_no <= last.unwrap_or(0) {
            return Err(ResumeError::SeqNo(rest.next_seq_no));
        }
        let mut counts: BTreeMap<Fnode, u32> = BTreeMap::new();
        for fnode in rest.links.values() {
            *counts.entry(*fnode).or_default() += 1;
        }
        for node in &hints.live_nodes {
            let links = counts.remove(&node.fnode);
            let links = links.ok_or(ResumeError::Links(node.fnode))?;
            let mut segments = node.segments.clone();
            for segment in &mut segments {
                if segment.log.is_empty() {
                    segment.log = Arc::clone(&hints.log);
                }
            }
            let birth = node.birth.unwrap_or(node.fnode.0);
            let live = LiveNode {
                links,
                birth,
                segments,
            };
            fsm.live_nodes.insert(node.fnode, live);
        }
        if let Some((fnode, _)) = counts.pop_first() {
            return Err(ResumeError::Links(fnode));
        }
        fsm.hinted_segments = SegmentSet::default();
        fsm.hinted_births.clear();
        fsm.unborn.clear();
        let pairs = segments.iter().zip(segments.iter().skip(1)).rev();
        let behind_gap = pairs
            .filter(|(before, after)| is_gap(before, after.first_seq_no))
            .map(|(_, after)| after);
        let run = behind_gap.chain(segments.first()).next();
        fsm.run_first = run.map_or(1, |first| first.first_seq_no);
        fsm.hinted_gaps = 0;
        fsm.last_log = Arc::clone(&hints.log);
        fsm.links = rest.links;
        fsm.next_seq_no = rest.next_seq_no;
        fsm.next_checksum = rest.next_checksum;
        Ok(fsm)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::op::{Body, Mode};
    use crate::{OpExtent, RecordedOp};

    fn name(path: &'static str) -> LinkName {
        LinkName {
            parent: Fnode::ROOT,
            path: Bytes::from_static(path.as_bytes()),
        }
    }

    /// Ops with a chain of checksums that only has to be the same on both sides.
    fn apply(fsm: &mut Fsm, body: Body) {
        let log: Arc<str> = "a/log".into();
        let op = RecordedOp::new(fsm.next_seq_no(), fsm.next_checksum(), 7, body);
        let begin = op.seq_no * 100;
        let extent = OpExtent {
            log: &log,
            begin,
            end: begin + 100,
        };
        let next = op.checksum.wrapping_mul(31).wrapping_add(7);
        fsm.apply(&op, next, extent).unwrap();
    }

    fn recorded() -> Fsm {
        let mut fsm = Fsm::of_log("a/log").unwrap();
        apply(
            &mut fsm,
            Body::Create {
                at: name("one"),
                inode: None,
            },
        );
        apply(
            &mut fsm,
            Body::Create {
                at: name("two"),
                inode: None,
            },
        );
        apply(
            &mut fsm,
            Body::Link {
                fnode: Fnode(1),
                at: name("three"),
            },
        );
        apply(
            &mut fsm,
            Body::Unlink {
                fnode: Fnode(2),
                at: name("two"),
            },
        );
        fsm.mode = Some(Mode::Native);
        fsm
    }

    #[test]
    fn a_state_that_is_gone_on_from_goes_on_as_the_one_that_was_left() {
        let mut left = recorded();
        let hints = FsmHints::decode(&left.hints(&"a/log".into()).encode()).unwrap();
        let mut resumed = Fsm::resume(&hints, left.rest()).unwrap();
        for _ in 0..2 {
            assert_eq!(resumed.links(), left.links());
            assert_eq!(resumed.live_nodes(), left.live_nodes());
            assert_eq!(resumed.rest(), left.rest());
            assert!(resumed.hinted_segments().is_empty());
            for fsm in [&mut resumed, &mut left] {
                apply(
                    fsm,
                    Body::Unlink {
                        fnode: Fnode(1),
                        at: name("one"),
                    },
                );
                apply(
                    fsm,
                    Body::Create {
                        at: name("one"),
                        inode: None,
                    },
                );
                apply(
                    fsm,
                    Body::Link {
                        fnode: Fnode(1),
                        at: name("four"),
                    },
                );
                apply(
                    fsm,
                    Body::Unlink {
                        fnode: Fnode(fsm.next_seq_no() - 2),
                        at: name("one"),
                    },
                );
                apply(
                    fsm,
                    Body::Link {
                        fnode: Fnode(1),
                        at: name("one"),
                    },
                );
                apply(
                    fsm,
                    Body::Unlink {
                        fnode: Fnode(1),
                        at: name("four"),
                    },
                );
            }
        }
    }

    #[test]
    fn what_does_not_fit_the_hints_is_refused() {
        let left = recorded();
        let hints = left.hints(&"a/log".into());
        let mut rest = left.rest();
        rest.links.insert(name("more"), Fnode(9));
        assert_eq!(
            Fsm::resume(&hints, rest).unwrap_err(),
            ResumeError::Links(Fnode(9))
        );
        let mut rest = left.rest();
        rest.links.clear();
        assert_eq!(
            Fsm::resume(&hints, rest).unwrap_err(),
            ResumeError::Links(Fnode(1))
        );
        let rest = Rest {
            next_seq_no: 3,
            ..left.rest()
        };
        assert_eq!(
            Fsm::resume(&hints, rest).unwrap_err(),
            ResumeError::SeqNo(3)
        );
    }
}
