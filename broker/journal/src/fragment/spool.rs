//! A spool: the growing fragment of one replica, and what of it is certain.
//!
//! A spool hashes the content that it is given and says where each chunk goes; writing it
//! there is up to the caller. Each fragment of a spool is a file of the caller's, which the
//! fragment's begin names. A roll begins a new file; positions are relative to that begin.
//!
//! What was *proposed* and what is *acknowledged* differ: a commit is acknowledged when every
//! replica has made it durable, and further appends may be committed on top of it before that.
//! The spool keeps the state after each commit until then, so that [`Spool::cut`] can drop
//! what will never be acknowledged. Only acknowledged extents may be shown to a reader or
//! persisted (P2).

use std::{
    collections::VecDeque,
    fmt::{self, Debug},
    mem,
    time::SystemTime,
};

use gazette_protocol::{CompressionCodec, Fragment, LabelSet, Sha1Sum};
use sha1::{Digest, Sha1};

/// The growing fragment of one replica of a journal.
#[derive(Clone)]
pub struct Spool {
    /// As of the last acknowledgement.
    acknowledged: State,
    /// After each commit and roll since, the present one last.
    unacknowledged: VecDeque<State>,
    /// Hash of the present content and of the pending bytes after it.
    running: Sha1,
    /// Pending bytes: forwarded, but not committed.
    delta: i64,
}

/// A spool as a commit or a roll left it.
#[derive(Clone)]
struct State {
    fragment: Fragment,
    registers: LabelSet,
    first_append_time: Option<SystemTime>,
    hash: Sha1,
}

/// A fragment that a spool closed, with what its path is made of.
///
/// It may be shown to readers and persisted once its end is acknowledged. It need not have been
/// shown before: an append whose round failed may become part of it all the same, when the
/// replicas synchronise.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    /// The fragment. It is not empty.
    pub fragment: Fragment,
    /// The registers that its last commit left.
    pub registers: LabelSet,
    /// When this replica saw its first commit.
    pub first_append_time: Option<SystemTime>,
}

/// A spool began a new fragment: content goes to a new file from now on.
#[derive(Debug, Clone, PartialEq)]
pub struct Rolled {
    /// The fragment that it closed, unless that was empty.
    pub completed: Option<Completed>,
    /// Begin of the new fragment.
    pub begin: i64,
}

/// What a proposal did to a spool.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// Whether the spool agrees with the proposal now.
    pub outcome: Outcome,
    /// The roll that came first, if any. It stands even if the proposal then mismatches.
    pub rolled: Option<Rolled>,
}

/// Whether, and how, a spool came to agree with a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The proposal is the present fragment. Pending bytes, this many, were dropped.
    RolledBack {
        /// Bytes that were pending.
        bytes: i64,
    },
    /// The proposal is the fragment with its pending bytes, this many, which now belong to it.
    Committed {
        /// Bytes that were pending.
        bytes: i64,
    },
    /// The proposal is neither. Nothing but the roll, if there was one, took effect.
    Mismatch,
}

/// What [`Spool::cut`] left.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// The fragment that is present again. Its file must be cut to its length, and files of
    /// later begins removed.
    pub fragment: Fragment,
    /// Its registers.
    pub registers: LabelSet,
    /// Where the dropped content ended.
    pub dropped_end: i64,
}

/// Why a spool does not take content, or cannot be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// A chunk does not follow the ones before it.
    #[error("content begins {actual} bytes after the committed end; expected {expected}")]
    WrongDelta {
        /// Bytes that are pending.
        expected: i64,
        /// Where the chunk claims to begin.
        actual: i64,
    },
    /// The content would end beyond the greatest offset.
    #[error("{length} bytes after {delta} pending ones at {end} exceed the greatest offset")]
    OffsetOverflow {
        /// End of the committed fragment.
        end: i64,
        /// Bytes that are pending.
        delta: i64,
        /// Length of the chunk.
        length: usize,
    },
    /// The recovered content is not what was committed.
    #[error(
        "spool of {journal} at [{begin:#x}, {end:#x}) has sum {actual}, but {expected} was \
         committed"
    )]
    SumMismatch {
        /// Journal of the spool.
        journal: String,
        /// Begin of the recovered fragment.
        begin: i64,
        /// End of the recovered fragment.
        end: i64,
        /// The sum of the commit record.
        expected: Sha1Sum,
        /// The sum of the content.
        actual: Sha1Sum,
    },
    /// There is more, or less, content than was committed.
    #[error("spool of {journal} at [{begin:#x}, {end:#x}) has {actual} bytes of content")]
    LengthMismatch {
        /// Journal of the spool.
        journal: String,
        /// Begin of the recovered fragment.
        begin: i64,
        /// End of the recovered fragment.
        end: i64,
        /// Bytes of content.
        actual: i64,
    },
}

