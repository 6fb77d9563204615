//! How other processes talk to the daemon of a mount: `gazfs umount`, `status` and `flush`.
//!
//! Over a socket in the abstract namespace, so there is no file to leave behind, and it is reached
//! also where the mount itself is not seen. Only the same user and root are heard. Whoever asks
//! sends one line, and reads until the end.

use std::{
    fmt, fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::AsFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use rustix::{
    mount::UnmountFlags,
    net::sockopt::socket_peercred,
    process::{geteuid, getpid},
};
use tokio::sync::{Mutex, mpsc};

use super::{MountError, is_daemon, table, unmount_now};

/// What can be asked of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// End the mount when all is acknowledged. The answer is an [`UmountOutcome`].
    Umount,
    /// Tell how it is. The answer is JSON.
    Status,
    /// Wait until all that was done so far is acknowledged. The answer is a [`FlushOutcome`].
    Flush,
    /// Record again what is live in the oldest part of the log, until nothing of that is needed. The answer is JSON.
    Compact,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Umount => "umount",
            Self::Status => "status",
            Self::Flush => "flush",
            Self::Compact => "compact",
        })
    }
}

impl FromStr for Question {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        match text.trim_end() {
            "umount" => Ok(Self::Umount),
            "status" => Ok(Self::Status),
            "flush" => Ok(Self::Flush),
            "compact" => Ok(Self::Compact),
            other => Err(io::Error::other(format!(
                "unknown question: {}",
                other.escape_default()
            ))),
        }
    }
}

/// How an unmount that was asked for ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UmountOutcome {
    /// All was acknowledged, and it is unmounted.
    Done,
    /// Somebody uses the mount. Nothing was done.
    Busy,
    /// It is unmounted, but something did not reach its journal.
    Failed {
        /// What.
        message: String,
    },
    /// It is unmounted, but somebody else had taken the log over before.
    Fenced {
        /// Who, and since when.
        message: String,
    },
    /// The daemon was dead. Its mount was taken away.
    WasDead,
}

impl fmt::Display for UmountOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Busy => f.write_str("busy"),
            Self::Failed { message } => write!(f, "failed {message}"),
            Self::Fenced { message } => write!(f, "fenced {message}"),
            Self::WasDead => f.write_str("dead"),
        }
    }
}

impl FromStr for UmountOutcome {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        match text.trim().split_once(' ') {
            None if text.trim() == "done" => Ok(Self::Done),
            None if text.trim() == "busy" => Ok(Self::Busy),
            Some(("failed", message)) => Ok(Self::Failed {
                message: message.to_owned(),
            }),
            Some(("fenced", message)) => Ok(Self::Fenced {
                message: message.to_owned(),
            }),
            _ => Err(io::Error::other("it ended before it answered")),
        }
    }
}

/// How a flush that was asked for ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlushOutcome {
    /// All that was done before is acknowledged.
    Done,
    /// Something is not, and will not be.
    Failed {
        /// Why.
        message: String,
        /// As somebody else owns the log.
        is_fenced: bool,
    },
}

impl fmt::Display for FlushOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Failed { message, is_fenced } => {
                let how = if *is_fenced { "fenced" } else { "failed" };
                write!(f, "{how} {message}")
            }
        }
    }
}

impl FromStr for FlushOutcome {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        match text.trim().split_once(' ') {
            None if text.trim() == "done" => Ok(Self::Done),
            Some((how @ ("failed" | "fenced"), message)) => Ok(Self::Failed {
                message: message.to_owned(),
                is_fenced: how == "fenced",
            }),
            _ => Err(io::Error::other("it ended before it answered")),
        }
    }
}

/// The daemon's side.
#[derive(Debug)]
pub struct Control {
    asked: Mutex<mpsc::Receiver<Asked>>,
}

/// Somebody who asked, and waits for the answer.
#[derive(Debug)]
pub struct Asked {
    question: Question,
    stream: UnixStream,
}

