//! Files that the kernel reads and writes itself.

use std::{
    collections::HashMap,
    io,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{
    fuse::{Backing, wire::OpenFlags},
    recorded::{HandleId, Ino, OpenMode, Opened, RecordedFs, log::Log},
};

/// Hands an open file over to the kernel, if that is its way. If the kernel does not take it, it goes
/// through pages of this mount. `register` gives the file to the kernel.
pub(super) fn hand_over<L: Log>(
    fs: &RecordedFs<L>,
    passing: &Passing,
    node: Ino,
    opened: Opened,
    register: impl FnOnce(BorrowedFd<'_>) -> io::Result<Backing>,
) -> (Opened, Option<Arc<Backing>>) {
    if opened.mode == OpenMode::Cached {
        return (opened, None);
    }
    let register = || {
        let registered = fs.with_backing_file(opened.handle, register);
        registered.unwrap_or_else(|error| Err(error.errno().into()))
    };
    match passing.open(node, opened.handle, register) {
        Ok(backing) => (opened, Some(backing)),
        Err(error) => {
            tracing::info!(err = %error, "the kernel does not read backing files itself");
            (fs.refuse_passthrough(opened), None)
        }
    }
}

/// Pages stay valid over open and close, as nobody else changes files. A close has nothing to wait
/// for.
pub(super) fn fopen_flags(opened: Opened) -> OpenFlags {
    let flags = OpenFlags::NO_FLUSH;
    match opened.mode {
        OpenMode::Cached if opened.keeps_pages => flags.and(OpenFlags::KEEP_PAGES),
        OpenMode::Cached | OpenMode::Passthrough => flags,
        OpenMode::Direct => flags.and(OpenFlags::DIRECT),
    }
}

/// What the kernel has of backing files: one thing for each inode, which all its handles share.
#[derive(Debug, Default)]
pub(super) struct Passing {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    inodes: HashMap<Ino, Weak<Backing>>,
    handles: HashMap<HandleId, (Ino, Arc<Backing>)>,
}

impl Passing {
    /// Returns what the kernel has of a file, and keeps it until the handle is closed. `register`
    /// gives the file to the kernel.
    pub(super) fn open(
        &self,
        ino: Ino,
        handle: HandleId,
        register: impl FnOnce() -> io::Result<Backing>,
    ) -> io::Result<Arc<Backing>> {
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
