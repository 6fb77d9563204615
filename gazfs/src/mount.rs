//! Mounting and unmounting.

mod control;
mod kernel;
mod plan;
mod table;

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    mount::{UnmountFlags, unmount},
};
use thiserror::Error;
use tokio::sync::watch;

use self::kernel::{Allowed, mount_fuse};
use crate::{
    fuse::{Chosen, Filesystem, Mounts, Session, Transport, journals, recorded},
    journals::JournalFs,
    recorded::{RecordedFs, log::Log},
};

pub use control::{
    Asked, Control, Daemon, FlushOutcome, Question, UmountOutcome, ask, ask_as, ask_to_umount,
    daemon_of, daemons,
};
pub use plan::{Plan, PlanError, plan};
pub use table::{MountEntry, at, read, source};

/// Why nothing was mounted, or not unmounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// The place is not one.
    #[error(transparent)]
    Place(#[from] PlanError),
    /// The mount point cannot be used.
    #[error("mount {}: {cause}; next: {next}", .point.display())]
    Point {
        /// The mount point.
        point: PathBuf,
        /// Why.
        cause: String,
        /// What to do.
        next: &'static str,
    },
    /// There is no FUSE here, or it may not be used.
    #[error("open /dev/fuse: {cause}; next: {next}")]
    Device {
        /// Why.
        cause: io::Error,
        /// What to do.
        next: &'static str,
    },
    /// The kernel, or its helper, refused.
    #[error("mount {}: {cause}; next: run as root, or install fuse3 (fusermount3), and look into \
             the kernel's log", .point.display())]
    Refused {
        /// The mount point.
        point: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It was to be mounted by one transport only, which cannot be used.
    #[error("mount {}: {cause}{}", .point.display(), or_auto(.cause))]
    Transport {
        /// The mount point.
        point: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Somebody uses it.
    #[error("unmount {}: it is in use; next: close its files and leave its directories (lsof, \
             fuser -m), then try again", .point.display())]
    Busy {
        /// The mount point.
        point: PathBuf,
    },
    /// It could not be unmounted.
    #[error("unmount {}: {cause}; next: try umount -l", .point.display())]
    Unmount {
        /// The mount point.
        point: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Nothing of ours is mounted there.
    #[error("unmount {}: nothing of gazfs is mounted there; next: findmnt | grep gazfs lists what is", .point.display())]
    NotMounted {
        /// The mount point.
        point: PathBuf,
    },
    /// The daemon did not answer.
    #[error("unmount {}: process {pid} does not answer: {cause}; next: kill it, then try again", .point.display())]
    NoAnswer {
        /// The mount point.
        point: PathBuf,
        /// The daemon.
        pid: u32,
        /// Why.
        cause: io::Error,
    },
    /// The kernel's table cannot be read.
    #[error("read the table of mounts: {0}; next: check that /proc is mounted")]
    Table(io::Error),
}

/// A mount that is there until it is unmounted, by us or by anybody. It is unmounted when this is
/// dropped.
#[derive(Debug)]
pub struct Mounted {
    point: PathBuf,
    transport: Chosen,
    ended: watch::Receiver<bool>,
}

/// Who may use a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only the user that mounts.
    Owner,
    /// Everybody, as far as modes allow.
    All,
}

/// How something is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountOptions {
    /// Who may use it.
    pub access: Access,
    /// By which way requests come.
    pub transport: Transport,
}

impl From<Access> for MountOptions {
    fn from(access: Access) -> Self {
        Self {
            access,
            transport: Transport::default(),
        }
    }
}

/// Mounts journals. `data` is the folder of a broker in this process, if there is one.
pub fn mount(
    fs: &JournalFs,
    point: &Path,
    data: Option<&Path>,
    options: impl Into<MountOptions>,
) -> Result<Mounted, MountError> {
    let point = check(point, data)?;
    let adapter = journals::Adapter::new(fs.clone());
    let session = start(adapter, &point, options.into(), false)?;
    serve(session, point)
}

/// Mounts a recorded directory. `work` is the folder of its backing files and state.
pub fn mount_recorded<L: Log>(
    fs: &RecordedFs<L>,
    point: &Path,
    work: &Path,
    options: impl Into<MountOptions>,
) -> Result<Mounted, MountError> {
    let point = check(point, Some(work))?;
    let refused = |cause| MountError::Refused {
        point: point.clone(),
        cause,
    };
    let adapter = recorded::Adapter::new(fs.clone()).map_err(refused)?;
    // As any directory of a local file system, if the user may have that.
    let privileges = rustix::process::geteuid().is_root();
    let session = start(adapter, &point, options.into(), privileges)?;
    recorded::keep_right(fs, session.notifier());
    serve(session, point)
}

