//! Ops into the tree.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::names::{DIRECTORY_FILE, Target, parse, root};
use super::{Attributes, Directory, HIDDEN, Node, Tree, TreeError};
use crate::op::{Body, LinkName, RecordedOp, Restated};
use crate::{Change, Fnode, Kind, Mode};

impl Tree {
    /// Takes an op that the FSM applied, and tracks.
    pub fn apply(&mut self, op: &RecordedOp) -> Result<(), TreeError> {
        match &op.body {
            Body::NoOp { .. } | Body::Property { .. } => Ok(()),
            Body::Create { at, inode } => {
                let attributes = inode.as_ref().map(Attributes::from).unwrap_or_default();
                self.create(Fnode(op.seq_no), at, attributes)
            }
            Body::Link { fnode, at } => self.link(*fnode, at),
            Body::Unlink { fnode, at } => self.unlink(*fnode, at),
            Body::Write(write) => {
                let end = write.offset.checked_add(write.length);
                let end = end.and_then(|end| u64::try_from(end).ok());
                let attributes = self.content_of(write.fnode)?;
                if attributes.kind != Kind::Regular && write.length > 0 {
                    return Err(TreeError::NotRegular(write.fnode));
                }
                match end {
                    Some(end) if write.offset >= 0 && write.length >= 0 => {
                        attributes.written(if write.length > 0 { end } else { 0 }, write.mtime);
                        Ok(())
                    }
                    _ => Err(TreeError::Range(write.fnode)),
                }
            }
            Body::Change {
                fnode,
                change,
                mtime,
            } => {
                if let Change::Restated(restated) = change {
                    return self.restate(*fnode, restated);
                }
                let attributes = match change {
                    Change::Size(_) => self.content_of(*fnode)?,
                    Change::Attributes(_)
                    | Change::SetXattr { .. }
                    | Change::RemoveXattr { .. }
                    | Change::Restated(_) => self.attributes_mut(*fnode)?,
                };
                if attributes.kind != Kind::Regular && matches!(change, Change::Size(_)) {
                    return Err(TreeError::NotRegular(*fnode));
                }
                attributes.change(change, *mtime);
                Ok(())
            }
        }
    }

    fn attributes_mut(&mut self, fnode: Fnode) -> Result<&mut Attributes, TreeError> {
        let node = self
            .nodes
            .get_mut(&fnode)
            .ok_or(TreeError::Unknown(fnode))?;
        Ok(&mut node.attributes)
    }

    /// Returns what is known of a file whose content changes. In a `native` log that may be nothing
    /// yet: the op by which it comes to be follows.
    fn content_of(&mut self, fnode: Fnode) -> Result<&mut Attributes, TreeError> {
        if self.mode == Mode::Native && !self.nodes.contains_key(&fnode) {
            return Ok(self.unborn.entry(fnode).or_default());
        }
        self.attributes_mut(fnode)
    }

    /// A file that is known is as it is said to be; another comes to be.
    fn restate(&mut self, fnode: Fnode, restated: &Restated) -> Result<(), TreeError> {
        if self.nodes.contains_key(&fnode) {
            return Ok(());
        }
        if self.mode == Mode::Compat {
            return Err(TreeError::Unknown(fnode));
        }
        let unborn = self.unborn.remove(&fnode);
        let size = unborn.map_or(0, |attributes| attributes.size);
        let inode = &restated.inode;
        if size > 0 && inode.kind != Kind::Regular {
            return Err(TreeError::NotRegular(fnode));
        }
        let is_directory = inode.kind == Kind::Directory;
        if !is_directory && restated.links.contains(&root(self.mode)) {
            return Err(TreeError::Directory(fnode));
        }
        for at in &restated.links {
            self.parse(at)?;
        }
        let attributes = Attributes {
            size,
            atime: restated.atime,
            xattrs: restated.xattrs.iter().cloned().collect(),
            ..Attributes::from(inode)
        };
        self.nodes.insert(
            fnode,
            Node {
                attributes,
                links: BTreeSet::new(),
                aside: 0,
            },
        );
        for at in &restated.links {
            self.link(fnode, at)?;
        }
        if is_directory {
            self.open_directory(fnode)?;
        }
        Ok(())
    }

    /// A directory of a `native` log came to be. What was linked into it before has its place now.
    fn open_directory(&mut self, fnode: Fnode) -> Result<(), TreeError> {
        self.directories.insert(fnode, Directory::default());
        let first = LinkName {
            parent: fnode,
            path: Bytes::new(),
        };
        let waiting: Vec<LinkName> = self
            .aside
            .range(first..)
            .map(|(at, _)| at)
            .take_while(|at| at.parent == fnode)
            .cloned()
            .collect();
        for at in waiting {
            let Some(child) = self.aside.remove(&at) else {
                continue;
            };
            if let Some(node) = self.nodes.get_mut(&child) {
                node.aside -= 1;
                self.link(child, &at)?;
            }
        }
        Ok(())
    }

    fn create(
        &mut self,
        fnode: Fnode,
        at: &LinkName,
        attributes: Attributes,
    ) -> Result<(), TreeError> {
        let is_directory = attributes.kind == Kind::Directory;
        if *at == root(self.mode) && !is_directory {
            return Err(TreeError::Directory(fnode));
        }
        self.nodes.insert(
            fnode,
            Node {
                attributes,
                links: BTreeSet::new(),
                aside: 0,
            },
        );
        if let Err(error) = self.link(fnode, at) {
            self.nodes.remove(&fnode);
            return Err(error);
        }
        if is_directory && self.mode == Mode::Native {
            self.open_directory(fnode)?;
        }
        Ok(())
    }

