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
    /// What lost a name by this and got no other. It had its other names first, so that it always has one.
    /// Each comes after the folder of the lost name.
    pub unnames: Vec<(Ino, Ino)>,
}

impl NameOp {
    fn touches(&self, folder: Ino) -> bool {
        self.changes.iter().any(|change| change.folder == folder)
    }

    /// Tells whether something goes from one folder to another.
    fn is_move(&self) -> bool {
        let mut folders = self.changes.iter().map(|change| change.folder);
        let first = folders.next();
        folders.any(|folder| Some(folder) != first)
    }

    /// Returns what gets a name by this, each after the folder of that name.
    fn names(&self) -> impl Iterator<Item = (Ino, Ino)> {
        let changes = self.changes.iter();
        changes.filter_map(|change| Some((change.folder, change.to?)))
    }
}

impl Change {
    fn key(&self) -> (Ino, OsString) {
        (self.folder, self.name.clone())
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
        let mut lost = Lost::default();
        self.ops.values().filter(move |op| {
            let survives = !lost.is_base_of(op) && luck.name();
            lost.add(op, survives);
            survives
        })
    }
}

/// What a set of changes is about, to find those that depend on each other.
#[derive(Debug, Default)]
struct About {
    names: BTreeSet<(Ino, OsString)>,
    moves_folder: bool,
}

impl About {
    fn add(&mut self, op: &NameOp) {
        let names = op.changes.iter().map(Change::key);
        self.names.extend(names);
        self.moves_folder |= op.moves_folder;
    }

    /// Tells whether `op` and one of these depend on each other, whichever came first.
    fn meets(&self, op: &NameOp) -> bool {
        let mut changes = op.changes.iter();
        (self.moves_folder && op.moves_folder) || changes.any(|c| self.names.contains(&c.key()))
    }
}

/// What later changes build on.
#[derive(Debug, Default)]
struct Needed {
    about: About,
    /// Folders that they removed, and so were emptied before.
    removed: BTreeSet<Ino>,
    /// What they took a name from, and so may have got another before, with the folders of the lost names.
    unnamed: BTreeMap<Ino, BTreeSet<Ino>>,
    /// Folders that hold the other names, or into which something moved. They must be somewhere then.
    targets: BTreeSet<Ino>,
}

impl Needed {
    fn add(&mut self, op: &NameOp) {
        // Another name counts only where it can be reached. In the folder of the lost name it surely can.
        let must_reach = |(folder, ino): (Ino, Ino)| {
            let mut lost_in = self.unnamed.get(&ino).into_iter().flatten();
            op.is_move() || self.targets.contains(&ino) || lost_in.any(|other| *other != folder)
        };
        let targets = op.names().filter(|name| must_reach(*name));
        let targets: Vec<Ino> = targets.map(|(folder, _)| folder).collect();
        self.targets.extend(targets);

        self.about.add(op);
        self.removed.extend(op.removes_folder);
        for (folder, ino) in &op.unnames {
            self.unnamed.entry(*ino).or_default().insert(*folder);
        }
    }

    fn is_named(&self, ino: Ino) -> bool {
        self.unnamed.contains_key(&ino) || self.targets.contains(&ino)
    }

    fn includes(&self, op: &NameOp) -> bool {
        self.about.meets(op)
            || op.changes.iter().any(|c| self.removed.contains(&c.folder))
            || op.names().any(|(_, ino)| self.is_named(ino))
    }
}

/// What earlier changes would have made, had they not been lost.
#[derive(Debug, Default)]
struct Lost {
    about: About,
    /// Folders that they changed.
    folders: BTreeSet<Ino>,
    /// What has no name because of them, or only one in a folder that has none.
    nameless: BTreeSet<Ino>,
}

impl Lost {
    fn add(&mut self, op: &NameOp, survives: bool) {
        let nameless = op
            .names()
            .filter(|(folder, _)| !survives || self.nameless.contains(folder));
        let nameless: Vec<Ino> = nameless.map(|(_, ino)| ino).collect();
        self.nameless.extend(nameless);
        if !survives {
            self.about.add(op);
            self.folders
                .extend(op.changes.iter().map(|change| change.folder));
        }
    }

    fn is_base_of(&self, op: &NameOp) -> bool {
        self.about.meets(op)
            || op
                .removes_folder
                .is_some_and(|folder| self.folders.contains(&folder))
            || op
                .unnames
                .iter()
                .any(|(_, ino)| self.nameless.contains(ino))
            || (op.is_move()
                && op
                    .names()
                    .any(|(folder, _)| self.nameless.contains(&folder)))
    }
}
