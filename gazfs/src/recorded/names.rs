//! How nodes are reached.
//!
//! A node is reached through a name in a directory, so that it needs no descriptor, or, once that
//! name is gone, by a descriptor that is kept. Descriptors of the others are kept as long as there
//! are few.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::{Stat, fstat},
    io::Errno,
};

use super::{
    attributes::Ino,
    backing::{Backing, open_name, stat_name},
    node::Node,
};

/// The nodes, and how they are reached. Under its lock names are changed, so the log has changes
/// of names in their order.
#[derive(Debug)]
pub(super) struct Names {
    entries: HashMap<Ino, Entry>,
    /// Nodes with a descriptor that may be closed, oldest first.
    cached: VecDeque<Ino>,
    cached_max: usize,
}

#[derive(Debug)]
struct Entry {
    node: Arc<Node>,
    /// How often the kernel was told of it, less how often it forgot.
    lookups: u64,
    /// How many nodes are reached through it.
    children: u64,
    reach: Reach,
    /// A descriptor that may be closed.
    descriptor: Option<Arc<OwnedFd>>,
    /// The descriptor was used since it was looked at for closing.
    is_used: bool,
}

#[derive(Debug)]
enum Reach {
    Name { parent: Ino, name: Box<[u8]> },
    Descriptor(Arc<OwnedFd>),
}

impl Names {
    /// Creates the names of a tree that has only its root.
    pub(super) fn new(root: Arc<Node>, descriptor: OwnedFd, cached_max: usize) -> Self {
        let entry = Entry {
            node: root,
            // The kernel never forgets it.
            lookups: 1,
            children: 0,
            reach: Reach::Descriptor(Arc::new(descriptor)),
            descriptor: None,
            is_used: false,
        };
        Self {
            entries: HashMap::from([(Ino::ROOT, entry)]),
            cached: VecDeque::new(),
            cached_max,
        }
    }

    pub(super) fn get(&self, ino: Ino) -> Option<&Arc<Node>> {
        self.entries.get(&ino).map(|entry| &entry.node)
    }

    pub(super) fn node(&self, ino: Ino) -> rustix::io::Result<Arc<Node>> {
        self.get(ino).cloned().ok_or(Errno::STALE)
    }

    /// Returns all that the kernel knows.
    pub(super) fn inos(&self) -> Vec<Ino> {
        self.entries.keys().copied().collect()
    }

    /// Counts that the kernel was told of a node, which is added if it is new.
    pub(super) fn add(&mut self, node: Node, parent: Ino, name: &[u8]) -> Arc<Node> {
        if let Some(known) = self.look_up(node.ino, parent, name) {
            return known;
        }
        self.change_children(parent, 1);
        let node = Arc::new(node);
        let entry = Entry {
            node: Arc::clone(&node),
            lookups: 1,
            children: 0,
            reach: name_of(parent, name),
            descriptor: None,
            is_used: false,
        };
        self.entries.insert(node.ino, entry);
        node
    }

    /// Counts that the kernel was told of a new node that has no name.
    pub(super) fn add_unnamed(&mut self, node: Node, descriptor: Arc<OwnedFd>) -> Arc<Node> {
        let node = Arc::new(node);
        let entry = Entry {
            node: Arc::clone(&node),
            lookups: 1,
            children: 0,
            reach: Reach::Descriptor(descriptor),
            descriptor: None,
            is_used: false,
        };
        self.entries.insert(node.ino, entry);
        node
    }

