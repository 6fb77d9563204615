//! Tells ops of dead branches from signs that ops are missing. Pure.
//!
//! Several authors may write one log, and each op names the state that it follows upon. The first op that
//! follows upon the state of the branch that is played goes on with that branch; others begin branches that are
//! dead. In a log of which nothing is missing, each op follows upon a state that was there: of the branch that
//! is played, in which its sequence number is then one that was passed already, or the tip of a dead one. An op
//! of which neither holds follows upon something that is missing or was altered, and nobody can say that
//! it is dead.

use std::collections::{BTreeSet, VecDeque};

use gazette_recoverylog_fsm::{DecodedOp, FsmError};

/// What an op that was not applied means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It repeats an earlier op, or is part of a dead branch.
    Dead,
    /// It follows upon something that is not in the log.
    Unfounded,
    /// It goes on with the branch that is played, and cannot.
    Contradiction,
}

/// The dead branches of a log.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    /// Sequence number and checksum that the next op of each dead branch would have.
    tips: BTreeSet<(i64, u32)>,
    /// Authors that are known to be earlier owners, of whose ops some were left out.
    past: BTreeSet<u32>,
    /// Checksums before the latest ops of the branch that is played, and the sequence number of the first.
    recent: VecDeque<u32>,
    first: i64,
}

impl Branches {
    /// Notes that an author was passed while parts of the log were left out.
    pub(crate) fn pass(&mut self, author: u32) {
        self.past.insert(author);
    }

    /// Notes an op of the branch that is played.
    pub(crate) fn follow(&mut self, seq_no: i64, checksum: u32) {
        let next = self.first.checked_add_unsigned(self.recent.len() as u64);
        if next != Some(seq_no) {
            self.recent.clear();
            self.first = seq_no;
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
            self.first += 1;
        }
        self.recent.push_back(checksum);
    }

    /// Whether the branch that is played had another checksum before the op of this number.
    fn is_other(&self, seq_no: i64, checksum: u32) -> bool {
        let index = seq_no.checked_sub(self.first);
        index
            .and_then(|index| usize::try_from(index).ok())
            .and_then(|index| self.recent.get(index))
            .is_some_and(|known| *known != checksum)
    }

    /// Judges an op that was refused as `error` says. `hinted` tells whether hints are not used up.
    pub(crate) fn judge(&mut self, decoded: &DecodedOp, error: &FsmError, hinted: bool) -> Verdict {
        let op = &decoded.op;
        let verdict = match *error {
            // Hints choose the branch.
            FsmError::NotHintedAuthor { .. } => Verdict::Dead,
            FsmError::WrongSeqNo { expected, actual }
                if actual < expected && (hinted || !self.is_other(op.seq_no, op.checksum)) =>
            {
                Verdict::Dead
            }
            // Of the hinted author, no op may be missing within a segment.
            FsmError::WrongSeqNo { .. } | FsmError::ChecksumMismatch { .. } if hinted => {
                Verdict::Unfounded
            }
            FsmError::WrongSeqNo { .. } | FsmError::ChecksumMismatch { .. } => {
                if self.tips.contains(&(op.seq_no, op.checksum)) || self.past.contains(&op.author) {
                    Verdict::Dead
                } else {
                    Verdict::Unfounded
                }
            }
            FsmError::ExpectedHintedFnode
            | FsmError::LinkExists
            | FsmError::PropertyExists
            | FsmError::NoSuchLink => Verdict::Contradiction,
        };
        if verdict == Verdict::Dead {
            self.tips.remove(&(op.seq_no, op.checksum));
            if self.tips.len() < TIPS_MAX {
                let next = op.seq_no.saturating_add(1);
                self.tips.insert((next, decoded.next_checksum));
            }
        }
        verdict
    }
}

/// Ops that a batch may have which is appended twice.
const RECENT_MAX: usize = 1 << 16;

/// More dead branches than a log ever has. Beyond them, an op of one more is an error rather than dead.
const TIPS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
