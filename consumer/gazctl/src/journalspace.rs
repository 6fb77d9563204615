//! Journal specs as a tree, in which a folder states once what all below it have in common.
//!
//! A tree is what `journals list -o yaml` prints and `journals apply` reads. It has two forms with
//! the same meaning: *hoisted*, for people, and *pushed down*, in which every journal's spec is
//! complete. Everything here is pure.

use gazette_protocol::{
    JournalSpec, LabelSet, apply_request::Change, journal_name, journal_spec, list_response,
};
use thiserror::Error;

pub(crate) mod yaml;

/// A folder, whose name is empty or ends in `/`, or a journal.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Node {
    /// A note for people that no broker sees.
    pub(crate) comment: String,
    /// Whether to delete the journal, or the journals below that do not say otherwise.
    pub(crate) delete: Option<bool>,
    /// Spec of the journal, or what the journals below it inherit.
    pub(crate) spec: JournalSpec,
    /// Whether an empty list of stores is meant, and not that the folder's are inherited.
    pub(crate) no_stores: bool,
    /// Revision at which the journal is expected: 0 is absent, -1 is any.
    pub(crate) revision: i64,
    /// What is below a folder, in the order of the names.
    pub(crate) children: Vec<Self>,
}

/// What is wrong with a tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum TreeError {
    /// A folder without anything below it.
    #[error(
        "folder {name:?} has no children; next: add some, or write a journal's name without \
             a slash at its end"
    )]
    NoChildren { name: String },
    /// A journal with something below it.
    #[error("journal {name:?} has children; next: end the name of a folder with a slash")]
    JournalWithChildren { name: String },
    /// A folder is no key of the coordination store and has no revision.
    #[error("folder {name:?} has revision {revision}; next: give revisions to its journals only")]
    FolderWithRevision { name: String, revision: i64 },
    /// A child outside of its folder.
    #[error("{child:?} is not below its folder {folder:?}; next: write the whole name")]
    NotBelow { folder: String, child: String },
    /// Children out of order, or the same one twice.
    #[error(
        "children of {folder:?} are not in order: {first:?} is followed by {second:?}; next: \
             sort them by name"
    )]
    Disordered {
        folder: String,
        first: String,
        second: String,
    },
    /// A name that no journal may have.
    #[error("journal {name:?}: {cause}; next: choose another name")]
    Name { name: String, cause: String },
}

impl Node {
    /// Arranges the journals of a listing as a hoisted tree.
    pub(crate) fn from_listing(journals: &[list_response::Journal]) -> Self {
        let mut leaves: Vec<Self> = journals
            .iter()
            .map(|journal| Self {
                spec: journal.spec.clone(),
                revision: journal.mod_revision,
                ..Self::default()
            })
            .collect();
        leaves.sort_by(|a, b| a.name().cmp(b.name()));
        let mut tree = Self::from_leaves(leaves);
        tree.hoist();
        tree
    }

    /// Arranges journals, which are in order, as a tree with a folder wherever two or more of them
    /// have a longer path in common. Each journal keeps all of its spec.
    pub(crate) fn from_leaves(mut leaves: Vec<Self>) -> Self {
        match leaves.len() {
            0 => Self::default(),
            1 => leaves.remove(0),
            _ => {
                let folder = common_folder(&leaves).len();
                let name = leaves[0].name()[..folder].to_owned();
                let mut children = Vec::new();
                let mut rest = leaves.into_iter().peekable();
                while let Some(first) = rest.next() {
                    // Names with the same next component are neighbours, as they are in order.
                    let below = next_folder(first.name(), folder).map(str::to_owned);
                    let mut run = vec![first];
                    if let Some(below) = below {
                        while let Some(next) = rest.next_if(|next| next.name().starts_with(&below))
                        {
                            run.push(next);
                        }
                    }
                    children.push(Self::from_leaves(run));
                }
                Self {
                    spec: named(name),
                    children,
                    ..Self::default()
                }
            }
        }
    }

    /// Returns the full name.
    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    /// Reports whether this is a folder.
    pub(crate) fn is_folder(&self) -> bool {
        self.name().is_empty() || self.name().ends_with('/')
    }

