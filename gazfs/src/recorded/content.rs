//! Content of files: reading, writing, holes.

use std::os::fd::OwnedFd;

use gazette_recoverylog_fsm::{AttributeChange, Mutation, SizeChange, Timestamp};
use rustix::{
    fs::{FallocateFlags, SeekFrom, fallocate, fstat},
    io::{Errno, ReadWriteFlags, pwrite},
};

use super::{
    attributes::{mtime, size},
    call::Call,
    error::FsError,
    fs::RecordedFs,
    handle::HandleId,
    log::Log,
    node::{Node, State},
};

/// A write of a program, or of pages that it changed through a mapping.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// To where.
    pub handle: HandleId,
    /// First byte. The kernel knows the end of a file, which nobody else moves, so this is right for
    /// appends too.
    pub offset: u64,
    /// What.
    pub data: &'a [u8],
    /// The writer has no right to keep set-user-ID bits.
    pub drops_privileges: bool,
}

/// What fallocate(2) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// Takes space.
    Take {
        /// The size stays.
        keep_size: bool,
    },
    /// Makes a hole.
    Punch,
    /// Makes zeros.
    Zero {
        /// The size stays.
        keep_size: bool,
    },
}

/// What lseek(2) looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next data.
    Data,
    /// The next hole.
    Hole,
}

impl<L: Log> RecordedFs<L> {
    /// Reads into a buffer. Returns how much.
    pub fn read(&self, handle: HandleId, offset: u64, into: &mut [u8]) -> Result<usize, FsError> {
        self.read_with(handle, offset, into, ReadWriteFlags::empty())
    }

