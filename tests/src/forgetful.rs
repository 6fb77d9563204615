//! A FUSE file system that forgets, when its power is cut, what was not synced.
//!
//! It keeps files in memory twice: as programs see them, and as they are on the disk. What lasts:
//!
//! - bytes of a file: those that a later `fsync` or `fdatasync` of it covered, or that were written with `O_SYNC` or
//!   `O_DSYNC`. `sync_file_range`, `syncfs` and `sync` do nothing;
//! - names (from create, link, mkdir, rename, unlink, rmdir): those whose folder was synced later. Syncing a new
//!   file does not make its name last. A rename is whole: syncing either folder makes both sides last;
//! - owners, modes and times are not lost.
//!
//! Everything else is forgotten or, with a seed, some of it: pages of 4 KiB, lengths of files, and names in any order
//! that does not tear apart what builds on each other. With a seed, pages are also written back now and then.
//!
//! After the cut every call fails with EIO, and a process that touches a mapping of a file gets SIGBUS, so do not map
//! files of it in the process of a test. [`Guard::survivors`] then shows what a machine would find when it starts
//! again.

pub mod content;
mod fuse;
pub mod luck;
pub mod model;
pub mod names;
mod shared;
pub mod survivors;

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, INodeNo, MountOption};
use rustix::mount::{UnmountFlags, unmount};

use self::fuse::Forgetful;
use self::luck::{Luck, Seeded, Strict, WriteBack};
use self::shared::Shared;
use self::survivors::{Survivors, load};

/// How a forgetful file system is mounted.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A folder whose content is there from the start, and durable. It is not changed.
    pub from: Option<PathBuf>,
    /// Lets pages be written back now and then although nobody syncs them, so that versions survive which are
    /// neither the synced nor the last one.
    pub write_back_seed: Option<u64>,
    /// How long a sync of a file takes, in which a power cut finds something to tear.
    pub sync_time: Duration,
}

/// About that of a disk.
const SYNC_TIME: Duration = Duration::from_millis(2);

/// Mounts a file system with the content of `from`, which is not changed, on the folder `mount_point`.
pub fn mount(from: &Path, mount_point: &Path) -> io::Result<Guard> {
    let options = Options {
        from: Some(from.to_owned()),
        write_back_seed: None,
        sync_time: SYNC_TIME,
    };
    mount_with(mount_point, &options)
}

/// Mounts a forgetful file system on the folder `mount_point`.
pub fn mount_with(mount_point: &Path, options: &Options) -> io::Result<Guard> {
    let empty = tempfile::tempdir()?;
    let model = load(options.from.as_deref().unwrap_or_else(|| empty.path()))?;
    let write_back = options.write_back_seed.map(WriteBack::new);
    let shared = Arc::new(Shared::new(model, write_back, options.sync_time));

    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("forgetful".to_owned()),
        MountOption::DefaultPermissions,
    ];
    let session = fuser::spawn_mount(Forgetful(Arc::clone(&shared)), mount_point, &config)?;
    Ok(Guard {
        shared,
        session: Some(session),
        mount_point: mount_point.to_owned(),
    })
}

/// Says why this machine cannot mount it. Tests that need it say so too, and skip.
pub fn available() -> Result<(), String> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device
        .map(drop)
        .map_err(|error| format!("open /dev/fuse: {error}"))
}

/// A mounted forgetful file system. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct Guard {
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
    mount_point: PathBuf,
}

impl Guard {
    /// Returns the folder on which it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Cuts the power: every call fails from now on. Of what was not synced a part survives that `seed` decides.
    pub fn cut(&self, seed: u64) -> io::Result<()> {
        self.cut_by(&mut Seeded::new(seed))
    }

    /// Cuts the power, and forgets all that was not synced.
    pub fn cut_strictly(&self) -> io::Result<()> {
        self.cut_by(&mut Strict)
    }

    fn cut_by(&self, luck: &mut dyn Luck) -> io::Result<()> {
        let known = self.shared.cut(luck);
        let Some(session) = &self.session else {
            return Ok(());
        };
        // What the kernel has cached is gone too.
        let notifier = session.notifier();
        for ino in known {
            match notifier.inval_inode(INodeNo(ino), 0, 0) {
                // It does not know this one.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Writes what survived the cut into a folder, which exists and is empty.
    pub fn survivors(&self, folder: &Path) -> io::Result<()> {
        self.survived()?.write_to(folder)
    }

    /// Returns what survived the cut.
    pub fn survived(&self) -> io::Result<Survivors> {
        let survivors = self.shared.survivors();
        survivors.ok_or_else(|| io::Error::other("the power was not cut yet; next: cut it"))
    }

    /// Unmounts, also if files are still open.
    pub fn unmount(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        unmount(&self.mount_point, UnmountFlags::DETACH)?;
        drop(session);
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(mount = %self.mount_point.display(), %error, "could not unmount");
        }
    }
}

#[cfg(test)]
mod tests;
