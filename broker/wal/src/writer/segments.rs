//! The files of the segments: which are in use, which are free, and how many there should be.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::disk::{Disk, DiskFile, OpenMode};

/// An open segment file.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
}

/// The files of the segments.
#[derive(Debug)]
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: u64,
    /// As the options say.
    wanted: usize,
    live_bytes: u64,
    /// Generations in use, oldest first, the last is the head's.
    live: VecDeque<u64>,
    /// Files of the generations in use but the head's.
    retired: VecDeque<Slot>,
    free: Vec<Slot>,
    /// Number in the name of the next file.
    next_number: u64,
}

/// The name of a segment's file.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:016x}.wal")
}

/// The number in a segment's file name.
pub(crate) fn parse_file_name(name: &str) -> Option<u64> {
    let digits = name
        .strip_suffix(".wal")
        .filter(|digits| digits.len() == 16)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (file_name(number) == name).then_some(number)
}

impl Segments {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
        wanted: usize,
        next_number: u64,
    ) -> Self {
        Self {
            disk,
            dir: dir.to_path_buf(),
            segment_bytes,
            wanted,
            live_bytes: 0,
            live: VecDeque::new(),
            retired: VecDeque::new(),
            free: Vec::new(),
            next_number,
        }
    }

    /// Number of free files.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Number of all files.
    pub(super) fn count(&self) -> usize {
        self.live.len() + self.free.len()
    }

    /// Number of files that there should be: live state takes half of them, and two are at work.
    pub(super) fn target(&self) -> usize {
        let for_state = (self.live_bytes * 2).div_ceil(self.segment_bytes);
        self.wanted.max(
            usize::try_from(for_state)
                .unwrap_or(usize::MAX)
                .saturating_add(2),
        )
    }

    pub(super) fn set_live_bytes(&mut self, live_bytes: u64) {
        self.live_bytes = live_bytes;
    }

    /// Path and length of the next file to make.
    pub(super) fn next(&mut self) -> (PathBuf, u64) {
        let path = self.dir.join(file_name(self.next_number));
        self.next_number += 1;
        (path, self.segment_bytes)
    }

    /// Adds a free file.
    pub(crate) fn add(&mut self, path: PathBuf) -> io::Result<()> {
        let file = self.disk.open(&path, OpenMode::Existing)?;
        self.free.push(Slot { path, file });
        Ok(())
    }

    /// Makes a file right now.
    pub(crate) fn make(&mut self) -> Result<(), (PathBuf, io::Error)> {
        let (path, length) = self.next();
        let made = self.disk.create_zeroed(&path, length);
        let made = made.and_then(|()| self.disk.sync_dir(&self.dir));
        made.and_then(|()| self.add(path.clone()))
            .map_err(|err| (path, err))
    }

    /// Makes a file right now, if none is free, for states of so many bytes.
    pub(super) fn make_room(&mut self, live_bytes: u64) -> Result<(), (PathBuf, io::Error)> {
        self.live_bytes = live_bytes;
        if self.free.is_empty() {
            self.make()
        } else {
            Ok(())
        }
    }

    pub(super) fn take_free(&mut self) -> io::Result<Slot> {
        self.free
            .pop()
            .ok_or_else(|| io::ErrorKind::StorageFull.into())
    }

    /// A generation is in use, the newest.
    pub(super) fn add_live(&mut self, generation: u64) {
        self.live.push_back(generation);
    }

    /// The file of the generation that was the newest is full.
    pub(super) fn retire(&mut self, slot: Slot) {
        self.retired.push_back(slot);
    }

    /// The oldest generation, unless it is the only one.
    pub(super) fn oldest_of_several(&self) -> Option<u64> {
        self.live.front().copied().filter(|_| self.live.len() > 1)
    }

    /// Generations up to one are not needed any more.
    pub(super) fn free_through(&mut self, through: u64) {
        while self.live.len() > 1 && self.live.front().is_some_and(|oldest| *oldest <= through) {
            self.live.pop_front();
            self.free.extend(self.retired.pop_front());
        }
    }

    /// Takes over files of an earlier run that are not needed any more. Those that are too many,
    /// or of another length, are removed.
    pub(super) fn adopt(&mut self, old: Vec<PathBuf>) {
        for path in old {
            let fits = || -> io::Result<bool> {
                Ok(self.disk.open(&path, OpenMode::Existing)?.len()? == self.segment_bytes)
            };
            if self.count() < self.target()
                && fits().unwrap_or(false)
                && self.add(path.clone()).is_ok()
            {
                continue;
            }
            if let Err(err) = self.disk.unlink(&path) {
                let path = path.display();
                tracing::warn!(%path, %err, "segment that is not needed stays");
            }
        }
    }
}
