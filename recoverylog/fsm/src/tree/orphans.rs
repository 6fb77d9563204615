//! What cannot be reached.

use std::collections::BTreeSet;

use super::{HIDDEN, Tree};
use crate::op::LinkName;
use crate::{Fnode, Mode};

/// A live file, or a link of one, that cannot be reached from the root directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The file.
    pub fnode: Fnode,
    /// The link.
    pub at: LinkName,
}

impl Tree {
    /// Returns what cannot be reached from the root directory. After a whole recovery nothing may be
    /// there.
    pub fn orphans(&self) -> Vec<Orphan> {
        let aside = self.aside.iter();
        let mut orphans: Vec<Orphan> = aside
            .map(|(at, fnode)| Orphan {
                fnode: *fnode,
                at: at.clone(),
            })
            .collect();
        if self.mode == Mode::Compat {
            return orphans;
        }
        let mut reached = BTreeSet::from([Fnode::ROOT]);
        let mut waiting = vec![Fnode::ROOT];
        while let Some(parent) = waiting.pop() {
            let entries = self
                .directories
                .get(&parent)
                .into_iter()
                .flat_map(|held| &held.entries);
            for (name, &fnode) in entries {
                let again = !reached.insert(fnode);
                if self.directories.contains_key(&fnode) {
                    if again {
                        // A directory with two names.
                        orphans.push(Orphan {
                            fnode,
                            at: LinkName {
                                parent,
                                path: name.clone(),
                            },
                        });
                    } else {
                        waiting.push(fnode);
                    }
                }
            }
        }
        for (&fnode, node) in &self.nodes {
            if reached.contains(&fnode) {
                continue;
            }
            for (parent, name) in node.links.iter().filter(|(parent, _)| *parent != HIDDEN) {
                orphans.push(Orphan {
                    fnode,
                    at: LinkName {
                        parent: *parent,
                        path: name.clone(),
                    },
                });
            }
        }
        orphans
    }
}
