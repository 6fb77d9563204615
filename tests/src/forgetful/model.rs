//! The tree of files: as programs see it, and as it is on the disk. No I/O, no clock.

use std::collections::{BTreeMap, btree_map};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use super::content::FileBytes;
use super::luck::Luck;
use super::names::{Change, NameOp, Pending};
use super::survivors::{Survivor, Survivors};

/// Number of a file, folder or link. Never used twice.
pub type Ino = u64;

/// The top folder.
pub const ROOT: Ino = 1;

/// Why a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelError {
    /// There is nothing of that name or number.
    NotFound,
    /// There is something of that name.
    Exists,
    /// It is no folder.
    NotFolder,
    /// It is a folder.
    IsFolder,
    /// The folder holds something.
    NotEmpty,
    /// The call makes no sense for it.
    Invalid,
}

type Result<T> = std::result::Result<T, ModelError>;

/// Owner, permission and times. A loss of power does not take their changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Kind and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last read.
    pub atime: SystemTime,
    /// Last change of the content.
    pub mtime: SystemTime,
    /// Last change of anything.
    pub ctime: SystemTime,
}

/// What is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum New {
    /// An empty file.
    File,
    /// An empty folder.
    Folder,
    /// A symbolic link.
    Link(OsString),
    /// A socket, pipe or device, which is but its name and mode.
    Special,
}

/// What `stat` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    /// Number.
    pub ino: Ino,
    /// Length in bytes.
    pub size: u64,
    /// Names it has.
    pub links: u32,
    /// Owner, permission and times.
    pub meta: Meta,
}

/// What a rename does with the name it moves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameTo {
    /// Any name.
    Replace,
    /// A name that is free.
    Free,
    /// A name that is not, which changes places with the other.
    Exchange,
}

/// The whole tree, in both states.
#[derive(Debug)]
pub struct Model {
    inodes: BTreeMap<Ino, Inode>,
    pending: Pending,
    next: Ino,
}

#[derive(Debug)]
struct Inode {
    meta: Meta,
    node: Node,
    /// Names in the current state.
    links: u32,
    /// Names in the durable state.
    durable_links: u32,
    /// Pending changes that give it a name.
    mentions: u32,
    /// References that the caller holds.
    held: u64,
}

#[derive(Debug)]
enum Node {
    File(FileBytes),
    Folder(Folder),
    Link(OsString),
    Special,
}

#[derive(Debug)]
struct Folder {
    parent: Ino,
    current: Names,
    durable: Names,
}

type Names = BTreeMap<OsString, Ino>;

impl Model {
    /// Makes an empty tree, whose top folder is `meta`.
    pub fn new(meta: Meta) -> Self {
        let root = Inode {
            held: 1,
            ..Inode::new(meta, New::Folder, ROOT)
        };
        Self {
            inodes: BTreeMap::from([(ROOT, root)]),
            pending: Pending::default(),
            next: ROOT + 1,
        }
    }

    /// Finds what a name means.
    pub fn lookup(&self, folder: Ino, name: &OsStr) -> Result<Ino> {
        let folder = self.folder(folder)?;
        folder
            .current
            .get(name)
            .copied()
            .ok_or(ModelError::NotFound)
    }

    /// Returns what `stat` shows.
    pub fn attr(&self, ino: Ino) -> Result<Attr> {
        let inode = self.inode(ino)?;
        let (size, links) = match &inode.node {
            Node::File(bytes) => (bytes.current().size(), inode.links),
            Node::Folder(_) => (0, 2),
            Node::Link(target) => (target.len() as u64, inode.links),
            Node::Special => (0, inode.links),
        };
        let meta = inode.meta.clone();
        Ok(Attr {
            ino,
            size,
            links,
            meta,
        })
    }

    /// Changes owner, permission or times.
    pub fn change_meta(&mut self, ino: Ino, change: impl FnOnce(&mut Meta)) -> Result<()> {
        change(&mut self.inode_mut(ino)?.meta);
        Ok(())
    }

    /// Returns the names in a folder, in order, without `.` and `..`.
    pub fn entries(&self, folder: Ino) -> Result<impl Iterator<Item = (&OsStr, Ino)>> {
        let names = self.folder(folder)?.current.iter();
        Ok(names.map(|(name, ino)| (name.as_os_str(), *ino)))
    }

    /// Returns the folder above a folder. The top is above itself.
    pub fn parent(&self, folder: Ino) -> Result<Ino> {
        Ok(self.folder(folder)?.parent)
    }

