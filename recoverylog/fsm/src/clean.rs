//! What a cleaner records again, so that the oldest part of a log may go.
//!
//! The log is cleaned from its oldest end. What is old and live is recorded again at its head, at
//! first the files that changed least; so the log that is still needed spans a bounded multiple of the
//! live size, whatever a program rewrites, and with it what a recovery reads. Each byte that is
//! recorded goes through the log about `ratio / (ratio - 1)` times at worst.

use std::collections::BTreeSet;

use crate::liveness::{ChunkId, Touched};
use crate::{Fnode, Liveness, PAGE_BYTES};

/// How far a log may grow beyond what is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanPolicy {
    /// The log that is needed may span so many times the live size, in hundredths.
    pub span_percent: u64,
    /// ... and so many bytes on top. Fragments and hints lag behind by as much.
    pub floor_bytes: u64,
    /// What a recovery needs of other logs is recorded again whatever there is of it, so that the log
    /// is no fork any more.
    pub leaves_other_logs: bool,
}

impl Default for CleanPolicy {
    /// Far enough below the bounds (three times the live size and 64 MB to read, four times to be
    /// retained) that a cleaner and a pruner may lag.
    fn default() -> Self {
        Self {
            span_percent: 200,
            floor_bytes: 16 << 20,
            leaves_other_logs: false,
        }
    }
}

/// Something to record again, under the lock of the file's inode, as it is then. What a file has lost
/// meanwhile is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repeat {
    /// Content: [`OpWriter::rerecord`](crate::OpWriter::rerecord), as far as the file reaches.
    Content {
        /// The file.
        fnode: Fnode,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The size: [`OpWriter::repeat_size`](crate::OpWriter::repeat_size).
    Size {
        /// The file.
        fnode: Fnode,
    },
    /// All else: [`OpWriter::restate`](crate::OpWriter::restate).
    Inode {
        /// The file.
        fnode: Fnode,
    },
}

impl Repeat {
    /// Returns about how many bytes of the log it will take.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Content { length, .. } => OP_BYTES + length,
            Self::Size { .. } => OP_BYTES,
            Self::Inode { .. } => 4 * OP_BYTES,
        }
    }
}

/// Bytes of an op without content, about.
const OP_BYTES: u64 = 80;

/// Bytes of content in one op.
const CONTENT_BYTES_MAX: u64 = 1 << 20;

/// Returns by how many bytes the log spans more than it should; zero means that nothing has to be
/// recorded again. As long as it is not zero, the log must be cleaned at least as fast as it grows.
pub fn debt(liveness: &Liveness, policy: &CleanPolicy) -> u64 {
    let estimate = liveness.estimate();
    let other = if policy.leaves_other_logs {
        estimate.other_logs_bytes
    } else {
        0
    };
    let most = allowed(liveness, policy);
    estimate.span_bytes.saturating_sub(most) + other
}

fn allowed(liveness: &Liveness, policy: &CleanPolicy) -> u64 {
    let live = u128::from(liveness.live_bytes()) * u128::from(policy.span_percent) / 100;
    u64::try_from(live)
        .unwrap_or(u64::MAX)
        .saturating_add(policy.floor_bytes)
}

/// Chooses what to record again next, of at most about `budget` bytes (and at least one thing, if there
/// is any). Ask again when all of it is acknowledged: until then the choice would be the same.
pub fn choose(liveness: &Liveness, policy: &CleanPolicy, budget: u64) -> Vec<Repeat> {
    let mut choice = Choice {
        liveness,
        repeats: Vec::new(),
        content: BTreeSet::new(),
        inodes: BTreeSet::new(),
        sizes: BTreeSet::new(),
        bytes: 0,
        budget,
    };
    for (fnode, page) in liveness.crowded() {
        choice.pages(*fnode, [*page].into_iter());
    }
    for fnode in liveness.restless() {
        choice.inode(*fnode);
    }
    let mut debt = debt(liveness, policy);
    let open = liveness.chunks().open();
    for chunk in liveness.kept() {
        if debt == 0 || choice.is_full() || chunk == open {
            break;
        }
        choice.chunk(chunk);
        debt = debt.saturating_sub(liveness.chunks().bytes(chunk));
    }
    choice.repeats
}

struct Choice<'a> {
    liveness: &'a Liveness,
    repeats: Vec<Repeat>,
    content: BTreeSet<(Fnode, u64)>,
    inodes: BTreeSet<Fnode>,
    sizes: BTreeSet<Fnode>,
    bytes: u64,
    budget: u64,
}

impl Choice<'_> {
    fn is_full(&self) -> bool {
        self.bytes >= self.budget && !self.repeats.is_empty()
    }

    fn add(&mut self, repeat: Repeat) {
        self.bytes += repeat.bytes();
        self.repeats.push(repeat);
    }

    /// Chooses all that is live in a chunk.
    fn chunk(&mut self, chunk: ChunkId) {
        let liveness = self.liveness;
        for (fnode, Touched { first, last }) in liveness.chunks().touched(chunk) {
            if self.is_full() {
                return;
            }
            let Some(file) = liveness.file(fnode) else {
                continue;
            };
            if first <= last {
                self.pages(fnode, file.pages_in(chunk, first, last));
            }
            if file.size_is_in(chunk) && !self.is_full() && self.sizes.insert(fnode) {
                self.add(Repeat::Size { fnode });
            }
            if file.inode_is_in(chunk) {
                self.inode(fnode);
            }
        }
    }

    fn inode(&mut self, fnode: Fnode) {
        if !self.is_full() && self.inodes.insert(fnode) {
            self.add(Repeat::Inode { fnode });
        }
    }

    /// Chooses pages, neighbours as one.
    fn pages(&mut self, fnode: Fnode, pages: impl Iterator<Item = u64>) {
        let size = self
            .liveness
            .file(fnode)
            .map_or(0, crate::liveness::File::size);
        let mut run: Option<(u64, u64)> = None;
        for page in pages {
            if !self.content.insert((fnode, page)) {
                continue;
            }
            let (begin, end) = (page * PAGE_BYTES, size.min((page + 1) * PAGE_BYTES));
            match &mut run {
                Some((first, behind)) if *behind == begin && end - *first <= CONTENT_BYTES_MAX => {
                    *behind = end;
                }
                _ => {
                    self.content(fnode, run.replace((begin, end)));
                    if self.is_full() {
                        return;
                    }
                }
            }
        }
        self.content(fnode, run);
    }

    fn content(&mut self, fnode: Fnode, run: Option<(u64, u64)>) {
        if let Some((offset, end)) = run
            && end > offset
        {
            let length = end - offset;
            self.add(Repeat::Content {
                fnode,
                offset,
                length,
            });
        }
    }
}

#[cfg(test)]
mod tests;
