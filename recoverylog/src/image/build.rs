//! Builds a tree out of staged files.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::OpenOptions,
    io::{self, Write as _},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use bytes::Bytes;
use gazette_recoverylog_fsm::{Attributes, Fnode, Kind, Timestamp, Tree};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid,
        XattrFlags,
    },
    io::Errno,
};

use super::{Image, ImageError, staged, target::make_plain_folder};

/// How a tree is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BuildOptions {
    /// Owners, devices and privileged attributes are restored, or it is an error. Otherwise what cannot be
    /// restored is listed.
    pub(crate) restore_owner: bool,
    /// The tree is on the disk before it appears.
    pub(crate) sync: bool,
}

/// Something of a file that was not restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRestored {
    /// The file, below the recovered directory.
    pub path: PathBuf,
    /// What of it.
    pub what: Refused,
    /// Why.
    pub cause: String,
}

/// What of a file was not restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Its owner and group.
    Owner {
        /// Number of the user.
        uid: u32,
        /// Number of the group.
        gid: u32,
    },
    /// The file itself, which is a device.
    Device {
        /// Number of the device.
        rdev: u64,
    },
    /// An extended attribute.
    Xattr {
        /// Its name.
        name: Vec<u8>,
    },
}

/// A built tree.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The first of what was not restored.
    pub(crate) not_restored: Vec<NotRestored>,
    /// How much was not restored.
    pub(crate) not_restored_count: u64,
    /// Files of all kinds, without the root directory.
    pub(crate) files: u64,
}

impl Image {
    /// Builds the tree, and lets it appear.
    pub(crate) fn finish(
        mut self,
        tree: &Tree,
        properties: &BTreeMap<Bytes, Bytes>,
        options: BuildOptions,
    ) -> Result<Built, ImageError> {
        self.open.clear();
        make_plain_folder(self.target.tree())?;
        let mut builder = Builder {
            tree,
            options,
            work: self.target.work(),
            root: self.target.path(),
            path: Vec::new(),
            owner: (
                rustix::process::geteuid().as_raw(),
                rustix::process::getegid().as_raw(),
            ),
            not_restored: Vec::new(),
            not_restored_count: 0,
            files: 0,
        };
        builder.files(self.target.tree())?;
        builder.properties(self.target.tree(), properties)?;
        let Builder {
            not_restored,
            not_restored_count,
            files,
            ..
        } = builder;
        Ok(Built {
            path: self.target.appear(options.sync)?,
            not_restored,
            not_restored_count,
            files,
        })
    }
}

struct Builder<'a> {
    tree: &'a Tree,
    options: BuildOptions,
    work: &'a Path,
    /// Where the tree will be, for errors.
    root: &'a Path,
    /// Names on the way from the root to the present file.
    path: Vec<Bytes>,
    /// User and group of this process.
    owner: (u32, u32),
    not_restored: Vec<NotRestored>,
    not_restored_count: u64,
    files: u64,
}

/// Names in a directory.
type Children<'a> = Box<dyn Iterator<Item = (&'a Bytes, Fnode)> + 'a>;

/// A directory whose entries are being made.
struct Level<'a> {
    name: &'a Bytes,
    fnode: Fnode,
    rest: Children<'a>,
}

impl<'a> Builder<'a> {
    /// Makes all files. Attributes of a directory are set when all in it is done, as they may take away the
    /// right to change it, and its times change with each entry.
    ///
    /// Only one directory is open at a time, however deep the tree is.
    fn files(&mut self, tree: &Path) -> Result<(), ImageError> {
        let mut here = open_directory(CWD, tree.as_os_str().as_bytes())
            .map_err(|cause| ImageError::io("open", tree, cause))?;
        let mut rest = self.children(Fnode::ROOT);
        let mut levels: Vec<Level<'a>> = Vec::new();
        loop {
            if let Some((name, fnode)) = rest.next() {
                self.path.push(name.clone());
                self.files += 1;
                if self.make(here.as_fd(), name, fnode)? {
                    here = open_directory(here.as_fd(), name)
                        .map_err(|cause| self.failed("open", cause))?;
                    let below = self.children(fnode);
                    let above = std::mem::replace(&mut rest, below);
                    levels.push(Level {
                        name,
                        fnode,
                        rest: above,
                    });
                } else {
                    self.path.pop();
                }
                continue;
            }
            let Some(level) = levels.pop() else { break };
            here =
                open_directory(here.as_fd(), b"..").map_err(|cause| self.failed("leave", cause))?;
            self.attributes(here.as_fd(), level.name, level.fnode)?;
            self.path.pop();
            rest = level.rest;
        }
        self.attributes(CWD, tree.as_os_str().as_bytes(), Fnode::ROOT)
    }