fn start<F: Filesystem>(
    adapter: F,
    point: &Path,
    options: MountOptions,
    privileges: bool,
) -> Result<Session, MountError> {
    let allowed = Allowed {
        access: options.access,
        privileges,
    };
    let place = Place { point, allowed };
    let session = Session::start(adapter, options.transport, &place);
    session.map_err(|cause| {
        let point = point.to_owned();
        let is_unsupported = cause.kind() == io::ErrorKind::Unsupported;
        if is_unsupported && options.transport == Transport::IoUring {
            MountError::Transport { point, cause }
        } else {
            MountError::Refused { point, cause }
        }
    })
}

/// What else can be done where a transport cannot be used.
fn or_auto(cause: &io::Error) -> &'static str {
    if cause.to_string().contains("; next: ") {
        ", or choose --transport auto"
    } else {
        "; next: choose --transport auto"
    }
}

/// Where something is mounted.
struct Place<'a> {
    point: &'a Path,
    allowed: Allowed,
}

impl Mounts for Place<'_> {
    fn mount(&self) -> io::Result<OwnedFd> {
        mount_fuse(self.point, self.allowed)
    }

    fn unmount(&self) {
        if let Err(error) = unmount_own(self.point, UnmountFlags::DETACH) {
            tracing::warn!("{error}");
        }
    }
}

/// Waits in the background for the end of a mount.
fn serve(session: Session, point: PathBuf) -> Result<Mounted, MountError> {
    read_ahead(&point);
    let (ended, is_ended) = watch::channel(false);
    let (place, transport) = (point.clone(), session.chosen().clone());
    let wait = move || {
        if let Err(error) = session.wait() {
            fail(&place, &error.to_string());
        }
        session.end();
        // Nobody may be waiting any more.
        let _nobody = ended.send(true);
    };
    thread::Builder::new()
        .name("fuse-end".to_owned())
        .spawn(wait)
        .map_err(|cause| {
            // It would be served, and nobody could end it.
            fail(&point, &cause.to_string());
            MountError::Refused {
                point: point.clone(),
                cause,
            }
        })?;
    Ok(Mounted {
        point,
        transport,
        ended: is_ended,
    })
}

/// Takes a mount away that nobody answers any more.
fn fail(point: &Path, cause: &str) {
    tracing::error!(point = %point.display(), err = cause, "requests cannot be served any more");
    // It ends calls that wait for an answer, which only root may have.
    let _refused = unmount_own(point, UnmountFlags::FORCE);
    if let Err(error) = unmount_own(point, UnmountFlags::DETACH) {
        tracing::warn!("{error}");
    }
}

/// Unmounts what this process has mounted at a place. Does nothing if another mount is there by now.
fn unmount_own(point: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    let table = read().map_err(MountError::Table)?;
    match at(&table, point) {
        Some(entry) if entry.daemon() == Some(std::process::id()) => unmount_now(point, flags),
        Some(_) | None => Ok(()),
    }
}

/// Lets the kernel read ahead as much as we offer: by itself it does not go beyond 128 KiB. Only
/// root may change it, and a mount works without.
fn read_ahead(point: &Path) {
    let Some(device) = read()
        .ok()
        .and_then(|table| at(&table, point).map(|entry| entry.device.clone()))
    else {
        return;
    };
    let limit = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = fs::write(&limit, READ_AHEAD_KIB) {
        tracing::debug!(%limit, err = %error, "the limit of reading ahead stays");
    }
}

/// Checks that journals can be mounted at a place, takes a dead mount away, and returns the place
/// without links.
pub fn check(point: &Path, data: Option<&Path>) -> Result<PathBuf, MountError> {
    check_device()?;
    let fail = |cause: &io::Error, next| MountError::Point {
        point: point.to_owned(),
        cause: cause.to_string(),
        next,
    };
    let resolved = resolve(point).map_err(|error| fail(&error, "create the directory"))?;
    let data = data.map(|data| resolve(data).unwrap_or_else(|_| data.to_owned()));
    let table = read().map_err(MountError::Table)?;
    let plan = plan(&resolved, data.as_deref(), &table, is_daemon)?;
    if plan == Plan::Replace {
        tracing::warn!(point = %resolved.display(), "replacing a mount whose daemon died");
        unmount_now(&resolved, UnmountFlags::DETACH)?;
    }
    let mut entries =
        fs::read_dir(&resolved).map_err(|error| fail(&error, "create the directory"))?;
    if entries.next().is_some() {
        return Err(MountError::Point {
            point: resolved,
            cause: "it is not empty, and its files would be hidden".to_owned(),
            next: "choose an empty directory",
        });
    }
    Ok(resolved)
}

