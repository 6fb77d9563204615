//! What changed since the allocator looked, kept up to date change by change.
//!
//! With ten thousand items, looking at all of them each time one changes would be quadratic work.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use gazette_keyspace::Change;
use gazette_protocol::process_spec::Id;

use crate::{Decoded, Schema};

/// Assignments of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// All.
    pub assigned: usize,
    /// Those in slot 0.
    pub primary: usize,
}

/// Follows the changes of a key space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracker {
    loads: BTreeMap<Id, Load>,
    dirty: BTreeSet<String>,
    network_changed: bool,
}

impl Tracker {
    /// Takes changes in, in order. The first ones must be the insertions of all entries.
    pub fn apply<S: Schema>(&mut self, changes: &[Change<Decoded<S>>]) {
        for change in changes {
            let before = change.before.as_ref().map(|entry| &entry.decoded);
            let after = change.after.as_ref().map(|entry| &entry.decoded);
            if let Some(Decoded::Assignment(gone)) = before {
                let load = self.loads.entry(gone.member.clone()).or_default();
                load.assigned -= 1;
                load.primary -= usize::from(gone.slot == 0);
                if *load == Load::default() {
                    self.loads.remove(&gone.member);
                }
            }
            if let Some(Decoded::Assignment(new)) = after {
                let load = self.loads.entry(new.member.clone()).or_default();
                load.assigned += 1;
                load.primary += usize::from(new.slot == 0);
            }
            match after.or(before) {
                Some(Decoded::Assignment(assignment)) => {
                    self.dirty.insert(assignment.item.clone());
                }
                Some(Decoded::Item(item)) => {
                    self.dirty.insert(item.id.clone());
                    self.network_changed |= demand(before) != demand(after);
                }
                Some(Decoded::Member(_)) => self.network_changed |= supply(before) != supply(after),
                None => {}
            }
        }
    }

    /// Assignments of a member.
    pub fn load(&self, member: &Id) -> Load {
        self.loads.get(member).copied().unwrap_or_default()
    }

    /// Assignments of all members that have any.
    pub fn loads(&self) -> &BTreeMap<Id, Load> {
        &self.loads
    }

    /// Whether something changed that the solution depends on. Forgets it.
    pub fn take_network_changed(&mut self) -> bool {
        std::mem::take(&mut self.network_changed)
    }

    /// Items of which something changed. Forgets them.
    pub fn take_dirty(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.dirty)
    }
}

fn demand<S: Schema>(decoded: Option<&Decoded<S>>) -> Option<usize> {
    match decoded {
        Some(Decoded::Item(item)) => Some(S::replication(&item.spec)),
        Some(Decoded::Member(_) | Decoded::Assignment(_)) | None => None,
    }
}

fn supply<S: Schema>(decoded: Option<&Decoded<S>>) -> Option<(usize, bool)> {
    match decoded {
        Some(Decoded::Member(member)) => {
            Some((S::limit(&member.spec), S::is_exiting(&member.spec)))
        }
        Some(Decoded::Item(_) | Decoded::Assignment(_)) | None => None,
    }
}
