//! What a daemon was about when it was killed.
//!
//! It lies in a page of a file that the daemon has mapped: writing there takes no system call, and
//! what was written is there for the next daemon however this one ended, as long as the machine runs.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    ptr::null_mut,
    sync::atomic::{AtomicI64, Ordering::SeqCst},
};

use rustix::mm::{MapFlags, ProtFlags, mmap};

/// What a daemon is about. Clones are the same.
#[derive(Debug, Clone, Copy)]
pub struct Pulse {
    words: &'static [AtomicI64; WORDS],
}

/// What a daemon that is gone was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastPulse {
    /// Its recorder.
    pub author: u32,
    /// Changes of backing files that may have happened, and were not recorded.
    pub begun: i64,
    /// The op of the last change that was recorded.
    pub recorded: i64,
}

impl Pulse {
    /// Begins one for a recorder, in the place of that of the last daemon.
    pub(super) fn create(path: &Path, author: u32) -> io::Result<Self> {
        let fresh = path.with_extension("new");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        let mut page = Vec::with_capacity(PAGE_BYTES);
        for word in [MAGIC, author.into()] {
            page.extend_from_slice(&native(word));
        }
        page.resize(PAGE_BYTES, 0);
        // The page must be there when it is written to.
        file.write_all(&page)?;
        let words = map(&file)?;
        fs::rename(&fresh, path)?;
        Ok(Self { words })
    }

    /// Something may change that is not recorded at once.
    pub fn begin(self) {
        self.words[BEGUN].fetch_add(1, SeqCst);
    }

    /// It did not, or was recorded.
    pub fn end(self) {
        self.words[BEGUN].fetch_sub(1, SeqCst);
    }

    /// A change was recorded by an op.
    pub fn recorded(self, seq_no: i64) {
        self.words[RECORDED].fetch_max(seq_no, SeqCst);
    }
}

impl LastPulse {
    /// Reads that of the last daemon, if it left one.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let page = fs::read(path).ok()?;
        let (words, _) = page.as_chunks::<8>();
        let word = |index: usize| words.get(index).copied().map(of_native);
        if word(0)? != MAGIC {
            return None;
        }
        Some(Self {
            author: u32::try_from(word(1)?).ok()?,
            begun: word(BEGUN)?,
            recorded: word(RECORDED)?,
        })
    }
}

/// Maps the first page of a file, for as long as the process lives.
#[expect(unsafe_code, reason = "memory is mapped")]
fn map(file: &File) -> io::Result<&'static [AtomicI64; WORDS]> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: The kernel chooses the place, so that nothing is there.
    let page = unsafe { mmap(null_mut(), PAGE_BYTES, access, MapFlags::SHARED, file, 0) }?;
    // SAFETY: The page is large and aligned enough, is never unmapped, and is written to in no other
    // way by this process.
    Ok(unsafe { &*page.cast::<[AtomicI64; WORDS]>() })
}

/// Words are as the processor has them: a pulse is for the same machine only.
#[expect(clippy::host_endian_bytes, reason = "as atomic writes leave them")]
const fn native(word: i64) -> [u8; 8] {
    word.to_ne_bytes()
}

#[expect(clippy::host_endian_bytes, reason = "as atomic writes leave them")]
const fn of_native(word: [u8; 8]) -> i64 {
    i64::from_ne_bytes(word)
}

const MAGIC: i64 = i64::from_le_bytes(*b"gzpulse1");
const WORDS: usize = 4;
const BEGUN: usize = 2;
const RECORDED: usize = 3;
const PAGE_BYTES: usize = 4096;