    /// Returns where a symbolic link leads.
    pub fn link_target(&self, ino: Ino) -> Result<&OsStr> {
        match &self.inode(ino)?.node {
            Node::Link(target) => Ok(target),
            Node::File(_) | Node::Folder(_) | Node::Special => Err(ModelError::Invalid),
        }
    }

    /// Makes something under a name that is free.
    pub fn create(&mut self, folder: Ino, name: &OsStr, new: New, meta: Meta) -> Result<Ino> {
        self.check_free(folder, name)?;
        let ino = self.next;
        self.next += 1;
        self.inodes.insert(ino, Inode::new(meta, new, folder));
        self.change_names(vec![change(folder, name, Some(ino))], false, None);
        Ok(ino)
    }

    /// Gives a file another name.
    pub fn link(&mut self, ino: Ino, folder: Ino, name: &OsStr) -> Result<()> {
        let inode = self.inode(ino)?;
        if let Node::Folder(_) = inode.node {
            return Err(ModelError::IsFolder);
        }
        if inode.links == 0 {
            return Err(ModelError::NotFound);
        }
        self.check_free(folder, name)?;
        self.change_names(vec![change(folder, name, Some(ino))], false, None);
        Ok(())
    }

    /// Takes a name away from a file.
    pub fn unlink(&mut self, folder: Ino, name: &OsStr) -> Result<()> {
        let ino = self.lookup(folder, name)?;
        if let Node::Folder(_) = self.inode(ino)?.node {
            return Err(ModelError::IsFolder);
        }
        self.change_names(vec![change(folder, name, None)], false, None);
        Ok(())
    }

    /// Removes an empty folder.
    pub fn remove_folder(&mut self, folder: Ino, name: &OsStr) -> Result<()> {
        let ino = self.lookup(folder, name)?;
        if !self.folder(ino)?.current.is_empty() {
            return Err(ModelError::NotEmpty);
        }
        self.change_names(vec![change(folder, name, None)], false, Some(ino));
        Ok(())
    }

    /// Moves a file or folder to another name.
    pub fn rename(&mut self, from: (Ino, &OsStr), to: (Ino, &OsStr), mode: RenameTo) -> Result<()> {
        let moved = self.lookup(from.0, from.1)?;
        self.check_there(to.0)?;
        let replaced = match self.lookup(to.0, to.1) {
            Ok(ino) => Some(ino),
            Err(ModelError::NotFound) => None,
            Err(error) => return Err(error),
        };
        let moves_folder = self.is_folder(moved);
        if moves_folder && self.is_within(to.0, moved) {
            return Err(ModelError::Invalid);
        }
        match (mode, replaced) {
            (RenameTo::Free, Some(_)) => return Err(ModelError::Exists),
            (RenameTo::Exchange, None) => return Err(ModelError::NotFound),
            (RenameTo::Exchange, Some(other)) => {
                if self.is_folder(other) && self.is_within(from.0, other) {
                    return Err(ModelError::Invalid);
                }
                if moved != other {
                    let back = change(from.0, from.1, Some(other));
                    let there = change(to.0, to.1, Some(moved));
                    let moves_folder = moves_folder || self.is_folder(other);
                    self.change_names(vec![back, there], moves_folder, None);
                }
                return Ok(());
            }
            // Two names of one file: nothing happens.
            (RenameTo::Replace, Some(same)) if same == moved => return Ok(()),
            (RenameTo::Replace, Some(other)) if self.is_folder(other) => {
                if !moves_folder {
                    return Err(ModelError::IsFolder);
                }
                if !self.folder(other)?.current.is_empty() {
                    return Err(ModelError::NotEmpty);
                }
            }
            (RenameTo::Replace, Some(_)) if moves_folder => return Err(ModelError::NotFolder),
            (RenameTo::Replace | RenameTo::Free, _) => {}
        }
        let removed = replaced.filter(|other| self.is_folder(*other));
        let gone = change(from.0, from.1, None);
        let there = change(to.0, to.1, Some(moved));
        self.change_names(vec![gone, there], moves_folder, removed);
        Ok(())
    }

    /// Returns the bytes of a file.
    pub fn file(&self, ino: Ino) -> Result<&FileBytes> {
        match &self.inode(ino)?.node {
            Node::File(bytes) => Ok(bytes),
            Node::Folder(_) => Err(ModelError::IsFolder),
            Node::Link(_) | Node::Special => Err(ModelError::Invalid),
        }
    }

