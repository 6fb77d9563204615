//! A small file system in memory, which can be filled.

#![expect(clippy::print_stderr, reason = "what is left out must be seen")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A mounted tmpfs. It is unmounted when it is dropped.
pub(crate) struct Tmpfs {
    folder: tempfile::TempDir,
}

impl Tmpfs {
    /// Mounts one with so many MiB, or says loudly that it is not permitted here.
    pub(crate) fn mount(mib: u32) -> Option<Self> {
        Self::mount_with(&format!("size={mib}m"))
    }

    pub(crate) fn mount_with(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(folder.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { folder }),
            other => {
                eprintln!(
                    "!!! SKIPPED: mounting a tmpfs is not permitted here, so nothing is shown \
                     about full disks: {other:?}"
                );
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Takes all room but so many KiB. Returns the file to remove.
    pub(crate) fn fill(&self, leave_kib: u64) -> PathBuf {
        let stat = rustix::fs::statvfs(self.path()).unwrap();
        let free = stat.f_bavail * stat.f_frsize;
        let ballast = self.path().join("ballast");
        let length = free.saturating_sub(leave_kib << 10);
        fs::write(&ballast, vec![7_u8; usize::try_from(length).unwrap()]).unwrap();
        ballast
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily, so that files that are open yet do not keep it.
        let done = Command::new("umount").arg("-l").arg(self.path()).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("cannot unmount {}", self.path().display());
        }
    }
}
