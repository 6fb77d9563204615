//! Files that the kernel reads and writes itself.

use std::{
    collections::HashMap,
    io,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use fuser::BackingId;

use crate::recorded::{HandleId, Ino};

/// What the kernel has of backing files: one thing for each inode, which all its handles share.
#[derive(Debug, Default)]
pub(super) struct Passing {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    inodes: HashMap<Ino, Weak<BackingId>>,
    handles: HashMap<HandleId, (Ino, Arc<BackingId>)>,
}

impl Passing {
    /// Returns what the kernel has of a file, and keeps it until the handle is closed. `register`
    /// gives the file to the kernel.
    pub(super) fn open(
        &self,
        ino: Ino,
        handle: HandleId,
        register: impl FnOnce() -> io::Result<BackingId>,
    ) -> io::Result<Arc<BackingId>> {
        let mut state = self.lock();
        let known = state.inodes.get(&ino).and_then(Weak::upgrade);
        let backing = match known {
            Some(backing) => backing,
            None => Arc::new(register()?),
        };
        state.inodes.insert(ino, Arc::downgrade(&backing));
        state.handles.insert(handle, (ino, Arc::clone(&backing)));
        Ok(backing)
    }

    pub(super) fn close(&self, handle: HandleId) {
        let mut state = self.lock();
        if let Some((ino, backing)) = state.handles.remove(&handle) {
            drop(backing);
            if state
                .inodes
                .get(&ino)
                .is_some_and(|backing| backing.strong_count() == 0)
            {
                state.inodes.remove(&ino);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What gives a backing file to the kernel.
pub(super) trait OpensBacking {
    fn register(&self, file: BorrowedFd<'_>) -> io::Result<BackingId>;
}

impl OpensBacking for fuser::ReplyOpen {
    fn register(&self, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        self.open_backing(file)
    }
}

impl OpensBacking for fuser::ReplyCreate {
    fn register(&self, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        self.open_backing(file)
    }
}
