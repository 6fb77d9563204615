//! What this machine has of what mounts need, in one line each.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::{Resource, geteuid, getrlimit};
use serde::Serialize;

use crate::{fuse, supervise::namespace};

/// How much is lost without something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is there.
    Ok,
    /// All works without it, but less well.
    Slower,
    /// Something does not work.
    Missing,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found, and what to do.
    pub text: String,
}

impl Finding {
    fn ok(name: &'static str, text: impl Into<String>) -> Self {
        let (verdict, text) = (Verdict::Ok, text.into());
        Self {
            name,
            verdict,
            text,
        }
    }

    fn slower(name: &'static str, text: impl Into<String>) -> Self {
        let verdict = Verdict::Slower;
        Self {
            verdict,
            ..Self::ok(name, text)
        }
    }

    fn missing(name: &'static str, text: impl Into<String>) -> Self {
        let verdict = Verdict::Missing;
        Self {
            verdict,
            ..Self::ok(name, text)
        }
    }
}

/// Looks at all of it. `state` is where files would be kept. It moves this process into another
/// user namespace, as trying that is the only way to know: do nothing else afterwards.
pub fn examine(state: &Path) -> Vec<Finding> {
    let is_root = geteuid().is_root();
    let mut findings = vec![
        device(),
        helper(is_root),
        passthrough(is_root),
        io_uring(),
        open_files(),
        disk(state),
    ];
    findings.push(namespaces(is_root));
    findings
}

/// Says whether a mount is possible in some way.
pub fn can_mount(findings: &[Finding]) -> bool {
    let has = |name| {
        findings
            .iter()
            .any(|finding| finding.name == name && finding.verdict != Verdict::Missing)
    };
    has(DEVICE) && (geteuid().is_root() || has(HELPER) || has(NAMESPACES))
}

fn device() -> Finding {
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Finding::ok(DEVICE, "opens"),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Finding::missing(
            DEVICE,
            format!("{error}; next: chmod 666 /dev/fuse, or run as root"),
        ),
        Err(error) => Finding::missing(
            DEVICE,
            format!(
                "{error}; next: modprobe fuse; in a container --device /dev/fuse --cap-add \
                 SYS_ADMIN, or a device plugin"
            ),
        ),
    }
}

fn helper(is_root: bool) -> Finding {
    let Some(path) = find_program("fusermount3") else {
        let text = "not installed; next: install fuse3";
        return if is_root {
            Finding::ok(HELPER, "not installed, and not needed as root")
        } else {
            Finding::missing(HELPER, text)
        };
    };
    let is_setuid = fs::metadata(&path).is_ok_and(|found| found.permissions().mode() & 0o4000 != 0);
    if is_setuid || is_root {
        Finding::ok(HELPER, path.display().to_string())
    } else {
        let text = format!(
            "{} is not set-uid root; next: install fuse3 anew",
            path.display()
        );
        Finding::missing(HELPER, text)
    }
}

fn namespaces(is_root: bool) -> Finding {
    if is_root {
        return match namespace::obstacle() {
            None => Finding::ok(NAMESPACES, "allowed, and not needed as root"),
            Some(why) => Finding::ok(NAMESPACES, format!("{why}; not needed as root")),
        };
    }
    match namespace::enter() {
        Ok(()) => Finding::ok(NAMESPACES, "gazfs run mounts in its own"),
        Err(error) => {
            let why = namespace::obstacle().unwrap_or("the system refuses");
            let text = format!("{error}: {why}; next: allow them, or install fusermount3");
            Finding::missing(NAMESPACES, text)
        }
    }
}

/// Reads that do not come to us need the kernel's trust.
fn passthrough(is_root: bool) -> Finding {
    if !is_root || !is_in_first_namespace() || !has_capability(SYS_ADMIN) {
        let text = "not allowed (needs CAP_SYS_ADMIN outside of user namespaces): reads go through \
                    the daemon, or the page cache";
        return Finding::slower(PASSTHROUGH, text);
    }
    match kernel() {
        Some(version) if version >= PASSTHROUGH_KERNEL => Finding::ok(PASSTHROUGH, "allowed"),
        _ => Finding::slower(PASSTHROUGH, "needs Linux 6.9"),
    }
}