    /// Counts that the kernel was told of a node, if it is known.
    pub(super) fn look_up(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Option<Arc<Node>> {
        let entry = self.entries.get_mut(&ino)?;
        entry.lookups += 1;
        let node = Arc::clone(&entry.node);
        // It has a name again through which it is reached.
        if ino != Ino::ROOT && matches!(entry.reach, Reach::Descriptor(_)) {
            self.moved(ino, parent, name);
        }
        Some(node)
    }

    /// The kernel forgot a node so many times.
    pub(super) fn forget(&mut self, ino: Ino, lookups: u64) {
        let Some(entry) = self.entries.get_mut(&ino) else {
            return;
        };
        entry.lookups = entry.lookups.saturating_sub(lookups);
        self.drop_unused(ino);
    }

    /// A node is reached through another name now.
    pub(super) fn moved(&mut self, ino: Ino, parent: Ino, name: &[u8]) {
        if self.entries.contains_key(&ino) {
            self.change_children(parent, 1);
            self.set_reach(ino, name_of(parent, name));
        }
    }

    /// A name went away. If the node was reached through it, it is by a descriptor from now on.
    pub(super) fn removed(&mut self, ino: Ino, parent: Ino, name: &[u8], descriptor: OwnedFd) {
        if self.is_reached_by(ino, parent, name) {
            self.set_reach(ino, Reach::Descriptor(Arc::new(descriptor)));
        }
    }

    /// Says whether a node is reached through a name.
    pub(super) fn is_reached_by(&self, ino: Ino, parent: Ino, name: &[u8]) -> bool {
        self.entries.get(&ino).is_some_and(|entry| {
            matches!(&entry.reach, Reach::Name { parent: at, name: by }
                if *at == parent && **by == *name)
        })
    }

    /// Returns the directory and the name through which a node is reached.
    pub(super) fn name_of(&self, ino: Ino) -> Option<(Ino, Box<[u8]>)> {
        match &self.entries.get(&ino)?.reach {
            Reach::Name { parent, name } => Some((*parent, name.clone())),
            Reach::Descriptor(_) => None,
        }
    }

    /// Returns the name through which a node is reached.
    pub(super) fn last_name(&self, ino: Ino) -> Option<&[u8]> {
        match &self.entries.get(&ino)?.reach {
            Reach::Name { name, .. } => Some(name),
            Reach::Descriptor(_) => None,
        }
    }

    /// Returns a descriptor that names a node.
    pub(super) fn descriptor(
        &mut self,
        backing: &Backing,
        ino: Ino,
    ) -> rustix::io::Result<Arc<OwnedFd>> {
        // Not by recursion: a tree may be deeper than the stack.
        let mut wanted = vec![ino];
        let mut found = loop {
            let at = *wanted.last().unwrap_or(&ino);
            let entry = self.entries.get_mut(&at).ok_or(Errno::STALE)?;
            match (&entry.descriptor, &entry.reach) {
                (Some(descriptor), _) => {
                    entry.is_used = true;
                    break Arc::clone(descriptor);
                }
                (None, Reach::Descriptor(descriptor)) => break Arc::clone(descriptor),
                (None, Reach::Name { parent, .. }) => wanted.push(*parent),
            }
        };
        wanted.pop();
        for ino in wanted.into_iter().rev() {
            let entry = self.entries.get(&ino).ok_or(Errno::STALE)?;
            let Reach::Name { name, .. } = &entry.reach else {
                return Err(Errno::STALE);
            };
            let descriptor = open_name(found.as_fd(), name)?;
            check(backing, ino, &fstat(&descriptor)?)?;
            found = self.cache(ino, descriptor);
        }
        Ok(found)
    }

    /// Returns what the backing file system says of a node.
    pub(super) fn stat(&mut self, backing: &Backing, ino: Ino) -> rustix::io::Result<Stat> {
        let entry = self.entries.get(&ino).ok_or(Errno::STALE)?;
        match (&entry.descriptor, &entry.reach) {
            (Some(descriptor), _) | (None, Reach::Descriptor(descriptor)) => fstat(descriptor),
            (None, Reach::Name { parent, name }) => {
                let (parent, name) = (*parent, name.clone());
                let directory = self.descriptor(backing, parent)?;
                let stat = stat_name(directory.as_fd(), &name)?;
                check(backing, ino, &stat)?;
                Ok(stat)
            }
        }
    }

    /// Keeps a descriptor as long as there are few.
    fn cache(&mut self, ino: Ino, descriptor: OwnedFd) -> Arc<OwnedFd> {
        let descriptor = Arc::new(descriptor);
        if let Some(entry) = self.entries.get_mut(&ino) {
            entry.descriptor = Some(Arc::clone(&descriptor));
            self.cached.push_back(ino);
        }
        while self.cached.len() > self.cached_max {
            let Some(oldest) = self.cached.pop_front() else {
                break;
            };
            let Some(entry) = self.entries.get_mut(&oldest) else {
                continue;
            };
            if std::mem::take(&mut entry.is_used) {
                self.cached.push_back(oldest);
            } else {
                entry.descriptor = None;
            }
        }
        descriptor
    }

    /// Changes how a node is reached. Its new parent counts it already.
    fn set_reach(&mut self, ino: Ino, reach: Reach) {
        let Some(entry) = self.entries.get_mut(&ino) else {
            return;
        };
        if let Reach::Name { parent, .. } = std::mem::replace(&mut entry.reach, reach) {
            self.change_children(parent, -1);
        }
    }

    fn change_children(&mut self, parent: Ino, by: i64) {
        if let Some(entry) = self.entries.get_mut(&parent) {
            entry.children = entry.children.saturating_add_signed(by);
        }
        if by < 0 {
            self.drop_unused(parent);
        }
    }

    /// Drops a node that nobody needs, and those through which only it was reached.
    fn drop_unused(&mut self, ino: Ino) {
        let mut next = Some(ino);
        while let Some(ino) = next.take() {
            let is_unused = |entry: &Entry| entry.lookups == 0 && entry.children == 0;
            if ino == Ino::ROOT || !self.entries.get(&ino).is_some_and(is_unused) {
                return;
            }
            if let Some(entry) = self.entries.remove(&ino)
                && let Reach::Name { parent, .. } = entry.reach
                && let Some(above) = self.entries.get_mut(&parent)
            {
                above.children = above.children.saturating_sub(1);
                next = Some(parent);
            }
        }
    }
}

fn name_of(parent: Ino, name: &[u8]) -> Reach {
    Reach::Name {
        parent,
        name: name.into(),
    }
}

/// Checks that a name still leads to the node. Nobody else changes the backing tree.
fn check(backing: &Backing, ino: Ino, stat: &Stat) -> rustix::io::Result<()> {
    if backing.ino(stat.st_ino) == ino {
        Ok(())
    } else {
        Err(Errno::STALE)
    }
}

#[cfg(test)]
mod tests;
