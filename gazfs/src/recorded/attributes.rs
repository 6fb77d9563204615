//! What stat(2) tells.

use gazette_recoverylog_fsm::{Inode, Timestamp};
use rustix::fs::{FileType, Stat, StatVfs};

pub use gazette_recoverylog_fsm::Kind;

/// Number of an inode as the mount shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Self = Self(1);
}

/// What stat(2) tells of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub ino: Ino,
    /// Tells files apart that have one number after another.
    pub generation: u64,
    /// Its kind.
    pub kind: Kind,
    /// Permission bits with set-uid, set-gid and sticky.
    pub mode: u32,
    /// How many names it has.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes that it takes.
    pub blocks: u64,
    /// Bytes that programs should read at once.
    pub block_bytes: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
}

/// How much there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks.
    pub blocks: u64,
    /// Those that are free.
    pub free: u64,
    /// Those of them that any user may take.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Those that are free.
    pub files_free: u64,
    /// The longest name, in bytes.
    pub name_bytes_max: u32,
}

/// Puts together what the backing file system says.
pub(super) fn attributes(ino: Ino, generation: u64, stat: &Stat) -> Attributes {
    Attributes {
        ino,
        generation,
        kind: kind(stat),
        mode: stat.st_mode & MODE_BITS,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev,
        size: size(stat),
        blocks: stat.st_blocks.cast_unsigned(),
        block_bytes: u32::try_from(stat.st_blksize).unwrap_or(4096),
        atime: timestamp(stat.st_atime, stat.st_atime_nsec),
        mtime: mtime(stat),
        ctime: timestamp(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// What a new file is recorded with.
pub(super) fn inode(stat: &Stat, target: &[u8]) -> Inode {
    let kind = kind(stat);
    let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
    Inode {
        kind,
        mode: stat.st_mode & MODE_BITS,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: if is_device { stat.st_rdev } else { 0 },
        target: bytes::Bytes::copy_from_slice(target),
        mtime: mtime(stat),
    }
}

pub(super) fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => Kind::Regular,
    }
}

pub(super) fn mtime(stat: &Stat) -> Timestamp {
    timestamp(stat.st_mtime, stat.st_mtime_nsec)
}

pub(super) fn atime(stat: &Stat) -> Timestamp {
    timestamp(stat.st_atime, stat.st_atime_nsec)
}

pub(super) fn size(stat: &Stat) -> u64 {
    // It is never negative.
    stat.st_size.cast_unsigned()
}

pub(super) fn space(stat: &StatVfs, room: Option<u64>) -> Space {
    let block_bytes = u32::try_from(stat.f_frsize).unwrap_or(4096).max(1);
    let room = room.map_or(u64::MAX, |bytes| bytes / u64::from(block_bytes));
    Space {
        block_bytes,
        blocks: stat.f_blocks,
        free: stat.f_bfree.min(room),
        available: stat.f_bavail.min(room),
        files: stat.f_files,
        files_free: stat.f_ffree,
        name_bytes_max: u32::try_from(stat.f_namemax).unwrap_or(255),
    }
}

fn timestamp(seconds: i64, nanos: u64) -> Timestamp {
    Timestamp {
        seconds,
        // It is below 1,000,000,000.
        nanos: u32::try_from(nanos).unwrap_or(0),
    }
}

pub(super) const MODE_BITS: u32 = 0o7777;
