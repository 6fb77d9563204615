//! New files and names: create, mknod, mkdir, symlink, link.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use gazette_recoverylog_fsm::{Fnode, Inode, Kind, Mutation, Place, Timestamp};
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fstat, openat},
    io::Errno,
};

use super::{
    attributes::{Attributes, Ino, MODE_BITS, attributes, inode, kind},
    backing::open_name,
    call::Call,
    error::FsError,
    fs::{RecordedFs, check_name},
    log::Log,
    node::{BackingFile, DefaultAcl, Node},
    open::{OpenFlags, Opened},
    open_mode::class,
    sqlite,
    xattr::{ACCESS_ACL, DEFAULT_ACL, get, path_for},
};

/// A new file that is open, or one that was there and is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// What stat(2) tells.
    pub attributes: Attributes,
    /// The handle.
    pub opened: Opened,
}

/// What is made.
#[derive(Debug, Clone, Copy)]
enum New<'a> {
    File,
    /// A file that has no name yet.
    Unnamed,
    Special {
        kind: Kind,
        rdev: u64,
    },
    Directory,
    Symlink {
        target: &'a [u8],
    },
}

impl<L: Log> RecordedFs<L> {
    /// Makes and opens a regular file, or opens the one that is there.
    pub fn create(
        &self,
        call: &Call<'_>,
        parent: Ino,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<Created, FsError> {
        match self.make(call, parent, name, mode, New::File) {
            Err(FsError::System(Errno::EXIST)) if !flags.is_exclusive => {
                let attributes = self.look_up(parent, name)?;
                match self.open(call, attributes.ino, flags) {
                    Ok(opened) => Ok(Created { attributes, opened }),
                    Err(error) => {
                        self.forget(attributes.ino, 1);
                        Err(error)
                    }
                }
            }
            Err(error) => Err(error),
            Ok(made) => self.opened(&made, Some(name), flags),
        }
    }

    /// Makes and opens a regular file that has no name. It is gone with its last handle, unless it got
    /// one by then.
    pub fn create_unnamed(
        &self,
        call: &Call<'_>,
        directory: Ino,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<Created, FsError> {
        let made = self.make(call, directory, b"", mode, New::Unnamed)?;
        self.opened(&made, None, flags)
    }

    /// Counts the first handle of a file that was made.
    fn opened(
        &self,
        made: &Made,
        name: Option<&[u8]>,
        flags: OpenFlags,
    ) -> Result<Created, FsError> {
        let file = made.file.as_ref().ok_or(Errno::IO)?;
        let mut state = made.node.lock();
        state.file = Some(BackingFile {
            descriptor: Arc::clone(file),
            may_read: true,
            may_write: true,
        });
        let class = class(name, made.node.is_left_out);
        let opened = self.count_open(&made.node, &mut state, class, flags.may_write, file);
        Ok(Created {
            attributes: made.attributes,
            opened,
        })
    }

    /// Makes a regular file, a pipe, a socket or a device.
    pub fn make_node(
        &self,
        call: &Call<'_>,
        parent: Ino,
        name: &[u8],
        (kind, mode): (Kind, u32),
        rdev: u64,
    ) -> Result<Attributes, FsError> {
        let new = match kind {
            Kind::Regular => New::File,
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                New::Special { kind, rdev }
            }
            Kind::Directory | Kind::Symlink => return Err(Errno::INVAL.into()),
        };
        Ok(self.make(call, parent, name, mode, new)?.attributes)
    }

    /// Makes a directory.
    pub fn make_directory(
        &self,
        call: &Call<'_>,
        parent: Ino,
        name: &[u8],
        mode: u32,
    ) -> Result<Attributes, FsError> {
        let made = self.make(call, parent, name, mode, New::Directory)?;
        Ok(made.attributes)
    }

    /// Makes a symbolic link.
    pub fn make_symlink(
        &self,
        call: &Call<'_>,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attributes, FsError> {
        let made = self.make(call, parent, name, 0o777, New::Symlink { target })?;
        Ok(made.attributes)
    }

    /// Gives a file another name.
    pub fn link(
        &self,
        call: &Call<'_>,
        ino: Ino,
        parent: Ino,
        name: &[u8],
    ) -> Result<Attributes, FsError> {
        check_name(name)?;
        let (node, above) = (self.node(ino)?, self.node(parent)?);
        let at = Place {
            parent: above.fnode(),
            name,
        };
        let mutation = || Mutation::Link {
            fnode: node.fnode(),
            at,
        };
        let reservation = self.reserve(call, &mutation())?;
        let touched = self.reserve_attributes(call, above.fnode())?;

        let mut names = self.names();
        let directory = names.descriptor(self.backing(), parent)?;
        let file = names.descriptor(self.backing(), ino)?;
        let _above = above.lock();
        let state = node.lock();
        if !state.is_recorded {
            // It is not in the log, or not any more, so it cannot get a name there. Programs copy the
            // first then.
            let has_name = fstat(&file)?.st_nlink > 0;
            return Err(if has_name { Errno::XDEV } else { Errno::NOENT }.into());
        }
        self.backing().link(&file, &directory, name)?;
        let _group = self.log().group();
        self.record(reservation, &mutation());
        self.record_directory(touched, &above, &directory)?;
        let stat = fstat(&file)?;
        // The kernel was told of it once more.
        let _known = names.look_up(ino, parent, name);
        Ok(attributes(ino, node.generation, &stat))
    }

    fn make(
        &self,
        call: &Call<'_>,
        parent: Ino,
        name: &[u8],
        mode: u32,
        new: New<'_>,
    ) -> Result<Made, FsError> {
        check_name(name)?;
        let above = self.node(parent)?;
        let is_unnamed = matches!(new, New::Unnamed);
        let at = (!is_unnamed).then(|| Place {
            parent: above.fnode(),
            name,
        });
        let expected = Inode {
            target: bytes::Bytes::copy_from_slice(new.target()),
            mtime: Timestamp::default(),
            rdev: u64::MAX,
            ..Inode::default()
        };
        let reservation = self.reserve(
            call,
            &Mutation::Create {
                at,
                inode: &expected,
            },
        )?;
        let touched = self.reserve_attributes(call, above.fnode())?;
        let default_acl = self.default_acl(&above)?;
        let inherited = default_acl
            .as_deref()
            .map(|acl| self.reserve_inherited(call, acl))
            .transpose()?;

        let mut names = self.names();
        let directory = names.descriptor(self.backing(), parent)?;
        let _above = above.lock();
        let asked = if default_acl.is_some() {
            mode & MODE_BITS
        } else {
            mode & MODE_BITS & !call.umask
        };
        let file = new.make(directory.as_fd(), name, asked)?;
        let undo = |error: Errno| {
            new.remove(directory.as_fd(), name);
            FsError::from(error)
        };
        let file = file
            .map_or_else(|| open_name(directory.as_fd(), name), Ok)
            .map_err(undo)?;
        let wanted_mode = default_acl.is_none().then_some(asked);
        let stat = self
            .settle(call, &directory, &file, wanted_mode)
            .map_err(undo)?;

        let is_left_out = sqlite::is_left_out(directory.as_fd(), name, &stat);
        let _group = self.log().group();
        let fnode = if is_left_out {
            None
        } else {
            let inode = &inode(&stat, new.target());
            let mutation = Mutation::Create { at, inode };
            let recorded = self.log().record(reservation, &mutation, &mut |_, _| 0);
            recorded.fnode
        };
        if let (Some(fnode), Some(inherited)) = (fnode, inherited) {
            self.record_inherited(inherited, fnode, &file, kind(&stat));
        }
        let ino = self.backing().ino(stat.st_ino);
        let node = Node::new(ino, kind(&stat), fnode);
        let file = Arc::new(file);
        let node = if is_unnamed {
            names.add_unnamed(node, Arc::clone(&file))
        } else {
            self.record_directory(touched, &above, &directory)?;
            names.add(node, parent, name)
        };
        let mut state = node.lock();
        state.may_have_capability = false;
        state.is_unnamed = is_unnamed;
        drop(state);
        Ok(Made {
            attributes: attributes(ino, node.generation, &stat),
            node,
            file: matches!(new, New::File | New::Unnamed).then_some(file),
        })
    }

    /// Gives a new file its owner and mode, as if the caller had made it. Returns what it is now.
    fn settle(
        &self,
        call: &Call<'_>,
        directory: &OwnedFd,
        file: &OwnedFd,
        mode: Option<u32>,
    ) -> rustix::io::Result<Stat> {
        let mut stat = fstat(file)?;
        let above = fstat(directory)?;
        let gid = if above.st_mode & SET_GROUP_ID == 0 {
            call.gid
        } else {
            above.st_gid
        };
        let mut changed = false;
        if (stat.st_uid, stat.st_gid) != (call.uid, gid) {
            let (uid, gid) = (Uid::from_raw(call.uid), Gid::from_raw(gid));
            rustix::fs::chownat(file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
            changed = true;
        }
        // A directory in one with set-group-ID has that too.
        let inherits = kind(&stat) == Kind::Directory && above.st_mode & SET_GROUP_ID != 0;
        let inherited = if inherits { SET_GROUP_ID } else { 0 };
        let before = stat.st_mode;
        if changed {
            stat = fstat(file)?;
        }
        // Changing the owner took bits away.
        let wanted = mode.map_or(before & MODE_BITS, |mode| mode | inherited);
        if kind(&stat) != Kind::Symlink && stat.st_mode & MODE_BITS != wanted {
            self.backing().change_mode(file, wanted)?;
            stat = fstat(file)?;
        }
        Ok(stat)
    }

    /// Returns the access rights that files in a directory get, if it has such.
    fn default_acl(&self, node: &Node) -> Result<Option<Arc<[u8]>>, FsError> {
        match &node.lock().default_acl {
            DefaultAcl::Unknown => {}
            DefaultAcl::None => return Ok(None),
            DefaultAcl::Some(acl) => return Ok(Some(Arc::clone(acl))),
        }
        let path = self.descriptor(node.ino)?;
        let mut state = node.lock();
        let acl = get(&path_for(&path), DEFAULT_ACL.as_bytes(), false).ok();
        let acl = acl.map(Arc::<[u8]>::from);
        state.default_acl = acl.clone().map_or(DefaultAcl::None, DefaultAcl::Some);
        Ok(acl)
    }

    fn reserve_inherited(&self, call: &Call<'_>, acl: &[u8]) -> Result<Inherited<L>, FsError> {
        let reserve = |name: &'static str| {
            let mutation = Mutation::SetXattr {
                fnode: Fnode(i64::MAX),
                name: name.as_bytes(),
                value: acl,
            };
            self.reserve(call, &mutation)
        };
        Ok(Inherited {
            access: reserve(ACCESS_ACL)?,
            default: reserve(DEFAULT_ACL)?,
        })
    }

    /// Records the access rights that a new file got from its directory.
    fn record_inherited(&self, inherited: Inherited<L>, fnode: Fnode, file: &OwnedFd, kind: Kind) {
        if kind == Kind::Symlink {
            return;
        }
        let path = path_for(file);
        let record = |reservation, name: &'static str| {
            if let Ok(value) = get(&path, name.as_bytes(), false) {
                let mutation = Mutation::SetXattr {
                    fnode,
                    name: name.as_bytes(),
                    value: &value,
                };
                self.record(reservation, &mutation);
            }
        };
        record(inherited.access, ACCESS_ACL);
        record(inherited.default, DEFAULT_ACL);
    }
}