    fn link(&mut self, fnode: Fnode, at: &LinkName) -> Result<(), TreeError> {
        let target = self.parse(at)?;
        let kind = self.kind(fnode).ok_or(TreeError::Unknown(fnode))?;
        if self.mode == Mode::Compat
            && kind == Kind::Directory
            && at.path.rsplit(|byte| *byte == b'/').next() != Some(DIRECTORY_FILE)
        {
            return Err(TreeError::Directory(fnode));
        }
        let place = match target {
            Target::Hidden(name) => Some((HIDDEN, name)),
            Target::Name(parent, name) => self
                .directories
                .get(&self.as_parent(parent))
                .is_some_and(|directory| !directory.entries.contains_key(&name))
                .then(|| (self.as_parent(parent), name)),
            Target::Path(names) => self.make_place(names),
        };
        let Some(node) = self.nodes.get_mut(&fnode) else {
            return Err(TreeError::Unknown(fnode));
        };
        if let Some((parent, name)) = place
            && let Some(directory) = self.directories.get_mut(&parent)
        {
            directory.entries.insert(name.clone(), fnode);
            node.links.insert((parent, name));
        } else {
            self.aside.insert(at.clone(), fnode);
            node.aside += 1;
        }
        Ok(())
    }

    fn unlink(&mut self, fnode: Fnode, at: &LinkName) -> Result<(), TreeError> {
        let target = self.parse(at)?;
        if !self.nodes.contains_key(&fnode) {
            return Err(TreeError::Unknown(fnode));
        }
        if self.aside.get(at) == Some(&fnode) {
            self.aside.remove(at);
            if let Some(node) = self.nodes.get_mut(&fnode) {
                node.aside -= 1;
            }
        } else if let Some((parent, name)) = self.find_place(target) {
            self.remove_entry(parent, &name, fnode);
        }
        if self
            .nodes
            .get(&fnode)
            .is_some_and(|node| node.links.is_empty() && node.aside == 0)
        {
            self.forget(fnode);
        }
        if self.mode == Mode::Compat && !self.aside.is_empty() {
            self.retry_aside();
        }
        Ok(())
    }

    fn remove_entry(&mut self, parent: Fnode, name: &Bytes, fnode: Fnode) {
        let Some(directory) = self.directories.get_mut(&parent) else {
            return;
        };
        if directory.entries.get(name) == Some(&fnode) {
            directory.entries.remove(name);
            if let Some(node) = self.nodes.get_mut(&fnode) {
                node.links.remove(&(parent, name.clone()));
            }
            self.prune(parent);
        }
    }

    /// Drops a file without links. What a native directory still holds has no place any more.
    fn forget(&mut self, fnode: Fnode) {
        self.nodes.remove(&fnode);
        if self.mode == Mode::Compat {
            return;
        }
        let Some(directory) = self.directories.remove(&fnode) else {
            return;
        };
        for (name, child) in directory.entries {
            if let Some(node) = self.nodes.get_mut(&child) {
                node.links.remove(&(fnode, name.clone()));
                node.aside += 1;
            }
            self.aside.insert(
                LinkName {
                    parent: fnode,
                    path: name,
                },
                child,
            );
        }
    }

    /// A link that collided with another, or with a directory, may have a place now.
    fn retry_aside(&mut self) {
        for (at, fnode) in std::mem::take(&mut self.aside) {
            if let Some(node) = self.nodes.get_mut(&fnode) {
                node.aside -= 1;
                // It parsed before, and its file is known.
                let _known = self.link(fnode, &at);
            }
        }
    }

    fn parse(&self, at: &LinkName) -> Result<Target, TreeError> {
        parse(self.mode, at).map_err(|error| TreeError::Name {
            at: at.clone(),
            error,
        })
    }

    /// Finds the directory of a path, and makes those that only paths mention; `None` if there is
    /// something else in the way.
    fn make_place(&mut self, mut names: Vec<Bytes>) -> Option<(Fnode, Bytes)> {
        let last = names.pop()?;
        let mut parent = Fnode::ROOT;
        for name in names {
            let entry = self.directories.get(&parent)?.entries.get(&name).copied();
            parent = match entry {
                Some(directory) if directory.0 < 0 => directory,
                Some(_) => {
                    self.prune(parent);
                    return None;
                }
                None => {
                    let made = Fnode(self.next_implicit);
                    self.next_implicit -= 1;
                    let place = Some((parent, name.clone()));
                    self.directories.insert(
                        made,
                        Directory {
                            place,
                            entries: BTreeMap::new(),
                        },
                    );
                    self.directories
                        .get_mut(&parent)?
                        .entries
                        .insert(name, made);
                    made
                }
            };
        }
        if self.directories.get(&parent)?.entries.contains_key(&last) {
            self.prune(parent);
            return None;
        }
        Some((parent, last))
    }

    fn find_place(&self, target: Target) -> Option<(Fnode, Bytes)> {
        match target {
            Target::Hidden(name) => Some((HIDDEN, name)),
            Target::Name(parent, name) => Some((self.as_parent(parent), name)),
            Target::Path(mut names) => {
                let last = names.pop()?;
                let mut parent = Fnode::ROOT;
                for name in names {
                    parent = *self.directories.get(&parent)?.entries.get(&name)?;
                }
                Some((parent, last))
            }
        }
    }

    /// Drops directories of a `compat` tree that hold nothing any more.
    fn prune(&mut self, mut directory: Fnode) {
        while self.mode == Mode::Compat
            && self
                .directories
                .get(&directory)
                .is_some_and(|held| held.entries.is_empty())
            && let Some((parent, name)) = self
                .directories
                .get(&directory)
                .and_then(|held| held.place.clone())
        {
            self.directories.remove(&directory);
            if let Some(held) = self.directories.get_mut(&parent) {
                held.entries.remove(&name);
            }
            directory = parent;
        }
    }
}
