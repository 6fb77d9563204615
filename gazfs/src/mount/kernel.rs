//! How the kernel is asked to mount: by ourselves, or by the helper where we may not.

use std::{
    ffi::CString,
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Command, Stdio},
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    mount::{MountFlags, mount},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    process::{getgid, getuid},
};

use super::{Access, DEVICE, source};

/// What a mount allows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowed {
    pub(super) access: Access,
    /// Devices and set-user-ID bits mean what they mean elsewhere.
    pub(super) privileges: bool,
}

/// Mounts, and returns the device that it is mounted by.
pub(super) fn mount_fuse(point: &Path, allowed: Allowed) -> io::Result<OwnedFd> {
    let device = openat(CWD, DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    match mount_by_ourselves(point, allowed, &device) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => mount_by_helper(point, allowed),
        Err(error) => Err(error.into()),
    }
}

fn mount_by_ourselves(point: &Path, allowed: Allowed, device: &OwnedFd) -> Result<(), Errno> {
    let mut options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        getuid().as_raw(),
        getgid().as_raw()
    );
    if allowed.access == Access::All {
        options.push_str(",allow_other");
    }
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    let mut flags = MountFlags::NOATIME;
    if !allowed.privileges {
        flags |= MountFlags::NODEV | MountFlags::NOSUID;
    }
    mount(
        source(std::process::id()),
        point,
        "fuse",
        flags,
        options.as_c_str(),
    )
}

/// The helper mounts, and hands the device over a socket, which is its standard input here.
fn mount_by_helper(point: &Path, allowed: Allowed) -> io::Result<OwnedFd> {
    let mut options = format!(
        "fsname={},subtype=gazfs,default_permissions,noatime",
        source(std::process::id())
    );
    if !allowed.privileges {
        options.push_str(",nodev,nosuid");
    }
    if allowed.access == Access::All {
        options.push_str(",allow_other");
    }
    let (ours, theirs) = UnixStream::pair()?;
    let helper = Command::new("fusermount3")
        .args(["-o", &options, "--"])
        .arg(point)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let device = receive(&ours);
    let output = helper.wait_with_output();
    device.and_then(|device| {
        device.ok_or_else(|| match output {
            Ok(output) => {
                io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())
            }
            Err(error) => error,
        })
    })
}

/// Waits for a descriptor. There is none if the other side ends without one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    loop {
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut descriptors = ancillary.drain().filter_map(|message| {
        let RecvAncillaryMessage::ScmRights(mut descriptors) = message else {
            return None;
        };
        descriptors.next()
    });
    Ok(descriptors.next())
}
