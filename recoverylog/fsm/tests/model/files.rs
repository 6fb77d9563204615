//! Files as a naive program would keep them: content is a vector, and a set says which blocks have
//! data.

use std::collections::{BTreeMap, BTreeSet};

use gazette_recoverylog_fsm::image::{BLOCK_BYTES, Snapshot};
use gazette_recoverylog_fsm::{AttributeChange, Attributes, Inode, Kind, SizeChange, Timestamp};

#[derive(Debug, Clone, Default)]
pub(super) struct File {
    pub(super) inode: Inode,
    pub(super) atime: Option<Timestamp>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) content: Vec<u8>,
    pub(super) data: BTreeSet<u64>,
    pub(super) entries: BTreeMap<Vec<u8>, usize>,
    pub(super) names: usize,
    /// Created without a name, and still open.
    pub(super) unnamed: bool,
}

impl File {
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8], mtime: Timestamp) {
        let end = offset + bytes.len();
        if self.content.len() < end {
            self.content.resize(end, 0);
        }
        self.content[offset..end].copy_from_slice(bytes);
        for at in (offset..end).step_by(BLOCK_BYTES as usize).chain([end - 1]) {
            self.data.insert(at as u64 / BLOCK_BYTES);
        }
        self.inode.mtime = mtime;
    }

    pub(super) fn size(&mut self, change: SizeChange, mtime: Timestamp) {
        self.inode.mtime = mtime;
        match change {
            SizeChange::Truncate { size } => {
                self.content.resize(size as usize, 0);
                self.data.retain(|block| block * BLOCK_BYTES < size);
            }
            SizeChange::Punch { offset, length } => self.clear(offset, offset + length),
            SizeChange::Zero {
                offset,
                length,
                keep_size,
            } => {
                self.clear(offset, offset + length);
                let end = (offset + length) as usize;
                if !keep_size && end > self.content.len() {
                    self.content.resize(end, 0);
                }
            }
        }
    }

    fn clear(&mut self, begin: u64, end: u64) {
        let size = self.content.len() as u64;
        let from = begin.min(size) as usize;
        let to = end.min(size) as usize;
        self.content[from..to].fill(0);
        self.data.retain(|block| {
            let first = block * BLOCK_BYTES;
            let behind = (first + BLOCK_BYTES).min(size);
            begin > first || end < behind
        });
    }

    pub(super) fn attributes(&mut self, change: AttributeChange) {
        let inode = &mut self.inode;
        inode.mode = change.mode.unwrap_or(inode.mode);
        inode.uid = change.uid.unwrap_or(inode.uid);
        inode.gid = change.gid.unwrap_or(inode.gid);
        inode.mtime = change.mtime.unwrap_or(inode.mtime);
        self.atime = change.atime.or(self.atime);
    }

    fn as_attributes(&self) -> Attributes {
        let inode = &self.inode;
        let xattrs = self.xattrs.iter();
        Attributes {
            kind: inode.kind,
            mode: Some(inode.mode),
            uid: Some(inode.uid),
            gid: Some(inode.gid),
            rdev: inode.rdev,
            target: inode.target.clone(),
            atime: self.atime,
            mtime: Some(inode.mtime),
            size: self.content.len() as u64,
            xattrs: xattrs
                .map(|(name, value)| (name.clone().into(), value.clone().into()))
                .collect(),
        }
    }
}

/// A file as a path shows it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct View {
    pub(super) same_as: Vec<u8>,
    pub(super) attributes: Attributes,
    pub(super) content: Vec<u8>,
    /// Where there is data; not compared in `compat` logs, which write zeros for holes.
    pub(super) data: Option<Vec<u64>>,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sum = crc32c::crc32c(&self.content);
        let Self {
            same_as,
            attributes,
            data,
            ..
        } = self;
        write!(
            f,
            "{} {attributes:?} CRC {sum:08x} {data:?}",
            same_as.escape_ascii()
        )
    }
}

pub(super) type Views = BTreeMap<Vec<u8>, View>;

pub(super) fn views_of(snapshot: &Snapshot, with_data: bool) -> Views {
    let view = |entry: &gazette_recoverylog_fsm::image::Entry| View {
        same_as: entry.same_as.to_vec(),
        attributes: entry.attributes.clone(),
        content: entry.content.bytes(),
        data: with_data.then(|| entry.content.data_blocks()),
    };
    snapshot
        .iter()
        .map(|(path, entry)| (path.to_vec(), view(entry)))
        .collect()
}

/// All files; the first is the root directory.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) files: Vec<File>,
}

impl Files {
    pub(super) fn new(root: Inode) -> Self {
        Self {
            files: vec![File {
                inode: root,
                names: 1,
                ..File::default()
            }],
        }
    }

    /// Files with a name, or that are open without one.
    pub(super) fn living(&self) -> Vec<usize> {
        let all = 0..self.files.len();
        all.filter(|id| self.files[*id].names > 0 || self.files[*id].unnamed)
            .collect()
    }

    pub(super) fn of_kind(&self, kind: Kind) -> Vec<usize> {
        self.living()
            .into_iter()
            .filter(|id| self.files[*id].inode.kind == kind)
            .collect()
    }

    /// All names: directory, name, and file.
    pub(super) fn names(&self) -> Vec<(usize, Vec<u8>, usize)> {
        let directories = self.of_kind(Kind::Directory);
        let entries = |id: &usize| {
            let id = *id;
            self.files[id]
                .entries
                .iter()
                .map(move |(name, file)| (id, name.clone(), *file))
        };
        directories.iter().flat_map(entries).collect()
    }

    pub(super) fn add(&mut self, parent: usize, name: &[u8], id: usize) {
        self.files[parent].entries.insert(name.to_vec(), id);
        self.files[id].names += 1;
        self.files[id].unnamed = false;
    }

    pub(super) fn remove(&mut self, parent: usize, name: &[u8]) -> usize {
        let id = self.files[parent].entries.remove(name).unwrap();
        self.files[id].names -= 1;
        id
    }

    pub(super) fn is_within(&self, directory: usize, ancestor: usize) -> bool {
        directory == ancestor
            || self.files[ancestor].entries.values().any(|child| {
                self.files[*child].inode.kind == Kind::Directory
                    && self.is_within(directory, *child)
            })
    }

    pub(super) fn views(&self, with_data: bool) -> Views {
        let mut paths = vec![(b"/".to_vec(), 0)];
        let mut waiting = vec![(Vec::new(), 0)];
        while let Some((base, directory)) = waiting.pop() {
            for (name, id) in &self.files[directory].entries {
                let path = [&base[..], b"/", name].concat();
                paths.push((path.clone(), *id));
                waiting.push((path, *id));
            }
        }
        paths.sort();
        let mut first: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let view = |(path, id): (Vec<u8>, usize)| {
            let file = &self.files[id];
            let view = View {
                same_as: first.entry(id).or_insert_with(|| path.clone()).clone(),
                attributes: file.as_attributes(),
                content: file.content.clone(),
                data: with_data.then(|| file.data.iter().copied().collect()),
            };
            (path, view)
        };
        paths.into_iter().map(view).collect()
    }
}
