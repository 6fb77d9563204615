//! What a file is, apart from its names and its content.

use bytes::Bytes;

use crate::Timestamp;

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Kind {
    /// A regular file.
    #[default]
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// What a file is created with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inode {
    /// Its kind, which never changes.
    pub kind: Kind,
    /// Permission bits with set-uid, set-gid and sticky: 0 to 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device, as `st_rdev` has it on Linux; otherwise 0.
    pub rdev: u64,
    /// What a symbolic link says; otherwise empty.
    pub target: Bytes,
    /// When its content changed last.
    pub mtime: Timestamp,
}

/// Attributes that a request set; what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttributeChange {
    /// Permission bits: 0 to 0o7777.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access, recorded only where a program sets it.
    pub atime: Option<Timestamp>,
    /// Last change of content.
    pub mtime: Option<Timestamp>,
}
