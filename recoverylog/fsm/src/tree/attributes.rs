//! What ops say of a file apart from its names and content.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::op::Change;
use crate::{AttributeChange, Inode, Kind, SizeChange, Timestamp};

/// Attributes of a file, as far as its ops say them: those of the reference's logs say none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Its kind.
    pub kind: Kind,
    /// Permission bits: 0 to 0o7777.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Number of a device.
    pub rdev: u64,
    /// What a symbolic link says.
    pub target: Bytes,
    /// Last access, if a program set it.
    pub atime: Option<Timestamp>,
    /// Last change of content.
    pub mtime: Option<Timestamp>,
    /// Bytes of a regular file.
    pub size: u64,
    /// Extended attributes, by their full names.
    pub xattrs: BTreeMap<Bytes, Bytes>,
}

impl From<&Inode> for Attributes {
    fn from(inode: &Inode) -> Self {
        Self {
            kind: inode.kind,
            mode: Some(inode.mode),
            uid: Some(inode.uid),
            gid: Some(inode.gid),
            rdev: inode.rdev,
            target: inode.target.clone(),
            atime: None,
            mtime: Some(inode.mtime),
            size: 0,
            xattrs: BTreeMap::new(),
        }
    }
}

impl Attributes {
    /// Returns the inode of a file that is to become as this one, but for its content, extended
    /// attributes and atime.
    pub(crate) fn inode(&self, mtime: Timestamp) -> Inode {
        Inode {
            kind: self.kind,
            mode: self.mode.unwrap_or(0o666),
            uid: self.uid.unwrap_or(0),
            gid: self.gid.unwrap_or(0),
            rdev: self.rdev,
            target: self.target.clone(),
            mtime,
        }
    }

    pub(super) fn written(&mut self, end: u64, mtime: Option<Timestamp>) {
        self.size = self.size.max(end);
        self.mtime = mtime.or(self.mtime);
    }

    pub(super) fn change(&mut self, change: &Change, mtime: Option<Timestamp>) {
        self.mtime = mtime.or(self.mtime);
        match change {
            Change::Attributes(AttributeChange {
                mode,
                uid,
                gid,
                atime,
                mtime,
            }) => {
                self.mode = mode.or(self.mode);
                self.uid = uid.or(self.uid);
                self.gid = gid.or(self.gid);
                self.atime = atime.or(self.atime);
                self.mtime = mtime.or(self.mtime);
            }
            Change::SetXattr { name, value } => {
                self.xattrs.insert(name.clone(), value.clone());
            }
            Change::RemoveXattr { name } => {
                self.xattrs.remove(name);
            }
            Change::Size(SizeChange::Truncate { size }) => self.size = *size,
            Change::Size(SizeChange::Punch { .. }) | Change::Restated(_) => {}
            Change::Size(SizeChange::Zero {
                offset,
                length,
                keep_size,
            }) => {
                if !keep_size {
                    self.size = self.size.max(offset.saturating_add(*length));
                }
            }
        }
    }
}
