//! The program: how mounts begin and end.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use gazette_client::fake::{Call, FakeBroker, Fault};
use gazfs::{
    journals::Ack,
    mount::{MountError, UmountOutcome, ask_to_umount},
};
use rustix::{
    mount::{UnmountFlags, unmount},
    process::{Pid, Signal, kill_process},
};
use tempfile::TempDir;

use crate::harness::{Mount, appender, ends_within, eventually, has_fuse, options};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gazfs");
const LONG: Duration = Duration::from_mins(1);

/// A `gazfs up` that is always ended, and its mount taken away.
struct Up {
    child: Child,
    /// `None` once it was given to the next.
    dir: Option<TempDir>,
    lines: String,
}

impl Up {
    fn new(arguments: &[&str]) -> Option<Self> {
        Self::at(tempfile::tempdir().expect("make a folder"), arguments)
    }

    /// Starts it, and reads what it says until the last of things to try.
    fn at(dir: TempDir, arguments: &[&str]) -> Option<Self> {
        if !has_fuse() {
            return None;
        }
        let mut child = Command::new(PROGRAM)
            .arg("up")
            .arg(dir.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run gazfs");
        let mut lines = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        while !lines.contains("gazctl") {
            let length = out.read_line(&mut lines).expect("read what it says");
            assert!(length > 0, "it ended: {:?}: {lines}", child.wait());
        }
        Some(Self {
            child,
            dir: Some(dir),
            lines,
        })
    }

    fn point(&self) -> PathBuf {
        self.dir().join("journals")
    }

    fn dir(&self) -> &Path {
        self.dir.as_ref().expect("it has its folder").path()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal");
    }

    /// Waits for the end. Returns the exit code and the folder.
    fn end(mut self) -> (Option<i32>, TempDir) {
        ends_within(&mut self.child, LONG);
        let code = self.child.wait().expect("wait").code();
        let left = mounts_below(self.dir());
        assert!(left.is_empty(), "mounts are left: {left:?}");
        (code, self.dir.take().expect("it has its folder"))
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if let Some(dir) = &self.dir {
            // Killed or not, nothing of it may be left.
            for point in mounts_below(dir.path()) {
                let _gone = unmount(point, UnmountFlags::DETACH);
            }
        }
    }
}

/// Where something is mounted in a folder.
fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let dir = fs::canonicalize(dir).expect("it is there");
    let table = gazfs::mount::read().expect("read the table");
    let points = table.into_iter().map(|entry| entry.point);
    points.filter(|point| point.starts_with(&dir)).collect()
}

fn gazfs(arguments: &[&Path]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("run gazfs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

// `gazfs up DIR` prints what is mounted, what it promises and things to try, and unmounts
// cleanly on SIGTERM. All is there again at the next start.
#[test]
fn up_says_what_it_does_and_keeps_everything() {
    let Some(up) = Up::new(&[]) else { return };
    let point = up.point();
    assert!(
        up.lines
            .contains(&format!("journals at {}", point.display())),
        "{}",
        up.lines
    );
    assert!(up.lines.contains("durability: durable"), "{}", up.lines);
    let tries = up.lines.split_once("try:").expect("things to try").1;
    assert_eq!(tries.trim().lines().count(), 4);
    let first = tries.trim().lines().next().expect("one");
    let output = Command::new("sh")
        .args(["-ec", first])
        .output()
        .expect("run sh");
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(fs::read(point.join("app/log")).expect("read"), b"hello\n");
    let socket = fs::metadata(up.dir().join("gazfs.sock")).expect("a socket");
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&socket.permissions()) & 0o777,
        0o600
    );
    up.signal(Signal::TERM);
    let (code, dir) = up.end();
    assert_eq!(code, Some(0));
    let Some(up) = Up::at(dir, &["--durability", "replicated"]) else {
        return;
    };
    assert!(up.lines.contains("NOT a power cut"), "{}", up.lines);
    assert_eq!(fs::read(point.join("app/log")).expect("read"), b"hello\n");
    up.signal(Signal::INT);
    assert_eq!(up.end().0, Some(0));
}

// A dead mount left behind: start replaces its own. What was acknowledged is there.
#[test]
fn a_dead_mount_is_replaced() {
    let Some(mut up) = Up::new(&[]) else { return };
    let point = up.point();
    fs::File::create(point.join("app/log"))
        .expect("create")
        .write_all(b"kept\n")
        .expect("write");
    up.child.kill().expect("kill");
    up.child.wait().expect("wait");
    assert!(fs::metadata(&point).is_err(), "the mount is dead");
    let dir = up.dir.take().expect("it has its folder");
    let Some(up) = Up::at(dir, &[]) else { return };
    assert_eq!(fs::read(point.join("app/log")).expect("read"), b"kept\n");
    let table = gazfs::mount::read().expect("read the table");
    let resolved = fs::canonicalize(up.dir())
        .expect("it is there")
        .join("journals");
    assert_eq!(
        table.iter().filter(|entry| entry.point == resolved).count(),
        1
    );
    up.signal(Signal::TERM);
    assert_eq!(up.end().0, Some(0));
}

