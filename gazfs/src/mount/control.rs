//! How `gazfs umount` talks to the daemon of a mount.
//!
//! Over a socket in the abstract namespace, so there is no file to leave behind. Only the same
//! user and root are heard.

use std::{
    fmt,
    io::{self, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener as StdUnixListener, UnixStream as StdUnixStream},
    },
    path::Path,
    str::FromStr,
};

use rustix::{mount::UnmountFlags, process::geteuid};
use tokio::{
    io::AsyncWriteExt,
    net::{UnixListener, UnixStream},
};

use super::{MountError, is_daemon, table, unmount_now};

/// How an unmount that was asked for ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UmountOutcome {
    /// All was acknowledged, and it is unmounted.
    Done,
    /// Somebody uses the mount. Nothing was done.
    Busy,
    /// It is unmounted, but appends failed that nobody was told of.
    Failed {
        /// How many.
        appends: u64,
    },
    /// The daemon was dead. Its mount was taken away.
    WasDead,
}

impl fmt::Display for UmountOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Busy => f.write_str("busy"),
            Self::Failed { appends } => write!(f, "failed {appends}"),
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
            Some(("failed", appends)) => {
                let appends = appends.parse().map_err(io::Error::other)?;
                Ok(Self::Failed { appends })
            }
            _ => Err(io::Error::other("it ended before it answered")),
        }
    }
}

/// The daemon's side.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
}

/// Somebody who asked for the end of the mount, and waits for the outcome.
#[derive(Debug)]
pub struct Asked {
    stream: UnixStream,
}

impl Control {
    /// Listens for those who ask. Must be called in a tokio runtime.
    pub fn listen() -> io::Result<Self> {
        let listener = StdUnixListener::bind_addr(&address(std::process::id())?)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
        })
    }

    /// Waits for somebody who asks.
    pub async fn asked(&self) -> Asked {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) if may_ask(&stream) => return Asked { stream },
                Ok(_) => tracing::warn!("another user asked to unmount, and was not heard"),
                Err(error) => {
                    tracing::warn!(err = %error, "accept a request to unmount");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }
}

impl Asked {
    /// Tells how it ended. Whoever asked goes on when this is dropped.
    pub async fn answer(&mut self, outcome: UmountOutcome) {
        let text = format!("{outcome}\n");
        if let Err(error) = self.stream.write_all(text.as_bytes()).await {
            tracing::debug!(err = %error, "whoever asked to unmount did not wait");
        }
    }
}

/// Asks the daemon of a mount to end it when all is acknowledged, and waits until the daemon has
/// ended too.
pub fn ask_to_umount(point: &Path) -> Result<UmountOutcome, MountError> {
    let not_mounted = || MountError::NotMounted {
        point: point.to_owned(),
    };
    let resolved = super::resolve(point).map_err(|_| not_mounted())?;
    let table = table::read().map_err(MountError::Table)?;
    let entry = table::at(&table, &resolved).filter(|entry| entry.is_ours());
    let entry = entry.ok_or_else(not_mounted)?;
    let Some(pid) = entry.daemon().filter(|pid| is_daemon(*pid)) else {
        unmount_now(&resolved, UnmountFlags::DETACH)?;
        return Ok(UmountOutcome::WasDead);
    };
    ask(pid).map_err(|cause| MountError::NoAnswer {
        point: resolved,
        pid,
        cause,
    })
}

fn ask(pid: u32) -> io::Result<UmountOutcome> {
    let mut stream = StdUnixStream::connect_addr(&address(pid)?)?;
    stream.flush()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    answer.parse()
}

fn may_ask(stream: &UnixStream) -> bool {
    let own = geteuid().as_raw();
    stream
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("gazfs-umount-{pid}"))
}

/// Before the next try, if the process has no descriptor left.
const RETRY_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_understood_on_the_other_side() {
        let outcomes = [
            UmountOutcome::Done,
            UmountOutcome::Busy,
            UmountOutcome::Failed { appends: 3 },
        ];
        for outcome in outcomes {
            assert_eq!(
                outcome
                    .to_string()
                    .parse::<UmountOutcome>()
                    .expect("it is one"),
                outcome
            );
        }
        assert!("".parse::<UmountOutcome>().is_err());
    }
}