    /// The same, but ends with [`FsError::Held`] if it would have to wait for the disk.
    pub fn try_read(
        &self,
        handle: HandleId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, FsError> {
        match self.read_with(handle, offset, into, ReadWriteFlags::NOWAIT) {
            Err(FsError::System(Errno::AGAIN)) => Err(FsError::Held),
            // Not every file system can tell.
            Err(FsError::System(Errno::OPNOTSUPP)) => self.read(handle, offset, into),
            read => read,
        }
    }

    fn read_with(
        &self,
        handle: HandleId,
        offset: u64,
        into: &mut [u8],
        flags: ReadWriteFlags,
    ) -> Result<usize, FsError> {
        let handle = self.shared.handles.get(handle)?;
        let mut done = 0;
        // A read is short at the end of a file only, or where it would wait.
        while done < into.len() {
            let rest = std::io::IoSliceMut::new(&mut into[done..]);
            let at = offset + u64::try_from(done).unwrap_or(u64::MAX);
            match rustix::io::preadv2(&handle.descriptor, &mut [rest], at, flags) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    /// Writes. Returns how much.
    pub fn write(&self, call: &Call<'_>, write: &Write<'_>) -> Result<usize, FsError> {
        let handle = self.shared.handles.get(write.handle)?;
        let (node, file) = (&handle.node, &*handle.descriptor);
        if write.data.is_empty() {
            return Ok(0);
        }
        let mutation = |data, mtime| Mutation::Write {
            fnode: node.fnode(),
            offset: write.offset,
            data,
            mtime,
        };
        // The large one last: whoever waits for it has little that others wait for.
        let mut losses = self.reserve_losses(call, node, file, !write.drops_privileges)?;
        let is_recorded = node.lock().is_recorded;
        let reservation = is_recorded
            .then(|| self.reserve(call, &mutation(write.data, Timestamp::default())))
            .transpose()?;

        let mut state = node.lock();
        let _group = losses.may_be_some().then(|| self.log().group());
        if write.drops_privileges {
            self.drop_privileges(&mut losses, node, &mut state, file)?;
        }
        state.look_behind(file)?;
        let written = match write_all(file, write.data, write.offset) {
            Ok(written) => written,
            Err(error) => {
                self.record_touched(reservation, node, &mut state, file)?;
                return Err(error.into());
            }
        };
        if let Some(reservation) = reservation.filter(|_| state.is_recorded && written > 0) {
            let mtime = mtime(&fstat(file)?);
            state.saw(mtime);
            let mutation = mutation(&write.data[..written], mtime);
            self.record_content(reservation, &mutation, node, file);
            self.record_lost_capability(losses, node, &mut state, file);
        }
        Ok(written)
    }

    /// Takes space for a part of a file, or makes it zeros or a hole.
    pub fn allocate(
        &self,
        call: &Call<'_>,
        handle: HandleId,
        offset: u64,
        length: u64,
        allocation: Allocation,
    ) -> Result<(), FsError> {
        let handle = self.shared.handles.get(handle)?;
        let (node, file) = (&handle.node, &*handle.descriptor);
        let (flags, change) = match allocation {
            Allocation::Take { keep_size: false } => (FallocateFlags::empty(), None),
            Allocation::Take { keep_size: true } => (FallocateFlags::KEEP_SIZE, None),
            Allocation::Punch => (
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                Some(SizeChange::Punch { offset, length }),
            ),
            Allocation::Zero { keep_size } => {
                let kept = if keep_size {
                    FallocateFlags::KEEP_SIZE
                } else {
                    FallocateFlags::empty()
                };
                let change = SizeChange::Zero {
                    offset,
                    length,
                    keep_size,
                };
                (FallocateFlags::ZERO_RANGE | kept, Some(change))
            }
        };
        let growth = SizeChange::Truncate {
            size: offset.saturating_add(length),
        };
        let mutation = |change, mtime| Mutation::Size {
            fnode: node.fnode(),
            change,
            mtime,
        };
        let reservation = self.reserve(
            call,
            &mutation(change.unwrap_or(growth), Timestamp::default()),
        )?;
        let touched = self.reserve_attributes(call, node.fnode())?;
        let keeps = call.keeps_privileges();
        let mut losses = self.reserve_losses(call, node, file, keeps)?;

        let mut state = node.lock();
        let _group = losses.may_be_some().then(|| self.log().group());
        if !keeps {
            self.drop_privileges(&mut losses, node, &mut state, file)?;
        }
        state.look_behind(file)?;
        let before = fstat(file)?;
        if let Err(error) = fallocate(file, flags, offset, length) {
            self.record_touched(Some(touched), node, &mut state, file)?;
            return Err(error.into());
        }
        let after = fstat(file)?;
        if state.is_recorded {
            let mtime = mtime(&after);
            state.saw(mtime);
            match change {
                Some(change) => {
                    let mutation = mutation(change, mtime);
                    self.record_content(reservation, &mutation, node, file);
                }
                None if size(&after) != size(&before) => {
                    let mutation = mutation(growth, mtime);
                    self.record_content(reservation, &mutation, node, file);
                }
                // Space alone is not content.
                None => self.record_touched(Some(touched), node, &mut state, file)?,
            }
        }
        self.record_lost_capability(losses, node, &mut state, file);
        Ok(())
    }

    /// Records the mtime: also a change that fails for want of space sets it. The lock of the inode
    /// is held.
    fn record_touched(
        &self,
        reservation: Option<L::Reservation>,
        node: &Node,
        state: &mut State,
        file: &OwnedFd,
    ) -> rustix::io::Result<()> {
        if let Some(reservation) = reservation.filter(|_| state.is_recorded) {
            let mtime = mtime(&fstat(file)?);
            state.saw(mtime);
            let change = AttributeChange {
                mtime: Some(mtime),
                ..AttributeChange::default()
            };
            self.record_attributes(reservation, node, change);
        }
        Ok(())
    }

    /// Finds data or a hole.
    pub fn seek(&self, handle: HandleId, offset: u64, what: Seek) -> Result<u64, FsError> {
        let handle = self.shared.handles.get(handle)?;
        let from = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        // The position of the backing file means nothing else.
        Ok(rustix::fs::seek(&handle.descriptor, from)?)
    }
}

/// Writes as much as possible. What was written before an error counts.
fn write_all(file: &OwnedFd, data: &[u8], offset: u64) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < data.len() {
        let at = offset + u64::try_from(done).unwrap_or(u64::MAX);
        match pwrite(file, &data[done..], at) {
            Ok(0) => break,
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(error) if done == 0 => return Err(error),
            // The program learns of it with its next write.
            Err(_) => break,
        }
    }
    Ok(done)
}