/// A file that was made.
struct Made {
    attributes: Attributes,
    node: Arc<Node>,
    /// A regular file, open.
    file: Option<Arc<OwnedFd>>,
}

/// Room for access rights that a new file gets from its directory.
struct Inherited<L: Log> {
    access: L::Reservation,
    default: L::Reservation,
}

impl New<'_> {
    fn target(&self) -> &[u8] {
        match self {
            Self::Symlink { target } => target,
            Self::File | Self::Unnamed | Self::Special { .. } | Self::Directory => &[],
        }
    }

    /// Makes it. A regular file is open then.
    fn make(
        &self,
        directory: std::os::fd::BorrowedFd<'_>,
        name: &[u8],
        mode: u32,
    ) -> rustix::io::Result<Option<OwnedFd>> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Self::File => openat(directory, name, NEW_FILE, mode).map(Some),
            Self::Unnamed => openat(directory, ".", UNNAMED_FILE, mode).map(Some),
            Self::Special { kind, rdev } => {
                let file_type = match kind {
                    Kind::Fifo => FileType::Fifo,
                    Kind::CharDevice => FileType::CharacterDevice,
                    Kind::BlockDevice => FileType::BlockDevice,
                    Kind::Regular | Kind::Directory | Kind::Symlink | Kind::Socket => {
                        FileType::Socket
                    }
                };
                rustix::fs::mknodat(directory, name, file_type, mode, *rdev)?;
                Ok(None)
            }
            Self::Directory => rustix::fs::mkdirat(directory, name, mode).map(|()| None),
            Self::Symlink { target } => {
                rustix::fs::symlinkat(*target, directory, name).map(|()| None)
            }
        }
    }

    /// Takes it away again, as it could not be finished.
    fn remove(&self, directory: std::os::fd::BorrowedFd<'_>, name: &[u8]) {
        let flags = match self {
            Self::Unnamed => return,
            Self::Directory => AtFlags::REMOVEDIR,
            Self::File | Self::Special { .. } | Self::Symlink { .. } => AtFlags::empty(),
        };
        if let Err(error) = rustix::fs::unlinkat(directory, name, flags) {
            tracing::error!(err = %error, "a half made file stays in the backing tree");
        }
    }
}

const NEW_FILE: OFlags = OFlags::CREATE
    .union(OFlags::EXCL)
    .union(OFlags::RDWR)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOATIME)
    .union(OFlags::CLOEXEC);

const UNNAMED_FILE: OFlags = OFlags::TMPFILE
    .union(OFlags::RDWR)
    .union(OFlags::NOATIME)
    .union(OFlags::CLOEXEC);

const SET_GROUP_ID: u32 = 0o2000;
