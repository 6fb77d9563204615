//! Open files and directories.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::io::Errno;

use super::{
    node::{Node, lock},
    open_mode::OpenMode,
};

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandleId(pub u64);

/// What is open.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) node: Arc<Node>,
    /// The backing file. Handles of one inode share it.
    pub(super) descriptor: Arc<OwnedFd>,
    /// How it reads and writes.
    pub(super) mode: Mutex<OpenMode>,
    /// Where a directory is read next.
    pub(super) position: Mutex<u64>,
}

/// All that is open.
#[derive(Debug, Default)]
pub(super) struct Handles {
    last: AtomicU64,
    open: Mutex<HashMap<HandleId, Arc<Handle>>>,
}

impl Handles {
    pub(super) fn add(
        &self,
        node: Arc<Node>,
        descriptor: Arc<OwnedFd>,
        mode: OpenMode,
    ) -> HandleId {
        let id = HandleId(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let handle = Handle {
            node,
            descriptor,
            mode: Mutex::new(mode),
            position: Mutex::new(0),
        };
        lock(&self.open).insert(id, Arc::new(handle));
        id
    }

    pub(super) fn get(&self, id: HandleId) -> rustix::io::Result<Arc<Handle>> {
        lock(&self.open).get(&id).cloned().ok_or(Errno::BADF)
    }

    pub(super) fn remove(&self, id: HandleId) -> Option<Arc<Handle>> {
        lock(&self.open).remove(&id)
    }
}
