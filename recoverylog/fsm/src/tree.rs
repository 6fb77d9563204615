//! The names and attributes of the files that a log's ops make.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::op::{LinkName, Restated};
use crate::{Fnode, Kind, Mode};

mod apply;
mod attributes;
mod names;
mod orphans;

pub use attributes::Attributes;
pub use names::NameError;
pub(crate) use names::{DIRECTORY_FILE, check_new_name, hidden, root};
pub use orphans::Orphan;

/// The directory of what is out of sight.
const HIDDEN: Fnode = Fnode(i64::MIN);

/// Names and attributes of live files. It is told the ops that the [`Fsm`](crate::Fsm) applied, in
/// order.
///
/// Directories are fnodes here in both modes. In a `compat` log that is the fnode of the file
/// `.gzdir` in it; a directory that only paths mention (the reference records no directories) has a
/// negative number that means something to this tree alone.
#[derive(Debug, Clone)]
pub struct Tree {
    mode: Mode,
    nodes: BTreeMap<Fnode, Node>,
    directories: BTreeMap<Fnode, Directory>,
    /// Links that have no place: below a parent that is unknown or no directory.
    aside: BTreeMap<LinkName, Fnode>,
    /// Files of which only content is known so far: the ops that made them were left out, and one that
    /// says them again will follow.
    unborn: BTreeMap<Fnode, Attributes>,
    next_implicit: i64,
}

#[derive(Debug, Clone)]
struct Node {
    attributes: Attributes,
    links: BTreeSet<(Fnode, Bytes)>,
    /// Links of it that are aside.
    aside: usize,
}

#[derive(Debug, Clone, Default)]
struct Directory {
    /// In a `compat` tree where it is.
    place: Option<(Fnode, Bytes)>,
    /// Native: fnodes. Otherwise files are fnodes, and directories are directories.
    entries: BTreeMap<Bytes, Fnode>,
}

/// Why an op does not fit the tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// A name is refused.
    #[error("name {}: {error}", at.path.escape_ascii())]
    Name {
        /// The name.
        at: LinkName,
        /// Why.
        error: NameError,
    },
    /// The op is about a file that the tree does not have.
    #[error("file {0} is not known")]
    Unknown(Fnode),
    /// A write is at a negative offset.
    #[error("a write to file {0} is out of range")]
    Range(Fnode),
    /// In a `compat` log, a directory that is not named `.gzdir`.
    #[error("directory {0} has a name that directories cannot have")]
    Directory(Fnode),
    /// A change of content, of something that is no regular file.
    #[error("file {0} is not regular, and has no content")]
    NotRegular(Fnode),
}

impl Tree {
    /// Makes the tree of a log without ops.
    pub fn new(mode: Mode) -> Self {
        let directories = [Fnode::ROOT, HIDDEN].map(|id| (id, Directory::default()));
        Self {
            mode,
            nodes: BTreeMap::new(),
            directories: directories.into(),
            aside: BTreeMap::new(),
            unborn: BTreeMap::new(),
            next_implicit: -1,
        }
    }

    /// Returns the mode of the log.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Native: the root directory is [`Fnode::ROOT`] as a parent, whatever fnode has its attributes.
    fn as_parent(&self, parent: Fnode) -> Fnode {
        if Some(parent) == self.root_fnode() {
            Fnode::ROOT
        } else {
            parent
        }
    }

    /// Returns the directory that a public fnode stands for.
    fn directory_of(&self, fnode: Fnode) -> Option<Fnode> {
        let fnode = self.canonical(fnode);
        if fnode == HIDDEN {
            return None;
        }
        if self.mode == Mode::Native || fnode.0 <= 0 {
            return self.directories.contains_key(&fnode).then_some(fnode);
        }
        let node = self.nodes.get(&fnode)?;
        if node.attributes.kind != Kind::Directory {
            return None;
        }
        node.links
            .iter()
            .map(|(parent, _)| *parent)
            .find(|parent| *parent != HIDDEN)
    }

    /// Returns the fnode by which others know a directory or file.
    fn public(&self, entry: Fnode) -> Fnode {
        if entry.0 >= 0 || self.mode == Mode::Native {
            return self.canonical(entry);
        }
        self.directory_file(entry).unwrap_or(entry)
    }

