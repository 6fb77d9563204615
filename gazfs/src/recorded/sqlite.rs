//! What is left out of the log: the shared memory of `SQLite`.
//!
//! In its mode with a write-ahead log `SQLite` keeps an index of that in a file whose name ends in
//! `-shm`. It is rebuilt when it is missing, and changes all the time.

use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Mode, OFlags, Stat, openat};

/// Says whether a new file is left out of the log: it is called `X-shm`, and X is a database of
/// `SQLite`.
pub(super) fn is_left_out(directory: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && name
            .strip_suffix(SUFFIX)
            .is_some_and(|database| !database.is_empty() && is_database(directory, database))
}

/// Says whether a file of this name may have been left out.
pub(super) fn is_shared_memory_name(name: &[u8]) -> bool {
    name.ends_with(SUFFIX)
}

fn is_database(directory: BorrowedFd<'_>, name: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(directory, name, flags, Mode::empty()) else {
        return false;
    };
    let mut header = [0; HEADER.len()];
    // What cannot be read is none.
    rustix::io::pread(&file, &mut header, 0).is_ok_and(|read| read == HEADER.len())
        && header == *HEADER
}

const SUFFIX: &[u8] = b"-shm";

const HEADER: &[u8; 16] = b"SQLite format 3\0";
