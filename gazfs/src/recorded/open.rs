//! Opening and closing.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
};

use gazette_recoverylog_fsm::{Kind, Mutation, SizeChange, Timestamp};
use rustix::{
    fs::{OFlags, fstat, ftruncate},
    io::Errno,
};

use super::{
    attributes::{Ino, mtime},
    call::Call,
    error::FsError,
    fs::RecordedFs,
    handle::{Handle, HandleId},
    log::Log,
    node::{BackingFile, Node, State, lock},
    open_mode::{Class, OpenMode, choose, class},
};

/// How a program opens a file.
#[expect(clippy::struct_excessive_bools, reason = "as open(2) has them")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFlags {
    /// It may read.
    pub may_read: bool,
    /// It may write.
    pub may_write: bool,
    /// The file is emptied.
    pub is_truncating: bool,
    /// The file must be new.
    pub is_exclusive: bool,
}

/// An open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// What the kernel calls it.
    pub handle: HandleId,
    /// How it reads and writes.
    pub mode: OpenMode,
    /// Pages that the kernel has of the file are right.
    pub keeps_pages: bool,
}

/// A file that was made without a name, and that nobody has open any more.
#[derive(Debug)]
pub struct Abandoned(Arc<Handle>);

impl<L: Log> RecordedFs<L> {
    /// Opens a file.
    pub fn open(&self, call: &Call<'_>, ino: Ino, flags: OpenFlags) -> Result<Opened, FsError> {
        if self.log().is_ended() {
            return Err(Errno::IO.into());
        }
        let node = self.node(ino)?;
        if node.kind != Kind::Regular {
            // The kernel opens others itself.
            return Err(Errno::OPNOTSUPP.into());
        }
        let (path, class) = {
            let mut names = self.names();
            let path = names.descriptor(self.backing(), ino)?;
            (path, class(names.last_name(ino), node.is_left_out))
        };
        let (file, opened) = {
            let mut state = node.lock();
            let file = self.open_backing(&mut state, &path, flags)?;
            let opened = self.count_open(&node, &mut state, class, flags.may_write, &file);
            (file, opened)
        };
        if flags.is_truncating
            && let Err(error) = self.resize(call, &node, &file, 0)
        {
            self.close(opened.handle);
            return Err(error);
        }
        Ok(opened)
    }

    /// Adds a handle, and chooses its way. The lock of the inode is held, that of names is not.
    pub(super) fn count_open(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        class: Class,
        may_write: bool,
        file: &Arc<OwnedFd>,
    ) -> Opened {
        let may_pass = self.shared.may_pass.load(Ordering::Relaxed);
        let mode = choose(state.opens, class, may_write, may_pass);
        *state.opens.count(mode) += 1;
        let keeps_pages = match mode {
            OpenMode::Cached => !std::mem::take(&mut state.has_old_pages),
            OpenMode::Direct => {
                self.log().unseen_begun();
                if state.seen.is_none() {
                    state.seen = fstat(file).ok().as_ref().map(mtime);
                }
                true
            }
            OpenMode::Passthrough => {
                state.has_old_pages |= may_write;
                true
            }
        };
        let handles = &self.shared.handles;
        Opened {
            handle: handles.add(Arc::clone(node), Arc::clone(file), mode),
            mode,
            keeps_pages,
        }
    }

    /// Says whether the kernel may read and write backing files itself.
    pub fn allow_passthrough(&self, allowed: bool) {
        self.shared.may_pass.store(allowed, Ordering::Relaxed);
    }

