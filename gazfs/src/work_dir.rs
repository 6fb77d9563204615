//! The folder in which a recorded directory keeps its backing files and its state.
//!
//! One daemon at a time holds it by a lock, which the kernel lets go with the process. What lies
//! in it:
//!
//! | name | is |
//! |---|---|
//! | `lock` | held by the daemon; its process number is in it |
//! | `tree/` | the backing files: what the mount shows |
//! | `restore/` | the tree as it is being rebuilt from the log |
//! | `state.json` | whose log it is, and how far it is known to agree with the tree |
//! | `image` | what the log had said at that point, so that it need not be read again |
//! | `checkpoint` | what the log had said up to some offset, while it is recorded |
//! | `pulse` | what the daemon is about, for the next one if it is killed |
//! | `unrecorded-TIME/` | what the log never got, set aside |

mod pulse;
mod state;

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use thiserror::Error;
use time::{OffsetDateTime, format_description::StaticFormatDescription};

pub use pulse::{LastPulse, Pulse};
pub use state::{Ground, Phase, State};

/// Why a folder cannot be used.
#[derive(Debug, Error)]
pub enum WorkDirError {
    /// Another daemon uses it.
    #[error(
        "use {}: process {pid} records in it already; next: end that (gazfs umount), or choose \
         another --work", .dir.display()
    )]
    InUse {
        /// The folder.
        dir: PathBuf,
        /// The other daemon, as it says.
        pid: String,
    },
    /// It was made for another log.
    #[error(
        "use {}: it holds the files of the log {found}, not of {wanted}; next: choose another \
         --work", .dir.display()
    )]
    OtherLog {
        /// The folder.
        dir: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        wanted: String,
    },
    /// It holds something that is not ours.
    #[error(
        "use {}: it holds files of something else; next: choose an empty folder for --work",
        .dir.display()
    )]
    Foreign {
        /// The folder.
        dir: PathBuf,
    },
    /// The system refused.
    #[error("{what} {}: {cause}; next: look at its owner, its mode and the disk", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
}

