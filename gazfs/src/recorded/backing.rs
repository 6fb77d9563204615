//! System calls on the backing tree.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, openat},
    io::Errno,
};

use super::attributes::Ino;

/// The backing tree.
#[derive(Debug)]
pub(super) struct Backing {
    /// The descriptors of this process as a directory: by it a descriptor that only names a file is
    /// opened again.
    descriptors: OwnedFd,
    root: u64,
}

impl Backing {
    /// Opens a tree. Returns the descriptor of its root too.
    pub(super) fn open(tree: &Path) -> io::Result<(Self, OwnedFd)> {
        let open = |path: &Path| openat(CWD, path, PATH | OFlags::DIRECTORY, Mode::empty());
        let descriptors = open(Path::new(DESCRIPTORS))?;
        let root = open(tree)?;
        let root_ino = fstat(&root)?.st_ino;
        let backing = Self {
            descriptors,
            root: root_ino,
        };
        // Where /proc is not mounted nothing would work.
        backing.reopen(&root, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok((backing, root))
    }

    /// Returns the number under which the mount shows an inode. The root is 1; if another has that
    /// in the backing tree, they change places.
    pub(super) fn ino(&self, number: u64) -> Ino {
        match number {
            number if number == self.root => Ino::ROOT,
            1 => Ino(self.root),
            number => Ino(number),
        }
    }

    /// Opens what a descriptor names, also if it has no name any more.
    pub(super) fn reopen(&self, file: impl AsFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = file.as_fd().as_raw_fd().to_string();
        let open = |flags| openat(&self.descriptors, path.as_str(), flags, Mode::empty());
        let flags = flags | OFlags::CLOEXEC;
        // Only an owner may leave the time of access alone.
        match open(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => open(flags),
            opened => opened,
        }
    }

    /// Makes another name of what a descriptor names.
    pub(super) fn link(
        &self,
        file: impl AsFd,
        to: impl AsFd,
        name: &[u8],
    ) -> rustix::io::Result<()> {
        let path = file.as_fd().as_raw_fd().to_string();
        rustix::fs::linkat(
            &self.descriptors,
            path.as_str(),
            to,
            name,
            AtFlags::SYMLINK_FOLLOW,
        )
    }

    pub(super) fn change_mode(&self, file: impl AsFd, mode: u32) -> rustix::io::Result<()> {
        let path = file.as_fd().as_raw_fd().to_string();
        rustix::fs::chmodat(
            &self.descriptors,
            path.as_str(),
            Mode::from_raw_mode(mode),
            AtFlags::empty(),
        )
    }
}

/// Opens what a name in a directory names, without following a link and without reading it.
pub(super) fn open_name(directory: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    openat(directory, name, PATH, Mode::empty())
}

pub(super) fn stat_name(directory: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Stat> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Returns a path that leads to what a descriptor names.
pub(super) fn path_of(file: impl AsFd) -> String {
    format!("{DESCRIPTORS}/{}", file.as_fd().as_raw_fd())
}

/// Returns a path that leads to a name in a directory.
pub(super) fn path_in(directory: impl AsFd, name: &[u8]) -> Vec<u8> {
    let mut path = path_of(directory).into_bytes();
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const DESCRIPTORS: &str = "/proc/self/fd";
