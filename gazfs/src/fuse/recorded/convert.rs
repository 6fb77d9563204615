//! The kernel's words for ours.

use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileType, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr,
    TimeOrNow,
};
use gazette_recoverylog_fsm::Timestamp;
use rustix::fs::OFlags;

use crate::recorded::{Attributes, FsError, Ino, Kind, OpenFlags, TimeChange};

pub(super) fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

pub(super) fn errno(error: FsError) -> Errno {
    Errno::from_i32(error.errno().raw_os_error())
}

pub(super) fn open_flags(flags: i32) -> OpenFlags {
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    let access = flags & OFlags::ACCMODE;
    OpenFlags {
        may_read: access != OFlags::WRONLY,
        may_write: access != OFlags::RDONLY,
        is_truncating: flags.contains(OFlags::TRUNC),
        is_exclusive: flags.contains(OFlags::EXCL),
    }
}

pub(super) fn time(time: TimeOrNow) -> TimeChange {
    match time {
        TimeOrNow::SpecificTime(time) => TimeChange::To(kernel_time(time)),
        TimeOrNow::Now => TimeChange::Now,
    }
}

/// Returns what the kernel said. Before 1970 the library takes nanoseconds for such that go
/// backwards too, but loses nothing by that.
fn kernel_time(time: SystemTime) -> Timestamp {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => Timestamp {
            seconds: seconds(after),
            nanos: after.subsec_nanos(),
        },
        Err(error) => Timestamp {
            seconds: -seconds(error.duration()),
            nanos: error.duration().subsec_nanos(),
        },
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    whole
        .and_then(|whole| whole.checked_add(Duration::from_nanos(u64::from(time.nanos))))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Regular => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// Returns the kind that mknod(2) was asked for.
pub(super) fn node_kind(mode: u32) -> Kind {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => Kind::Directory,
        rustix::fs::FileType::Symlink => Kind::Symlink,
        rustix::fs::FileType::Fifo => Kind::Fifo,
        rustix::fs::FileType::Socket => Kind::Socket,
        rustix::fs::FileType::CharacterDevice => Kind::CharDevice,
        rustix::fs::FileType::BlockDevice => Kind::BlockDevice,
        rustix::fs::FileType::RegularFile | rustix::fs::FileType::Unknown => Kind::Regular,
    }
}

pub(super) fn file_attributes(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.ino.0),
        size: attributes.size,
        blocks: attributes.blocks,
        atime: system_time(attributes.atime),
        mtime: system_time(attributes.mtime),
        ctime: system_time(attributes.ctime),
        crtime: SystemTime::UNIX_EPOCH,
        kind: file_type(attributes.kind),
        perm: u16::try_from(attributes.mode).unwrap_or(0),
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        // The kernel has 32 bits for it.
        rdev: u32::try_from(attributes.rdev).unwrap_or(0),
        blksize: attributes.block_bytes,
        flags: 0,
    }
}

/// A name that is not there is remembered too: nobody else makes one.
pub(super) fn answer_entry(reply: ReplyEntry, found: Result<Attributes, FsError>) {
    match found {
        Ok(attributes) => reply.entry(
            &TTL,
            &file_attributes(&attributes),
            Generation(attributes.generation),
        ),
        Err(FsError::System(rustix::io::Errno::NOENT)) => {
            reply.entry(&TTL, &NOTHING, Generation(0));
        }
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn answer_attributes(reply: ReplyAttr, attributes: Result<Attributes, FsError>) {
    match attributes {
        Ok(attributes) => reply.attr(&TTL, &file_attributes(&attributes)),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn answer_empty(reply: ReplyEmpty, done: Result<(), FsError>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

/// Answers with a value, or with its length if the program asks for that first.
pub(super) fn answer_xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, FsError>) {
    let value = match value {
        Ok(value) => value,
        Err(error) => return reply.error(errno(error)),
    };
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    if size == 0 {
        reply.size(length);
    } else if length > size {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(&value);
    }
}

/// Only this mount changes names and attributes, so what the kernel knows stays right.
pub(super) const TTL: Duration = Duration::from_hours(24 * 365);

/// Stands for no file.
const NOTHING: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: SystemTime::UNIX_EPOCH,
    mtime: SystemTime::UNIX_EPOCH,
    ctime: SystemTime::UNIX_EPOCH,
    crtime: SystemTime::UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_what_the_kernel_said() {
        let minus_one_and_a_half = Timestamp {
            seconds: -2,
            nanos: 500_000_000,
        };
        // As the library makes it of the two numbers of the kernel.
        let from_library = SystemTime::UNIX_EPOCH - Duration::new(2, 500_000_000);
        assert_eq!(kernel_time(from_library), minus_one_and_a_half);
        let real = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
        assert_eq!(system_time(minus_one_and_a_half), real);
    }

    #[test]
    fn times_that_nothing_can_show_do_not_panic() {
        for seconds in [i64::MIN, i64::MAX] {
            let _shown = system_time(Timestamp {
                seconds,
                nanos: 999_999_999,
            });
        }
    }
}
