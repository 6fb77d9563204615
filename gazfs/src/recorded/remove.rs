//! Names that go away or become others: unlink, rmdir, rename.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, MutexGuard},
};

use gazette_recoverylog_fsm::{Kind, Mutation, Place};
use rustix::{
    fs::{AtFlags, RenameFlags, fstat},
    io::Errno,
};

use super::{
    attributes::Ino,
    backing::open_name,
    call::Call,
    error::FsError,
    fs::{RecordedFs, check_name},
    log::Log,
    names::Names,
    node::{Node, State},
};

/// A name and its directory.
#[derive(Debug, Clone, Copy)]
struct At<'a> {
    parent: Ino,
    name: &'a [u8],
}

impl<L: Log> RecordedFs<L> {
    /// Takes a name of a file away.
    pub fn unlink(&self, call: &Call<'_>, parent: Ino, name: &[u8]) -> Result<(), FsError> {
        self.remove(call, At { parent, name }, AtFlags::empty())
    }

    /// Removes an empty directory.
    pub fn remove_directory(
        &self,
        call: &Call<'_>,
        parent: Ino,
        name: &[u8],
    ) -> Result<(), FsError> {
        self.remove(call, At { parent, name }, AtFlags::REMOVEDIR)
    }

    fn remove(&self, call: &Call<'_>, at: At<'_>, flags: AtFlags) -> Result<(), FsError> {
        check_name(at.name)?;
        let above = self.node(at.parent)?;
        let place = Place {
            parent: above.fnode(),
            name: at.name,
        };
        let reservation = self.reserve(call, &Mutation::Unlink { at: place })?;
        let touched = self.reserve_attributes(call, above.fnode())?;

        let mut names = self.names();
        let directory = names.descriptor(self.backing(), at.parent)?;
        let child = open_name(directory.as_fd(), at.name)?;
        let ino = self.backing().ino(fstat(&child)?.st_ino);
        let node = names.get(ino).cloned();
        let mut locked = Locked::all([Some(&above), node.as_ref()]);
        rustix::fs::unlinkat(&directory, at.name, flags)?;
        let _group = self.log().group();
        if self.log().fnode_at(place).is_some() {
            self.record(reservation, &Mutation::Unlink { at: place });
        }
        self.record_directory(touched, &above, &directory)?;
        let is_gone = is_gone(&child, node.as_deref())?;
        if let Some(state) = locked.of(ino).filter(|_| is_gone) {
            state.is_recorded = false;
        }
        names.removed(ino, at.parent, at.name, child);
        Ok(())
    }

    /// Gives a file another name, or exchanges two names.
    pub fn rename(
        &self,
        call: &Call<'_>,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), FsError> {
        let (from, to) = (At::new(from), At::new(to));
        if flags.contains(RenameFlags::WHITEOUT) {
            return Err(Errno::INVAL.into());
        }
        check_name(from.name)?;
        check_name(to.name)?;
        let (below, above) = (self.node(from.parent)?, self.node(to.parent)?);
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let place_from = Place {
            parent: below.fnode(),
            name: from.name,
        };
        let place_to = Place {
            parent: above.fnode(),
            name: to.name,
        };
        let mutation = Mutation::Rename {
            from: place_from,
            to: place_to,
            exchange,
        };
        let reservation = self.reserve(call, &mutation)?;
        let touched_from = self.reserve_attributes(call, below.fnode())?;
        let touched_to = self.reserve_attributes(call, above.fnode())?;

        let mut names = self.names();
        let from_directory = names.descriptor(self.backing(), from.parent)?;
        let to_directory = names.descriptor(self.backing(), to.parent)?;
        let source = self.child(&names, &from_directory, from.name)?;
        let target = match self.child(&names, &to_directory, to.name) {
            Ok(target) => Some(target),
            Err(FsError::System(Errno::NOENT)) => None,
            Err(error) => return Err(error),
        };
        let target_node = target.as_ref().and_then(|target| target.node.clone());
        let nodes = [
            Some(&below),
            Some(&above),
            source.node.as_ref(),
            target_node.as_ref(),
        ];
        let mut locked = Locked::all(nodes);
        if target
            .as_ref()
            .is_some_and(|target| target.ino == source.ino)
        {
            // Two names of one file: both stay.
            return Ok(());
        }
        let is_left_out = |place| self.log().fnode_at(place).is_none();
        if is_left_out(place_from) || exchange && target.is_some() && is_left_out(place_to) {
            // It is not in the log, so it cannot get a name there. Programs copy it then.
            return Err(Errno::XDEV.into());
        }
        rustix::fs::renameat_with(&from_directory, from.name, &to_directory, to.name, flags)?;
        let _group = self.log().group();
        self.record(reservation, &mutation);
        self.record_directory(touched_from, &below, &from_directory)?;
        if from.parent != to.parent {
            self.record_directory(touched_to, &above, &to_directory)?;
        }
        if let Some(target) = target {
            if exchange {
                if names.is_reached_by(target.ino, to.parent, to.name) {
                    names.moved(target.ino, from.parent, from.name);
                }
            } else {
                let is_gone = is_gone(&target.descriptor, target_node.as_deref())?;
                if let Some(state) = locked.of(target.ino).filter(|_| is_gone) {
                    state.is_recorded = false;
                }
                names.removed(target.ino, to.parent, to.name, target.descriptor);
            }
        }
        // Another name of it may be the one through which it is reached.
        if names.is_reached_by(source.ino, from.parent, from.name) {
            names.moved(source.ino, to.parent, to.name);
        }
        Ok(())
    }

    fn child(&self, names: &Names, directory: &OwnedFd, name: &[u8]) -> Result<Child, FsError> {
        let descriptor = open_name(directory.as_fd(), name)?;
        let ino = self.backing().ino(fstat(&descriptor)?.st_ino);
        Ok(Child {
            ino,
            node: names.get(ino).cloned(),
            descriptor,
        })
    }
}

/// What has a name.
struct Child {
    ino: Ino,
    descriptor: OwnedFd,
    node: Option<Arc<Node>>,
}

impl<'a> At<'a> {
    fn new((parent, name): (Ino, &'a [u8])) -> Self {
        Self { parent, name }
    }
}

/// Inodes that are locked, each once. Whoever locks several holds the lock of the names, so nobody
/// waits for another.
struct Locked<'a>(Vec<(Ino, MutexGuard<'a, State>)>);

impl<'a> Locked<'a> {
    fn all<const N: usize>(nodes: [Option<&'a Arc<Node>>; N]) -> Self {
        let mut locked = Self(Vec::with_capacity(N));
        for node in nodes.into_iter().flatten() {
            if locked.of(node.ino).is_none() {
                locked.0.push((node.ino, node.lock()));
            }
        }
        locked
    }

    fn of(&mut self, ino: Ino) -> Option<&mut State> {
        let mut all = self.0.iter_mut();
        all.find(|(locked, _)| *locked == ino)
            .map(|(_, state)| &mut **state)
    }
}

/// Says whether a file has no name any more.
fn is_gone(descriptor: &OwnedFd, node: Option<&Node>) -> rustix::io::Result<bool> {
    let is_directory = node.is_some_and(|node| node.kind == Kind::Directory);
    Ok(is_directory || fstat(descriptor)?.st_nlink == 0)
}