impl Spool {
    /// The spool of a replica that knows nothing yet: empty, at offset zero.
    pub fn new(journal: impl Into<String>) -> Self {
        let fragment = Fragment {
            journal: journal.into(),
            compression_codec: CompressionCodec::None.into(),
            ..Fragment::default()
        };
        Self::of(State {
            fragment,
            registers: LabelSet::default(),
            first_append_time: None,
            hash: Sha1::new(),
        })
    }

    fn of(state: State) -> Self {
        let running = state.hash.clone();
        Self {
            acknowledged: state,
            unacknowledged: VecDeque::new(),
            running,
            delta: 0,
        }
    }

    fn present(&self) -> &State {
        self.unacknowledged.back().unwrap_or(&self.acknowledged)
    }

    /// The present fragment: everything committed, acknowledged or not.
    pub fn fragment(&self) -> &Fragment {
        &self.present().fragment
    }

    /// The registers of the last commit.
    pub fn registers(&self) -> &LabelSet {
        &self.present().registers
    }

    /// When the first commit of the present fragment was applied.
    pub fn first_append_time(&self) -> Option<SystemTime> {
        self.present().first_append_time
    }

    /// Begin of the present fragment.
    pub fn begin(&self) -> i64 {
        self.fragment().begin
    }

    /// End of the present fragment, which is the offset of the next append.
    pub fn end(&self) -> i64 {
        self.fragment().end
    }

    /// Pending bytes.
    pub fn delta(&self) -> i64 {
        self.delta
    }

    /// The part of the present fragment that is acknowledged, which may be empty.
    pub fn acknowledged_end(&self) -> i64 {
        self.acknowledged.fragment.end
    }

    /// Whether anything committed is not acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        self.unacknowledged.is_empty()
    }

    /// The present fragment with its pending bytes: what a commit proposes.
    pub fn next(&self) -> Fragment {
        let mut next = self.fragment().clone();
        if self.delta > 0 {
            next.end += self.delta;
            next.sum = sum_of(&self.running);
        }
        next
    }

    /// Takes a chunk of pending content, and returns its position in the fragment's file.
    pub fn append(&mut self, delta: i64, content: &[u8]) -> Result<u64, SpoolError> {
        if delta != self.delta {
            return Err(SpoolError::WrongDelta {
                expected: self.delta,
                actual: delta,
            });
        }
        let end = self.end();
        let position = self.fragment().content_length() + delta;
        let overflow = SpoolError::OffsetOverflow {
            end,
            delta,
            length: content.len(),
        };
        let length = i64::try_from(content.len()).map_err(|_| overflow.clone())?;
        if end
            .checked_add(delta)
            .and_then(|end| end.checked_add(length))
            .is_none()
        {
            return Err(overflow);
        }
        self.running.update(content);
        self.delta += length;
        Ok(position.unsigned_abs())
    }

    /// Drops the pending bytes, and returns how many there were.
    pub fn roll_back(&mut self) -> i64 {
        self.running = self.present().hash.clone();
        mem::take(&mut self.delta)
    }

    /// Applies a proposal of the primary. `now` becomes the fragment's first append time if
    /// this is its first commit.
    pub fn apply(&mut self, proposal: &Fragment, registers: &LabelSet, now: SystemTime) -> Applied {
        let rolled = self
            .must_roll(proposal)
            .then(|| self.roll(proposal, registers));

        let outcome = if proposal == self.fragment() && registers == self.registers() {
            Outcome::RolledBack {
                bytes: self.roll_back(),
            }
        } else if self.delta != 0 && *proposal == self.next() {
            Outcome::Committed {
                bytes: self.commit(registers, now),
            }
        } else {
            Outcome::Mismatch
        };
        Applied { outcome, rolled }
    }

    /// A proposal beyond what is here, or an empty one at its end, begins a new fragment.
    fn must_roll(&self, proposal: &Fragment) -> bool {
        let end = self.end();
        proposal.end > end.saturating_add(self.delta)
            || (proposal.end == end && proposal.begin == proposal.end)
    }

    fn roll(&mut self, proposal: &Fragment, registers: &LabelSet) -> Rolled {
        let present = self.present();
        let completed = (present.fragment.content_length() > 0).then(|| Completed {
            fragment: present.fragment.clone(),
            registers: present.registers.clone(),
            first_append_time: present.first_append_time,
        });
        let is_ahead = proposal.end > present.fragment.end;
        let next = State {
            fragment: Fragment {
                journal: present.fragment.journal.clone(),
                begin: proposal.end,
                end: proposal.end,
                compression_codec: proposal.compression_codec,
                ..Fragment::default()
            },
            // Those of a primary that is ahead are newer; otherwise ours are as good.
            registers: if is_ahead {
                registers
            } else {
                &present.registers
            }
            .clone(),
            first_append_time: None,
            hash: Sha1::new(),
        };
        let begin = next.fragment.begin;
        self.push(next);
        Rolled { completed, begin }
    }

    fn commit(&mut self, registers: &LabelSet, now: SystemTime) -> i64 {
        let next = State {
            fragment: self.next(),
            registers: registers.clone(),
            first_append_time: self.first_append_time().or(Some(now)),
            hash: self.running.clone(),
        };
        let bytes = self.delta;
        self.push(next);
        bytes
    }

    fn push(&mut self, next: State) {
        self.running = next.hash.clone();
        self.delta = 0;
        self.unacknowledged.push_back(next);
    }

    /// Notes that every replica has everything before `end`. A lesser end than one before,
    /// or one that lies within a commit, has no effect beyond what it covers.
    pub fn acknowledge(&mut self, end: i64) {
        while let Some(next) = self.unacknowledged.front() {
            if next.fragment.end > end {
                break;
            }
            if let Some(next) = self.unacknowledged.pop_front() {
                self.acknowledged = next;
            }
        }
    }

    /// Drops whatever is not acknowledged, pending bytes included. Nothing of it may still be
    /// on its way to an acknowledgement. Returns what is left, unless nothing was dropped.
    ///
    /// A fragment that was closed when all of it was acknowledged stays closed, since it may
    /// be persisted by now. One that was closed with a tail that is dropped is open again.
    pub fn cut(&mut self) -> Option<Cut> {
        self.roll_back();
        let dropped_end = self.end();
        let first = self.unacknowledged.front()?;
        if first.fragment.begin != self.acknowledged.fragment.begin {
            self.acknowledged.fragment = Fragment {
                begin: self.acknowledged.fragment.end,
                sum: Sha1Sum::default(),
                compression_codec: first.fragment.compression_codec,
                ..mem::take(&mut self.acknowledged.fragment)
            };
            self.acknowledged.first_append_time = None;
            self.acknowledged.hash = Sha1::new();
        }
        self.unacknowledged.clear();
        self.roll_back();
        Some(Cut {
            fragment: self.fragment().clone(),
            registers: self.registers().clone(),
            dropped_end,
        })
    }
}