    /// In a `compat` tree the fnode of a directory's `.gzdir`.
    fn directory_file(&self, directory: Fnode) -> Option<Fnode> {
        let fnode = *self
            .directories
            .get(&directory)?
            .entries
            .get(DIRECTORY_FILE)?;
        (self.kind(fnode) == Some(Kind::Directory)).then_some(fnode)
    }

    /// Returns the fnode that holds the root directory's attributes, if the log has it.
    pub fn root_fnode(&self) -> Option<Fnode> {
        match self.mode {
            Mode::Native => self
                .directories
                .get(&HIDDEN)?
                .entries
                .get(&b"/"[..])
                .copied(),
            Mode::Compat => self.directory_file(Fnode::ROOT),
        }
    }

    /// Returns [`Fnode::ROOT`] for the root directory's own fnode, and others as they are.
    pub fn canonical(&self, fnode: Fnode) -> Fnode {
        if Some(fnode) == self.root_fnode() {
            Fnode::ROOT
        } else {
            fnode
        }
    }

    /// Returns the fnode that ops name: that of the root directory for [`Fnode::ROOT`].
    pub fn recorded(&self, fnode: Fnode) -> Option<Fnode> {
        let fnode = if fnode == Fnode::ROOT {
            self.root_fnode()?
        } else {
            fnode
        };
        self.nodes.contains_key(&fnode).then_some(fnode)
    }

    /// Finds a name in a directory.
    pub fn lookup(&self, parent: Fnode, name: &[u8]) -> Option<Fnode> {
        let directory = self.directories.get(&self.directory_of(parent)?)?;
        let entry = *directory.entries.get(name)?;
        (!self.is_directory_file(name, entry)).then(|| self.public(entry))
    }

    /// Iterates over the names in a directory, in order of their bytes.
    pub fn children(&self, parent: Fnode) -> impl Iterator<Item = (&Bytes, Fnode)> {
        let directory = self
            .directory_of(parent)
            .and_then(|id| self.directories.get(&id));
        let entries = directory
            .into_iter()
            .flat_map(|directory| &directory.entries);
        entries
            .filter(|(name, entry)| !self.is_directory_file(name, **entry))
            .map(|(name, entry)| (name, self.public(*entry)))
    }

    fn is_directory_file(&self, name: &[u8], entry: Fnode) -> bool {
        self.mode == Mode::Compat
            && name == DIRECTORY_FILE
            && self.kind(entry) == Some(Kind::Directory)
    }

    /// Iterates over a file's names: the directories, and the names in them. Those that have no
    /// place are not among them.
    pub fn links(&self, fnode: Fnode) -> impl Iterator<Item = (Fnode, &Bytes)> {
        let implicit = (fnode.0 < 0).then_some(fnode);
        let node = self.nodes.get(&fnode);
        let links = node.into_iter().flat_map(|node| &node.links);
        let is_directory = node.is_some_and(|node| node.attributes.kind == Kind::Directory);
        let compat_directory = is_directory && self.mode == Mode::Compat;
        let named = links
            .filter(|(parent, _)| *parent != HIDDEN)
            .filter_map(move |link| {
                let (parent, name) = if compat_directory {
                    self.directories.get(&link.0)?.place.as_ref()?
                } else {
                    link
                };
                Some((self.public(*parent), name))
            });
        let place = implicit.and_then(|id| self.directories.get(&id)?.place.as_ref());
        named.chain(place.map(|(parent, name)| (self.public(*parent), name)))
    }

    /// Returns a file's kind.
    pub fn kind(&self, fnode: Fnode) -> Option<Kind> {
        match self.nodes.get(&fnode) {
            Some(node) => Some(node.attributes.kind),
            None if fnode == HIDDEN => None,
            None => self
                .directories
                .contains_key(&fnode)
                .then_some(Kind::Directory),
        }
    }

    /// Returns a file's attributes; those of [`Fnode::ROOT`] if the log has them. Directories that
    /// only paths mention have none.
    pub fn attributes(&self, fnode: Fnode) -> Option<&Attributes> {
        self.nodes
            .get(&self.recorded(fnode)?)
            .map(|node| &node.attributes)
    }

    /// Returns all that is known of a file but its content and size, as an op says it again. `None` for
    /// files without a name, and where a name has no place.
    pub(crate) fn restated(&self, fnode: Fnode) -> Option<Restated> {
        let node = self.nodes.get(&fnode)?;
        if node.aside > 0 || self.mode == Mode::Compat {
            return None;
        }
        let links = node.links.iter().map(|(parent, name)| LinkName {
            parent: if *parent == HIDDEN {
                Fnode::ROOT
            } else {
                *parent
            },
            path: name.clone(),
        });
        let attributes = &node.attributes;
        let xattrs = attributes.xattrs.iter();
        Some(Restated {
            inode: attributes.inode(attributes.mtime.unwrap_or_default()),
            atime: attributes.atime,
            links: links.collect(),
            xattrs: xattrs
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        })
    }

