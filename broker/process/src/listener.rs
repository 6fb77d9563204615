//! Listening sockets: TCP, or Unix with mode 0600.

use std::{
    fmt, io,
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use rustix::fs::{FlockOperation, Mode, OFlags};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::args::host_name;

/// An address that a server can listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP port; an empty host is every interface, port 0 is any free port.
    Tcp {
        /// Name or address of an interface.
        host: String,
        /// Number of the port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// A text that is no address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ListenAddressError {
    /// The part after the last colon is no port.
    #[error("{0:?} is not a port number, host:port, or unix:///path")]
    Malformed(String),
    /// The path of a socket is not absolute.
    #[error("{0:?} names no absolute path; write unix:///path")]
    RelativePath(String),
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.starts_with('/') {
                Ok(Self::Unix(PathBuf::from(path)))
            } else {
                Err(ListenAddressError::RelativePath(text.to_owned()))
            };
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let malformed = || ListenAddressError::Malformed(text.to_owned());
        let bracketed = host.starts_with('[') && host.ends_with(']');
        if (host.contains(':') && !bracketed) || host.contains('/') {
            return Err(malformed());
        }
        let port = port.parse().map_err(|_| malformed())?;
        Ok(Self::Tcp {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Why a server cannot listen.
#[derive(Debug, Error)]
pub enum BindError {
    /// The operating system refused.
    #[error("listen on {address}: {cause}; next: choose another address, or end its user")]
    Refused {
        /// The address asked for.
        address: String,
        /// What the system said.
        cause: io::Error,
    },
    /// A live process answers at the path.
    #[error("listen on unix://{}: another process listens there; next: stop it, or choose \
             another path", .path.display())]
    InUse {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The path is taken by something else than a socket.
    #[error("listen on unix://{}: the path exists and is not a socket; next: remove it, or \
             choose another path", .path.display())]
    NotASocket {
        /// The path asked for.
        path: PathBuf,
    },
}

/// A bound socket that accepts connections.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) enum Connection {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Listener {
    pub(crate) async fn bind(address: &ListenAddress) -> Result<Self, BindError> {
        let refused = |cause| BindError::Refused {
            address: address.to_string(),
            cause,
        };
        match address {
            ListenAddress::Tcp { host, port } => {
                let listener = bind_tcp(host, *port).await.map_err(refused)?;
                Ok(Self::Tcp(listener))
            }
            ListenAddress::Unix(path) => {
                let (listener, file) = bind_unix(path)?;
                Ok(Self::Unix(listener, file))
            }
        }
    }

    /// Returns what a peer dials: `http://host:port` or `unix://hostname/abs/path`.
    pub(crate) fn endpoint(&self, advertised_host: &str) -> io::Result<String> {
        match self {
            Self::Tcp(listener) => {
                let port = listener.local_addr()?.port();
                if advertised_host.contains(':') && !advertised_host.starts_with('[') {
                    Ok(format!("http://[{advertised_host}]:{port}"))
                } else {
                    Ok(format!("http://{advertised_host}:{port}"))
                }
            }
            Self::Unix(_, file) => Ok(format!("unix://{}{}", host_name(), file.path.display())),
        }
    }

    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Accepts the next connection. Never fails for good: a process out of descriptors waits.
    pub(crate) async fn accept(&self) -> Connection {
        loop {
            let accepted = match self {
                Self::Tcp(listener) => listener
                    .accept()
                    .await
                    .map(|(stream, peer)| Connection::Tcp(stream, peer)),
                Self::Unix(listener, _) => listener
                    .accept()
                    .await
                    .map(|(stream, _)| Connection::Unix(stream)),
            };
            match accepted {
                Ok(connection) => return connection,
                Err(error) if is_of_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(err = %error, "cannot accept a connection; trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Errors that concern the one connection, which is gone already.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

async fn bind_tcp(host: &str, port: u16) -> io::Result<TcpListener> {
    if !host.is_empty() {
        return TcpListener::bind((host, port)).await;
    }
    match TcpListener::bind(("::", port)).await {
        // No IPv6 on this machine.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(("0.0.0.0", port)).await
        }
        bound => bound,
    }
}

/// The name of a bound Unix socket; removed when dropped, if it still is ours.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.inode);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), err = %error, "cannot remove socket");
        }
    }
}

/// Binds at a private name first and renames, so that the socket never has another mode than 0600
/// at its final name, and never is there without its listener.
///
/// The folder is locked meanwhile: of two processes that find the same stale socket, the second
/// sees the live one of the first.
fn bind_unix(path: &Path) -> Result<(UnixListener, SocketFile), BindError> {
    let refused = |cause: io::Error| BindError::Refused {
        address: ListenAddress::Unix(path.to_owned()).to_string(),
        cause,
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(BindError::NotASocket {
            path: path.to_owned(),
        });
    };
    let parent = std::fs::canonicalize(parent).map_err(refused)?;
    let path = parent.join(name);

    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(&parent, flags, Mode::empty()).map_err(|e| refused(e.into()))?;
    rustix::fs::flock(&folder, FlockOperation::LockExclusive).map_err(|e| refused(e.into()))?;

    match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(refused(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(BindError::NotASocket { path });
        }
        Ok(_) if is_live(&through(&folder).join(name)).map_err(refused)? => {
            return Err(BindError::InUse { path });
        }
        Ok(_) => {}
    }

    let private = PrivateFolder::create(&parent).map_err(refused)?;
    let listener = UnixListener::bind(through(&private.descriptor).join("s")).map_err(refused)?;
    let bound = private.path.join("s");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&bound, mode).map_err(refused)?;
    let metadata = std::fs::symlink_metadata(&bound).map_err(refused)?;
    std::fs::rename(&bound, &path).map_err(refused)?;
    let inode = (metadata.dev(), metadata.ino());
    Ok((listener, SocketFile { path, inode }))
}

/// Reports whether a process accepts connections at `path`.
fn is_live(path: &Path) -> io::Result<bool> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // Its backlog is full: it is busy, but there.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns a path of an open folder that is short enough for the address of a socket, whatever the
/// length of the folder's own path.
fn through(folder: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

/// A folder of mode 0700 that is removed when dropped.
struct PrivateFolder {
    path: PathBuf,
    descriptor: OwnedFd,
}

impl PrivateFolder {
    fn create(parent: &Path) -> io::Result<Self> {
        let path = parent.join(format!(".listen-{}", std::process::id()));
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            // Left behind by a process that was killed here and had our id.
            Err(rustix::io::Errno::EXIST) => {
                std::fs::remove_dir_all(&path)?;
                rustix::fs::mkdir(&path, Mode::RWXU)?;
            }
            made => made?,
        }
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Self { path, descriptor })
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::debug!(path = %self.path.display(), err = %error, "cannot remove folder");
        }
    }
}

/// Pause after a failure to accept, so that a process out of descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
