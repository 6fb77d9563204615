//! Looks after the thread that waits for an answer.
//!
//! The kernel does not tell when a waiting thread got a signal: the transport refuses its
//! interrupts. So a request that is parked looks into `/proc` now and then, and gives up when its
//! caller has a signal to attend to. Without this a killed program would hang until the answer.

use std::{fs, time::Duration};

/// The thread that made a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    tid: u32,
}

/// Why a caller does not wait any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// A signal is pending that kills it or that it handles.
    Signal,
    /// It was killed by a signal, and is leaving.
    Killed,
}

impl Caller {
    /// Nobody in particular, who waits until the answer.
    pub const NOBODY: Self = Self { tid: 0 };

    /// Creates the caller with this thread number, which is zero if it is not visible here.
    pub fn new(tid: u32) -> Self {
        Self { tid }
    }

    /// Waits until the caller does not wait any more. May never end.
    pub async fn ended(self) -> Ending {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if let Some(ending) = self.look() {
                return ending;
            }
        }
    }

    /// Says whether the caller was killed by a signal. Other signals count for nothing, as calls on
    /// files of a local file system are not interrupted either.
    pub fn is_killed(self) -> bool {
        let read = |what| fs::read_to_string(format!("/proc/{}/{what}", self.tid)).ok();
        let Some(status) = read("status").filter(|_| self.tid != 0) else {
            return false;
        };
        has_fatal_signal(&status)
            || !has_memory(&status) && read("stat").is_some_and(|stat| was_killed(&stat))
    }

    /// Says whether the caller is in exit(2), where signals do not reach it any more.
    pub fn is_leaving(self) -> bool {
        let status = || fs::read_to_string(format!("/proc/{}/status", self.tid)).ok();
        self.tid != 0 && status().is_some_and(|status| !has_memory(&status))
    }

    /// Returns why the caller does not wait any more, or `None` if it does or cannot be seen.
    pub fn look(self) -> Option<Ending> {
        if self.tid == 0 {
            return None;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.tid)).ok()?;
        if has_signal(&status) {
            return Some(Ending::Signal);
        }
        if has_memory(&status) {
            return None;
        }
        // It is leaving, and closes its files. Once it does, further signals are dropped, so how
        // it began to leave is all that can be known.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.tid)).ok()?;
        was_killed(&stat).then_some(Ending::Killed)
    }
}

/// Says whether a thread has a signal to attend to, by its `/proc/TID/status`.
fn has_signal(status: &str) -> bool {
    has_fatal_signal(status) || pending(status) & signal_set(status, "SigCgt:") & ENDS_A_CALL != 0
}

/// Says whether a thread has a signal that kills it, by its `/proc/TID/status`.
fn has_fatal_signal(status: &str) -> bool {
    let handled = signal_set(status, "SigCgt:") | signal_set(status, "SigIgn:");
    pending(status) & !handled & !DEFAULT_IS_NOT_FATAL != 0
}

fn pending(status: &str) -> u64 {
    let pending = signal_set(status, "SigPnd:") | signal_set(status, "ShdPnd:");
    pending & !signal_set(status, "SigBlk:")
}

fn signal_set(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

/// Says whether a thread still has its memory, by its `/proc/TID/status`: a process gives it back
/// before it closes its files.
fn has_memory(status: &str) -> bool {
    status.lines().any(|line| line.starts_with("VmSize:"))
}

/// Says whether a process that is leaving was killed by a signal, by its `/proc/TID/stat`.
fn was_killed(stat: &str) -> bool {
    // The name in parentheses may hold anything.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_ascii_whitespace();
    let flags: u64 = fields
        .nth(6)
        .and_then(|flags| flags.parse().ok())
        .unwrap_or(0);
    let exit_code: u64 = fields
        .next_back()
        .and_then(|code| code.parse().ok())
        .unwrap_or(0);
    flags & PF_EXITING != 0 && exit_code & 0x7f != 0
}

/// How long a signal may go unnoticed. The promise is that a call ends within 200 ms.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Flag of a kernel task that is in `exit(2)`.
const PF_EXITING: u64 = 0x4;

const fn signals(numbers: &[u32]) -> u64 {
    let mut set = 0;
    let mut at = 0;
    while at < numbers.len() {
        set |= 1 << (numbers[at] - 1);
        at += 1;
    }
    set
}

/// Signals that do nothing, stop, or continue a process that does not handle them:
/// SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH.
const DEFAULT_IS_NOT_FATAL: u64 = signals(&[17, 18, 19, 20, 21, 22, 23, 28]);

/// Signals by which people and programs end a call that takes too long: SIGHUP, SIGINT, SIGQUIT,
/// SIGUSR1, SIGUSR2, SIGALRM, SIGTERM. Others that programs handle come all the time and are meant
/// not to disturb (SIGCHLD, SIGPROF, and SIGURG by which Go switches threads).
const ENDS_A_CALL: u64 = signals(&[1, 2, 3, 10, 12, 14, 15]);

#[cfg(test)]
mod tests;
