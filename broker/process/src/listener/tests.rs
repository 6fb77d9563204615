use std::os::unix::fs::PermissionsExt;

use super::*;

fn unix(path: &Path) -> ListenAddress {
    ListenAddress::Unix(path.to_owned())
}

#[test]
fn addresses_parse_and_print() {
    for (text, printed) in [
        ("8080", ":8080"),
        (":8080", ":8080"),
        ("localhost:0", "localhost:0"),
        ("[::1]:80", "[::1]:80"),
        ("unix:///run/a b", "unix:///run/a b"),
    ] {
        let address: ListenAddress = text.parse().unwrap();
        assert_eq!(address.to_string(), printed);
        assert_eq!(printed.parse(), Ok(address));
    }
    for text in [
        "",
        "host",
        "::1:80",
        "http://host:80",
        "unix://",
        "unix://run/s",
        "host:99999",
    ] {
        assert!(text.parse::<ListenAddress>().is_err(), "{text:?}");
    }
}

#[tokio::test]
async fn a_unix_socket_is_for_its_user_only_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = Listener::bind(&unix(&path)).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let endpoint = listener.endpoint("ignored").unwrap();
    let real = std::fs::canonicalize(folder.path()).unwrap().join("s");
    assert_eq!(
        endpoint,
        format!("unix://{}{}", host_name(), real.display())
    );
    drop(listener);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_live_socket_is_refused_and_a_stale_one_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let first = Listener::bind(&unix(&path)).await.unwrap();
    let second = Listener::bind(&unix(&path)).await;
    assert!(matches!(second, Err(BindError::InUse { .. })), "{second:?}");

    // What a killed process leaves: the name without a listener.
    let stale = folder.path().join("stale");
    std::fs::hard_link(&path, &stale).unwrap();
    drop(first);
    let replaced = Listener::bind(&unix(&stale)).await.unwrap();
    std::os::unix::net::UnixStream::connect(&stale).unwrap();
    drop(replaced);
    assert!(!stale.exists());
}

#[tokio::test]
async fn a_socket_that_replaced_ours_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = Listener::bind(&unix(&path)).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    drop(listener);
    assert!(path.exists());
}

#[tokio::test]
async fn a_file_at_the_path_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    std::fs::write(&path, "precious").unwrap();
    let refused = Listener::bind(&unix(&path)).await;
    assert!(
        matches!(refused, Err(BindError::NotASocket { .. })),
        "{refused:?}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn a_long_path_can_be_bound() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("d".repeat(100));
    std::fs::create_dir(&deep).unwrap();
    let path = deep.join("s");
    let listener = Listener::bind(&unix(&path)).await.unwrap();
    assert!(path.exists());
    let second = Listener::bind(&unix(&path)).await;
    assert!(matches!(second, Err(BindError::InUse { .. })), "{second:?}");
    drop(listener);
}

#[tokio::test]
async fn a_taken_port_names_itself() {
    let local = ListenAddress::Tcp {
        host: "127.0.0.1".into(),
        port: 0,
    };
    let first = Listener::bind(&local).await.unwrap();
    let port = first.tcp_address().unwrap().port();
    assert_eq!(
        first.endpoint("broker-1").unwrap(),
        format!("http://broker-1:{port}")
    );
    assert_eq!(
        first.endpoint("::1").unwrap(),
        format!("http://[::1]:{port}")
    );
    let taken = ListenAddress::Tcp {
        host: "127.0.0.1".into(),
        port,
    };
    let error = Listener::bind(&taken).await.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("listen on 127.0.0.1:{port}: ")),
        "{error}"
    );
}
