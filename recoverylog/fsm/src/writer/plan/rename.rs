//! Renames. No step may take a file's last link: it would be gone.

use super::{DIRECTORY_RENAME_LINKS_MAX, Mismatch, Plan, Planner, Refusal, Step, WriteError};
use crate::op::{Body, LinkName};
use crate::tree::hidden;
use crate::{Fnode, Kind, Mode, Place};

impl Planner<'_> {
    pub(super) fn rename<'m>(
        &self,
        from: Place<'_>,
        to: Place<'_>,
    ) -> Result<Plan<'m>, WriteError> {
        let (fnode, kind) = self.entry(from)?;
        if let Some(path) = self.property_path(to) {
            return self.rename_onto_property(from, fnode, kind, path);
        }
        self.new_name(to, kind)?;
        self.check_not_within(fnode, kind, to)?;
        let mut steps = Vec::new();
        if let Some(replaced) = self.tree.lookup(to.parent, to.name) {
            if replaced == fnode {
                // Two names of one file: nothing happens.
                return Ok(Plan::default());
            }
            steps.push(self.unlinked(to)?);
        }
        for (fnode, old, new) in self.moves(fnode, kind, from, to)? {
            steps.push(Step::Op(Body::Link { fnode, at: new }));
            steps.push(Step::Op(Body::Unlink { fnode, at: old }));
        }
        Ok(Plan {
            steps,
            ..Plan::default()
        })
    }

    fn rename_onto_property<'m>(
        &self,
        from: Place<'_>,
        fnode: Fnode,
        kind: Kind,
        path: bytes::Bytes,
    ) -> Result<Plan<'m>, WriteError> {
        let size = self
            .tree
            .attributes(fnode)
            .map_or(0, |attributes| attributes.size);
        if kind != Kind::Regular || size > u64::from(crate::FRAME_BYTES_MAX) / 2 {
            return Err(Refusal::Property.into());
        }
        let steps = vec![Step::Property { path, length: size }, self.unlinked(from)?];
        Ok(Plan {
            steps,
            ..Plan::default()
        })
    }

    pub(super) fn exchange<'m>(
        &self,
        one: Place<'_>,
        other: Place<'_>,
    ) -> Result<Plan<'m>, WriteError> {
        let (first, first_kind) = self.entry(one)?;
        let (second, second_kind) = self.entry(other)?;
        if first == second {
            return Ok(Plan::default());
        }
        self.check_not_within(first, first_kind, other)?;
        self.check_not_within(second, second_kind, one)?;
        let first_moves = self.moves(first, first_kind, one, other)?;
        let second_moves = self.moves(second, second_kind, other, one)?;
        // The first goes out of sight, the second takes its place, and the first that of the second.
        let aside = hidden(self.tree.mode(), self.next_seq_no);
        let base = self.link_name(one, Kind::Regular)?.path.len();
        let aside_of = |old: &LinkName| {
            let mut path = aside.path.to_vec();
            if self.tree.mode() == Mode::Compat {
                path.extend_from_slice(&old.path[base..]);
            }
            LinkName {
                parent: Fnode::ROOT,
                path: path.into(),
            }
        };
        let mut steps = Vec::new();
        let mut relink = |fnode, old, new| {
            steps.push(Step::Op(Body::Link { fnode, at: new }));
            steps.push(Step::Op(Body::Unlink { fnode, at: old }));
        };
        for (fnode, old, _) in &first_moves {
            relink(*fnode, old.clone(), aside_of(old));
        }
        for (fnode, old, new) in second_moves {
            relink(fnode, old, new);
        }
        for (fnode, old, new) in first_moves {
            relink(fnode, aside_of(&old), new);
        }
        Ok(Plan {
            steps,
            ..Plan::default()
        })
    }

    fn check_not_within(&self, fnode: Fnode, kind: Kind, to: Place<'_>) -> Result<(), WriteError> {
        if kind == Kind::Directory && self.tree.is_within(to.parent, fnode) {
            return Err(Mismatch::Directory.into());
        }
        Ok(())
    }

    /// Returns the links that move: all below a directory in a `compat` log.
    fn moves(
        &self,
        fnode: Fnode,
        kind: Kind,
        from: Place<'_>,
        to: Place<'_>,
    ) -> Result<Vec<(Fnode, LinkName, LinkName)>, WriteError> {
        if self.tree.mode() == Mode::Native || kind != Kind::Directory {
            let (old, new) = (self.link_name(from, kind)?, self.link_name(to, kind)?);
            return Ok(vec![(fnode, old, new)]);
        }
        let (old, new) = (
            self.link_name(from, Kind::Regular)?,
            self.link_name(to, Kind::Regular)?,
        );
        let below = self.tree.links_below(fnode, DIRECTORY_RENAME_LINKS_MAX);
        let below = below.ok_or(Refusal::DirectoryTooLarge)?;
        let is_under = |path: &[u8]| {
            path.strip_prefix(&*old.path)
                .is_some_and(|rest| rest.first() == Some(&b'/'))
        };
        if self.properties.keys().any(|path| is_under(path)) {
            return Err(Refusal::Property.into());
        }
        let named = |base: &LinkName, rest: &[u8]| LinkName {
            parent: Fnode::ROOT,
            path: [&base.path, rest].concat().into(),
        };
        let moves = below
            .iter()
            .map(|(rest, fnode)| (*fnode, named(&old, rest), named(&new, rest)));
        Ok(moves.collect())
    }
}
