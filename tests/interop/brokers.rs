//! Brokers of both kinds, in processes of their own that end with their test.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{programs, tool::Tool};

/// How long a process may take until it answers.
const START_MAX: Duration = Duration::from_mins(1);

/// A process that is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Daemon(Child);

impl Daemon {
    /// Starts one. What it says goes to a file.
    pub(crate) fn start(mut command: Command, log: &Path) -> Self {
        let log = File::create(log).expect("create a log");
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("share a log"))
            .stderr(log);
        Self(command.spawn().expect("start a daemon"))
    }

    /// Waits until it ends by itself.
    pub(crate) fn ended(&mut self) {
        eventually("the daemon ends", || {
            self.0.try_wait().expect("look after a daemon").is_some()
        });
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.0.kill().is_ok() {
            drop(self.0.wait());
        }
    }
}

/// A running broker.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) address: String,
    /// First the broker ends, then what it needs.
    _daemons: Vec<Daemon>,
    folder: TempDir,
}

impl Broker {
    /// Starts our broker.
    pub(crate) fn ours() -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        let root = folder.path().join("root");
        Self::ours_in(folder, &root)
    }

    /// Starts our broker with stores that others use, too.
    pub(crate) fn ours_on(root: &Path) -> Self {
        Self::ours_in(tempfile::tempdir().expect("make a folder"), root)
    }

    fn ours_in(folder: TempDir, root: &Path) -> Self {
        fs::create_dir_all(root).expect("make the stores' folder");
        let port = free_port();
        let mut command = Command::new(programs::our_broker());
        command
            .args(["serve", "--broker.host", "127.0.0.1", "--broker.port"])
            .arg(port.to_string())
            .arg("--broker.file-root")
            .arg(root)
            .arg("--embedded")
            .arg(folder.path().join("data"));
        let broker = Daemon::start(command, &folder.path().join("broker.log"));
        answers(port, "/debug/ready");
        Self::new(port, vec![broker], folder)
    }

    /// Starts the reference's broker, and etcd for it.
    pub(crate) fn theirs(reference: &Path) -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        let root = folder.path().join("root");
        Self::theirs_in(reference, folder, &root)
    }

    /// Starts the reference's broker with stores that others use, too.
    pub(crate) fn theirs_on(reference: &Path, root: &Path) -> Self {
        Self::theirs_in(reference, tempfile::tempdir().expect("make a folder"), root)
    }

    fn theirs_in(reference: &Path, folder: TempDir, root: &Path) -> Self {
        fs::create_dir_all(root).expect("make the stores' folder");
        let (port, etcd_port, peer_port) = (free_port(), free_port(), free_port());
        let clients = format!("http://127.0.0.1:{etcd_port}");
        let mut command = Command::new(reference.join("etcd"));
        command
            .arg("--data-dir")
            .arg(folder.path().join("etcd"))
            .args(["--listen-client-urls", &clients])
            .args(["--advertise-client-urls", &clients, "--listen-peer-urls"])
            .arg(format!("http://127.0.0.1:{peer_port}"))
            .args(["--log-level", "error", "--unsafe-no-fsync"]);
        let etcd = Daemon::start(command, &folder.path().join("etcd.log"));
        answers(etcd_port, "/health");

        let spools = folder.path().join("spools");
        fs::create_dir(&spools).expect("make a folder");
        let mut command = Command::new(reference.join("gazette"));
        command
            .args(["serve", "--broker.host", "127.0.0.1", "--broker.port"])
            .arg(port.to_string())
            .args(["--etcd.address", &clients, "--broker.file-root"])
            .arg(root)
            .env("TMPDIR", spools);
        let broker = Daemon::start(command, &folder.path().join("broker.log"));
        answers(port, "/debug/ready");
        Self::new(port, vec![broker, etcd], folder)
    }

    fn new(port: u16, daemons: Vec<Daemon>, folder: TempDir) -> Self {
        Self {
            address: format!("http://127.0.0.1:{port}"),
            _daemons: daemons,
            folder,
        }
    }

    /// Our tool, for this broker.
    pub(crate) fn our_gazctl(&self) -> Tool {
        self.tool(programs::ours("gazctl"))
    }

    /// The reference's tool, for this broker.
    pub(crate) fn their_gazctl(&self, reference: &Path) -> Tool {
        self.tool(reference.join("gazctl"))
    }

    fn tool(&self, program: PathBuf) -> Tool {
        Tool {
            program,
            address: self.address.clone(),
        }
    }

    /// A path for a test's own files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + START_MAX;
    while !holds() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bind a free port");
    listener.local_addr().expect("it has an address").port()
}

/// Waits until a GET of the path is answered well.
fn answers(port: u16, path: &str) {
    eventually(&format!("port {port} answers {path}"), || {
        status(port, path).is_ok_and(|line| line.contains(" 200 "))
    });
}

fn status(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}