/// The folder, held by this process.
#[derive(Debug)]
pub struct WorkDir {
    dir: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl WorkDir {
    /// Makes the folder if it is not there, and locks it.
    pub fn open(dir: &Path) -> Result<Self, WorkDirError> {
        let fail = |what, path: &Path| {
            let path = path.to_owned();
            move |cause| WorkDirError::Io { what, path, cause }
        };
        // What lies in it belongs to users with their own modes: nobody else may look at it
        // around the mount.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE)
            .create(dir)
            .map_err(fail("make", dir))?;
        let dir = fs::canonicalize(dir).map_err(fail("find", dir))?;
        let path = dir.join(LOCK);
        if !path.exists() && !is_empty(&dir).map_err(fail("list", &dir))? {
            return Err(WorkDirError::Foreign { dir });
        }
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(fail("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                lock.read_to_string(&mut pid).map_err(fail("read", &path))?;
                let pid = pid.trim().to_owned();
                return Err(WorkDirError::InUse { dir, pid });
            }
            Err(TryLockError::Error(cause)) => return Err(fail("lock", &path)(cause)),
        }
        let pid = format!("{}\n", std::process::id());
        let written = lock
            .set_len(0)
            .and_then(|()| lock.seek(SeekFrom::Start(0)))
            .and_then(|_| lock.write_all(pid.as_bytes()));
        written.map_err(fail("write", &path))?;
        // One that was there may be open to others.
        let mode = fs::metadata(&dir).map_err(fail("look at", &dir))?.mode();
        if mode & 0o7777 != PRIVATE {
            let private = fs::Permissions::from_mode(PRIVATE);
            fs::set_permissions(&dir, private).map_err(fail("close to other users", &dir))?;
        }
        Ok(Self { dir, _lock: lock })
    }

    /// The folder itself, without links.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The backing files.
    pub fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    /// Where a tree is rebuilt before it becomes the backing files.
    pub fn restore(&self) -> PathBuf {
        self.dir.join("restore")
    }

    /// What the log had said when the state was written.
    pub fn image(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// Reads the state that the last daemon left, if there is one that can be relied on.
    ///
    /// A state that cannot be understood is none: then the log is played.
    pub fn read_state(&self, log: &str) -> Result<Option<State>, WorkDirError> {
        let path = self.dir.join(STATE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => {
                let what = "read";
                return Err(WorkDirError::Io { what, path, cause });
            }
        };
        let state: State = match serde_json::from_slice(&text) {
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(path = %path.display(), err = %error, "the state is not understood");
                return Ok(None);
            }
        };
        if state.log != log {
            return Err(WorkDirError::OtherLog {
                dir: self.dir.clone(),
                found: state.log,
                wanted: log.to_owned(),
            });
        }
        Ok(Some(state))
    }

    /// Replaces the state, durably.
    pub fn write_state(&self, state: &State) -> Result<(), WorkDirError> {
        let text = serde_json::to_vec_pretty(state).map_err(|error| WorkDirError::Io {
            what: "encode the state in",
            path: self.dir.clone(),
            cause: error.into(),
        })?;
        self.replace(STATE, &text)
    }

    /// Reads what the log had said when the state was written.
    pub fn read_image(&self) -> io::Result<Vec<u8>> {
        fs::read(self.image())
    }

    /// Replaces what the log had said, durably.
    pub fn write_image(&self, image: &[u8]) -> Result<(), WorkDirError> {
        self.replace(IMAGE, image)
    }

    /// Reads the last checkpoint.
    pub fn read_checkpoint(&self) -> io::Result<Vec<u8>> {
        fs::read(self.dir.join(CHECKPOINT))
    }

    /// Replaces the checkpoint, durably.
    pub fn write_checkpoint(&self, checkpoint: &[u8]) -> Result<(), WorkDirError> {
        self.replace(CHECKPOINT, checkpoint)
    }

    /// Removes the checkpoint, as it is not of the tree.
    pub fn remove_checkpoint(&self) -> Result<(), WorkDirError> {
        let path = self.dir.join(CHECKPOINT);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                let what = "remove";
                Err(WorkDirError::Io { what, path, cause })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Begins a pulse, in the place of that of the last daemon.
    pub fn new_pulse(&self, author: u32) -> io::Result<Pulse> {
        Pulse::create(&self.dir.join(PULSE), author)
    }

    /// Reads the pulse of the last daemon, if it left one.
    pub fn last_pulse(&self) -> Option<LastPulse> {
        LastPulse::read(&self.dir.join(PULSE))
    }

    fn replace(&self, name: &str, content: &[u8]) -> Result<(), WorkDirError> {
        let path = self.dir.join(name);
        let fresh = self.dir.join(format!("{name}.new"));
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(|cause| WorkDirError::Io {
            what: "write",
            path: path.clone(),
            cause,
        })
    }

    /// Sets the backing files aside, as they hold what the log never got. Returns where they are.
    pub fn set_aside(&self, now: OffsetDateTime) -> Result<PathBuf, WorkDirError> {
        let tree = self.tree();
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |cause| WorkDirError::Io {
                what: "set aside",
                path,
                cause,
            }
        };
        let time = now.format(ASIDE_TIME).map_err(|error| {
            let error = io::Error::other(error);
            fail(&tree)(error)
        })?;
        let taken = |at: &PathBuf| at.symlink_metadata().is_ok();
        let plain = self.dir.join(format!("{ASIDE_PREFIX}{time}"));
        let more = (2..).map(|nth| self.dir.join(format!("{ASIDE_PREFIX}{time}-{nth}")));
        let aside = std::iter::once(plain)
            .chain(more)
            .find(|at| !taken(at))
            .ok_or_else(|| fail(&tree)(io::ErrorKind::AlreadyExists.into()))?;
        fs::rename(&tree, &aside).map_err(fail(&tree))?;
        Ok(aside)
    }

    /// What was set aside, now and before.
    pub fn asides(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_aside = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(ASIDE_PREFIX))
        };
        let mut found: Vec<PathBuf> = names.filter(is_aside).collect();
        found.sort();
        found
    }
}

/// The folder of a log where none is given: below the state folder of the system for root, of the
/// user for others.
pub fn default_dir(log: &str) -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = if let Some(state) = variable("STATE_DIRECTORY") {
        // As systemd gives it.
        state
    } else if rustix::process::geteuid().is_root() {
        PathBuf::from("/var/lib/gazfs")
    } else if let Some(state) = variable("XDG_STATE_HOME") {
        state.join("gazfs")
    } else {
        variable("HOME")?.join(".local/state/gazfs")
    };
    Some(base.join(file_name(log)))
}

/// One name of a file for a log.
fn file_name(log: &str) -> String {
    log.replace('%', "%25").replace('/', "%2F")
}

fn is_empty(dir: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(dir)?.next().is_none())
}

const PRIVATE: u32 = 0o700;
const LOCK: &str = "lock";
const STATE: &str = "state.json";
const IMAGE: &str = "image";
const CHECKPOINT: &str = "checkpoint";
const PULSE: &str = "pulse";
const ASIDE_PREFIX: &str = "unrecorded-";
const ASIDE_TIME: StaticFormatDescription =
    time::macros::format_description!("[year]-[month]-[day]T[hour][minute][second]Z");

#[cfg(test)]
mod tests;