// `gazfs umount` of a mount whose daemon died takes it away, and the other one of that daemon.
#[test]
fn umount_takes_a_dead_mount_away() {
    let Some(mut up) = Up::new(&[]) else { return };
    assert_eq!(mounts_below(up.dir()).len(), 2, "journals and data");
    up.child.kill().expect("kill");
    up.child.wait().expect("wait");
    let output = gazfs(&["umount".as_ref(), &up.point()]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(mounts_below(up.dir()), Vec::<PathBuf>::new());
    let output = gazfs(&["umount".as_ref(), &up.point()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("nothing of gazfs is mounted"),
        "{}",
        text(&output)
    );
}

// Overlapping or nested paths, and a place in use, are refused with a reason; nothing hangs.
#[test]
fn impossible_places_are_refused_with_a_reason() {
    let Some(up) = Up::new(&[]) else { return };
    let (point, dir) = (up.point(), up.dir().to_owned());
    let again = gazfs(&["up".as_ref(), &dir]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        text(&again).contains("serves it already"),
        "{}",
        text(&again)
    );
    let broker = format!("--broker=unix://{}", dir.join("gazfs.sock").display());
    let broker = Path::new(&broker);
    let mount = "mount".as_ref();
    let inside = gazfs(&[mount, broker, &point.join("app")]);
    assert!(
        text(&inside).contains("lies in the mount"),
        "{}",
        text(&inside)
    );
    let around = gazfs(&[mount, broker, &dir]);
    assert!(
        text(&around).contains("would hide the mount"),
        "{}",
        text(&around)
    );
    let other = tempfile::tempdir().expect("make a folder");
    fs::write(other.path().join("file"), "x").expect("write");
    let full = gazfs(&[mount, broker, other.path()]);
    assert!(text(&full).contains("not empty"), "{}", text(&full));
    let missing = gazfs(&[mount, broker, &other.path().join("not/there")]);
    assert!(text(&missing).contains("not/there"), "{}", text(&missing));
    for output in [&inside, &around, &full, &missing] {
        assert_eq!(output.status.code(), Some(1));
    }
    fs::write(point.join("app/log"), "still there").expect("the first one is not disturbed");
    up.signal(Signal::TERM);
    assert_eq!(up.end().0, Some(0));
}

// Usage errors exit with 2, a broker that is away with 75; help says what is promised.
#[test]
fn exit_codes_tell_mistakes_from_trouble() {
    let help = gazfs(&["--help".as_ref()]);
    assert!(help.status.success());
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.contains("one write(2) is one append"), "{help}");
    assert_eq!(gazfs(&["no-such-command".as_ref()]).status.code(), Some(2));
    let point = tempfile::tempdir().expect("make a folder");
    let arguments = [
        "mount",
        "--broker",
        "http://127.0.0.1:1",
        "--timeout",
        "300ms",
    ];
    let mut arguments: Vec<&Path> = arguments.iter().map(Path::new).collect();
    arguments.push(point.path());
    let output = gazfs(&arguments);
    assert_eq!(output.status.code(), Some(75), "{}", text(&output));
    assert!(
        text(&output).contains("check that the broker runs"),
        "{}",
        text(&output)
    );
    let spec = point.path().join("spec.yaml");
    fs::write(&spec, "replication: 1\nreplicaton: 3\n").expect("write");
    let option = format!("--spec={}", spec.display());
    let output = gazfs(&["mount".as_ref(), option.as_ref(), point.path()]);
    let text = text(&output);
    assert!(
        text.contains("spec.yaml") && text.contains("line 2"),
        "{text}"
    );
}

// `gazfs umount` says busy, and waits until all is acknowledged otherwise.
#[test]
fn umount_says_busy_and_ends_the_daemon_otherwise() {
    let Some(up) = Up::new(&["--ack=close"]) else {
        return;
    };
    let point = up.point();
    let mut file = fs::File::create(point.join("app/log")).expect("create");
    file.write_all(b"queued\n").expect("write");
    let busy = gazfs(&["umount".as_ref(), &point]);
    assert_eq!(busy.status.code(), Some(75), "{}", text(&busy));
    file.write_all(b"more\n").expect("it goes on");
    drop(file);
    let done = gazfs(&["umount".as_ref(), &point]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    // It waited for the broker too, so the folder is free.
    let lock = fs::File::open(up.dir().join("broker/lock")).expect("open");
    lock.try_lock().expect("nobody holds it");
    drop(lock);
    let (code, dir) = up.end();
    assert_eq!(code, Some(0));
    let Some(up) = Up::at(dir, &[]) else { return };
    assert_eq!(
        fs::read(up.point().join("app/log")).expect("read"),
        b"queued\nmore\n"
    );
}

// SIGTERM with files open and the mount in use: all that was written is acknowledged first.
#[test]
fn sigterm_waits_until_all_is_acknowledged_also_if_the_mount_is_in_use() {
    let Some(up) = Up::new(&["--ack=close"]) else {
        return;
    };
    let mut file = fs::File::create(up.point().join("app/log")).expect("create");
    for n in 0..2000 {
        writeln!(file, "{n}").expect("write");
    }
    up.signal(Signal::TERM);
    let (code, dir) = up.end();
    assert_eq!(code, Some(0));
    drop(file);
    let Some(up) = Up::at(dir, &[]) else { return };
    let content = fs::read_to_string(up.point().join("app/log")).expect("read");
    assert_eq!(content.lines().count(), 2000);
}

// After a plain umount(8), which cannot wait, the daemon finishes alone and reports.
#[test]
fn after_a_plain_umount_the_appends_are_finished() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    let way = crate::harness::Way::Inside;
    let Some(mount) = Mount::of(broker, way, |options| options.ack = Ack::Close) else {
        return;
    };
    mount
        .broker
        .inject(Call::Append, [Fault::Delay(Duration::from_secs(1))]);
    // Its flush is not waited for, as the program was killed.
    let mut child = mount.spawn(
        "exec python3 -c \"import os,signal,time
fd=os.open(os.environ['J']+'/app/log',os.O_WRONLY|os.O_APPEND); os.write(fd,b'late')
open(os.environ['T']+'/ready','w').close(); time.sleep(60)\"",
    );
    eventually("it has written", || mount.beside().join("ready").exists());
    child.kill().expect("kill");
    ends_within(&mut child, Duration::from_millis(600));
    assert_eq!(mount.fs.pending(), 1);
    mount.sh_ok("umount $J");
    assert_eq!(mount.block_on(mount.fs.drain()), 0);
    assert_eq!(mount.broker.content("app/log"), b"late");
}

// What people are told of it: each mount by itself, and nothing raw.
#[test]
fn status_tells_people_of_both_mounts() {
    let Some(up) = Up::new(&[]) else { return };
    let output = gazfs(&["status".as_ref(), &up.point()]);
    assert!(output.status.success(), "{}", text(&output));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    for name in ["data", "journals"] {
        let point = up.dir().join(name).display().to_string();
        assert!(told.lines().any(|line| line == point), "{point}: {told}");
    }
    assert!(!told.contains(['{', '}']), "{told}");
}

// One that does not answer is told, and nobody waits for it for ever.
#[test]
fn a_stopped_daemon_does_not_hold_up_its_status() {
    let Some(up) = Up::new(&[]) else { return };
    up.signal(Signal::STOP);
    let mut asking = Command::new(PROGRAM)
        .arg("status")
        .arg(up.point())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("run gazfs");
    ends_within(&mut asking, LONG);
    let output = asking.wait_with_output().expect("wait");
    up.signal(Signal::CONT);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("does not answer") && text(&output).contains("next: "),
        "{}",
        text(&output)
    );
}