    /// Returns the bytes of a file, to change them.
    pub fn file_mut(&mut self, ino: Ino) -> Result<&mut FileBytes> {
        match &mut self.inode_mut(ino)?.node {
            Node::File(bytes) => Ok(bytes),
            Node::Folder(_) => Err(ModelError::IsFolder),
            Node::Link(_) | Node::Special => Err(ModelError::Invalid),
        }
    }

    /// Makes the names in a folder last. Its own name may still be lost, and the bytes of its files.
    pub fn sync_folder(&mut self, folder: Ino) -> Result<()> {
        self.folder(folder)?;
        for op in self.pending.take_synced(folder) {
            self.settle(op);
        }
        Ok(())
    }

    /// Makes everything last.
    pub fn sync_all(&mut self) {
        let inodes: Vec<Ino> = self.inodes.keys().copied().collect();
        for ino in inodes {
            match self.inodes.get_mut(&ino).map(|inode| &mut inode.node) {
                Some(Node::File(bytes)) => bytes.sync(),
                Some(Node::Folder(_)) => drop(self.sync_folder(ino)),
                Some(Node::Link(_) | Node::Special) | None => {}
            }
        }
    }

    /// Counts a reference of the caller, which keeps a file without a name.
    pub fn hold(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.held += 1;
        }
    }

    /// Gives references back.
    pub fn release(&mut self, ino: Ino, count: u64) {
        if let Some(inode) = self.inodes.get_mut(&ino).filter(|_| ino != ROOT) {
            inode.held = inode.held.saturating_sub(count);
            self.drop_unused(vec![ino]);
        }
    }

    /// Returns the numbers of all that is there.
    pub fn inodes(&self) -> impl Iterator<Item = Ino> {
        self.inodes.keys().copied()
    }

    /// Returns what is left when the power goes.
    pub fn survivors(&self, luck: &mut dyn Luck) -> Survivors {
        let mut folders: BTreeMap<Ino, Names> = BTreeMap::new();
        for (ino, inode) in &self.inodes {
            if let Node::Folder(folder) = &inode.node {
                folders.insert(*ino, folder.durable.clone());
            }
        }
        for change in self.pending.lucky(luck).flat_map(|op| &op.changes) {
            if let Some(names) = folders.get_mut(&change.folder) {
                set_name(names, &change.name, change.to);
            }
        }
        let mut survivors = Survivors::default();
        for (ino, inode) in &self.inodes {
            let survivor = match &inode.node {
                Node::File(bytes) => Survivor::File(bytes.survivor(luck)),
                Node::Folder(_) => Survivor::Folder(folders.remove(ino).unwrap_or_default()),
                Node::Link(target) => Survivor::Link(target.clone()),
                Node::Special => continue,
            };
            survivors.insert(*ino, inode.meta.mode, survivor);
        }
        survivors
    }

    fn inode(&self, ino: Ino) -> Result<&Inode> {
        self.inodes.get(&ino).ok_or(ModelError::NotFound)
    }

    fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(ModelError::NotFound)
    }

    fn folder(&self, ino: Ino) -> Result<&Folder> {
        match &self.inode(ino)?.node {
            Node::Folder(folder) => Ok(folder),
            Node::File(_) | Node::Link(_) | Node::Special => Err(ModelError::NotFolder),
        }
    }

    fn folder_mut(&mut self, ino: Ino) -> Option<&mut Folder> {
        match &mut self.inodes.get_mut(&ino)?.node {
            Node::Folder(folder) => Some(folder),
            Node::File(_) | Node::Link(_) | Node::Special => None,
        }
    }

    fn is_folder(&self, ino: Ino) -> bool {
        self.folder(ino).is_ok()
    }

    /// Tells whether `folder` is `above`, or somewhere in it.
    fn is_within(&self, mut folder: Ino, above: Ino) -> bool {
        loop {
            if folder == above {
                return true;
            }
            match self.folder(folder) {
                Ok(inner) if folder != ROOT => folder = inner.parent,
                Ok(_) | Err(_) => return false,
            }
        }
    }

    /// A folder that was removed takes no new names, though it may still be open.
    fn check_there(&self, folder: Ino) -> Result<()> {
        if folder != ROOT && self.inode(folder)?.links == 0 {
            return Err(ModelError::NotFound);
        }
        Ok(())
    }

    fn check_free(&self, folder: Ino, name: &OsStr) -> Result<()> {
        self.check_there(folder)?;
        match self.lookup(folder, name) {
            Ok(_) => Err(ModelError::Exists),
            Err(ModelError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Changes names in the current state, and remembers that the disk does not know.
    fn change_names(
        &mut self,
        changes: Vec<Change>,
        moves_folder: bool,
        removes_folder: Option<Ino>,
    ) {
        let mut unnamed: Vec<(Ino, Ino)> = Vec::new();
        for change in &changes {
            let folder = self
                .folder_mut(change.folder)
                .expect("names are in folders");
            let before = set_name(&mut folder.current, &change.name, change.to);
            if let Some(inode) = before.and_then(|ino| self.inodes.get_mut(&ino)) {
                inode.links -= 1;
                unnamed.extend(before.map(|ino| (change.folder, ino)));
            }
            if let Some(ino) = change.to {
                if let Some(moved) = self.folder_mut(ino) {
                    moved.parent = change.folder;
                }
                if let Some(inode) = self.inodes.get_mut(&ino) {
                    inode.links += 1;
                    inode.mentions += 1;
                }
            }
        }
        let candidates = unnamed.iter().map(|(_, ino)| *ino).collect();
        unnamed.retain(|(_, ino)| changes.iter().all(|change| change.to != Some(*ino)));
        self.pending.push(NameOp {
            changes,
            moves_folder,
            removes_folder,
            unnames: unnamed,
        });
        self.drop_unused(candidates);
    }

    /// Brings a change into the durable state.
    fn settle(&mut self, op: NameOp) {
        let mut touched = Vec::new();
        for change in op.changes {
            let mut before = None;
            let mut is_named = false;
            if let Some(folder) = self.folder_mut(change.folder) {
                before = set_name(&mut folder.durable, &change.name, change.to);
                is_named = true;
            }
            if let Some(inode) = before.and_then(|ino| self.inodes.get_mut(&ino)) {
                inode.durable_links -= 1;
            }
            if let Some(inode) = change.to.and_then(|ino| self.inodes.get_mut(&ino)) {
                inode.mentions -= 1;
                inode.durable_links += u32::from(is_named);
            }
            touched.extend(before);
            touched.extend(change.to);
        }
        self.drop_unused(touched);
    }

    /// Drops what has no name in either state and that nobody holds.
    fn drop_unused(&mut self, mut candidates: Vec<Ino>) {
        while let Some(ino) = candidates.pop() {
            let btree_map::Entry::Occupied(entry) = self.inodes.entry(ino) else {
                continue;
            };
            if entry.get().is_used() {
                continue;
            }
            let Node::Folder(folder) = entry.remove().node else {
                continue;
            };
            for child in folder.durable.into_values() {
                if let Some(inode) = self.inodes.get_mut(&child) {
                    inode.durable_links -= 1;
                    candidates.push(child);
                }
            }
            // No sync can reach these any more.
            let orphans = self.pending.take_orphans(ino);
            for child in orphans
                .into_iter()
                .flat_map(|op| op.changes)
                .filter_map(|c| c.to)
            {
                if let Some(inode) = self.inodes.get_mut(&child) {
                    inode.mentions -= 1;
                    candidates.push(child);
                }
            }
        }
    }
}

impl Inode {
    fn new(meta: Meta, new: New, parent: Ino) -> Self {
        let node = match new {
            New::File => Node::File(FileBytes::default()),
            New::Folder => Node::Folder(Folder {
                parent,
                current: Names::new(),
                durable: Names::new(),
            }),
            New::Link(target) => Node::Link(target),
            New::Special => Node::Special,
        };
        Self {
            meta,
            node,
            links: 0,
            durable_links: 0,
            mentions: 0,
            held: 0,
        }
    }

    fn is_used(&self) -> bool {
        self.links > 0 || self.durable_links > 0 || self.mentions > 0 || self.held > 0
    }
}

fn change(folder: Ino, name: &OsStr, to: Option<Ino>) -> Change {
    Change {
        folder,
        name: name.to_owned(),
        to,
    }
}

/// Gives a name another meaning, and returns the one it had.
fn set_name(names: &mut Names, name: &OsStr, to: Option<Ino>) -> Option<Ino> {
    match to {
        Some(ino) => names.insert(name.to_owned(), ino),
        None => names.remove(name),
    }
}

#[cfg(test)]
mod tests;
