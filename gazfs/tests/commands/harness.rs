//! A broker, and commands against it.

use std::{
    fs::{self, OpenOptions},
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use gazette_client::{Client, ClientOptions};
use gazette_protocol::{AppendRequest, FragmentsRequest, append_request};
use rustix::{
    mount::{UnmountFlags, unmount},
    process::{Pid, Signal, kill_process},
};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_gazfs");
/// The log of most tests.
pub(crate) const LOG: &str = "recovery/app";

/// A broker in a process of its own, and a folder for a test.
pub(crate) struct House {
    up: Child,
    dir: TempDir,
    /// Where others reach the broker.
    address: String,
}

/// A `gazfs record` that runs.
pub(crate) struct Recorder {
    pub(crate) child: Child,
    pub(crate) point: PathBuf,
    pub(crate) said: String,
    errors: Option<ChildStderr>,
    leaves_mount: bool,
}

impl House {
    /// Starts a broker, unless mounts cannot be tested here.
    pub(crate) fn new() -> Option<Self> {
        if !has_fuse() {
            return None;
        }
        let dir = tempfile::tempdir().expect("make a folder");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("find a port");
        let address = free.local_addr().expect("it has one").to_string();
        drop(free);
        let mut up = Command::new(PROGRAM)
            .arg("up")
            .arg(dir.path().join("up"))
            .args(["--listen", &address])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run gazfs");
        let mut out = BufReader::new(up.stdout.take().expect("it is piped"));
        let mut said = String::new();
        while !said.contains("gazctl") {
            let length = out.read_line(&mut said).expect("read what it says");
            assert!(length > 0, "it ended: {:?}: {said}", up.wait());
        }
        Some(Self { up, dir, address })
    }

    /// A path in the folder of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn broker(&self) -> String {
        format!("unix://{}", self.path("up/gazfs.sock").display())
    }

    /// The broker as other users reach it.
    pub(crate) fn network_broker(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Puts what a journal has into its store.
    pub(crate) fn persist(&self, journal: &str) {
        let flush = AppendRequest {
            journal: journal.to_owned(),
            flush: true,
            suspend: append_request::Suspend::Keep.into(),
            ..AppendRequest::default()
        };
        let all = FragmentsRequest {
            journal: journal.to_owned(),
            ..FragmentsRequest::default()
        };
        let runtime = tokio::runtime::Runtime::new().expect("start a runtime");
        runtime.block_on(async {
            let client = Client::connect(&self.broker(), ClientOptions::default());
            let client = client.expect("a broker");
            client.append(flush, Bytes::new()).await.expect("flush");
            for _ in 0..200 {
                let fragments = client.list_all_fragments(all.clone()).await.expect("list");
                if fragments.iter().all(|fragment| fragment.spec.mod_time != 0) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            panic!("it is not stored");
        });
    }

    /// Stops the broker as a lost network does, or lets it go on.
    pub(crate) fn signal_broker(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.up), signal).expect("signal");
    }

    /// A command with the broker and the log.
    pub(crate) fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg(name)
            .args(arguments)
            .env("BROKER_ADDRESS", self.broker())
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn gazfs(&self, name: &str, arguments: &[&str]) -> Output {
        self.command(name, arguments).output().expect("run gazfs")
    }

    /// The same, if it is expected to do well. Returns what it printed.
    pub(crate) fn gazfs_ok(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.gazfs(name, arguments);
        assert!(
            output.status.success(),
            "{name} {arguments:?}: {}: {}",
            output.status,
            errors(&output)
        );
        String::from_utf8(output.stdout).expect("it printed text")
    }

    /// Records at a mount point with a work folder of the same name.
    pub(crate) fn record(&self, name: &str, more: &[&str]) -> Recorder {
        self.record_in(name, &format!("{name}.work"), more)
    }

    pub(crate) fn record_in(&self, name: &str, work: &str, more: &[&str]) -> Recorder {
        let started = self.try_record(name, work, more);
        started.unwrap_or_else(|(status, errors)| panic!("it ended: {status}: {errors}"))
    }

    /// Returns how it ended if it did not come so far as to record.
    pub(crate) fn try_record(
        &self,
        name: &str,
        work: &str,
        more: &[&str],
    ) -> Result<Recorder, (ExitStatus, String)> {
        let point = self.path(name);
        // A dead mount cannot be looked at.
        let _there = fs::create_dir(&point);
        let mut child = self
            .command("record", &[name, "--log", LOG, "--work", work])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("run gazfs");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut said = String::new();
        while !said.contains("end it with") {
            if out.read_line(&mut said).expect("read what it says") == 0 {
                let status = child.wait().expect("wait");
                let mut errors = String::new();
                let mut stderr = child.stderr.take().expect("it is piped");
                stderr.read_to_string(&mut errors).expect("read errors");
                return Err((status, errors));
            }
        }
        Ok(Recorder {
            errors: child.stderr.take(),
            child,
            point,
            said,
            leaves_mount: false,
        })
    }

    /// Recovers to a folder, which is returned.
    pub(crate) fn recover(&self, to: &str, more: &[&str]) -> PathBuf {
        let mut arguments = vec!["--log", LOG, "--to", to];
        arguments.extend(more);
        self.gazfs_ok("recover", &arguments);
        self.path(to)
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _alive = kill_process(Pid::from_child(&self.up), Signal::CONT);
        drop(self.up.kill());
        drop(self.up.wait());
        // Those of daemons that were killed too.
        let dir = fs::canonicalize(self.dir.path()).expect("it is there");
        for entry in gazfs::mount::read().expect("read the table") {
            if entry.point.starts_with(&dir) {
                let _gone = unmount(&entry.point, UnmountFlags::DETACH);
            }
        }
    }
}

