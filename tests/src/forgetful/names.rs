//! Changes of names that no sync has covered yet, and which of them go together.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use super::luck::Luck;
use super::model::Ino;

/// One name in one folder gets another meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The folder.
    pub folder: Ino,
    /// The name.
    pub name: OsString,
    /// What it means from now on, if anything.
    pub to: Option<Ino>,
}

/// What one call changed, which survives as a whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameOp {
    /// One change, or the two of a rename.
    pub changes: Vec<Change>,
    /// A folder moved to another place. These happen in order, lest two folders end up inside each other.
    pub moves_folder: bool,
    /// An empty folder that is gone by this. It got empty first.
    pub removes_folder: Option<Ino>,
    /// What lost a name by this. It got its other names first, so that it always has one.
    pub unnames: Vec<Ino>,
}

impl NameOp {
    fn touches(&self, folder: Ino) -> bool {
        self.changes.iter().any(|change| change.folder == folder)
    }
}

/// Changes in the order in which they were made.
#[derive(Debug, Clone, Default)]
pub struct Pending {
    ops: BTreeMap<u64, NameOp>,
    next: u64,
}

impl Pending {
    /// Adds what a call changed.
    pub fn push(&mut self, op: NameOp) {
        self.ops.insert(self.next, op);
        self.next += 1;
    }

    /// Takes out what a sync of `folder` makes last: the changes in it, and those that came before them and on
    /// which they build.
    pub fn take_synced(&mut self, folder: Ino) -> Vec<NameOp> {
        let mut needed = Needed::default();
        let mut taken = Vec::new();
        for (number, op) in self.ops.iter().rev() {
            if op.touches(folder) || needed.includes(op) {
                needed.add(op);
                taken.push(*number);
            }
        }
        taken.reverse();
        taken
            .iter()
            .filter_map(|number| self.ops.remove(number))
            .collect()
    }

    /// Takes out the changes that concern only `folder`, which is gone.
    pub fn take_orphans(&mut self, folder: Ino) -> Vec<NameOp> {
        let is_orphan = |op: &NameOp| op.changes.iter().all(|change| change.folder == folder);
        let orphans = self.ops.extract_if(.., |_, op| is_orphan(op));
        orphans.map(|(_, op)| op).collect()
    }

    /// Returns the changes that survive a loss of power although nothing covered them.
    pub fn lucky(&self, luck: &mut dyn Luck) -> impl Iterator<Item = &NameOp> {
        // What was lost takes along what builds on it.
        let mut lost = Needed::default();
        self.ops.values().filter(move |op| {
            let survives = !lost.is_base_of(op) && luck.name();
            if !survives {
                lost.add(op);
            }
            survives
        })
    }
}

/// What a set of changes is about, to find those that depend on each other.
#[derive(Debug, Default)]
struct Needed {
    names: BTreeSet<(Ino, OsString)>,
    folders: BTreeSet<Ino>,
    /// Folders that the changes removed.
    removed: BTreeSet<Ino>,
    moves_folder: bool,
    /// What the changes gave a name.
    named: BTreeSet<Ino>,
    /// What they took a name from.
    unnamed: BTreeSet<Ino>,
}

impl Needed {
    fn add(&mut self, op: &NameOp) {
        for change in &op.changes {
            self.names.insert((change.folder, change.name.clone()));
            self.folders.insert(change.folder);
            self.named.extend(change.to);
        }
        self.unnamed.extend(&op.unnames);
        self.removed.extend(op.removes_folder);
        self.moves_folder |= op.moves_folder;
    }

    fn shares_name(&self, op: &NameOp) -> bool {
        let mut changes = op.changes.iter();
        changes.any(|change| self.names.contains(&(change.folder, change.name.clone())))
    }

    /// Tells whether one of these, which come later, depends on `op`.
    fn includes(&self, op: &NameOp) -> bool {
        self.shares_name(op)
            || (self.moves_folder && op.moves_folder)
            || op
                .changes
                .iter()
                .any(|change| self.removed.contains(&change.folder))
    }

    /// Tells whether `op` depends on one of these, which come earlier.
    fn is_base_of(&self, op: &NameOp) -> bool {
        self.shares_name(op)
            || (self.moves_folder && op.moves_folder)
            || op
                .removes_folder
                .is_some_and(|folder| self.folders.contains(&folder))
    }
}
