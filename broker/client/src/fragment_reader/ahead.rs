//! A file that is read from its beginning on, with the disk kept busy meanwhile.

use std::{
    fs::File,
    io::{self, Read},
    num::NonZeroU64,
};

use rustix::fs::{Advice, fadvise};

/// What the kernel is asked to read before it is needed. Its own guess, 128 KiB, leaves the disk
/// idle while a piece is hashed and sent.
const AHEAD_BYTES: u64 = 4 << 20;

/// Asks for what comes next, and reads.
#[derive(Debug)]
pub(super) struct ReadAhead {
    file: File,
    at: u64,
    /// Up to where the kernel was asked to read.
    asked: u64,
}

impl ReadAhead {
    /// A reader of `file`, which is at offset `at`.
    pub(super) fn new(file: File, at: u64) -> Self {
        Self {
            file,
            at,
            asked: at,
        }
    }
}

impl Read for ReadAhead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at + AHEAD_BYTES / 2 >= self.asked {
            // Only advice: a file system that does not take it reads as it likes.
            let length = NonZeroU64::new(AHEAD_BYTES);
            let _advised = fadvise(&self.file, self.asked, length, Advice::WillNeed);
            self.asked += AHEAD_BYTES;
        }
        let read = self.file.read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom, Write as _};

    use super::*;

    #[test]
    fn a_file_is_read_whole_from_where_it_is() {
        let mut file = tempfile::tempfile().expect("make a file");
        let content: Vec<u8> = (0..10_u32 << 20).map(|n| (n % 251) as u8).collect();
        file.write_all(&content).expect("write it");
        let mut read = Vec::new();
        file.seek(SeekFrom::Start(1000)).expect("go back");
        ReadAhead::new(file, 1000)
            .read_to_end(&mut read)
            .expect("read it");
        assert_eq!(read, &content[1000..]);
    }
}
