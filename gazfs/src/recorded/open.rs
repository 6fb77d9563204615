//! Opening and closing.

use std::{os::fd::OwnedFd, sync::Arc};

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
    handle::HandleId,
    log::Log,
    node::{BackingFile, Node, State},
};

/// How a program opens a file.
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
}

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
        let path = self.descriptor(ino)?;
        let file = {
            let mut state = node.lock();
            let file = self.open_backing(&mut state, &path, flags)?;
            state.opens += 1;
            file
        };
        if flags.is_truncating
            && let Err(error) = self.resize(call, &node, &file, 0)
        {
            closed(&mut node.lock());
            return Err(error);
        }
        let handle = self.shared.handles.add(node, file);
        Ok(Opened { handle })
    }

    /// Closes a file.
    pub fn close(&self, handle: HandleId) {
        if let Some(handle) = self.shared.handles.remove(handle) {
            closed(&mut handle.node.lock());
        }
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
        if !keeps {
            self.drop_privileges(&mut losses, node, &mut state, file)?;
        }
        ftruncate(file, size)?;
        if state.is_recorded {
            let mutation = mutation(mtime(&fstat(file)?));
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

/// One handle less.
fn closed(state: &mut State) {
    state.opens = state.opens.saturating_sub(1);
    if state.opens == 0 {
        state.file = None;
    }
}
