//! What a file system did, as it is handed to a recorder.

use crate::{AttributeChange, Fnode, Inode, Timestamp};

/// A name in a directory. The root directory is [`Fnode::ROOT`] here, whatever fnode holds its
/// attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<'a> {
    /// The directory.
    pub parent: Fnode,
    /// The name: bytes without `/` and NUL, neither empty nor `.` nor `..`.
    pub name: &'a [u8],
}

/// A change of size or of holes of a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeChange {
    /// The file has this size now: cut, or grown by a hole.
    Truncate {
        /// The new size, in bytes.
        size: u64,
    },
    /// A range is a hole now; the size stays.
    Punch {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// A range reads as zeros now; the file grew if it ended before the range's end, unless
    /// `keep_size`.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// The size stays.
        keep_size: bool,
    },
}

/// One mutation that succeeded on the backing files. It becomes one group of ops in one append, so
/// that a recovery has all of it or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation<'a> {
    /// A new file. Also of one without a name (`O_TMPFILE`) if there is no place.
    Create {
        /// Where; `None` for one without a name.
        at: Option<Place<'a>>,
        /// What.
        inode: &'a Inode,
    },
    /// Another name of a file that is not a directory.
    Link {
        /// The file.
        fnode: Fnode,
        /// Its new name, which was free.
        at: Place<'a>,
    },
    /// A name went away: unlink, or rmdir of an empty directory.
    Unlink {
        /// The name.
        at: Place<'a>,
    },
    /// A name became another; what had that name before lost it.
    Rename {
        /// The old name.
        from: Place<'a>,
        /// The new name.
        to: Place<'a>,
        /// Both names exist and were exchanged.
        exchange: bool,
    },
    /// Content was written.
    Write {
        /// The file.
        fnode: Fnode,
        /// First byte.
        offset: u64,
        /// What was written: as many bytes as the backing file took, at least one.
        data: &'a [u8],
        /// The file's mtime after it.
        mtime: Timestamp,
    },
    /// Size or holes changed.
    Size {
        /// The file.
        fnode: Fnode,
        /// How.
        change: SizeChange,
        /// The file's mtime after it.
        mtime: Timestamp,
    },
    /// Attributes changed.
    Attributes {
        /// The file. [`Fnode::ROOT`] is the root directory's own inode.
        fnode: Fnode,
        /// Which.
        change: AttributeChange,
    },
    /// An extended attribute was set.
    SetXattr {
        /// The file. [`Fnode::ROOT`] is the root directory's own inode.
        fnode: Fnode,
        /// Its name, with the namespace.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// An extended attribute was removed.
    RemoveXattr {
        /// The file. [`Fnode::ROOT`] is the root directory's own inode.
        fnode: Fnode,
        /// Its name, with the namespace.
        name: &'a [u8],
    },
    /// Nobody has a file open any more that was created without a name. If it got one meanwhile,
    /// nothing happens.
    Release {
        /// The file.
        fnode: Fnode,
    },
}