fn io_uring() -> Finding {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    if read("/proc/sys/kernel/io_uring_disabled").is_ok_and(|value| value != "0") {
        return Finding::slower(
            IO_URING,
            "off (kernel.io_uring_disabled): the classic transport is used",
        );
    }
    if let Some(why) = fuse::obstacle() {
        return Finding::slower(IO_URING, format!("the classic transport is used: {why}"));
    }
    match fuse::try_rings() {
        Ok(()) => Finding::ok(IO_URING, "FUSE over io_uring is offered"),
        Err(error) => Finding::slower(
            IO_URING,
            format!(
                "{error}: the classic transport is used; next: allow io_uring to this process (the \
                 seccomp profile of a container forbids it)"
            ),
        ),
    }
}

fn open_files() -> Finding {
    match getrlimit(Resource::Nofile).maximum {
        Some(limit) if limit < OPEN_FILES_MIN => Finding::slower(
            OPEN_FILES,
            format!("{limit}: programs that open more files at once get EMFILE; next: ulimit -n"),
        ),
        Some(limit) => Finding::ok(OPEN_FILES, limit.to_string()),
        None => Finding::ok(OPEN_FILES, "unlimited"),
    }
}

/// How long a flush takes where files would be kept: what an embedded broker's fsync costs.
fn disk(state: &Path) -> Finding {
    let dir = nearest(state);
    match flush_time(&dir) {
        Ok(median) => {
            let text = format!("a flush takes {median:.1?} in {}", dir.display());
            if median > FLUSH_SLOW {
                Finding::slower(DISK, format!("{text}: so long at least takes an fsync"))
            } else {
                Finding::ok(DISK, text)
            }
        }
        Err(error) => Finding::slower(DISK, format!("cannot write in {}: {error}", dir.display())),
    }
}

fn flush_time(dir: &Path) -> std::io::Result<Duration> {
    let path = dir.join(format!(".gazfs-doctor-{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    fs::remove_file(&path)?;
    let mut times = Vec::with_capacity(FLUSHES);
    for _ in 0..FLUSHES {
        let started = Instant::now();
        flush_once(&mut file)?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(times[FLUSHES / 2])
}

fn flush_once(file: &mut File) -> std::io::Result<()> {
    file.write_all(&[0; 4096])?;
    file.sync_data()
}

/// The folder, or the nearest above it that is there.
fn nearest(path: &Path) -> PathBuf {
    path.ancestors()
        .find(|at| at.is_dir())
        .unwrap_or_else(|| Path::new("/"))
        .to_owned()
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

fn is_in_first_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| {
        let fields: Vec<&str> = map.split_ascii_whitespace().collect();
        fields == ["0", "0", "4294967295"]
    })
}

fn has_capability(bit: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .is_some_and(|bits| bits & (1 << bit) != 0)
}

fn kernel() -> Option<(u32, u32)> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut parts = release
        .split(['.', '-'])
        .map(|part| part.trim().parse().ok());
    Some((parts.next()??, parts.next()??))
}

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
const NAMESPACES: &str = "user namespaces";
const PASSTHROUGH: &str = "passthrough";
const IO_URING: &str = "io_uring";
const OPEN_FILES: &str = "open files";
const DISK: &str = "disk";

const SYS_ADMIN: u32 = 21;
const PASSTHROUGH_KERNEL: (u32, u32) = (6, 9);
/// `RocksDB` keeps that many open by default in a larger database.
const OPEN_FILES_MIN: u64 = 4096;
const FLUSHES: usize = 9;
const FLUSH_SLOW: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_needs_the_device_and_a_way_to_mount() {
        let dead = [Finding::missing(DEVICE, ""), Finding::ok(HELPER, "")];
        assert!(!can_mount(&dead));
        let fine = [Finding::ok(DEVICE, ""), Finding::ok(HELPER, "")];
        assert!(can_mount(&fine));
    }

    #[test]
    fn the_nearest_folder_that_is_there_is_measured() {
        assert_eq!(nearest(Path::new("/no/such/folder")), Path::new("/"));
        let temp = tempfile::tempdir().expect("make a folder");
        assert_eq!(disk(temp.path()).name, DISK);
        assert!(fs::read_dir(temp.path()).expect("list").next().is_none());
        assert!(kernel().is_some());
    }
}