    /// Calls back with the backing file of a handle.
    pub fn with_backing_file<T>(
        &self,
        handle: HandleId,
        work: impl FnOnce(BorrowedFd<'_>) -> T,
    ) -> Result<T, FsError> {
        let handle = self.shared.handles.get(handle)?;
        Ok(work(handle.descriptor.as_fd()))
    }

    /// The kernel does not read and write this backing file itself, so its handle goes through pages
    /// of this mount, and so do all from now on. It was the only one of its inode.
    pub fn refuse_passthrough(&self, opened: Opened) -> Opened {
        self.allow_passthrough(false);
        if let Ok(handle) = self.shared.handles.get(opened.handle) {
            let mut state = handle.node.lock();
            *lock(&handle.mode) = OpenMode::Cached;
            let passing = state.opens.count(OpenMode::Passthrough);
            *passing = passing.saturating_sub(1);
            *state.opens.count(OpenMode::Cached) += 1;
        }
        Opened {
            mode: OpenMode::Cached,
            ..opened
        }
    }

    /// Says whether a handle goes around the pages of this mount.
    pub fn is_direct(&self, handle: HandleId) -> bool {
        let handle = self.shared.handles.get(handle);
        handle.is_ok_and(|handle| *lock(&handle.mode) == OpenMode::Direct)
    }

    /// Tells the log that nobody has a file open any more, if that is still so.
    pub fn forget_unnamed(
        &self,
        call: &Call<'_>,
        Abandoned(handle): &Abandoned,
    ) -> Result<(), FsError> {
        let node = &handle.node;
        let mutation = || Mutation::Release {
            fnode: node.fnode(),
        };
        let reservation = self.reserve(call, &mutation())?;
        let mut state = node.lock();
        if !state.opens.is_empty() {
            // Whoever opened it again closes it.
            return Ok(());
        }
        if state.is_recorded && fstat(&handle.descriptor)?.st_nlink == 0 {
            self.record(reservation, &mutation());
            state.is_recorded = false;
        }
        state.is_unnamed = false;
        Ok(())
    }

    /// Closes a file. One that was made without a name may be [forgotten](Self::forget_unnamed) after its
    /// last handle: which that is shows only now, as others may be closed at the same time.
    pub fn close(&self, handle: HandleId) -> Option<Abandoned> {
        let handle = self.shared.handles.remove(handle)?;
        let mut state = handle.node.lock();
        let mode = *lock(&handle.mode);
        let count = state.opens.count(mode);
        *count = count.saturating_sub(1);
        if mode == OpenMode::Direct {
            let looked = state.look_behind(&handle.descriptor);
            // What is not recorded by now is only if another handle is closed too.
            if looked.is_ok() && !(state.is_behind && state.is_recorded) {
                self.log().unseen_ended();
            }
        }
        if state.opens.direct == 0 {
            state.seen = None;
        }
        if !state.opens.is_empty() {
            return None;
        }
        state.file = None;
        let is_unnamed = state.is_unnamed;
        drop(state);
        is_unnamed.then_some(Abandoned(handle))
    }

    /// Gives a file another size.
    pub(super) fn resize(
        &self,
        call: &Call<'_>,
        node: &Node,
        file: &OwnedFd,
        size: u64,
    ) -> Result<(), FsError> {
        let mutation = |mtime| Mutation::Size {
            fnode: node.fnode(),
            change: SizeChange::Truncate { size },
            mtime,
        };
        let reservation = self.reserve(call, &mutation(Timestamp::default()))?;
        let keeps = call.keeps_privileges();
        let mut losses = self.reserve_losses(call, node, file, keeps)?;

        let mut state = node.lock();
        let _group = losses.may_be_some().then(|| self.log().group());
        if !keeps {
            self.drop_privileges(&mut losses, node, &mut state, file)?;
        }
        state.look_behind(file)?;
        ftruncate(file, size)?;
        if state.is_recorded {
            let mtime = mtime(&fstat(file)?);
            state.saw(mtime);
            let mutation = mutation(mtime);
            self.record_content(reservation, &mutation, node, file);
            self.record_lost_capability(losses, node, &mut state, file);
        }
        Ok(())
    }

    /// Returns the backing file of an inode, whose lock is held. Handles share one: the kernel
    /// checks what each may do.
    pub(super) fn open_backing(
        &self,
        state: &mut State,
        path: &OwnedFd,
        flags: OpenFlags,
    ) -> Result<Arc<OwnedFd>, FsError> {
        if let Some(file) = &state.file
            && (file.may_read || !flags.may_read)
            && (file.may_write || !flags.may_write)
        {
            return Ok(Arc::clone(&file.descriptor));
        }
        let mut file = self.reopen(path, true, true);
        // Without privilege a program may be allowed less than both; then so are we.
        if matches!(file, Err(Errno::ACCESS | Errno::TXTBSY | Errno::ROFS)) {
            file = self.reopen(path, flags.may_read, flags.may_write);
        }
        let file = file?;
        let descriptor = Arc::clone(&file.descriptor);
        state.file = Some(file);
        Ok(descriptor)
    }

    fn reopen(
        &self,
        path: &OwnedFd,
        may_read: bool,
        may_write: bool,
    ) -> rustix::io::Result<BackingFile> {
        let flags = match (may_read, may_write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        let descriptor = self.backing().reopen(path, flags)?;
        Ok(BackingFile {
            descriptor: Arc::new(descriptor),
            may_read,
            may_write,
        })
    }
}

#[cfg(test)]
mod tests;