/// Two spools are equal if they are at the same state and agree on what is certain.
impl PartialEq for Spool {
    fn eq(&self, other: &Self) -> bool {
        self.fragment() == other.fragment()
            && self.registers() == other.registers()
            && self.first_append_time() == other.first_append_time()
            && self.next() == other.next()
            && self.acknowledged_end() == other.acknowledged_end()
            && self.unacknowledged.len() == other.unacknowledged.len()
    }
}

impl Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool")
            .field("journal", &self.fragment().journal)
            .field("begin", &self.begin())
            .field("acknowledged_end", &self.acknowledged_end())
            .field("end", &self.end())
            .field("delta", &self.delta)
            .finish_non_exhaustive()
    }
}

/// A spool that is being rebuilt from what a disk kept of it.
#[derive(Clone)]
pub struct Rebuild {
    state: State,
    length: i64,
}

impl Rebuild {
    /// Starts with the last durable commit record of a spool.
    pub fn new(
        fragment: Fragment,
        registers: LabelSet,
        first_append_time: Option<SystemTime>,
    ) -> Self {
        let hash = Sha1::new();
        Self {
            state: State {
                fragment,
                registers,
                first_append_time,
                hash,
            },
            length: 0,
        }
    }

    /// Takes the next bytes of the fragment's content.
    pub fn feed(&mut self, content: &[u8]) {
        self.state.hash.update(content);
        let length = i64::try_from(content.len()).unwrap_or(i64::MAX);
        self.length = self.length.saturating_add(length);
    }

    /// The spool, if its content is what was committed. All of it is acknowledged.
    pub fn finish(self) -> Result<Spool, SpoolError> {
        let Fragment {
            begin,
            end,
            sum: expected,
            ..
        } = self.state.fragment;
        let journal = || self.state.fragment.journal.clone();
        if end.checked_sub(begin) != Some(self.length) {
            let actual = self.length;
            return Err(SpoolError::LengthMismatch {
                journal: journal(),
                begin,
                end,
                actual,
            });
        }
        let actual = match self.length {
            0 => Sha1Sum::default(),
            _ => sum_of(&self.state.hash),
        };
        if actual != expected {
            let journal = journal();
            return Err(SpoolError::SumMismatch {
                journal,
                begin,
                end,
                expected,
                actual,
            });
        }
        Ok(Spool::of(self.state))
    }
}

impl Debug for Rebuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rebuild")
            .field("fragment", &self.state.fragment)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

pub(crate) fn sum_of(hash: &Sha1) -> Sha1Sum {
    Sha1Sum::from_digest(hash.clone().finalize().into())
}

#[cfg(test)]
mod tests;
