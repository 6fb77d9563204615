//! A recorded directory in memory, played from the bytes of a log. For tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::{
    Applied, Attributes, Body, Change, Event, Fnode, FromHintsError, Fsm, FsmError, FsmHints, Kind,
    Mode, OpError, OpExtent, OpReader, SizeChange, Tree, TreeError, Unfinished,
};

/// Bytes of a block, of which a file has or has not data.
pub const BLOCK_BYTES: u64 = 4096;

/// Content with holes.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SparseContent {
    size: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl fmt::Debug for SparseContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = crc32c::crc32c(&self.bytes());
        write!(
            f,
            "{} bytes with CRC {sum:08x}, data in {:?}",
            self.size,
            self.data_blocks()
        )
    }
}

impl SparseContent {
    /// Returns the file's size.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the numbers of the blocks that hold data.
    pub fn data_blocks(&self) -> Vec<u64> {
        self.blocks.keys().copied().collect()
    }

    /// Reads the whole content.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.size).unwrap_or(0)];
        for (number, block) in &self.blocks {
            let begin = usize::try_from(number * BLOCK_BYTES).unwrap_or(usize::MAX);
            let end = bytes.len().min(begin.saturating_add(block.len()));
            if begin < end {
                bytes[begin..end].copy_from_slice(&block[..end - begin]);
            }
        }
        bytes
    }

    /// Writes bytes.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let block = self.blocks.entry(at / BLOCK_BYTES);
            let block = block.or_insert_with(|| vec![0; small(BLOCK_BYTES)]);
            block[small(at % BLOCK_BYTES)] = *byte;
        }
        if !bytes.is_empty() {
            self.size = self.size.max(offset + bytes.len() as u64);
        }
    }

    /// Changes size or holes.
    pub fn change(&mut self, change: SizeChange) {
        match change {
            SizeChange::Truncate { size } => {
                self.clear(size, self.size);
                self.size = size;
            }
            SizeChange::Punch { offset, length } => self.clear(offset, offset + length),
            SizeChange::Zero {
                offset,
                length,
                keep_size,
            } => {
                self.clear(offset, offset + length);
                if !keep_size {
                    self.size = self.size.max(offset + length);
                }
            }
        }
    }

    fn clear(&mut self, begin: u64, end: u64) {
        let size = self.size;
        self.blocks.retain(|number, block| {
            let first = number * BLOCK_BYTES;
            let behind = (first + BLOCK_BYTES).min(size.max(first + 1));
            if begin <= first && end >= behind {
                return false;
            }
            let from = begin.clamp(first, first + BLOCK_BYTES) - first;
            let to = end.clamp(first, first + BLOCK_BYTES) - first;
            if from < to {
                block[small(from)..small(to)].fill(0);
            }
            true
        });
    }
}

/// Picks one of all ways to change the size or the holes of a file of `size` bytes.
pub fn pick_size_change(pick: u64, size: u64, offset: u64, length: u64) -> SizeChange {
    let within = offset % (size + 1);
    match pick % 6 {
        0 => SizeChange::Truncate { size: 0 },
        1 => SizeChange::Truncate { size: offset },
        2 => SizeChange::Truncate { size: size / 2 },
        3 => SizeChange::Punch {
            offset: within,
            length,
        },
        4 => SizeChange::Zero {
            offset: within,
            length,
            keep_size: true,
        },
        _ => SizeChange::Zero {
            offset,
            length,
            keep_size: false,
        },
    }
}

/// Takes an offset in a block.
fn small(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// A file as a path shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The first of the paths that show the same file.
    pub same_as: Bytes,
    /// Attributes.
    pub attributes: Attributes,
    /// Content of a regular file.
    pub content: SparseContent,
}

/// All files by their paths. The root directory is `/`.
pub type Snapshot = BTreeMap<Bytes, Entry>;

/// A directory that is played from a log.
#[derive(Debug, Clone)]
pub struct MemoryImage {
    /// The state of the log.
    pub fsm: Fsm,
    /// The names.
    pub tree: Tree,
    contents: BTreeMap<Fnode, SparseContent>,
}

/// Why a log does not play.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ImageError {
    /// Hints make no state.
    #[error(transparent)]
    Hints(#[from] FromHintsError),
    /// An op does not fit the tree.
    #[error("op at {begin}: {error}")]
    Tree {
        /// Where it begins.
        begin: i64,
        /// Why.
        error: TreeError,
    },
    /// Bytes are damaged.
    #[error("op at {begin}: {error}")]
    Damaged {
        /// Where it begins.
        begin: i64,
        /// Why.
        error: OpError,
    },
    /// The log ends within an op.
    #[error("the log ends within an op: {0:?}")]
    Unfinished(Unfinished),
}

impl MemoryImage {
    /// Starts an empty directory from hints.
    pub fn new(mode: Mode, hints: &FsmHints) -> Result<Self, ImageError> {
        let (fsm, tree) = (Fsm::new(hints)?, Tree::new(mode));
        Ok(Self {
            fsm,
            tree,
            contents: BTreeMap::new(),
        })
    }

    /// Makes the directory of a state that came to be elsewhere.
    pub fn of(fsm: Fsm, tree: Tree, contents: BTreeMap<Fnode, SparseContent>) -> Self {
        Self {
            fsm,
            tree,
            contents,
        }
    }