    fn children(&self, directory: Fnode) -> Children<'a> {
        Box::new(self.tree.children(directory))
    }

    /// Makes one file, and says whether it is a directory that is to be entered.
    fn make(&mut self, at: BorrowedFd<'_>, name: &[u8], fnode: Fnode) -> Result<bool, ImageError> {
        if self.tree.kind(fnode) == Some(Kind::Directory) {
            rustix::fs::mkdirat(at, name, Mode::RWXU)
                .map_err(|cause| self.failed("make directory", cause))?;
            return Ok(true);
        }
        let unknown = Attributes::default();
        let file = self.tree.attributes(fnode).unwrap_or(&unknown);
        let staged = staged(self.work, fnode);
        if self.tree.links(fnode).nth(1).is_none() {
            if self.place(at, name, &staged, file)? {
                self.attributes(at, name, fnode)?;
            }
            return Ok(false);
        }
        // Its first name is made in the staging folder, and linked to the others.
        let link = || rustix::fs::linkat(CWD, &staged, at, name, AtFlags::empty());
        let is_new = matches!(
            rustix::fs::statat(CWD, &staged, AtFlags::SYMLINK_NOFOLLOW),
            Err(Errno::NOENT)
        );
        if is_new {
            let folder = staged.parent().unwrap_or(self.work);
            std::fs::create_dir_all(folder)
                .map_err(|cause| ImageError::io("make", folder, cause))?;
            let path = staged.as_os_str().as_bytes();
            if !self.create(CWD, path, file)? {
                return Ok(false);
            }
        }
        link().map_err(|cause| self.failed("link", cause))?;
        // Set with each name: whether it is the first is not known, and the same is set each time.
        self.attributes(at, name, fnode)?;
        Ok(false)
    }

    /// Makes a file with a single name. Says whether it is there.
    fn place(
        &mut self,
        at: BorrowedFd<'_>,
        name: &[u8],
        staged: &Path,
        file: &Attributes,
    ) -> Result<bool, ImageError> {
        if file.kind == Kind::Regular {
            match rustix::fs::renameat(CWD, staged, at, name) {
                Ok(()) => return Ok(true),
                // It never had any content.
                Err(Errno::NOENT) => {}
                Err(cause) => return Err(self.failed("place", cause)),
            }
        }
        self.create(at, name, file)
    }

    /// Creates a file without staged content. Says whether it is there.
    fn create(
        &mut self,
        at: BorrowedFd<'_>,
        name: &[u8],
        file: &Attributes,
    ) -> Result<bool, ImageError> {
        let mode = Mode::RUSR | Mode::WUSR;
        let device = |kind| rustix::fs::mknodat(at, name, kind, mode, file.rdev);
        let made = match file.kind {
            Kind::Directory => rustix::fs::mkdirat(at, name, Mode::RWXU),
            Kind::Regular => create_file(at, name, mode),
            Kind::Symlink => rustix::fs::symlinkat(file.target.as_ref(), at, name),
            Kind::Fifo => rustix::fs::mknodat(at, name, FileType::Fifo, mode, 0),
            Kind::Socket => rustix::fs::mknodat(at, name, FileType::Socket, mode, 0),
            Kind::CharDevice => device(FileType::CharacterDevice),
            Kind::BlockDevice => device(FileType::BlockDevice),
        };
        let is_device = matches!(file.kind, Kind::CharDevice | Kind::BlockDevice);
        match made {
            Ok(()) => Ok(true),
            Err(cause @ (Errno::PERM | Errno::ACCESS)) if is_device => {
                let rdev = file.rdev;
                self.refused("make device", Refused::Device { rdev }, cause)?;
                Ok(false)
            }
            Err(cause) => Err(self.failed("make", cause)),
        }
    }

    /// Sets attributes: the owner first, as that takes away mode bits and capabilities; then extended ones, as
    /// an ACL changes the mode; then the mode; and the times last.
    fn attributes(
        &mut self,
        at: BorrowedFd<'_>,
        name: &[u8],
        fnode: Fnode,
    ) -> Result<(), ImageError> {
        let unknown = Attributes::default();
        let file = self.tree.attributes(fnode).unwrap_or(&unknown);
        let kind = self.tree.kind(fnode).unwrap_or(Kind::Directory);
        if let (Some(uid), Some(gid)) = (file.uid, file.gid) {
            self.owner(at, name, uid, gid)?;
        }
        for (key, value) in &file.xattrs {
            self.xattr(at, name, key, value)?;
        }
        if kind != Kind::Symlink {
            // The reference records no modes.
            let usual = if kind == Kind::Directory {
                0o755
            } else {
                0o644
            };
            let mode = Mode::from_raw_mode(file.mode.unwrap_or(usual) & 0o7777);
            rustix::fs::chmodat(at, name, mode, AtFlags::empty())
                .map_err(|cause| self.failed("change the mode of", cause))?;
        }
        if file.atime.is_some() || file.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(file.atime),
                last_modification: timespec(file.mtime),
            };
            rustix::fs::utimensat(at, name, &times, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|cause| self.failed("set the times of", cause))?;
        }
        Ok(())
    }

    fn owner(
        &mut self,
        at: BorrowedFd<'_>,
        name: &[u8],
        uid: u32,
        gid: u32,
    ) -> Result<(), ImageError> {
        let what = Refused::Owner { uid, gid };
        if !self.options.restore_owner {
            if (uid, gid) != self.owner {
                self.list(what, "not asked for".to_owned());
            }
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::chownat(at, name, Some(uid), Some(gid), flags) {
            Ok(()) => Ok(()),
            Err(cause @ (Errno::PERM | Errno::INVAL)) => {
                self.refused("change the owner of", what, cause)
            }
            Err(cause) => Err(self.failed("change the owner of", cause)),
        }
    }

    fn xattr(
        &mut self,
        at: BorrowedFd<'_>,
        name: &[u8],
        key: &Bytes,
        value: &Bytes,
    ) -> Result<(), ImageError> {
        // There is no call with a directory and a name, and a whole path may be too long.
        let path = if at.as_raw_fd() == CWD.as_raw_fd() {
            name.to_vec()
        } else {
            let mut path = format!("/proc/self/fd/{}/", at.as_raw_fd()).into_bytes();
            path.extend_from_slice(name);
            path
        };
        match rustix::fs::lsetxattr(&*path, key.as_ref(), value, XattrFlags::empty()) {
            Ok(()) => Ok(()),
            Err(cause @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL)) => {
                let name = key.to_vec();
                self.refused(
                    "set an extended attribute of",
                    Refused::Xattr { name },
                    cause,
                )
            }
            Err(cause) => Err(self.failed("set an extended attribute of", cause)),
        }
    }

    /// Writes the small files that are no fnodes, among what is built already.
    fn properties(
        &mut self,
        tree: &Path,
        properties: &BTreeMap<Bytes, Bytes>,
    ) -> Result<(), ImageError> {
        for (path, content) in properties {
            self.files += 1;
            let shown = self
                .root
                .join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)));
            let failed = |cause: io::Error| ImageError::io("write", &shown, cause);
            let mut at = tree.to_owned();
            let mut names = path
                .split(|byte| *byte == b'/')
                .filter(|name| !name.is_empty());
            let last = names.next_back().unwrap_or(b"..");
            for name in names {
                at.push(plain(name).ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?);
                match std::fs::create_dir(&at) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(cause) => return Err(failed(cause)),
                }
            }
            at.push(plain(last).ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?);
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(&at)
                .map_err(failed)?;
            file.write_all(content).map_err(failed)?;
        }
        Ok(())
    }

    /// Lists what was refused, or makes an error of it.
    fn refused(
        &mut self,
        operation: &'static str,
        what: Refused,
        cause: Errno,
    ) -> Result<(), ImageError> {
        if self.options.restore_owner {
            return Err(ImageError::Unprivileged {
                operation,
                path: self.shown(),
                cause: io::Error::from(cause).into(),
            });
        }
        self.list(what, io::Error::from(cause).to_string());
        Ok(())
    }

    fn list(&mut self, what: Refused, cause: String) {
        self.not_restored_count += 1;
        if self.not_restored.len() < LISTED_MAX {
            let path = self.relative();
            self.not_restored.push(NotRestored { path, what, cause });
        }
    }

    fn failed(&self, operation: &'static str, cause: Errno) -> ImageError {
        ImageError::io(operation, &self.shown(), cause)
    }

    fn shown(&self) -> PathBuf {
        self.root.join(self.relative())
    }

    fn relative(&self) -> PathBuf {
        self.path
            .iter()
            .map(|name| OsStr::from_bytes(name))
            .collect()
    }
}

fn create_file(at: BorrowedFd<'_>, name: &[u8], mode: Mode) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, mode).map(drop)
}

/// A name that stays where it is put.
fn plain(name: &[u8]) -> Option<&OsStr> {
    (name != b"." && name != b".." && !name.contains(&0)).then(|| OsStr::from_bytes(name))
}

fn open_directory(at: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// A time that is not known stays as it is.
fn timespec(time: Option<Timestamp>) -> Timespec {
    let omitted = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT,
    };
    time.map_or(omitted, |time| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanos.into(),
    })
}

/// More would be read by nobody; the count goes on.
const LISTED_MAX: usize = 1000;
