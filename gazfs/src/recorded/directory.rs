//! Listing of directories.

use std::{mem::MaybeUninit, os::fd::OwnedFd, sync::Arc};

use gazette_recoverylog_fsm::Kind;
use rustix::{
    fs::{FileType, OFlags, RawDir, SeekFrom, seek},
    io::Errno,
};

use super::{
    attributes::Ino, error::FsError, fs::RecordedFs, handle::HandleId, log::Log, node::lock,
    open_mode::OpenMode,
};

/// A line of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The file.
    pub ino: Ino,
    /// Its kind, if the backing file system tells it here.
    pub kind: Kind,
    /// Its name.
    pub name: &'a [u8],
    /// Where the next line is. It stays right while names come and go.
    pub next: u64,
}

impl<L: Log> RecordedFs<L> {
    /// Opens a directory.
    pub fn open_directory(&self, ino: Ino) -> Result<HandleId, FsError> {
        if self.log().is_ended() {
            return Err(Errno::IO.into());
        }
        let node = self.node(ino)?;
        let path = self.descriptor(ino)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory: OwnedFd = self.backing().reopen(&*path, flags)?;
        let directory = Arc::new(directory);
        Ok(self.shared.handles.add(node, directory, OpenMode::Cached))
    }

    /// Closes a directory.
    pub fn close_directory(&self, handle: HandleId) {
        let _closed = self.shared.handles.remove(handle);
    }

    /// Reads lines of a directory from a position on, until `take` has enough: then it returns
    /// `true`, and the line counts as not read.
    pub fn read_directory(
        &self,
        handle: HandleId,
        from: u64,
        mut take: impl FnMut(Line<'_>) -> bool,
    ) -> Result<(), FsError> {
        let handle = self.shared.handles.get(handle)?;
        let mut position = lock(&handle.position);
        // The buffer of the kernel and ours are not of one size, so what was read too much is read
        // again. From the beginning it is also read anew.
        if *position != from || from == 0 {
            seek(&handle.descriptor, SeekFrom::Start(from))?;
        }
        let mut buffer = [MaybeUninit::<u8>::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(&handle.descriptor, &mut buffer);
        // Where the descriptor is after the lines that were taken is not known.
        *position = u64::MAX;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let ino = match name {
                b".." if handle.node.ino == Ino::ROOT => Ino::ROOT,
                _ => self.backing().ino(entry.ino()),
            };
            let next = entry.next_entry_cookie();
            let line = Line {
                ino,
                kind: kind(entry.file_type()),
                name,
                next,
            };
            if take(line) {
                return Ok(());
            }
            if entries.is_buffer_empty() {
                *position = next;
            }
        }
        Ok(())
    }
}

fn kind(file_type: FileType) -> Kind {
    match file_type {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => Kind::Regular,
    }
}

const BUFFER_BYTES: usize = 16 << 10;
