//! One file that the kernel knows.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use gazette_recoverylog_fsm::{Fnode, Kind, Timestamp};

use super::{attributes::Ino, open_mode::Opens};

/// One file that the kernel knows, or of which we have a descriptor.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) ino: Ino,
    pub(super) kind: Kind,
    /// It was never in the log.
    pub(super) is_left_out: bool,
    /// Tells files apart that have one number after another.
    pub(super) generation: u64,
    /// The file in the log. Zero for one that never was in it. Changes only under the lock.
    fnode: AtomicI64,
    state: Mutex<State>,
    /// Held while what was stored through mappings is being recorded. Taken before the state.
    pub(super) catching_up: Mutex<()>,
}

/// What is read and changed under the lock of an inode. Whoever holds it changes the file and
/// records that, so the log has changes of one file in their order.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and any of them go together"
)]
pub(super) struct State {
    /// Changes go into the log: it was in it, and has a name there still, or never had one.
    pub(super) is_recorded: bool,
    /// It was made without a name, and the log does not know yet that nobody has it open any more.
    pub(super) is_unnamed: bool,
    /// The open backing file, for all handles.
    pub(super) file: Option<BackingFile>,
    /// How many handles there are.
    pub(super) opens: Opens,
    /// The kernel wrote the backing file itself, so pages of this mount may be old.
    pub(super) has_old_pages: bool,
    /// Its mtime when it was last seen, while a handle goes around the pages.
    pub(super) seen: Option<Timestamp>,
    /// Something was stored through a mapping that the log does not have.
    pub(super) is_behind: bool,
    /// It may have `security.capability`, which writing takes away.
    pub(super) may_have_capability: bool,
    /// It has set-user-ID or set-group-ID bits that writing takes away. `None` if that was not looked
    /// at since the mode changed.
    pub(super) is_privileged: Option<bool>,
    /// The default access rights of a directory.
    pub(super) default_acl: DefaultAcl,
}

/// The default access rights of a directory.
#[derive(Debug, Clone)]
pub(super) enum DefaultAcl {
    /// They were not looked at since they may have changed.
    Unknown,
    /// There are none.
    None,
    /// These.
    Some(Arc<[u8]>),
}

/// An open file of the backing tree.
#[derive(Debug, Clone)]
pub(super) struct BackingFile {
    pub(super) descriptor: Arc<OwnedFd>,
    pub(super) may_read: bool,
    pub(super) may_write: bool,
}

impl Node {
    /// Creates a node. One with a file in the log is recorded.
    pub(super) fn new(ino: Ino, kind: Kind, fnode: Option<Fnode>) -> Self {
        Self {
            ino,
            kind,
            is_left_out: fnode.is_none(),
            generation: fnode.map_or(0, |fnode| fnode.0.cast_unsigned()),
            fnode: AtomicI64::new(fnode.unwrap_or_default().0),
            catching_up: Mutex::new(()),
            state: Mutex::new(State {
                is_recorded: fnode.is_some(),
                is_unnamed: false,
                file: None,
                opens: Opens::default(),
                has_old_pages: false,
                seen: None,
                is_behind: false,
                may_have_capability: true,
                is_privileged: None,
                default_acl: DefaultAcl::Unknown,
            }),
        }
    }

    /// Locks the inode. The lock of names is taken before this one, never after it.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the file in the log.
    pub(super) fn fnode(&self) -> Fnode {
        Fnode(self.fnode.load(Ordering::Relaxed))
    }

    /// The log has the file under another number from now on. The lock is held.
    pub(super) fn replaced(&self, fnode: Fnode) {
        self.fnode.store(fnode.0, Ordering::Relaxed);
    }
}

/// Locks what no panic leaves half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