/// Resolves links of a path. A mount point is not touched: that of a dead mount gives errors, and that
/// of a stopped daemon does not answer.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    // One that ends in a dot or a slash has its last part here too.
    let path: PathBuf = path.components().collect();
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return fs::canonicalize(&path);
    };
    let resolved = fs::canonicalize(parent)?.join(name);
    let is_mounted = read().is_ok_and(|table| at(&table, &resolved).is_some());
    let is_link = || fs::symlink_metadata(&resolved).is_ok_and(|metadata| metadata.is_symlink());
    if !is_mounted && is_link() {
        fs::canonicalize(&resolved)
    } else {
        Ok(resolved)
    }
}

/// Says whether a process is a daemon of ours that serves FUSE.
fn is_daemon(pid: u32) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        // A process of another user may not be looked at: then it is taken for what it says.
        return Path::new(&format!("/proc/{pid}")).exists()
            && !rustix::process::geteuid().is_root();
    };
    descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .any(|target| target == Path::new(DEVICE))
}

/// Opens the device as mounting will, to say what is wrong in time.
fn check_device() -> Result<(), MountError> {
    let opened: io::Result<File> = OpenOptions::new().read(true).write(true).open(DEVICE);
    let Err(cause) = opened else { return Ok(()) };
    let next = if cause.kind() == io::ErrorKind::PermissionDenied {
        "run as root, or let this user open it (chmod 666 /dev/fuse; in a container also \
         --cap-add SYS_ADMIN) and install fusermount3"
    } else {
        "load the module (modprobe fuse); in a container, give it the device (--device /dev/fuse \
         --cap-add SYS_ADMIN). Without a mount, gazctl reads and appends"
    };
    Err(MountError::Device { cause, next })
}

impl Mounted {
    /// The mount point, without links.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// By which way requests come, and why it is not another.
    pub fn transport(&self) -> &Chosen {
        &self.transport
    }

    /// Waits until it is unmounted.
    pub async fn ended(&self) {
        let mut ended = self.ended.clone();
        // A sender that is gone has ended too.
        let _gone = ended.wait_for(|ended| *ended).await;
    }

    /// Says whether it is unmounted.
    pub fn is_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Unmounts, unless somebody uses it.
    pub async fn unmount(&self) -> Result<(), MountError> {
        self.unmount_with(UnmountFlags::empty()).await
    }

    /// Unmounts also if somebody uses it: names are gone at once, open files with this process.
    pub async fn detach(&self) -> Result<(), MountError> {
        self.unmount_with(UnmountFlags::DETACH).await
    }

    async fn unmount_with(&self, flags: UnmountFlags) -> Result<(), MountError> {
        if self.is_ended() {
            return Ok(());
        }
        let point = self.point.clone();
        // The kernel may ask the file system before it answers.
        let unmounted = tokio::task::spawn_blocking(move || unmount_own(&point, flags)).await;
        unmounted.unwrap_or_else(|error| {
            Err(MountError::Unmount {
                point: self.point.clone(),
                cause: io::Error::other(error),
            })
        })?;
        if !flags.contains(UnmountFlags::DETACH) {
            // It ends at once if nothing is open.
            let _late = tokio::time::timeout(END_TIMEOUT, self.ended()).await;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.is_ended()
            && let Err(error) = unmount_own(&self.point, UnmountFlags::DETACH)
        {
            tracing::warn!("{error}");
        }
    }
}

/// Unmounts, by the helper if we may not.
pub(crate) fn unmount_now(point: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    let fail = |cause| MountError::Unmount {
        point: point.to_owned(),
        cause,
    };
    match unmount(point, flags) {
        // The second means that nothing is mounted there any more.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy {
            point: point.to_owned(),
        }),
        Err(Errno::PERM) => {
            let mut helper = Command::new("fusermount3");
            helper.arg(if flags.contains(UnmountFlags::DETACH) {
                "-uz"
            } else {
                "-u"
            });
            let output = helper.arg("--").arg(point).output().map_err(fail)?;
            let text = String::from_utf8_lossy(&output.stderr);
            match (output.status.success(), text.contains("busy")) {
                (true, _) => Ok(()),
                (false, true) => Err(MountError::Busy {
                    point: point.to_owned(),
                }),
                (false, false) => Err(fail(io::Error::other(text.trim().to_owned()))),
            }
        }
        Err(error) => Err(fail(error.into())),
    }
}

/// As much as the file systems offer.
const READ_AHEAD_KIB: &str = "1024";

const DEVICE: &str = "/dev/fuse";

/// How long the kernel may take to end the connection of a mount that nobody uses.
const END_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