// Appends that fail when nobody is left to be told are counted.
#[test]
fn failures_that_nobody_was_told_of_are_counted() {
    let Some(mount) = Mount::with(|options| options.ack = Ack::Close) else {
        return;
    };
    mount.broker.create("app/log");
    let full = Fault::Rpc(tonic::Code::ResourceExhausted, "no space");
    mount.broker.inject(Call::Append, [full]);
    let mut child = mount.spawn(
        "exec python3 -c \"import os
fd=os.open(os.environ['J']+'/app/log',os.O_WRONLY|os.O_APPEND); os.write(fd,b'lost'); os._exit(0)\"",
    );
    ends_within(&mut child, LONG);
    eventually("the file is closed", || {
        mount.block_on(mount.fs.drain()) == 1
    });
}

// The daemon's side of `gazfs umount` hears this user, and answers once.
#[test]
fn a_mount_of_this_process_is_found_by_its_number() {
    let Some(mount) = Mount::new() else { return };
    let Err(error) = ask_to_umount(&mount.path("")) else {
        panic!("nobody listens here")
    };
    assert!(matches!(error, MountError::NoAnswer { .. }), "{error}");
    let outcome: UmountOutcome = "failed 2 appends\n".parse().expect("an outcome");
    let message = "2 appends".to_owned();
    assert_eq!(outcome, UmountOutcome::Failed { message });
    assert_eq!(options().mode, 0o644);
    let mut file = appender_of(&mount);
    file.write_all(b"x").expect("the mount is still there");
    let mut read = String::new();
    fs::File::open(mount.path("logs"))
        .expect("open")
        .read_to_string(&mut read)
        .expect("read");
    assert_eq!(read, "x");
}

fn appender_of(mount: &Mount) -> fs::File {
    mount.broker.create("logs");
    appender(&mount.path("logs"))
}

// No `/dev/fuse`: a clear error that says what to do. Needs a private view of the devices.
#[test]
fn without_the_device_it_says_what_to_do() {
    if !has_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("make a folder");
    let script = "mount -t tmpfs none /dev && exec \"$0\" up \"$1\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, PROGRAM])
        .arg(dir.path())
        .stdin(Stdio::null())
        .output()
        .expect("run unshare");
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("/dev/fuse") && text.contains("--device /dev/fuse"),
        "{text}"
    );
    assert!(text.lines().count() <= 6, "{text}");
}
