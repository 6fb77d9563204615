//! Stores through mappings of a backing file, which the kernel tells nobody.
//!
//! They are possible only through a handle that goes around the pages of this mount. Each first
//! store to a page that is not dirty changes the mtime, so a file whose mtime nobody here changed has
//! some: then all of its content is recorded again, at fsync and when the handle is closed.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{MutexGuard, TryLockError},
    time::Duration,
};

use gazette_recoverylog_fsm::{Fnode, Mutation, Timestamp};
use rustix::{
    fs::{fdatasync, fstat},
    io::pread,
};

use super::{
    attributes::mtime,
    call::{Call, Patience},
    error::FsError,
    fs::RecordedFs,
    handle::HandleId,
    log::{Hold, Log},
    node::{Node, State, lock},
    open_mode::OpenMode,
};

impl State {
    /// Notes whether something was stored since the file was last seen.
    pub(super) fn look_behind(&mut self, file: impl AsFd) -> rustix::io::Result<()> {
        if let Some(seen) = self.seen {
            self.is_behind |= mtime(&fstat(file)?) != seen;
        }
        Ok(())
    }

    /// The file has this mtime by a change of ours.
    pub(super) fn saw(&mut self, mtime: Timestamp) {
        if self.seen.is_some() {
            self.seen = Some(mtime);
        }
    }
}

impl<L: Log> RecordedFs<L> {
    /// Says whether the log may lack something of a file, so that [`catch_up`](Self::catch_up) is to come before it is
    /// said to be durable: it was stored through a mapping, now or through a handle that is closed.
    pub fn may_be_behind(&self, handle: HandleId) -> bool {
        let handle = self.shared.handles.get(handle);
        handle.is_ok_and(|handle| {
            let is_behind = handle.node.lock().is_behind;
            is_behind || *lock(&handle.mode) == OpenMode::Direct
        })
    }

    /// Records what was stored through mappings of a file. When it returns the log was told all of it, by
    /// this call or by another that was at it already.
    pub fn catch_up(&self, call: &Call<'_>, handle: HandleId) -> Result<(), FsError> {
        let handle = self.shared.handles.get(handle)?;
        let (node, file) = (&handle.node, &*handle.descriptor);
        let _turn = turn(call, node)?;
        // After it no page is dirty, so that the next store is noticed.
        fdatasync(file)?;
        {
            let mut state = node.lock();
            state.look_behind(file)?;
            if !std::mem::take(&mut state.is_behind) || !state.is_recorded {
                return Ok(());
            }
            state.saw(mtime(&fstat(file)?));
        }
        let repeated = self.repeat(call, node, file);
        if repeated.is_err() {
            node.lock().is_behind = true;
        }
        repeated
    }

    /// Records all of a file again.
    fn repeat(&self, call: &Call<'_>, node: &Node, file: &OwnedFd) -> Result<(), FsError> {
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        loop {
            let expected = write(node.fnode(), offset, &buffer, Timestamp::default());
            let reservation = self.reserve(call, &expected)?;
            let state = node.lock();
            let length = pread(file, &mut buffer, offset)?;
            if length == 0 || !state.is_recorded {
                return Ok(());
            }
            let mtime = mtime(&fstat(file)?);
            let mutation = write(node.fnode(), offset, &buffer[..length], mtime);
            self.record_content(reservation, &mutation, node, file);
            drop(state);
            offset += u64::try_from(length).unwrap_or(u64::MAX);
        }
    }
}

/// Waits until no other call records what was stored in a file.
fn turn<'a>(call: &Call<'_>, node: &'a Node) -> Result<MutexGuard<'a, ()>, FsError> {
    loop {
        match node.catching_up.try_lock() {
            Ok(turn) => return Ok(turn),
            Err(TryLockError::Poisoned(turn)) => return Ok(turn.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        match call.patience {
            Patience::None => return Err(Hold::Full.into()),
            Patience::Until(give_up) if give_up() => return Err(Hold::GivenUp.into()),
            Patience::Until(_) => std::thread::sleep(TURN_RETRY),
        }
    }
}

fn write(fnode: Fnode, offset: u64, data: &[u8], mtime: Timestamp) -> Mutation<'_> {
    Mutation::Write {
        fnode,
        offset,
        data,
        mtime,
    }
}

const CHUNK_BYTES: usize = 1 << 20;

/// Rare, and much shorter than what is waited for.
const TURN_RETRY: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
