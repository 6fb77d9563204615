//! Numbers of fields. FORMAT.md has the table of them.

/// Fields of an op, as the reference has them.
pub(super) mod base {
    pub(in crate::op) const SEQ_NO: u32 = 1;
    pub(in crate::op) const CHECKSUM: u32 = 2;
    pub(in crate::op) const AUTHOR: u32 = 3;
    pub(in crate::op) const CREATE: u32 = 4;
    pub(in crate::op) const LINK: u32 = 5;
    pub(in crate::op) const UNLINK: u32 = 6;
    pub(in crate::op) const WRITE: u32 = 7;
    pub(in crate::op) const PROPERTY: u32 = 8;
}

/// Fields of an op that old readers skip.
pub(super) mod extension {
    pub(in crate::op) const GROUP: u32 = 101;
    pub(in crate::op) const MARK: u32 = 102;
    pub(in crate::op) const MODE: u32 = 103;
    pub(in crate::op) const TIME: u32 = 104;
    /// In Create, Link and Unlink.
    pub(in crate::op) const PARENT: u32 = 16;
    /// In Create.
    pub(in crate::op) const INODE: u32 = 17;
    /// In Write.
    pub(in crate::op) const CRC32C: u32 = 16;
    pub(in crate::op) const MTIME: u32 = 17;
    pub(in crate::op) const RERECORDED: u32 = 18;
    pub(in crate::op) const ATTRIBUTES: u32 = 20;
    pub(in crate::op) const SET_XATTR: u32 = 21;
    pub(in crate::op) const REMOVE_XATTR: u32 = 22;
    pub(in crate::op) const TRUNCATE: u32 = 23;
    pub(in crate::op) const PUNCH: u32 = 24;
    pub(in crate::op) const ZERO: u32 = 25;
    pub(in crate::op) const RESTATED: u32 = 26;
}
