//! From a mutation to the ops that say it.

use bytes::Bytes;

use crate::op::{Body, Change, LinkName};
use crate::tree::{NameError, Tree, check_new_name, hidden};
use crate::{Fnode, Inode, Kind, Mode, Mutation, Place, SizeChange, Timestamp, TreeError};

mod compat;
mod rename;

/// Most links that renaming a directory of a `compat` log may move.
pub const DIRECTORY_RENAME_LINKS_MAX: usize = 10_000;

/// Most bytes that one change of a `compat` log may have to write again: they are in memory at once.
pub const EXPANSION_BYTES_MAX: u64 = 256 << 20;

/// Why a mutation cannot be recorded. The caller must not do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A name is refused.
    #[error("name is refused: {0}")]
    Name(#[from] NameError),
    /// A `compat` log cannot say this kind of file.
    #[error("a log in compat mode cannot have a special file")]
    SpecialFile,
    /// Too much lies below the directory, whose links a `compat` log names one by one.
    #[error("the directory has too many files to be renamed in a log in compat mode")]
    DirectoryTooLarge,
    /// Too much would have to be written again.
    #[error("{0} bytes would have to be recorded again in a log in compat mode")]
    TooLarge(u64),
    /// It is about a small file outside of fnodes, of which the reference's format can say only that
    /// a file was renamed onto it.
    #[error("the file is a property, which can only be replaced")]
    Property,
}

/// Why a mutation was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// It cannot be said.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It does not fit the names that were recorded so far: the caller's directory is another.
    #[error("the mutation does not fit what was recorded: {0}")]
    Mismatch(Mismatch),
    /// An op that it became does not fit the tree.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// How a mutation contradicts the names that were recorded so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The parent is no directory.
    #[error("the parent is no directory")]
    NoDirectory,
    /// The name is taken.
    #[error("the name is taken")]
    Exists,
    /// There is no such name.
    #[error("there is no such name")]
    NoEntry,
    /// A directory still has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A directory would get a second name, or come to lie in itself.
    #[error("a directory cannot be there")]
    Directory,
    /// There is no room for more ops.
    #[error("sequence numbers are exhausted")]
    Exhausted,
}

impl From<Mismatch> for WriteError {
    fn from(mismatch: Mismatch) -> Self {
        Self::Mismatch(mismatch)
    }
}

impl From<NameError> for WriteError {
    fn from(error: NameError) -> Self {
        Self::Refused(Refusal::Name(error))
    }
}

/// A part of a mutation.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// An op without content.
    Op(Body),
    /// Content that the caller gave.
    Content {
        fnode: Fnode,
        offset: u64,
        data: &'a [u8],
        mtime: Timestamp,
    },
    /// Zeros.
    Zeros {
        fnode: Fnode,
        offset: u64,
        length: u64,
        mtime: Timestamp,
    },
    /// What the backing file holds; if `sparse`, without blocks of zeros. Never a mutation's last
    /// step, since nothing may be left of it.
    Copy {
        fnode: Fnode,
        offset: u64,
        length: u64,
        mtime: Timestamp,
        sparse: bool,
    },
    /// A property with what the backing file holds.
    Property { path: Bytes, length: u64 },
}

/// What a mutation comes to.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    pub(super) steps: Vec<Step<'a>>,
    /// The first of the new file's ops is this step.
    pub(super) created: Option<usize>,
    /// The file that a new one replaces, when its content had to be written again.
    pub(super) replaced: Option<Fnode>,
}

/// What a plan is made from.
#[derive(Debug)]
pub(super) struct Planner<'a> {
    pub(super) tree: &'a Tree,
    pub(super) properties: &'a std::collections::BTreeMap<Bytes, Bytes>,
    pub(super) next_seq_no: i64,
}

