//! The directory tree that the names of journals span.
//!
//! Pure: what the broker lists goes in, nodes come out. A directory is there because a journal is
//! below it, or because somebody made it. A journal that was made anew under an old name is
//! another node.

use std::collections::BTreeMap;

use super::names::{self, JOURNAL_SUFFIX};

/// Number of a node. Never given out twice by one tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The top directory.
    pub const ROOT: Self = Self(1);
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Holds others.
    Directory,
    /// A journal, shown as a regular file.
    Journal,
}

/// One line of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the directory.
    pub name: String,
    /// Its node.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
}

/// A journal as the coordination store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a str,
    /// The revision that made it, which tells it from an earlier one of the same name.
    pub create_revision: i64,
}

/// What a listing changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Journals that are new, by node and name.
    pub added: Vec<(Ino, String)>,
    /// Journals that are gone.
    pub removed: Vec<Ino>,
    /// Journals whose names cannot be shown as paths.
    pub hidden: usize,
}

/// Why the tree cannot be changed as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeError {
    /// There is no such entry.
    NotFound,
    /// There is one already.
    Exists,
    /// The entry is a journal.
    NotDirectory,
    /// The directory holds something.
    NotEmpty,
}

/// Directories and journals by number and by name.
#[derive(Debug)]
pub struct Tree {
    nodes: BTreeMap<Ino, Node>,
    journals: BTreeMap<String, Ino>,
    /// Journals that this process deleted, with the revision at which: an older listing must not
    /// bring them back.
    deleted: BTreeMap<String, i64>,
    revision: i64,
    next: u64,
}

#[derive(Debug)]
enum Node {
    Directory(Directory),
    Journal(Journal),
}

#[derive(Debug)]
struct Directory {
    parent: Ino,
    path: String,
    children: BTreeMap<String, Slot>,
    /// Somebody made it, so it stays when it is empty.
    made: bool,
}

#[derive(Debug)]
struct Journal {
    parent: Ino,
    name: String,
    create_revision: i64,
}

/// What is behind one component: a directory, a journal, or both.
#[derive(Debug, Default)]
struct Slot {
    directory: Option<Ino>,
    journal: Option<Ino>,
}

impl Tree {
    /// Creates a tree with only the top directory.
    pub fn new() -> Self {
        let top = Directory {
            parent: Ino::ROOT,
            path: String::new(),
            children: BTreeMap::new(),
            made: true,
        };
        Self {
            nodes: BTreeMap::from([(Ino::ROOT, Node::Directory(top))]),
            journals: BTreeMap::new(),
            deleted: BTreeMap::new(),
            revision: 0,
            next: Ino::ROOT.0 + 1,
        }
    }

