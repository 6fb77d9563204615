//! A mount of a journal service in memory, which is always taken away again.

use std::{
    fs::{File, OpenOptions},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use gazette_client::{
    Client, ClientOptions,
    fake::{FakeBroker, FakeServer},
};
use gazfs::{
    fuse::Transport,
    journals::{Ack, JournalFs, Options, Origin, Template},
    mount::{Access, MountOptions, Mounted, mount},
};
use tempfile::TempDir;
use tokio::runtime::{self, Runtime};

/// One mount. Fields are dropped in their order.
pub(crate) struct Mount {
    /// Unmounts, whatever is open.
    mounted: Option<Mounted>,
    pub(crate) fs: JournalFs,
    pub(crate) server: Option<FakeServer>,
    pub(crate) broker: FakeBroker,
    runtime: Option<Runtime>,
    dir: TempDir,
}

/// How a test's mount reaches the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// In this process.
    Inside,
    /// Over a socket, which can be cut and frozen.
    Socket,
}

pub(crate) fn options() -> Options {
    Options {
        timeout: Duration::from_secs(20),
        ack: Ack::Write,
        origin: Origin::Zero,
        allow_delete: false,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mode: 0o644,
        template: Template::default(),
        space_of: None,
    }
}

impl Mount {
    /// Mounts a new broker, or says that it cannot.
    pub(crate) fn new() -> Option<Self> {
        Self::of(FakeBroker::new(), Way::Inside, |_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Option<Self> {
        Self::of(FakeBroker::new(), Way::Inside, change)
    }

    pub(crate) fn of(
        broker: FakeBroker,
        way: Way,
        change: impl FnOnce(&mut Options),
    ) -> Option<Self> {
        if !has_fuse() {
            return None;
        }
        let mut options = options();
        change(&mut options);
        let dir = tempfile::tempdir().expect("make a folder");
        let point = dir.path().join("journals");
        std::fs::create_dir(&point).expect("make a folder");
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("start a runtime");
        let client_options = ClientOptions {
            append_give_up_after: Some(options.timeout),
            ..ClientOptions::default()
        };
        let (server, fs) = runtime.block_on(async {
            let (server, client) = match way {
                Way::Inside => (None, broker.client_with(client_options)),
                Way::Socket => {
                    let server = broker.serve_unix(&dir.path().join("sock")).expect("serve");
                    let client = Client::connect(server.endpoint(), client_options);
                    (Some(server), client.expect("an endpoint"))
                }
            };
            (
                server,
                JournalFs::start(client, options)
                    .await
                    .expect("list journals"),
            )
        });
        let options = MountOptions {
            access: Access::Owner,
            transport: transport(),
        };
        let mounted = mount(&fs, &point, None, options).expect("mount");
        Some(Self {
            mounted: Some(mounted),
            fs,
            server,
            broker,
            runtime: Some(runtime),
            dir,
        })
    }

    /// Path of a file in the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("journals").join(name)
    }

    /// A folder beside the mount.
    pub(crate) fn beside(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn server(&self) -> &FakeServer {
        self.server.as_ref().expect("the mount is over a socket")
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime
            .as_ref()
            .expect("it lives as long as the mount")
            .block_on(work)
    }

    /// Runs a shell script that finds the mount as `$J`, and a folder beside it as `$T`.
    pub(crate) fn sh(&self, script: &str) -> Output {
        let output = self.command(script).output().expect("run sh");
        if !output.status.success() {
            eprintln!("{script}\n{}", String::from_utf8_lossy(&output.stderr));
        }
        output
    }

    /// The same, if it is expected to do well. Returns what it printed.
    pub(crate) fn sh_ok(&self, script: &str) -> String {
        let output = self.sh(script);
        assert!(output.status.success(), "{script}: {:?}", output.status);
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
            .env("J", self.path(""))
            .env("T", self.beside())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // First the mount: whoever waits in it is let go.
        drop(self.mounted.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Says whether mounts can be tested here, loudly if not.
pub(crate) fn has_fuse() -> bool {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &opened {
        eprintln!("SKIPPED, NOT TESTED: /dev/fuse does not open: {error}");
    }
    opened.is_ok()
}

pub(crate) fn appender(path: &Path) -> File {
    OpenOptions::new()
        .append(true)
        .open(path)
        .expect("open to append")
}

pub(crate) fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> rustix::io::Errno {
    let error = result.expect_err("it must fail");
    rustix::io::Errno::from_io_error(&error).expect("it is an error of the system")
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for a child, which must end within a time. Returns how long it took.
pub(crate) fn ends_within(child: &mut Child, limit: Duration) -> Duration {
    let started = Instant::now();
    loop {
        if child.try_wait().expect("look at a child").is_some() {
            return started.elapsed();
        }
        assert!(
            started.elapsed() < limit,
            "it does not end within {limit:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn open_raw(path: &Path, flags: rustix::fs::OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(
        path,
        flags | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::from(0o644),
    )
}

/// The way by which requests are to come, from the environment. One that is asked for and does not
/// work here fails.
fn transport() -> Transport {
    let asked = std::env::var("GAZFS_TRANSPORT").ok();
    asked.map_or(Transport::Auto, |way| {
        way.parse().expect("GAZFS_TRANSPORT is one")
    })
}
