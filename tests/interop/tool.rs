//! A program that is run to its end, and what it says.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a command may take.
const COMMAND_MAX: Duration = Duration::from_mins(2);

/// A `gazctl`, ours or the reference's, that talks to one broker.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    pub(crate) program: PathBuf,
    pub(crate) address: String,
}

impl Tool {
    /// Runs it with the words of `arguments`, which must succeed. Returns what it printed.
    pub(crate) fn ok(&self, arguments: &str) -> String {
        self.ok_with("", arguments)
    }

    /// The same with an input.
    pub(crate) fn ok_with(&self, input: &str, arguments: &str) -> String {
        let output = self.run(input, arguments, &[]);
        self.printed(&output, arguments)
    }

    /// The same with a variable of the environment.
    pub(crate) fn ok_in(&self, variable: (&str, &str), arguments: &str) -> String {
        let output = self.run("", arguments, &[variable]);
        self.printed(&output, arguments)
    }

    /// Runs it, which must fail. Returns what it says on standard error.
    pub(crate) fn fails_with(&self, input: &str, arguments: &str) -> String {
        let output = self.run(input, arguments, &[]);
        assert!(
            !output.status.success(),
            "{} {arguments} succeeds: {}",
            self.program.display(),
            String::from_utf8_lossy(&output.stdout)
        );
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs it again until what it prints is as it should be.
    pub(crate) fn until(&self, arguments: &str, holds: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let printed = self.ok(arguments);
            if holds(&printed) {
                return printed;
            }
            assert!(Instant::now() < until, "{arguments} keeps saying {printed}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// It, to be started by the caller.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments.split_whitespace())
            .env("BROKER_ADDRESS", &self.address)
            // A configuration of the user's has no say.
            .env("HOME", "/nonexistent");
        command
    }

    fn run(&self, input: &str, arguments: &str, variables: &[(&str, &str)]) -> Output {
        let mut command = self.command(arguments);
        command.envs(variables.iter().copied());
        run(command, input)
    }

    fn printed(&self, output: &Output, arguments: &str) -> String {
        assert!(
            output.status.success(),
            "{} {arguments}: {}: {}",
            self.program.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout.clone()).expect("it prints text")
    }
}

/// Runs a command with an input; it has to end.
pub(crate) fn run(mut command: Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start a program");
    let id = i32::try_from(child.id()).expect("a process id");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_owned();
    // What does not read its input ends the writer with an error, which is fine.
    let writer = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let waiter = thread::spawn(move || child.wait_with_output());
    let until = Instant::now() + COMMAND_MAX;
    while !waiter.is_finished() && Instant::now() < until {
        thread::sleep(Duration::from_millis(2));
    }
    if !waiter.is_finished() {
        let pid = rustix::process::Pid::from_raw(id).expect("a process id is positive");
        // It may have ended just now.
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    writer.join().expect("the writer does not panic");
    let output = waiter.join().expect("the waiter does not panic");
    output.expect("wait for a program")
}
