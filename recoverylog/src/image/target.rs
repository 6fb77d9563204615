//! The place of a tree that is being rebuilt, and the two hidden folders beside it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use gazette_recoverylog_fsm::Fnode;
use rustix::{fs::FlockOperation, io::Errno};

use super::{ImageError, staged};

/// A claimed target. Its lock is held until it is dropped.
#[derive(Debug)]
pub(super) struct Target {
    /// Where the tree will be.
    path: PathBuf,
    /// Folder of the staged files.
    work: PathBuf,
    /// Folder of the tree, until it is renamed.
    tree: PathBuf,
    /// Held locked.
    _lock: File,
}

impl Target {
    /// Claims `path`, which must not exist, or be an empty directory.
    pub(super) fn claim(path: &Path, log: &str) -> Result<Self, ImageError> {
        let path = resolve(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ImageError::NoName(path));
        };
        check_free(&path, parent)?;
        let beside = |suffix: &str| {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(suffix);
            parent.join(hidden)
        };
        let (work, tree) = (beside(".recovering"), beside(".recovered"));
        let lock = claim_work(&work, &tree, log)?;
        let target = Self {
            path,
            work,
            tree,
            _lock: lock,
        };
        target.clear()?;
        Ok(target)
    }

    /// Where the tree will be.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where it is built.
    pub(super) fn tree(&self) -> &Path {
        &self.tree
    }

    /// Folder of the staged files.
    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    /// Where a file is staged.
    pub(super) fn staged(&self, fnode: Fnode) -> PathBuf {
        staged(&self.work, fnode)
    }

    /// Removes all work but the claim itself.
    pub(super) fn clear(&self) -> Result<(), ImageError> {
        remove_tree(&self.tree)?;
        let entries =
            fs::read_dir(&self.work).map_err(|cause| ImageError::io("list", &self.work, cause))?;
        for entry in entries {
            let entry = entry.map_err(|cause| ImageError::io("list", &self.work, cause))?;
            if entry.file_name() != MARKER {
                remove_tree(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Shows the built tree under the target's path, and removes what is left of the work.
    pub(super) fn appear(&self, sync: bool) -> Result<PathBuf, ImageError> {
        let parent = self.path.parent().unwrap_or(&self.path);
        let folder = File::open(parent).map_err(|cause| ImageError::io("open", parent, cause))?;
        if sync {
            rustix::fs::syncfs(&folder).map_err(|cause| ImageError::io("sync", parent, cause))?;
        }
        rustix::fs::rename(&self.tree, &self.path).map_err(|cause| {
            if cause == Errno::BUSY {
                ImageError::MountPoint(self.path.clone())
            } else if cause == Errno::NOTEMPTY {
                ImageError::NotEmpty(self.path.clone())
            } else {
                ImageError::io("rename to", &self.path, cause)
            }
        })?;
        if sync {
            folder
                .sync_all()
                .map_err(|cause| ImageError::io("sync", parent, cause))?;
        }
        Ok(self.path.clone())
    }
}

/// What is left of the work is of no use to anybody.
impl Drop for Target {
    fn drop(&mut self) {
        for left in [&self.tree, &self.work] {
            if let Err(error) = remove_tree(left) {
                tracing::warn!(err = %error, "unfinished work of a recovery stays behind");
            }
        }
    }
}

/// Makes a folder for us alone, which inherits no ACL.
pub(super) fn make_folder(path: &Path) -> Result<(), ImageError> {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(|cause| ImageError::io("make", path, cause))
}

/// Makes a folder in one that may hand down an ACL, and takes that away.
pub(super) fn make_plain_folder(path: &Path) -> Result<(), ImageError> {
    make_folder(path)?;
    for name in ["system.posix_acl_default", "system.posix_acl_access"] {
        // Fails where there is none, which is fine; with one, the mode is set again below.
        let _none = rustix::fs::lremovexattr(path, name);
    }
    fs::set_permissions(path, Permissions::from_mode(0o700))
        .map_err(|cause| ImageError::io("change the mode of", path, cause))
}

fn resolve(path: &Path) -> Result<PathBuf, ImageError> {
    match fs::canonicalize(path) {
        Ok(path) => return Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(ImageError::io("look at", path, cause)),
    }
    let Some(name) = path.file_name() else {
        return Err(ImageError::NoName(path.to_owned()));
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent =
        fs::canonicalize(parent).map_err(|cause| ImageError::io("look at", parent, cause))?;
    Ok(parent.join(name))
}

fn check_free(path: &Path, parent: &Path) -> Result<(), ImageError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(ImageError::io("look at", path, cause)),
    };
    if !metadata.is_dir() {
        return Err(ImageError::NotDirectory(path.to_owned()));
    }
    let above = fs::metadata(parent).map_err(|cause| ImageError::io("look at", parent, cause))?;
    if above.dev() != metadata.dev() {
        return Err(ImageError::MountPoint(path.to_owned()));
    }
    let mut entries = fs::read_dir(path).map_err(|cause| ImageError::io("list", path, cause))?;
    if entries.next().is_some() {
        return Err(ImageError::NotEmpty(path.to_owned()));
    }
    Ok(())
}

/// Makes the folder of the work, or takes over what an earlier recovery left, and returns its lock.
fn claim_work(work: &Path, tree: &Path, log: &str) -> Result<File, ImageError> {
    let marker = work.join(MARKER);
    match fs::symlink_metadata(work) {
        Ok(metadata) => {
            let is_ours = metadata.is_dir() && (is_marked(&marker) || is_empty(work));
            if !is_ours {
                return Err(ImageError::Foreign(work.to_owned()));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if fs::symlink_metadata(tree).is_ok() {
                return Err(ImageError::Foreign(tree.to_owned()));
            }
            make_plain_folder(work)?;
        }
        Err(cause) => return Err(ImageError::io("look at", work, cause)),
    }
    let failed = |cause: io::Error| ImageError::io("write", &marker, cause);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&marker)
        .map_err(failed)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(ImageError::Busy(work.to_owned())),
        Err(error) => return Err(failed(error.into())),
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{MAGIC} of {log}"))
        .map_err(failed)?;
    Ok(file)
}

fn is_marked(marker: &Path) -> bool {
    let mut text = Vec::new();
    File::open(marker)
        .and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut text))
        // A crash may have left it empty.
        .is_ok_and(|_| MAGIC.as_bytes().starts_with(&text))
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Removes a file or a folder with all that is in it, also folders that nobody may enter.
pub(super) fn remove_tree(path: &Path) -> Result<(), ImageError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                open_up(path)?;
                fs::remove_dir_all(path)
            }
            removed => removed,
        },
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ImageError::io("remove", path, error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Lets this process change a folder and all below it.
fn open_up(folder: &Path) -> Result<(), ImageError> {
    let failed = |cause| ImageError::io("change the mode of", folder, cause);
    fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(failed)?;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

/// File that makes a folder known as the work of a recovery.
const MARKER: &str = "recovery";

/// What it begins with.
const MAGIC: &str = "unfinished recovery";
