//! Extended attributes, and access rights in them.

use std::os::fd::OwnedFd;

use gazette_recoverylog_fsm::{AttributeChange, Kind, Mutation};
use rustix::{
    fs::{XattrFlags, fstat},
    io::Errno,
};

use super::{
    attributes::{Ino, MODE_BITS},
    backing::{path_in, path_of},
    call::Call,
    error::FsError,
    fs::RecordedFs,
    log::Log,
    names::Names,
    node::{DefaultAcl, Node},
};

/// Whether an attribute must exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetMode {
    /// It need not.
    Any,
    /// It must not.
    Create,
    /// It must.
    Replace,
}

/// Where the attributes of a file are.
#[derive(Debug)]
pub(super) struct XattrPath {
    path: Vec<u8>,
    /// The path names the file itself, which is a symbolic link.
    is_link: bool,
}

impl<L: Log> RecordedFs<L> {
    /// Returns the value of an attribute.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, FsError> {
        let node = self.node(ino)?;
        let (path, _descriptor) = self.xattr_path(&node)?;
        Ok(get(&path, name, path.is_link)?)
    }

    /// Returns the names of all attributes that a caller may see, each with a zero byte after it.
    pub fn xattr_names(&self, call: &Call<'_>, ino: Ino) -> Result<Vec<u8>, FsError> {
        let node = self.node(ino)?;
        let (path, _descriptor) = self.xattr_path(&node)?;
        let names = list(&path)?;
        if call.uid == 0 {
            return Ok(names);
        }
        let is_visible = |name: &&[u8]| !name.starts_with(TRUSTED);
        Ok(names
            .split_inclusive(|byte| *byte == 0)
            .filter(is_visible)
            .flatten()
            .copied()
            .collect())
    }

    /// Sets an attribute.
    pub fn set_xattr(
        &self,
        call: &Call<'_>,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: SetMode,
    ) -> Result<(), FsError> {
        let node = self.node(ino)?;
        let mutation = || Mutation::SetXattr {
            fnode: node.fnode(),
            name,
            value,
        };
        let mode_changed = self.reserve_attributes(call, node.fnode())?;
        let reservation = self.reserve(call, &mutation())?;
        let (path, descriptor) = self.xattr_path(&node)?;

        let mut state = node.lock();
        let before = fstat(&descriptor)?.st_mode;
        set(&path, name, value, mode)?;
        state.may_have_capability = true;
        state.default_acl = DefaultAcl::Unknown;
        state.is_privileged = None;
        if !state.is_recorded {
            return Ok(());
        }
        let _group = self.log().group();
        // Access rights that say no more than a mode are not kept: then there is no attribute.
        let are_rights = [ACCESS_ACL.as_bytes(), DEFAULT_ACL.as_bytes()].contains(&name);
        if are_rights && get(&path, name, path.is_link).is_err() {
            let fnode = node.fnode();
            let removal = Mutation::RemoveXattr { fnode, name };
            self.record(reservation, &removal);
        } else {
            self.record(reservation, &mutation());
        }
        self.record_mode(mode_changed, &node, before, &descriptor)
    }

    /// Removes an attribute.
    pub fn remove_xattr(&self, call: &Call<'_>, ino: Ino, name: &[u8]) -> Result<(), FsError> {
        let node = self.node(ino)?;
        let mutation = || Mutation::RemoveXattr {
            fnode: node.fnode(),
            name,
        };
        let reservation = self.reserve(call, &mutation())?;
        let mode_changed = self.reserve_attributes(call, node.fnode())?;
        let (path, descriptor) = self.xattr_path(&node)?;

        let mut state = node.lock();
        let before = fstat(&descriptor)?.st_mode;
        remove(&path, name)?;
        state.default_acl = DefaultAcl::Unknown;
        if !state.is_recorded {
            return Ok(());
        }
        let _group = self.log().group();
        self.record(reservation, &mutation());
        self.record_mode(mode_changed, &node, before, &descriptor)
    }

    /// Records the mode that access rights brought with them.
    fn record_mode(
        &self,
        reservation: L::Reservation,
        node: &Node,
        before: u32,
        descriptor: &OwnedFd,
    ) -> Result<(), FsError> {
        let mode = fstat(descriptor)?.st_mode;
        if mode != before {
            let change = AttributeChange {
                mode: Some(mode & MODE_BITS),
                ..AttributeChange::default()
            };
            self.record_attributes(reservation, node, change);
        }
        Ok(())
    }

    /// Returns where the attributes of a file are, and what must stay open meanwhile.
    fn xattr_path(&self, node: &Node) -> Result<(XattrPath, std::sync::Arc<OwnedFd>), FsError> {
        let mut names = self.names();
        if node.kind != Kind::Symlink {
            let descriptor = names.descriptor(self.backing(), node.ino)?;
            return Ok((path_for(&descriptor), descriptor));
        }
        // A path through a descriptor would be followed; that of the name is not.
        let (parent, name) = Names::name_of(&names, node.ino).ok_or(Errno::OPNOTSUPP)?;
        let directory = names.descriptor(self.backing(), parent)?;
        let path = XattrPath {
            path: path_in(&directory, &name),
            is_link: true,
        };
        Ok((path, directory))
    }
}

/// Returns where the attributes of a file are that is not a symbolic link.
pub(super) fn path_for(descriptor: &OwnedFd) -> XattrPath {
    XattrPath {
        path: path_of(descriptor).into_bytes(),
        is_link: false,
    }
}

/// Reads an attribute.
pub(super) fn get(path: &XattrPath, name: &[u8], is_link: bool) -> rustix::io::Result<Vec<u8>> {
    whole(|buffer| {
        if is_link {
            rustix::fs::lgetxattr(&*path.path, name, buffer)
        } else {
            rustix::fs::getxattr(&*path.path, name, buffer)
        }
    })
}

fn list(path: &XattrPath) -> rustix::io::Result<Vec<u8>> {
    whole(|buffer| {
        if path.is_link {
            rustix::fs::llistxattr(&*path.path, buffer)
        } else {
            rustix::fs::listxattr(&*path.path, buffer)
        }
    })
}

fn set(path: &XattrPath, name: &[u8], value: &[u8], mode: SetMode) -> rustix::io::Result<()> {
    let flags = match mode {
        SetMode::Any => XattrFlags::empty(),
        SetMode::Create => XattrFlags::CREATE,
        SetMode::Replace => XattrFlags::REPLACE,
    };
    if path.is_link {
        rustix::fs::lsetxattr(&*path.path, name, value, flags)
    } else {
        rustix::fs::setxattr(&*path.path, name, value, flags)
    }
}

fn remove(path: &XattrPath, name: &[u8]) -> rustix::io::Result<()> {
    if path.is_link {
        rustix::fs::lremovexattr(&*path.path, name)
    } else {
        rustix::fs::removexattr(&*path.path, name)
    }
}

/// Reads all of something into a buffer that is large enough: first one that nearly always is.
fn whole(read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; SMALL_BYTES];
    let length = match read(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(XATTR_BYTES_MAX, 0);
            read(&mut buffer)?
        }
        read => read?,
    };
    buffer.truncate(length);
    Ok(buffer)
}

/// The attribute of access rights.
pub(super) const ACCESS_ACL: &str = "system.posix_acl_access";

/// The attribute of access rights that new files in a directory get.
pub(super) const DEFAULT_ACL: &str = "system.posix_acl_default";

/// Attributes that only root sees.
const TRUSTED: &[u8] = b"trusted.";

const SMALL_BYTES: usize = 1024;

/// The most that Linux allows.
const XATTR_BYTES_MAX: usize = 1 << 16;
