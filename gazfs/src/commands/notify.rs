//! Tells systemd that we are ready, or that we end, where it asked for that.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// Mounted, and recording.
pub(super) fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={status}\n"));
}

/// On the way to the end.
pub(super) fn stopping() {
    tell("STOPPING=1\n");
}

fn tell(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(path.as_bytes(), state) {
        tracing::warn!(err = %error, "tell systemd");
    }
}

fn send(path: &[u8], state: &str) -> io::Result<()> {
    let address = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_arrive_at_sockets_with_a_path_and_without() {
        let temp = tempfile::tempdir().expect("make a folder");
        let path = temp.path().join("notify");
        let name = format!("gazfs-notify-{}", std::process::id());
        let named = SocketAddr::from_abstract_name(&name).expect("a name");
        let sockets = [
            (
                UnixDatagram::bind(&path).expect("bind"),
                path.as_os_str().as_bytes().to_vec(),
            ),
            (
                UnixDatagram::bind_addr(&named).expect("bind"),
                format!("@{name}").into_bytes(),
            ),
        ];
        for (socket, address) in sockets {
            send(&address, "READY=1\n").expect("send");
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer).expect("receive");
            assert_eq!(&buffer[..length], b"READY=1\n");
        }
        assert!(send(b"/no/such/socket", "x").is_err());
    }
}
