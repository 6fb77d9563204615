//! The program as its users run it, against a journal service in memory behind a Unix socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod append;
mod bench;
mod each;
mod read;
mod tree;
mod usage;

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use gazette_client::fake::{FakeBroker, FakeServer};
use tempfile::TempDir;

/// A broker, its socket, and a folder to run in.
struct House {
    broker: FakeBroker,
    server: FakeServer,
    folder: TempDir,
    // Last, so that the server outlives nothing that needs it.
    _runtime: tokio::runtime::Runtime,
}

/// How a run ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl House {
    fn new(journals: &[&str]) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let broker = FakeBroker::new();
        for journal in journals {
            broker.create(journal);
        }
        let server = {
            let _guard = runtime.enter();
            broker.serve_unix(&folder.path().join("socket")).unwrap()
        };
        Self {
            broker,
            server,
            folder,
            _runtime: runtime,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn command(&self, args: &str) -> Command {
        self.command_of(args.split_whitespace())
    }

    fn command_of<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gazctl"));
        command
            .args(args)
            .current_dir(self.folder.path())
            .env_clear()
            .env("BROKER_ADDRESS", self.server.endpoint())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs with arguments that have no spaces.
    fn run(&self, args: &str) -> Ended {
        self.run_with(args, b"")
    }

    fn run_with(&self, args: &str, input: &[u8]) -> Ended {
        let mut child = self.command(args).spawn().unwrap();
        // A program that refuses its arguments does not read its input.
        drop(child.stdin.take().unwrap().write_all(input));
        ended(child.wait_with_output().unwrap())
    }

    /// Runs with any arguments and no input.
    fn run_of(&self, args: &[&str]) -> Ended {
        let mut command = self.command_of(args.iter().copied());
        ended(command.stdin(Stdio::null()).output().unwrap())
    }

    fn content(&self, journal: &str) -> String {
        String::from_utf8(self.broker.content(journal)).unwrap()
    }
}

fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ended {
    #[track_caller]
    fn done(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:?}");
        self.out
    }

    /// Checks an error: its code, one line on standard error, and what the line has.
    #[track_caller]
    fn failed(self, code: i32, has: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        let errors: Vec<&str> = self
            .err
            .lines()
            .filter(|line| line.starts_with("error: "))
            .collect();
        assert_eq!(errors.len(), 1, "{self:?}");
        for part in has {
            assert!(errors[0].contains(part), "{part:?} is not in {self:?}");
        }
    }
}