impl Control {
    /// Listens for those who ask.
    pub fn listen() -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
        let (send, asked) = mpsc::channel(QUESTIONS_MAX);
        // Questions are short and few, and this thread does nothing else.
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || accept(&listener, &send))?;
        Ok(Self {
            asked: Mutex::new(asked),
        })
    }

    /// Waits for somebody who asks. Nobody is lost if this is not waited for to its end.
    pub async fn asked(&self) -> Asked {
        match self.asked.lock().await.recv().await {
            Some(asked) => asked,
            // The thread ended: nobody will ask any more.
            None => std::future::pending().await,
        }
    }
}

fn accept(listener: &UnixListener, send: &mpsc::Sender<Asked>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let asked = match hear(stream) {
                    Ok(asked) => asked,
                    Err(error) => {
                        tracing::debug!(err = %error, "somebody asked, and was not understood");
                        continue;
                    }
                };
                if send.blocking_send(asked).is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(err = %error, "accept a question");
                std::thread::sleep(RETRY_INTERVAL);
            }
        }
    }
}

fn hear(stream: UnixStream) -> io::Result<Asked> {
    if !is_friend(&stream) {
        tracing::warn!("another user asked something, and was not heard");
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(QUESTION_TIMEOUT))?;
    stream.set_write_timeout(Some(QUESTION_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(&stream)
        .take(QUESTION_BYTES_MAX)
        .read_line(&mut line)?;
    Ok(Asked {
        question: line.parse()?,
        stream,
    })
}

impl Asked {
    /// What was asked.
    pub fn question(&self) -> Question {
        self.question
    }

    /// Answers. Whoever asked goes on when this is dropped.
    pub fn answer(&mut self, answer: impl fmt::Display) {
        let text = format!("{answer}\n");
        if let Err(error) = self.stream.write_all(text.as_bytes()) {
            tracing::debug!(err = %error, "whoever asked did not wait");
        }
    }
}

/// Asks the daemon of a mount to end it when all is acknowledged, and waits until the daemon has
/// ended too.
pub fn ask_to_umount(point: &Path) -> Result<UmountOutcome, MountError> {
    match daemon_of(point)? {
        Daemon::Alive { pid, point } => ask_as(pid, Question::Umount)
            .map_err(|cause| MountError::NoAnswer { point, pid, cause }),
        Daemon::Dead { point } => {
            unmount_dead(&point)?;
            Ok(UmountOutcome::WasDead)
        }
    }
}

/// Takes all mounts of a daemon away that died, as it would have done itself.
fn unmount_dead(point: &Path) -> Result<(), MountError> {
    let table = table::read().map_err(MountError::Table)?;
    let dead = table::at(&table, point).and_then(table::MountEntry::daemon);
    let others = table
        .iter()
        .filter(|entry| dead.is_some() && entry.daemon() == dead && entry.point != point);
    for other in others {
        unmount_now(&other.point, UnmountFlags::DETACH)?;
    }
    unmount_now(point, UnmountFlags::DETACH)
}

/// The daemon of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Daemon {
    /// It runs.
    Alive {
        /// Its process.
        pid: u32,
        /// The mount point, without links.
        point: PathBuf,
    },
    /// It does not run any more, but its mount is there.
    Dead {
        /// The mount point, without links.
        point: PathBuf,
    },
}

/// Finds the daemon of a mount that this process sees.
pub fn daemon_of(point: &Path) -> Result<Daemon, MountError> {
    let not_mounted = || MountError::NotMounted {
        point: point.to_owned(),
    };
    let resolved = super::resolve(point).map_err(|_| not_mounted())?;
    let table = table::read().map_err(MountError::Table)?;
    let entry = table::at(&table, &resolved).filter(|entry| entry.is_ours());
    let entry = entry.ok_or_else(not_mounted)?;
    Ok(match entry.daemon().filter(|pid| is_daemon(*pid)) {
        Some(pid) => Daemon::Alive {
            pid,
            point: resolved,
        },
        None => Daemon::Dead { point: resolved },
    })
}

/// Processes that listen for questions on this machine, also where their mounts are not seen.
pub fn daemons() -> io::Result<Vec<u32>> {
    let text = fs::read_to_string("/proc/net/unix")?;
    let own = getpid().as_raw_nonzero().get().cast_unsigned();
    let pids = text.lines().filter_map(|line| {
        let name = line.split_ascii_whitespace().nth(7)?;
        name.strip_prefix('@')?
            .strip_prefix(ADDRESS_PREFIX)?
            .parse()
            .ok()
    });
    let mut pids: Vec<u32> = pids.filter(|pid| *pid != own).collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Asks a daemon, and waits for the answer: for that to [`Question::Status`] some seconds, for others
/// until it is there. One that does not come in time is [`io::ErrorKind::WouldBlock`].
pub fn ask(pid: u32, question: Question) -> io::Result<String> {
    let mut stream = UnixStream::connect_addr(&address(pid)?)?;
    if !is_friend(&stream) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user",
        ));
    }
    if question == Question::Status {
        // That is answered at once, by a daemon that is not stopped.
        stream.set_read_timeout(Some(STATUS_TIMEOUT))?;
    }
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::other("it ended before it answered"));
    }
    Ok(answer)
}

