//! A mount over a log in memory, which is always taken away again.

use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use gazfs::{
    fuse::{Transport, Way},
    mount::{Access, MountOptions, Mounted, mount_recorded},
    recorded::{RecordedFs, memory::MemoryLog},
};
use tempfile::TempDir;

use crate::replay::{Holes, Model};

/// One mount. Fields are dropped in their order.
pub(crate) struct Mount {
    /// Unmounts, whatever is open.
    mounted: Mutex<Option<Mounted>>,
    pub(crate) log: Arc<MemoryLog>,
    _disk: Option<Disk>,
    dir: TempDir,
}

/// A small disk in memory.
struct Disk(PathBuf);

impl Disk {
    fn mount(point: PathBuf, kibibytes: u32) -> Self {
        let options = CString::new(format!("size={kibibytes}k,mode=755")).expect("it has no NUL");
        let flags = rustix::mount::MountFlags::empty();
        let options = options.as_c_str();
        rustix::mount::mount("tmpfs", &point, "tmpfs", flags, options).expect("mount");
        Self(point)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        if let Err(error) = rustix::mount::unmount(&self.0, flags) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

impl Mount {
    /// Mounts an empty directory, or says that it cannot.
    pub(crate) fn new() -> Option<Self> {
        Self::on(None)
    }

    /// The same, with the backing tree on a disk of its own of so many KiB.
    pub(crate) fn on_small_disk(kibibytes: u32) -> Option<Self> {
        if !is_root() {
            eprintln!("SKIPPED, NOT TESTED: making a small disk needs root");
            return None;
        }
        Self::on(Some(kibibytes))
    }

    fn on(kibibytes: Option<u32>) -> Option<Self> {
        if !has_fuse() {
            return None;
        }
        let dir = tempfile::tempdir().expect("make a folder");
        open_to_all(dir.path());
        let path = |name| dir.path().join(name);
        for name in ["mount", "bare", "work", "work/tree"] {
            fs::create_dir(path(name)).expect("make a folder");
        }
        let disk = kibibytes.map(|kibibytes| Disk::mount(path("work/tree"), kibibytes));
        let log = Arc::new(MemoryLog::default());
        let mounted = Mutex::new(Some(mount(&log, dir.path())));
        Some(Self {
            mounted,
            log,
            _disk: disk,
            dir,
        })
    }

    /// Unmounts, and mounts the same again.
    pub(crate) fn restart(&self) {
        let mut mounted = self.mounted.lock().expect("no test panicked with it");
        drop(mounted.take());
        *mounted = Some(mount(&self.log, self.dir.path()));
    }

    /// Path of a file in the backing tree.
    pub(crate) fn tree(&self, name: &str) -> PathBuf {
        self.dir.path().join("work/tree").join(name)
    }

    /// Path of a file in the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("mount").join(name)
    }

    /// A directory to compare with, on the disk on which the backing tree is.
    pub(crate) fn bare(&self, name: &str) -> PathBuf {
        self.dir.path().join("bare").join(name)
    }

    /// Checks that what was recorded leads to the tree in the mount.
    pub(crate) fn check_replay(&self) {
        Model::of(&self.log.mutations()).check(&self.path(""), Holes::Zeros);
    }

    /// The same, and what has content and what is a hole is exactly so.
    pub(crate) fn check_replay_and_holes(&self) {
        Model::of(&self.log.mutations()).check(&self.path(""), Holes::Exact);
    }

    /// Runs a shell script that finds the mount as `$D`.
    pub(crate) fn sh(&self, script: &str) -> Output {
        self.command(script).output().expect("run sh")
    }

    /// The same, if it is expected to do well. Returns what it printed.
    pub(crate) fn sh_ok(&self, script: &str) -> String {
        let output = self.sh(script);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {errors}");
        String::from_utf8(output.stdout).expect("it printed text")
    }

    /// Starts a shell script.
    pub(crate) fn spawn(&self, script: &str) -> Child {
        self.command(script).spawn().expect("run sh")
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-euc", script])
            .env("D", self.path(""))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

fn mount(log: &Arc<MemoryLog>, dir: &Path) -> Mounted {
    let tree = dir.join("work/tree");
    let recorded = RecordedFs::start(Arc::clone(log), &tree).expect("start");
    let access = if is_root() {
        Access::All
    } else {
        Access::Owner
    };
    let options = MountOptions {
        access,
        transport: transport(),
    };
    let mounted = mount_recorded(&recorded, &dir.join("mount"), &dir.join("work"), options);
    let mounted = mounted.expect("mount");
    if options.transport == Transport::IoUring {
        assert_eq!(mounted.transport().way, Way::IoUring);
    }
    mounted
}

/// The way by which requests are to come, from the environment. One that is asked for and does not
/// work here fails.
fn transport() -> Transport {
    let asked = std::env::var("GAZFS_TRANSPORT").ok();
    asked.map_or(Transport::Auto, |way| {
        way.parse().expect("GAZFS_TRANSPORT is one")
    })
}

/// Says whether mounts can be tested here, loudly if not.
fn has_fuse() -> bool {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &opened {
        eprintln!("SKIPPED, NOT TESTED: /dev/fuse does not open: {error}");
    }
    opened.is_ok()
}

/// Says whether these tests may act as somebody else, loudly if not.
pub(crate) fn has_users() -> bool {
    let has = is_root() && Command::new("setpriv").arg("--version").output().is_ok();
    if !has {
        eprintln!("SKIPPED, NOT TESTED: acting as another user needs root and setpriv");
    }
    has
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("change a mode");
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for a child, which must end within a time.
pub(crate) fn ends_within(child: &mut Child, limit: Duration) {
    let started = Instant::now();
    while child.try_wait().expect("look at a child").is_none() {
        let waited = started.elapsed();
        assert!(waited < limit, "it does not end within {limit:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