    /// Checks the shape of the tree. Specs may be partial, and are not looked at.
    pub(crate) fn validate(&self) -> Result<(), TreeError> {
        let name = self.name().to_owned();
        if !self.is_folder() {
            if !self.children.is_empty() {
                return Err(TreeError::JournalWithChildren { name });
            }
            return journal_name::validate(&name).map_err(|error| TreeError::Name {
                name,
                cause: error.to_string(),
            });
        }
        if self.revision != 0 {
            return Err(TreeError::FolderWithRevision {
                name,
                revision: self.revision,
            });
        }
        if self.children.is_empty() {
            return Err(TreeError::NoChildren { name });
        }
        for child in &self.children {
            let child_name = child.name();
            if !child_name.starts_with(&name) || child_name == name {
                return Err(TreeError::NotBelow {
                    folder: name,
                    child: child_name.to_owned(),
                });
            }
        }
        for pair in self.children.windows(2) {
            let (first, second) = (pair[0].name(), pair[1].name());
            if first >= second {
                let (first, second) = (first.to_owned(), second.to_owned());
                return Err(TreeError::Disordered {
                    folder: name,
                    first,
                    second,
                });
            }
        }
        self.children.iter().try_for_each(Self::validate)
    }

    /// Moves what all children of a folder have in common up into the folder.
    ///
    /// What a folder said before is replaced: push down first.
    pub(crate) fn hoist(&mut self) {
        for child in &mut self.children {
            child.hoist();
        }
        let Some((first, others)) = self.children.split_first() else {
            return;
        };
        let mut common = first.spec.clone();
        let mut delete = first.delete;
        for other in others {
            common = intersect(&common, &other.spec);
            if other.delete != delete {
                delete = None;
            }
        }
        for child in &mut self.children {
            child.spec = subtract(&child.spec, &common);
            if delete.is_some() {
                child.delete = None;
            }
        }
        self.name().clone_into(&mut common.name);
        common.suspend = None;
        self.spec = common;
        self.delete = delete;
    }

    /// Gives every child what its folder says and it does not: a field that is zero, a label of
    /// which it has no value. So a child cannot replace something by zero, except the stores by an
    /// empty list.
    ///
    /// Suspension is of one journal and is never inherited.
    pub(crate) fn push_down(&mut self) {
        for child in &mut self.children {
            let stores_of_its_own = child.no_stores || !child.spec.fragment.stores.is_empty();
            child.spec = union(&child.spec, &self.spec);
            if child.no_stores {
                child.spec.fragment.stores.clear();
            }
            child.no_stores |= self.no_stores && !stores_of_its_own;
            child.delete = child.delete.or(self.delete);
            child.push_down();
        }
    }

    /// Adds the journals, in order, to `leaves`.
    pub(crate) fn leaves(&self) -> Vec<&Self> {
        let mut leaves = Vec::new();
        self.collect_leaves(&mut leaves);
        leaves
    }

    fn collect_leaves<'a>(&'a self, leaves: &mut Vec<&'a Self>) {
        if self.children.is_empty() && !self.is_folder() {
            leaves.push(self);
        }
        for child in &self.children {
            child.collect_leaves(leaves);
        }
    }

    /// Merges a journal into a tree that is pushed down: what the patch says replaces what is
    /// there, and a journal that is not there is put in its place.
    pub(crate) fn patch(&mut self, patch: Self) {
        let mine = self.name().to_owned();
        if mine == patch.name() && !self.is_folder() {
            self.spec = union(&patch.spec, &self.spec);
            if patch.no_stores {
                self.spec.fragment.stores.clear();
            }
            self.delete = patch.delete.or(self.delete);
            if !patch.comment.is_empty() {
                self.comment = patch.comment;
            }
            if patch.revision != 0 {
                self.revision = patch.revision;
            }
            return;
        }
        if !self.is_folder() || !patch.name().starts_with(&mine) {
            // Both get a folder without a name above them.
            let before = std::mem::take(self);
            self.children = vec![before, patch];
            self.children.sort_by(|a, b| a.name().cmp(b.name()));
            return;
        }
        let below = self.children.iter_mut().find(|child| {
            child.name() == patch.name()
                || (child.is_folder() && patch.name().starts_with(child.name()))
        });
        if let Some(child) = below {
            child.patch(patch);
        } else {
            let at = self
                .children
                .partition_point(|child| child.name() < patch.name());
            self.children.insert(at, patch);
        }
    }

    /// Returns what has to be applied so that the journals are as this tree, which is pushed down,
    /// says.
    pub(crate) fn to_changes(&self) -> Vec<Change> {
        let change = |leaf: &Self| {
            let expect_mod_revision = leaf.revision;
            if leaf.delete == Some(true) {
                Change {
                    expect_mod_revision,
                    delete: leaf.name().to_owned(),
                    ..Change::default()
                }
            } else {
                let upsert = Some(leaf.spec.clone());
                Change {
                    expect_mod_revision,
                    upsert,
                    ..Change::default()
                }
            }
        };
        self.leaves().into_iter().map(change).collect()
    }
}