    /// Plays a log whose bytes begin at offset zero: only hinted segments, as long as there are
    /// any. Calls `after` behind each op with the result of its application, and the offset behind
    /// its content.
    pub fn play(
        &mut self,
        log: &Arc<str>,
        bytes: &Bytes,
        mut after: impl FnMut(&Self, &crate::DecodedOp, Result<Applied, FsmError>),
    ) -> Result<(), ImageError> {
        let mut reader = OpReader::new(0);
        let mut waiting: Option<(crate::DecodedOp, Result<Applied, FsmError>)> = None;
        self.seek(log, bytes, &mut reader, true);
        loop {
            match reader.next_event() {
                Event::NeedMore => {
                    let unfinished = reader.unfinished();
                    if unfinished == Unfinished::Nothing {
                        return Ok(());
                    }
                    return Err(ImageError::Unfinished(unfinished));
                }
                Event::Desync { .. } => {}
                Event::Damaged { begin, error, .. } => {
                    return Err(ImageError::Damaged { begin, error });
                }
                Event::Op(decoded) => {
                    let applied = self.apply(log, &decoded)?;
                    if applied != Ok(Applied::Applied) {
                        reader.skip_content();
                    }
                    let content = decoded.op.content_length() > 0;
                    if content && applied == Ok(Applied::Applied) {
                        waiting = Some((decoded, applied));
                    } else {
                        after(self, &decoded, applied);
                        self.seek(log, bytes, &mut reader, false);
                    }
                }
                Event::Content {
                    fnode,
                    offset,
                    bytes: piece,
                    last,
                } => {
                    let content = self.contents.entry(fnode).or_default();
                    content.write(offset.cast_unsigned(), &piece);
                    if last && let Some((decoded, applied)) = waiting.take() {
                        after(self, &decoded, applied);
                        self.seek(log, bytes, &mut reader, false);
                    }
                }
            }
        }
    }

    fn seek(&self, log: &Arc<str>, bytes: &Bytes, reader: &mut OpReader, begin: bool) {
        let hinted = self.fsm.hinted_segments().first();
        let target = hinted
            .filter(|segment| segment.log == *log)
            .map(|segment| segment.first_offset);
        match target {
            Some(target) if target > reader.offset() => {
                reader.seek(target);
                let from = usize::try_from(target)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                reader.feed(bytes.slice(from..));
            }
            _ if begin => reader.feed(bytes.clone()),
            _ => {}
        }
    }

    fn apply(
        &mut self,
        log: &Arc<str>,
        decoded: &crate::DecodedOp,
    ) -> Result<Result<Applied, FsmError>, ImageError> {
        let crate::DecodedOp {
            op,
            next_checksum,
            begin,
            end,
            ..
        } = decoded;
        let extent = OpExtent {
            log,
            begin: *begin,
            end: *end,
        };
        let applied = self.fsm.apply(op, *next_checksum, extent);
        if applied == Ok(Applied::Applied) {
            let applied = self.tree.apply(op);
            applied.map_err(|error| ImageError::Tree {
                begin: *begin,
                error,
            })?;
            if let Body::Change {
                fnode,
                change: Change::Size(change),
                ..
            } = &op.body
            {
                self.contents.entry(*fnode).or_default().change(*change);
            }
        }
        Ok(applied)
    }

    /// Returns a file's content.
    pub fn content(&self, fnode: Fnode) -> SparseContent {
        self.contents.get(&fnode).cloned().unwrap_or_default()
    }

    /// As [`snapshot`](Self::snapshot), with holes for blocks that read as zeros: whether such a block
    /// is a hole may depend on ops that hints leave out.
    pub fn snapshot_without_zeros(&self) -> Snapshot {
        let mut snapshot = self.snapshot();
        for entry in snapshot.values_mut() {
            let blocks = &mut entry.content.blocks;
            blocks.retain(|_, block| block.iter().any(|byte| *byte != 0));
        }
        snapshot
    }

    /// Returns what a recovery would make of the present state.
    pub fn snapshot(&self) -> Snapshot {
        let mut paths: Vec<(Bytes, Fnode)> = vec![(Bytes::from_static(b"/"), Fnode::ROOT)];
        let mut waiting = vec![(Vec::new(), Fnode::ROOT)];
        let mut seen = BTreeSet::from([Fnode::ROOT]);
        while let Some((base, directory)) = waiting.pop() {
            for (name, fnode) in self.tree.children(directory) {
                let path = [&base[..], b"/", name].concat();
                paths.push((path.clone().into(), fnode));
                if self.tree.kind(fnode) == Some(Kind::Directory) && seen.insert(fnode) {
                    waiting.push((path, fnode));
                }
            }
        }
        paths.sort();
        let mut first: BTreeMap<Fnode, Bytes> = BTreeMap::new();
        let mut snapshot = Snapshot::new();
        for (path, fnode) in paths {
            let same_as = first.entry(fnode).or_insert_with(|| path.clone()).clone();
            let implicit = || Attributes {
                kind: Kind::Directory,
                ..Attributes::default()
            };
            let attributes = self
                .tree
                .attributes(fnode)
                .cloned()
                .unwrap_or_else(implicit);
            snapshot.insert(
                path,
                Entry {
                    same_as,
                    attributes,
                    content: self.content(fnode),
                },
            );
        }
        for (path, content) in self.fsm.properties() {
            let mut file = SparseContent::default();
            file.write(0, content);
            let attributes = Attributes {
                size: file.size(),
                ..Attributes::default()
            };
            let entry = Entry {
                same_as: path.clone(),
                attributes,
                content: file,
            };
            snapshot.insert(path.clone(), entry);
        }
        snapshot
    }
}