    /// Iterates over the live files, in order. The root directory is among them if the log has it.
    pub fn fnodes(&self) -> impl Iterator<Item = Fnode> {
        self.nodes.keys().copied()
    }

    /// Iterates over the directories that only paths mention, parents before children.
    pub fn implicit_directories(&self) -> impl Iterator<Item = Fnode> {
        let ids = self.directories.keys().rev().copied();
        ids.filter(|id| id.0 < 0 && *id != HIDDEN && self.directory_file(*id).is_none())
    }

    /// Iterates over the files that have no name (`O_TMPFILE`): they are gone when their process is.
    pub fn unnamed(&self) -> impl Iterator<Item = Fnode> {
        let hidden = self.directories.get(&HIDDEN);
        let hidden = hidden.into_iter().flat_map(|directory| &directory.entries);
        hidden
            .filter(|(name, _)| name.as_ref() != b"/")
            .map(|(_, fnode)| *fnode)
    }

    /// Returns the hidden link of a file that has no name.
    pub(crate) fn hidden_link(&self, fnode: Fnode) -> Option<LinkName> {
        let links = &self.nodes.get(&fnode)?.links;
        let (_, name) = links
            .iter()
            .find(|(parent, name)| *parent == HIDDEN && name != "/")?;
        Some(LinkName {
            parent: Fnode::ROOT,
            path: name.clone(),
        })
    }

    /// Returns a file's path from the root directory, by one of its names.
    pub fn path(&self, fnode: Fnode) -> Option<Bytes> {
        let mut fnode = self.canonical(fnode);
        let mut names: Vec<&Bytes> = Vec::new();
        // A hostile log can have directories that contain themselves.
        while fnode != Fnode::ROOT {
            if names.len() > self.directories.len() {
                return None;
            }
            let (parent, name) = self.links(fnode).next()?;
            names.push(name);
            fnode = parent;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Some(if path.is_empty() {
            Bytes::from_static(b"/")
        } else {
            path.into()
        })
    }

    /// Returns a name as ops have it; `None` if the parent is no directory.
    pub(crate) fn link_name(&self, parent: Fnode, name: &[u8], kind: Kind) -> Option<LinkName> {
        let directory = self.directory_of(parent)?;
        Some(match self.mode {
            Mode::Native => LinkName {
                parent: directory,
                path: Bytes::copy_from_slice(name),
            },
            Mode::Compat => {
                let mut path = self.path(parent)?.to_vec();
                if path != b"/" {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                if kind == Kind::Directory {
                    path.push(b'/');
                    path.extend_from_slice(DIRECTORY_FILE);
                }
                LinkName {
                    parent: Fnode::ROOT,
                    path: path.into(),
                }
            }
        })
    }

    /// Iterates over all links below a directory of a `compat` tree, its own file among them, by
    /// their paths from it on. `None` behind `limit` of them.
    pub(crate) fn links_below(&self, fnode: Fnode, limit: usize) -> Option<Vec<(Vec<u8>, Fnode)>> {
        let mut found = Vec::new();
        let mut waiting = vec![(Vec::new(), self.directory_of(fnode)?)];
        while let Some((path, directory)) = waiting.pop() {
            for (name, entry) in &self.directories.get(&directory)?.entries {
                let mut path: Vec<u8> = path.clone();
                path.push(b'/');
                path.extend_from_slice(name);
                if entry.0 < 0 {
                    waiting.push((path, *entry));
                } else if found.len() == limit {
                    return None;
                } else {
                    found.push((path, *entry));
                }
            }
        }
        Some(found)
    }

    /// Tells whether `directory` is `ancestor`, or below it.
    pub(crate) fn is_within(&self, directory: Fnode, ancestor: Fnode) -> bool {
        let (mut fnode, ancestor) = (self.canonical(directory), self.canonical(ancestor));
        for _ in 0..=self.directories.len() {
            if fnode == ancestor {
                return true;
            }
            match self.links(fnode).next() {
                Some((parent, _)) => fnode = parent,
                None => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
