//! Changes of attributes: chmod, chown, truncate, utimens.

use std::os::fd::OwnedFd;

use gazette_recoverylog_fsm::{AttributeChange, Kind, Timestamp};
use rustix::{
    fs::{AtFlags, Gid, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, fstat, utimensat},
    io::Errno,
};

use super::{
    attributes::{Attributes, Ino, MODE_BITS, atime, attributes, mtime, size},
    call::Call,
    error::FsError,
    fs::RecordedFs,
    handle::HandleId,
    log::Log,
    node::Node,
    open::OpenFlags,
};

/// A change of attributes. What is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<TimeChange>,
    /// Last change of content.
    pub mtime: Option<TimeChange>,
}

/// To what a time is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeChange {
    /// The moment.
    Now,
    /// A given one.
    To(Timestamp),
}

impl<L: Log> RecordedFs<L> {
    /// Changes attributes. Returns all of them.
    pub fn change(
        &self,
        call: &Call<'_>,
        ino: Ino,
        handle: Option<HandleId>,
        change: &Change,
    ) -> Result<Attributes, FsError> {
        let node = self.node(ino)?;
        let path = self.descriptor(ino)?;
        if let Some(size) = change.size {
            self.change_size(call, &node, &path, handle, size)?;
        }
        if change.touches_attributes() {
            let reservation = self.reserve_attributes(call, node.fnode())?;
            let losses = self.reserve_losses(call, &node, &path, true)?;
            let mut state = node.lock();
            state.look_behind(&path)?;
            let before = fstat(&path)?;
            let _group = losses.may_be_some().then(|| self.log().group());
            let applied = self.apply(&path, change);
            // Also if only a part was done.
            let after = fstat(&path)?;
            state.is_privileged = None;
            state.saw(mtime(&after));
            let done = difference(change, &before, &after);
            if state.is_recorded && done != AttributeChange::default() {
                self.record_attributes(reservation, &node, done);
            }
            self.record_lost_capability(losses, &node, &mut state, &path);
            applied?;
        }
        Ok(attributes(ino, node.generation, &fstat(&path)?))
    }

    fn change_size(
        &self,
        call: &Call<'_>,
        node: &Node,
        path: &OwnedFd,
        handle: Option<HandleId>,
        to: u64,
    ) -> Result<(), FsError> {
        if node.kind != Kind::Regular {
            return Err(Errno::INVAL.into());
        }
        if let Some(handle) = handle.and_then(|handle| self.shared.handles.get(handle).ok()) {
            return self.resize(call, node, &handle.descriptor, to);
        }
        // Without a handle nothing happens if the size stays, not even to the times.
        if size(&fstat(path)?) == to {
            return Ok(());
        }
        let flags = OpenFlags {
            may_read: false,
            may_write: true,
            is_truncating: false,
            is_exclusive: false,
        };
        let file = {
            let mut state = node.lock();
            let file = self.open_backing(&mut state, path, flags)?;
            if state.opens.is_empty() {
                state.file = None;
            }
            file
        };
        self.resize(call, node, &file, to)
    }

    fn apply(&self, path: &OwnedFd, change: &Change) -> rustix::io::Result<()> {
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(path, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = change.mode {
            self.backing().change_mode(path, mode & MODE_BITS)?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(change.atime),
                last_modification: timespec(change.mtime),
            };
            utimensat(path, "", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }
}

impl Change {
    fn touches_attributes(&self) -> bool {
        let Self {
            mode,
            uid,
            gid,
            size: _,
            atime,
            mtime,
        } = self;
        mode.is_some() || uid.is_some() || gid.is_some() || atime.is_some() || mtime.is_some()
    }
}

/// What happened to attributes, with the times that the backing file system took.
fn difference(asked: &Change, before: &Stat, after: &Stat) -> AttributeChange {
    let changed =
        |asked: bool, before: u32, after: u32| (asked || before != after).then_some(after);
    let (mode_before, mode_after) = (before.st_mode & MODE_BITS, after.st_mode & MODE_BITS);
    AttributeChange {
        // Also if the new owner took bits away.
        mode: changed(asked.mode.is_some(), mode_before, mode_after),
        uid: changed(asked.uid.is_some(), before.st_uid, after.st_uid),
        gid: changed(asked.gid.is_some(), before.st_gid, after.st_gid),
        atime: asked.atime.map(|_| atime(after)),
        mtime: asked.mtime.map(|_| mtime(after)),
    }
}

fn timespec(change: Option<TimeChange>) -> Timespec {
    let (seconds, nanos) = match change {
        None => (0, UTIME_OMIT),
        Some(TimeChange::Now) => (0, UTIME_NOW),
        Some(TimeChange::To(time)) => (time.seconds, i64::from(time.nanos)),
    };
    Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    }
}