impl Recorder {
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    /// Writes a file, and waits until the log has it.
    pub(crate) fn write(&self, name: &str, content: &str) {
        fs::write(self.file(name), content).expect("write");
        fs::File::open(self.file(name))
            .and_then(|file| file.sync_all())
            .expect("sync");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).expect("read")
    }

    /// Ends it as a crash does. Its mount stays, dead.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
        self.leaves_mount = true;
    }

    /// Asks it to end, and returns its exit code and what it said of errors.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("signal");
        let status = wait(&mut self.child);
        let mut text = String::new();
        if let Some(mut errors) = self.errors.take() {
            errors.read_to_string(&mut text).expect("read errors");
        }
        (status.code(), text)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if !self.leaves_mount {
            let _gone = unmount(&self.point, UnmountFlags::DETACH);
        }
    }
}

/// Waits for a child, which must end.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let until = Instant::now() + Duration::from_mins(2);
    loop {
        if let Some(status) = child.try_wait().expect("look at a child") {
            return status;
        }
        assert!(Instant::now() < until, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Two trees are the same, with modes, links and times of files.
pub(crate) fn assert_same(a: &Path, b: &Path) {
    let list = |dir: &Path| {
        let output = Command::new("find")
            .args([".", "-printf", "%p %y %m %U:%G %l %n %s\n"])
            .current_dir(dir)
            .output()
            .expect("run find");
        let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
            .lines()
            // The size of a directory is its file system's own matter.
            .map(|line| match line.split(' ').nth(1) {
                Some("d") => line
                    .rsplit_once(' ')
                    .map_or(line, |(rest, _)| rest)
                    .to_owned(),
                _ => line.to_owned(),
            })
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(list(a), list(b));
    let compared = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([a, b])
        .output()
        .expect("run diff");
    assert!(
        compared.status.success(),
        "{}",
        String::from_utf8_lossy(&compared.stdout)
    );
}

/// Says whether mounts can be tested here, loudly if not.
pub(crate) fn has_fuse() -> bool {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &opened {
        eprintln!("SKIPPED, NOT TESTED: /dev/fuse does not open: {error}");
    }
    opened.is_ok()
}