/// The same, with the answer understood.
pub fn ask_as<A: FromStr<Err = io::Error>>(pid: u32, question: Question) -> io::Result<A> {
    ask(pid, question)?.parse()
}

/// Says whether the other side is this user, or root.
fn is_friend(stream: &UnixStream) -> bool {
    let own = geteuid();
    socket_peercred(stream.as_fd())
        .is_ok_and(|peer| own.is_root() || peer.uid == own || peer.uid.is_root())
}

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{ADDRESS_PREFIX}{pid}"))
}

const ADDRESS_PREFIX: &str = "gazfs-daemon-";

/// Before the next try, if the process has no descriptor left.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// A question is one word; who takes longer for it is not heard.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(2);
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);
const QUESTION_BYTES_MAX: u64 = 64;
/// How many may wait to be heard.
const QUESTIONS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(text: &str) -> UmountOutcome {
        UmountOutcome::Failed {
            message: text.to_owned(),
        }
    }

    #[test]
    fn outcomes_are_understood_on_the_other_side() {
        for outcome in [
            UmountOutcome::Done,
            UmountOutcome::Busy,
            failed("3 appends failed"),
            UmountOutcome::Fenced {
                message: "author 7 took over".to_owned(),
            },
        ] {
            let text = outcome.to_string();
            assert_eq!(text.parse::<UmountOutcome>().expect("it is one"), outcome);
        }
        assert!("".parse::<UmountOutcome>().is_err());
        for is_fenced in [false, true] {
            let outcome = FlushOutcome::Failed {
                message: "the log is gone".to_owned(),
                is_fenced,
            };
            let text = outcome.to_string();
            assert_eq!(text.parse::<FlushOutcome>().expect("it is one"), outcome);
        }
        for question in [
            Question::Umount,
            Question::Status,
            Question::Flush,
            Question::Compact,
        ] {
            let text = format!("{question}\n");
            assert_eq!(text.parse::<Question>().expect("it is one"), question);
        }
        assert!("nonsense\n".parse::<Question>().is_err());
    }

    #[tokio::test]
    async fn who_asks_is_heard_and_answered() {
        let control = Control::listen().expect("listen");
        let own = std::process::id();
        let asking = std::thread::spawn(move || ask(own, Question::Status));
        let mut asked = control.asked().await;
        assert_eq!(asked.question(), Question::Status);
        asked.answer("fine");
        drop(asked);
        let answer = asking.join().expect("it ends").expect("an answer");
        assert_eq!(answer, "fine\n");
    }
}