impl Planner<'_> {
    pub(super) fn plan<'m>(&self, mutation: &Mutation<'m>) -> Result<Plan<'m>, WriteError> {
        match *mutation {
            Mutation::Create { at, inode } => self.create(at, inode),
            Mutation::Link { fnode, at } => self.link(fnode, at),
            Mutation::Unlink { at } => self.unlink(at),
            Mutation::Rename {
                from,
                to,
                exchange: false,
            } => self.rename(from, to),
            Mutation::Rename {
                from,
                to,
                exchange: true,
            } => self.exchange(from, to),
            Mutation::Write { data: [], .. } => Ok(Plan::default()),
            Mutation::Write {
                fnode,
                offset,
                data,
                mtime,
            } => Ok(self.of_file(fnode, |fnode| {
                vec![Step::Content {
                    fnode,
                    offset,
                    data,
                    mtime,
                }]
            })),
            Mutation::Size {
                fnode,
                change,
                mtime,
            } => match self.tree.mode() {
                Mode::Native => Ok(self.of_file(fnode, |fnode| {
                    let change = Change::Size(change);
                    vec![Step::Op(Body::Change {
                        fnode,
                        change,
                        mtime: Some(mtime),
                    })]
                })),
                Mode::Compat => self.compat_size(fnode, change, mtime),
            },
            Mutation::Attributes { fnode, change } => {
                Ok(self.change(fnode, Change::Attributes(change)))
            }
            Mutation::SetXattr { fnode, name, value } => Ok(self.change(
                fnode,
                Change::SetXattr {
                    name: Bytes::copy_from_slice(name),
                    value: Bytes::copy_from_slice(value),
                },
            )),
            Mutation::RemoveXattr { fnode, name } => {
                let name = Bytes::copy_from_slice(name);
                Ok(self.change(fnode, Change::RemoveXattr { name }))
            }
            Mutation::Release { fnode } => {
                let hidden = self.tree.hidden_link(fnode);
                let steps = hidden.map(|at| Step::Op(Body::Unlink { fnode, at }));
                Ok(Plan {
                    steps: steps.into_iter().collect(),
                    ..Plan::default()
                })
            }
        }
    }

    /// Plans for a file that still has a name; nothing for others.
    fn of_file<'m>(&self, fnode: Fnode, steps: impl FnOnce(Fnode) -> Vec<Step<'m>>) -> Plan<'m> {
        let steps = self.tree.recorded(fnode).map(steps).unwrap_or_default();
        Plan {
            steps,
            ..Plan::default()
        }
    }

    fn change<'m>(&self, fnode: Fnode, change: Change) -> Plan<'m> {
        self.of_file(fnode, |fnode| {
            vec![Step::Op(Body::Change {
                fnode,
                change,
                mtime: None,
            })]
        })
    }

    fn create<'m>(&self, at: Option<Place<'_>>, inode: &Inode) -> Result<Plan<'m>, WriteError> {
        if self.tree.mode() == Mode::Compat {
            match inode.kind {
                Kind::Regular | Kind::Directory | Kind::Symlink => {}
                Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                    return Err(Refusal::SpecialFile.into());
                }
            }
        }
        let at = match at {
            Some(place) => self.free(place, inode.kind)?,
            None => hidden(self.tree.mode(), self.next_seq_no),
        };
        let step = Step::Op(Body::Create {
            at,
            inode: Some(inode.clone()),
        });
        Ok(Plan {
            steps: vec![step],
            created: Some(0),
            replaced: None,
        })
    }

    fn link<'m>(&self, fnode: Fnode, at: Place<'_>) -> Result<Plan<'m>, WriteError> {
        let Some(kind) = self.tree.kind(fnode) else {
            return Ok(Plan::default());
        };
        if kind == Kind::Directory {
            return Err(Mismatch::Directory.into());
        }
        let link = Body::Link {
            fnode,
            at: self.free(at, kind)?,
        };
        let mut steps = vec![Step::Op(link)];
        if let Some(at) = self.tree.hidden_link(fnode) {
            steps.push(Step::Op(Body::Unlink { fnode, at }));
        }
        Ok(Plan {
            steps,
            ..Plan::default()
        })
    }

    fn unlink<'m>(&self, at: Place<'_>) -> Result<Plan<'m>, WriteError> {
        let step = self.unlinked(at)?;
        Ok(Plan {
            steps: vec![step],
            ..Plan::default()
        })
    }

    /// Returns the step by which what is at a place goes away.
    fn unlinked<'m>(&self, at: Place<'_>) -> Result<Step<'m>, WriteError> {
        let (fnode, kind) = self.entry(at)?;
        if kind == Kind::Directory && self.tree.children(fnode).next().is_some() {
            return Err(Mismatch::NotEmpty.into());
        }
        let at = self.link_name(at, kind)?;
        Ok(Step::Op(Body::Unlink { fnode, at }))
    }

    fn entry(&self, at: Place<'_>) -> Result<(Fnode, Kind), WriteError> {
        let fnode = self.tree.lookup(at.parent, at.name);
        let entry = fnode.and_then(|fnode| Some((fnode, self.tree.kind(fnode)?)));
        match entry {
            Some(entry) => Ok(entry),
            None if self.is_property(at) => Err(Refusal::Property.into()),
            None => Err(Mismatch::NoEntry.into()),
        }
    }

    /// Checks a new name, and returns it as ops have it.
    fn free(&self, at: Place<'_>, kind: Kind) -> Result<LinkName, WriteError> {
        let link = self.new_name(at, kind)?;
        if self.is_property(at) {
            return Err(Refusal::Property.into());
        }
        if self.tree.lookup(at.parent, at.name).is_some() {
            return Err(Mismatch::Exists.into());
        }
        Ok(link)
    }

    fn new_name(&self, at: Place<'_>, kind: Kind) -> Result<LinkName, WriteError> {
        let parent = self.tree.canonical(at.parent);
        check_new_name(self.tree.mode(), parent, at.name)?;
        self.link_name(at, kind)
    }

    fn link_name(&self, at: Place<'_>, kind: Kind) -> Result<LinkName, WriteError> {
        let link = self.tree.link_name(at.parent, at.name, kind);
        link.ok_or_else(|| Mismatch::NoDirectory.into())
    }

    fn property_path(&self, at: Place<'_>) -> Option<Bytes> {
        if self.tree.mode() == Mode::Native || self.properties.is_empty() {
            return None;
        }
        let path = self.tree.link_name(at.parent, at.name, Kind::Regular)?.path;
        self.properties.contains_key(&path).then_some(path)
    }

    fn is_property(&self, at: Place<'_>) -> bool {
        self.property_path(at).is_some()
    }

    fn compat_size<'m>(
        &self,
        fnode: Fnode,
        change: SizeChange,
        mtime: Timestamp,
    ) -> Result<Plan<'m>, WriteError> {
        match self.tree.recorded(fnode) {
            Some(fnode) => compat::size(self, fnode, change, mtime),
            None => Ok(Plan::default()),
        }
    }
}
