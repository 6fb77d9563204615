//! Content that the log says again, so that its oldest part may go.

use std::os::fd::{AsFd, OwnedFd};

use gazette_recoverylog_fsm::{Fnode, Kind};
use rustix::{
    fs::OFlags,
    io::{Errno, pread},
};

use super::{attributes::Ino, error::FsError, fs::RecordedFs, log::Log};

impl<L: Log> RecordedFs<L> {
    /// Reads content of a file that has a path, and has it recorded before anything changes the file. Returns whether
    /// it was: not if the path leads to another file by now, nor where a program may store through a mapping that does
    /// not come here, so that the file may be ahead of the log.
    pub fn repeat_content(
        &self,
        path: &[Vec<u8>],
        fnode: Fnode,
        offset: u64,
        buffer: &mut [u8],
        record: impl FnOnce(&[u8]),
    ) -> Result<bool, FsError> {
        let mut known = Vec::new();
        let repeated = self
            .walk(path, &mut known)
            .and_then(|ino| self.repeat_node(ino, fnode, offset, buffer, record));
        for ino in known.into_iter().rev() {
            self.forget(ino, 1);
        }
        match repeated {
            Err(FsError::System(Errno::NOENT | Errno::NOTDIR | Errno::STALE)) => Ok(false),
            repeated => repeated,
        }
    }

    /// Goes along a path. Each file on it is known until it is forgotten.
    fn walk(&self, path: &[Vec<u8>], known: &mut Vec<Ino>) -> Result<Ino, FsError> {
        let mut at = Ino::ROOT;
        for name in path {
            at = self.look_up(at, name)?.ino;
            known.push(at);
        }
        Ok(at)
    }

    fn repeat_node(
        &self,
        ino: Ino,
        fnode: Fnode,
        offset: u64,
        buffer: &mut [u8],
        record: impl FnOnce(&[u8]),
    ) -> Result<bool, FsError> {
        let node = self.node(ino)?;
        if node.kind != Kind::Regular || node.fnode() != fnode {
            return Ok(false);
        }
        let descriptor = self.descriptor(ino)?;
        let file = self.backing().reopen(descriptor, OFlags::RDONLY)?;
        // It waits for the disk here, where nobody waits for it.
        read(&file, offset, buffer)?;
        let mut state = node.lock();
        state.look_behind(&file)?;
        let may_be_ahead = state.is_behind || state.opens.direct > 0;
        if !state.is_recorded || may_be_ahead || node.fnode() != fnode {
            return Ok(false);
        }
        let length = read(&file, offset, buffer)?;
        record(&buffer[..length]);
        Ok(true)
    }
}

/// Reads until the file or the buffer ends. Returns how much there was.
fn read(file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let at = offset + u64::try_from(done).unwrap_or(u64::MAX);
        match pread(file.as_fd(), &mut buffer[done..], at) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