/// Returns the longest folder that holds all of `leaves`, with its slash.
fn common_folder(leaves: &[Node]) -> &str {
    let first = leaves.first().map_or("", Node::name);
    // The first and the last in order differ earliest.
    let last = leaves.last().map_or("", Node::name);
    let same = first
        .bytes()
        .zip(last.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let end = first.as_bytes()[..same]
        .iter()
        .rposition(|byte| *byte == b'/');
    &first[..end.map_or(0, |slash| slash + 1)]
}

/// Returns the folder below the one of `length` bytes in which `name` is, if there is one.
fn next_folder(name: &str, length: usize) -> Option<&str> {
    let slash = name[length..].find('/')?;
    Some(&name[..=length + slash])
}

fn named(name: String) -> JournalSpec {
    JournalSpec {
        name,
        ..JournalSpec::default()
    }
}

/// Returns `spec` with what it leaves open filled in from `base`.
fn union(spec: &JournalSpec, base: &JournalSpec) -> JournalSpec {
    let (fragment, below) = (&spec.fragment, &base.fragment);
    JournalSpec {
        name: spec.name.clone(),
        replication: or(&spec.replication, &base.replication),
        labels: LabelSet::union(&spec.labels, &base.labels),
        fragment: journal_spec::Fragment {
            length: or(&fragment.length, &below.length),
            compression_codec: or(&fragment.compression_codec, &below.compression_codec),
            stores: or(&fragment.stores, &below.stores),
            refresh_interval: or(&fragment.refresh_interval, &below.refresh_interval),
            retention: or(&fragment.retention, &below.retention),
            flush_interval: or(&fragment.flush_interval, &below.flush_interval),
            path_postfix_template: or(
                &fragment.path_postfix_template,
                &below.path_postfix_template,
            ),
        },
        flags: or(&spec.flags, &base.flags),
        max_append_rate: or(&spec.max_append_rate, &base.max_append_rate),
        suspend: spec.suspend,
    }
}

/// Returns what both specs say.
fn intersect(a: &JournalSpec, b: &JournalSpec) -> JournalSpec {
    let (fa, fb) = (&a.fragment, &b.fragment);
    JournalSpec {
        name: String::new(),
        replication: same(&a.replication, &b.replication),
        labels: LabelSet::intersect(&a.labels, &b.labels),
        fragment: journal_spec::Fragment {
            length: same(&fa.length, &fb.length),
            compression_codec: same(&fa.compression_codec, &fb.compression_codec),
            stores: same(&fa.stores, &fb.stores),
            refresh_interval: same(&fa.refresh_interval, &fb.refresh_interval),
            retention: same(&fa.retention, &fb.retention),
            flush_interval: same(&fa.flush_interval, &fb.flush_interval),
            path_postfix_template: same(&fa.path_postfix_template, &fb.path_postfix_template),
        },
        flags: same(&a.flags, &b.flags),
        max_append_rate: same(&a.max_append_rate, &b.max_append_rate),
        suspend: None,
    }
}

/// Returns what `a` says and `b` does not.
fn subtract(a: &JournalSpec, b: &JournalSpec) -> JournalSpec {
    let (fa, fb) = (&a.fragment, &b.fragment);
    JournalSpec {
        name: a.name.clone(),
        replication: without(&a.replication, &b.replication),
        labels: LabelSet::subtract(&a.labels, &b.labels),
        fragment: journal_spec::Fragment {
            length: without(&fa.length, &fb.length),
            compression_codec: without(&fa.compression_codec, &fb.compression_codec),
            stores: without(&fa.stores, &fb.stores),
            refresh_interval: without(&fa.refresh_interval, &fb.refresh_interval),
            retention: without(&fa.retention, &fb.retention),
            flush_interval: without(&fa.flush_interval, &fb.flush_interval),
            path_postfix_template: without(&fa.path_postfix_template, &fb.path_postfix_template),
        },
        flags: without(&a.flags, &b.flags),
        max_append_rate: without(&a.max_append_rate, &b.max_append_rate),
        suspend: a.suspend,
    }
}

fn or<T: Default + PartialEq + Clone>(value: &T, otherwise: &T) -> T {
    if *value == T::default() {
        otherwise.clone()
    } else {
        value.clone()
    }
}

fn same<T: Default + PartialEq + Clone>(a: &T, b: &T) -> T {
    if a == b { a.clone() } else { T::default() }
}

fn without<T: Default + PartialEq + Clone>(a: &T, b: &T) -> T {
    if a == b { T::default() } else { a.clone() }
}

#[cfg(test)]
mod tests;