    /// Returns the revision of the last listing.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Makes the journals those of a whole listing at `revision`, but for what this process is
    /// known to have made or deleted later.
    ///
    /// A revision before the last one means another coordination store; its listing is taken as
    /// it is.
    pub fn replace<'a>(
        &mut self,
        revision: i64,
        listing: impl IntoIterator<Item = Listed<'a>>,
    ) -> Changes {
        let mut changes = Changes::default();
        let is_reset = revision < self.revision;
        if is_reset {
            self.deleted.clear();
        }
        self.deleted.retain(|_, deleted| *deleted > revision);
        self.revision = revision;
        let mut gone = self.journals.clone();
        for listed in listing {
            let deleted = self.deleted.get(listed.name).copied();
            if deleted.is_some_and(|deleted| listed.create_revision <= deleted) {
                continue;
            }
            if let Some(ino) = self.journals.get(listed.name).copied()
                && self.create_revision(ino) == Some(listed.create_revision)
            {
                gone.remove(listed.name);
                continue;
            }
            let newer = self
                .journal(listed.name)
                .and_then(|ino| self.create_revision(ino));
            if !is_reset && newer.is_some_and(|newer| newer > revision) {
                gone.remove(listed.name);
                continue;
            }
            match self.insert(listed) {
                Some((ino, replaced)) => {
                    changes.removed.extend(replaced);
                    changes.added.push((ino, listed.name.to_owned()));
                }
                None => changes.hidden += 1,
            }
            gone.remove(listed.name);
        }
        for (name, ino) in gone {
            let is_newer = self
                .create_revision(ino)
                .is_some_and(|created| created > revision);
            if is_reset || !is_newer {
                changes.removed.extend(self.remove(&name));
            }
        }
        changes
    }

    /// Adds a journal. Returns its node and that of an earlier one of the same name, which is
    /// gone; or `None` if its name cannot be shown.
    pub fn insert(&mut self, listed: Listed<'_>) -> Option<(Ino, Option<Ino>)> {
        let parts = names::components(listed.name)?;
        if let Some(ino) = self.journal(listed.name)
            && self.create_revision(ino) == Some(listed.create_revision)
        {
            return Some((ino, None));
        }
        // The new one is added before the old is taken away, so that its directory stays.
        let (last, folders) = parts.split_last()?;
        let mut parent = Ino::ROOT;
        for folder in folders {
            parent = self.enter(parent, folder);
        }
        let ino = self.number();
        let journal = Journal {
            parent,
            name: listed.name.to_owned(),
            create_revision: listed.create_revision,
        };
        self.nodes.insert(ino, Node::Journal(journal));
        if let Some(directory) = self.directory_mut(parent) {
            directory
                .children
                .entry((*last).to_owned())
                .or_default()
                .journal = Some(ino);
        }
        let replaced = self.journals.insert(listed.name.to_owned(), ino);
        if let Some(replaced) = replaced {
            self.nodes.remove(&replaced);
        }
        Some((ino, replaced))
    }

    /// Adds a journal that was looked up at a revision, as [`insert`](Self::insert) does, unless
    /// this process deleted it later.
    pub fn learn(&mut self, revision: i64, listed: Listed<'_>) -> Option<(Ino, Option<Ino>)> {
        let deleted = self.deleted.get(listed.name).copied();
        if deleted.is_some_and(|deleted| revision < deleted || listed.create_revision <= deleted) {
            return None;
        }
        let newer = self
            .journal(listed.name)
            .and_then(|ino| self.create_revision(ino));
        if newer.is_some_and(|newer| newer > revision) {
            return None;
        }
        self.insert(listed)
    }

    /// Takes a journal away, and each directory that held nothing else and that nobody made.
    pub fn remove(&mut self, name: &str) -> Option<Ino> {
        let ino = self.journals.remove(name)?;
        let Some(Node::Journal(journal)) = self.nodes.remove(&ino) else {
            return Some(ino);
        };
        let component = last_component(name);
        if let Some(directory) = self.directory_mut(journal.parent) {
            if let Some(slot) = directory.children.get_mut(component) {
                slot.journal = None;
                if slot.directory.is_none() {
                    directory.children.remove(component);
                }
            }
            self.prune(journal.parent);
        }
        Some(ino)
    }

    /// Lets a directory stay when it becomes empty: a program that deletes a tree removes that after
    /// its journals.
    pub fn keep(&mut self, directory: Ino) {
        if let Some(directory) = self.directory_mut(directory) {
            directory.made = true;
        }
    }

    /// Takes a journal away that this process deleted at `revision`.
    pub fn remove_deleted(&mut self, name: &str, revision: i64) -> Option<Ino> {
        if revision > self.revision {
            self.deleted.insert(name.to_owned(), revision);
        }
        self.remove(name)
    }

    /// Makes a directory, which stays while it is empty.
    pub fn make_directory(&mut self, parent: Ino, component: &str) -> Result<Ino, TreeError> {
        let directory = self.directory(parent).ok_or(TreeError::NotFound)?;
        if directory.children.contains_key(component) {
            return Err(TreeError::Exists);
        }
        let ino = self.enter(parent, component);
        if let Some(made) = self.directory_mut(ino) {
            made.made = true;
        }
        Ok(ino)
    }

    /// Removes a directory that is empty.
    pub fn remove_directory(&mut self, parent: Ino, component: &str) -> Result<(), TreeError> {
        let directory = self.directory(parent).ok_or(TreeError::NotFound)?;
        let slot = directory
            .children
            .get(component)
            .ok_or(TreeError::NotFound)?;
        let ino = slot.directory.ok_or(TreeError::NotDirectory)?;
        let leaves_journal = slot.journal.is_some();
        let removed = self.directory_mut(ino).ok_or(TreeError::NotFound)?;
        if !removed.children.is_empty() {
            return Err(TreeError::NotEmpty);
        }
        removed.made = false;
        // The folder above stays also if nobody made it: rmdir removes one directory.
        if let Some(above) = self.directory_mut(parent) {
            above.made |= parent != Ino::ROOT && above.children.len() == 1 && !leaves_journal;
        }
        self.prune(ino);
        Ok(())
    }

    /// Returns what a directory has under a file name.
    pub fn lookup(&self, parent: Ino, name: &str) -> Option<(Ino, Kind)> {
        let directory = self.directory(parent)?;
        if let Some(slot) = directory.children.get(name) {
            return match (slot.directory, slot.journal) {
                (Some(ino), _) => Some((ino, Kind::Directory)),
                (None, Some(ino)) => Some((ino, Kind::Journal)),
                (None, None) => None,
            };
        }
        let slot = directory.children.get(name.strip_suffix(JOURNAL_SUFFIX)?)?;
        match (slot.directory, slot.journal) {
            (Some(_), Some(ino)) => Some((ino, Kind::Journal)),
            _ => None,
        }
    }

    /// Returns the name of the journal that a file of this name in `parent` is or would be.
    pub fn journal_name(&self, parent: Ino, name: &str) -> Option<String> {
        let directory = self.directory(parent)?;
        let component = match name.strip_suffix(JOURNAL_SUFFIX) {
            Some(stem)
                if directory
                    .children
                    .get(stem)
                    .is_some_and(|s| s.directory.is_some()) =>
            {
                stem
            }
            _ => name,
        };
        Some(names::join(&directory.path, component))
    }

    /// Returns the lines of a directory in order of their names, without `.` and `..`.
    pub fn list(&self, ino: Ino) -> Option<Vec<Entry>> {
        let directory = self.directory(ino)?;
        let mut entries = Vec::with_capacity(directory.children.len());
        for (component, slot) in &directory.children {
            let entry = |name: String, ino, kind| Entry { name, ino, kind };
            match (slot.directory, slot.journal) {
                (Some(folder), journal) => {
                    entries.push(entry(component.clone(), folder, Kind::Directory));
                    let name = || format!("{component}{JOURNAL_SUFFIX}");
                    entries.extend(journal.map(|ino| entry(name(), ino, Kind::Journal)));
                }
                (None, Some(ino)) => entries.push(entry(component.clone(), ino, Kind::Journal)),
                (None, None) => {}
            }
        }
        Some(entries)
    }

    /// Returns what a node is, or `None` if it is gone.
    pub fn kind(&self, ino: Ino) -> Option<Kind> {
        self.nodes.get(&ino).map(|node| match node {
            Node::Directory(_) => Kind::Directory,
            Node::Journal(_) => Kind::Journal,
        })
    }

    /// Returns the path of a directory from the top, which is empty for the top itself.
    pub fn path(&self, ino: Ino) -> Option<&str> {
        self.directory(ino).map(|directory| directory.path.as_str())
    }

    /// Returns the directory above a node.
    pub fn parent(&self, ino: Ino) -> Option<Ino> {
        self.nodes.get(&ino).map(|node| match node {
            Node::Directory(directory) => directory.parent,
            Node::Journal(journal) => journal.parent,
        })
    }

    /// Returns how many directories a directory holds, for its link count.
    pub fn subdirectories(&self, ino: Ino) -> usize {
        let children = self
            .directory(ino)
            .map(|directory| directory.children.values());
        children.map_or(0, |slots| {
            slots.filter(|slot| slot.directory.is_some()).count()
        })
    }

    /// Returns the node of a journal.
    pub fn journal(&self, name: &str) -> Option<Ino> {
        self.journals.get(name).copied()
    }

    /// Returns the name of a journal by its node.
    pub fn name(&self, ino: Ino) -> Option<&str> {
        match self.nodes.get(&ino)? {
            Node::Journal(journal) => Some(&journal.name),
            Node::Directory(_) => None,
        }
    }

    fn create_revision(&self, ino: Ino) -> Option<i64> {
        match self.nodes.get(&ino)? {
            Node::Journal(journal) => Some(journal.create_revision),
            Node::Directory(_) => None,
        }
    }

    fn directory(&self, ino: Ino) -> Option<&Directory> {
        match self.nodes.get(&ino)? {
            Node::Directory(directory) => Some(directory),
            Node::Journal(_) => None,
        }
    }

    fn directory_mut(&mut self, ino: Ino) -> Option<&mut Directory> {
        match self.nodes.get_mut(&ino)? {
            Node::Directory(directory) => Some(directory),
            Node::Journal(_) => None,
        }
    }

    /// Returns the directory `component` of `parent`, after adding it if it was not there.
    fn enter(&mut self, parent: Ino, component: &str) -> Ino {
        let number = self.next;
        let Some(directory) = self.directory_mut(parent) else {
            return parent;
        };
        let path = names::join(&directory.path, component);
        let slot = directory.children.entry(component.to_owned()).or_default();
        if let Some(ino) = slot.directory {
            return ino;
        }
        let ino = Ino(number);
        slot.directory = Some(ino);
        self.next += 1;
        let entered = Directory {
            parent,
            path,
            children: BTreeMap::new(),
            made: false,
        };
        self.nodes.insert(ino, Node::Directory(entered));
        ino
    }

    /// Takes directories away that are empty and that nobody made, from `ino` up.
    fn prune(&mut self, mut ino: Ino) {
        while let Some(directory) = self.directory(ino) {
            if directory.made || !directory.children.is_empty() || ino == Ino::ROOT {
                return;
            }
            let parent = directory.parent;
            let component = last_component(&directory.path).to_owned();
            self.nodes.remove(&ino);
            if let Some(above) = self.directory_mut(parent)
                && let Some(slot) = above.children.get_mut(&component)
            {
                slot.directory = None;
                if slot.journal.is_none() {
                    above.children.remove(&component);
                }
            }
            ino = parent;
        }
    }

    fn number(&mut self) -> Ino {
        let ino = Ino(self.next);
        self.next += 1;
        ino
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

fn last_component(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, last)| last)
}

#[cfg(test)]
mod tests;
