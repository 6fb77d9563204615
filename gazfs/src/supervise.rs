//! A program that runs in a recorded directory: it is given the signals that we get, and we end
//! with its exit code.

pub mod namespace;

use std::{
    ffi::OsString, io, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration,
};

use rustix::{
    process::{Pid, Signal, getpgrp, kill_process},
    stdio::stdin,
    termios::tcgetpgrp,
};
use tokio::{
    process::{Child, Command},
    signal::unix::{self, SignalKind},
};

/// The signals that are passed on.
#[derive(Debug)]
pub struct Signals {
    hangup: unix::Signal,
    interrupt: unix::Signal,
    quit: unix::Signal,
    terminate: unix::Signal,
    user1: unix::Signal,
    user2: unix::Signal,
}

impl Signals {
    /// Takes the signals from now on: none of them ends this process any more.
    pub fn take() -> io::Result<Self> {
        Ok(Self {
            hangup: unix::signal(SignalKind::hangup())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            quit: unix::signal(SignalKind::quit())?,
            terminate: unix::signal(SignalKind::terminate())?,
            user1: unix::signal(SignalKind::user_defined1())?,
            user2: unix::signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for one.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.quit.recv() => Signal::QUIT,
            _ = self.hangup.recv() => Signal::HUP,
            _ = self.user1.recv() => Signal::USR1,
            _ = self.user2.recv() => Signal::USR2,
        }
    }

    /// Waits for one that asks to end.
    pub async fn next_end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if signal != Signal::USR1 && signal != Signal::USR2 {
                return signal;
            }
        }
    }
}

/// A program that was started. It is killed when this is dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
}

impl Program {
    /// Starts a program, by its name and arguments, in the folder where we are.
    pub fn start(command: &[OsString]) -> io::Result<Self> {
        let (name, arguments) = command
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program is given"))?;
        let child = Command::new(name)
            .args(arguments)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { child })
    }

    /// Waits until it ends, and passes signals on meanwhile. Returns the exit code for its caller.
    pub async fn wait(&mut self, signals: &mut Signals) -> io::Result<u8> {
        loop {
            tokio::select! {
                biased;
                ended = self.child.wait() => return Ok(code(ended?)),
                signal = signals.next() => {
                    if !came_from_terminal(signal) {
                        self.signal(signal);
                    }
                }
            }
        }
    }

    /// Asks it to end. `None` if it does not in time; it is not killed.
    pub async fn end_within(&mut self, within: Duration) -> Option<io::Result<u8>> {
        self.signal(Signal::TERM);
        let ended = tokio::time::timeout(within, self.child.wait()).await.ok()?;
        Some(ended.map(code))
    }

    /// Asks it to end, and kills it if it does not in time.
    pub async fn end(&mut self) -> io::Result<u8> {
        self.signal(Signal::TERM);
        if let Ok(ended) = tokio::time::timeout(END_TIMEOUT, self.child.wait()).await {
            return Ok(code(ended?));
        }
        self.child.start_kill()?;
        Ok(code(self.child.wait().await?))
    }

    fn signal(&self, signal: Signal) {
        // Once it was waited for it has no number any more, so nobody else is hit.
        let pid = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if let Some(pid) = pid
            && let Err(error) = kill_process(pid, signal)
        {
            tracing::debug!(?signal, err = %error, "pass a signal on");
        }
    }
}

/// Says whether the program has this signal already: a terminal gives those of its keys to all
/// processes in the foreground.
fn came_from_terminal(signal: Signal) -> bool {
    (signal == Signal::INT || signal == Signal::QUIT)
        && tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == getpgrp())
}

/// The exit code that a shell gives.
fn code(ended: ExitStatus) -> u8 {
    let code = match (ended.code(), ended.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => SIGNALLED + signal,
        (None, None) => SIGNALLED,
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// What shells add to the number of a signal that ended a program.
const SIGNALLED: i32 = 128;

/// How long a program may take to end when it is asked to.
const END_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(script: &str) -> u8 {
        let mut signals = Signals::take().expect("take signals");
        let command = ["sh", "-c", script].map(OsString::from);
        let mut program = Program::start(&command).expect("start sh");
        program.wait(&mut signals).await.expect("wait")
    }

    #[tokio::test]
    async fn the_exit_code_is_that_of_the_program_or_of_its_signal() {
        assert_eq!(run("exit 7").await, 7);
        assert_eq!(run("kill -9 $$").await, 137);
        assert!(Program::start(&["/no/such/program".into()]).is_err());
        assert!(Program::start(&[]).is_err());
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_is_asked_to() {
        let command = ["sleep", "100"].map(OsString::from);
        let mut program = Program::start(&command).expect("start sleep");
        assert_eq!(program.end().await.expect("wait"), 128 + 15);
    }
}
