//! The store in a file: what survives, and what is wrong with files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use gazette_coordination::{
    Coordination, CoordinationError, Embedded, EventKind, Op, OpenCause, RangeRequest, Txn,
    WatchRequest,
};

async fn open(path: &Path) -> Embedded {
    Embedded::open(path).await.unwrap()
}

async fn put(store: &Embedded, key: String, value: &'static str) -> i64 {
    let txn = Txn::new(vec![], vec![Op::put(key, value)]);
    store.txn(txn).await.unwrap().header.revision
}

async fn keys(store: &Embedded) -> Vec<String> {
    let response = store.range(RangeRequest::prefix("")).await.unwrap();
    response
        .kvs
        .iter()
        .map(|kv| String::from_utf8_lossy(&kv.key).into_owned())
        .collect()
}

async fn open_error(path: &Path) -> (OpenCause, String) {
    let err = Embedded::open(path).await.unwrap_err();
    (
        err.cause.clone(),
        err.to_string().replace(path.to_str().unwrap(), "FILE"),
    )
}

#[tokio::test]
async fn a_reopened_store_is_as_it_was_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("coordination.db");
    let store = open(&path).await;
    put(&store, "a".to_owned(), "1").await;
    put(&store, "a".to_owned(), "2").await;
    put(&store, "b".to_owned(), "1").await;
    store
        .txn(Txn::new(vec![], vec![Op::delete("b")]))
        .await
        .unwrap();
    let before = store.range(RangeRequest::prefix("")).await.unwrap();
    store.close().await;
    let closed = store.range(RangeRequest::prefix("")).await;
    assert_eq!(closed, Err(CoordinationError::Closed));

    let store = open(&path).await;
    let after = store.range(RangeRequest::prefix("")).await.unwrap();
    assert_eq!(after.kvs, before.kvs);
    assert_eq!(after.header.revision, before.header.revision);
    assert_eq!(after.header.cluster_id, before.header.cluster_id);
    assert_ne!(after.header.cluster_id, 0);
    assert_eq!(after.header.raft_term, before.header.raft_term + 1);
    let next = put(&store, "a".to_owned(), "3").await;
    assert_eq!(next, before.header.revision + 1);
}

#[tokio::test]
async fn two_stores_have_two_identities() {
    let folder = tempfile::tempdir().unwrap();
    let one = open(&folder.path().join("one"))
        .await
        .header()
        .await
        .unwrap();
    let two = open(&folder.path().join("two"))
        .await
        .header()
        .await
        .unwrap();
    assert_ne!(one.cluster_id, two.cluster_id);
}

#[tokio::test]
async fn keys_of_the_last_process_go_with_its_leases_and_a_resumed_watch_sees_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("coordination.db");
    let store = open(&path).await;
    let lease = store.grant_lease(Duration::from_hours(1)).await.unwrap();
    let ops = vec![Op::put_with_lease("mine", "1", lease), Op::put("kept", "1")];
    let revision = store
        .txn(Txn::new(vec![], ops))
        .await
        .unwrap()
        .header
        .revision;
    drop(store);

    let store = open(&path).await;
    assert_eq!(keys(&store).await, ["kept"]);
    let request = WatchRequest {
        prefix: "".into(),
        start_revision: revision + 1,
    };
    let response = store.watch(request).await.unwrap().next().await.unwrap();
    let [event] = response.events.as_slice() else {
        panic!("{response:?}")
    };
    assert_eq!(
        (event.kind, event.kv.key.as_ref()),
        (EventKind::Delete, b"mine".as_ref())
    );
    assert_eq!(event.kv.mod_revision, revision + 1);
    assert!(store.keep_alive(lease).await.is_err());
    drop(store);
    let store = open(&path).await;
    assert_eq!(
        store.header().await.unwrap().revision,
        revision + 1,
        "they end once only"
    );
}

#[tokio::test]
async fn waiting_watches_end_when_the_store_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("coordination.db")).await;
    let request = WatchRequest {
        prefix: "".into(),
        start_revision: 0,
    };
    let mut watch = store.watch(request).await.unwrap();
    let waiting = tokio::spawn(async move { watch.next().await });
    tokio::task::yield_now().await;
    store.close().await;
    assert_eq!(waiting.await.unwrap(), Err(CoordinationError::Closed));
}

#[tokio::test]
async fn a_file_that_is_open_elsewhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("coordination.db");
    let store = open(&path).await;
    let (cause, text) = open_error(&path).await;
    assert_eq!(cause, OpenCause::Locked);
    assert_eq!(
        text,
        "open FILE: another process has it open; next: stop the other process, or use another \
         folder"
    );
    store.close().await;
    open(&path).await;
}

#[tokio::test]
async fn a_file_of_a_later_release_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("coordination.db");
    open(&path).await.close().await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    drop(connection);
    let (cause, text) = open_error(&path).await;
    assert_eq!(cause, OpenCause::Newer { found: 2, known: 1 });
    assert!(
        text.ends_with("next: use the release that wrote it, or a later one"),
        "{text}"
    );
}

#[tokio::test]
async fn a_file_of_something_else_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(
        &text,
        "This is a text, and long enough to be a header.".repeat(99),
    )
    .unwrap();
    assert_eq!(open_error(&text).await.0, OpenCause::Foreign);
    assert!(
        std::fs::read_to_string(&text)
            .unwrap()
            .starts_with("This is a text")
    );

    let other = folder.path().join("other.db");
    let connection = rusqlite::Connection::open(&other).unwrap();
    connection
        .execute_batch("CREATE TABLE people (name TEXT)")
        .unwrap();
    drop(connection);
    assert_eq!(open_error(&other).await.0, OpenCause::Foreign);
}

#[tokio::test]
async fn a_damaged_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("coordination.db");
    let store = open(&path).await;
    for n in 0..500 {
        put(
            &store,
            format!("key-{n:04}"),
            "a value that fills some pages of the file",
        )
        .await;
    }
    store.close().await;
    let whole = std::fs::read(&path).unwrap();
    assert!(whole.len() > 8 * 4096, "{}", whole.len());
    let mut refused = 0;
    for page in 1..whole.len() / 4096 {
        let mut damaged = whole.clone();
        damaged[page * 4096..][..64].fill(0x5a);
        std::fs::write(&path, damaged).unwrap();
        let (cause, text) = open_error(&path).await;
        assert!(
            matches!(cause, OpenCause::Corrupt { .. }),
            "page {page}: {text}"
        );
        refused += 1;
    }
    assert!(refused > 7, "{refused}");
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(keys(&open(&path).await).await.len(), 500);
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let (cause, text) = open_error(Path::new("/nonexistent/coordination.db")).await;
    assert!(matches!(cause, OpenCause::Io { .. }));
    assert!(text.starts_with("open FILE: "), "{text}");
    assert!(
        text.ends_with("next: check that its folder exists and can be written"),
        "{text}"
    );
}

/// Not a test of its own: the process that [`acknowledged_changes_survive_a_kill`] kills. Writers
/// print each key when its put was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_to_be_killed() {
    let Some(path) = std::env::var_os("GAZETTE_KILL_TEST_FILE") else {
        return;
    };
    let store = Arc::new(open(&PathBuf::from(path)).await);
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 0.. {
                    let key = format!("{writer}-{n:06}");
                    put(&store, key.clone(), "value").await;
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "acknowledged {key}").unwrap();
                    out.flush().unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn acknowledged_changes_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("coordination.db");
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "writer_to_be_killed",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("GAZETTE_KILL_TEST_FILE", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let read = |line: std::io::Result<String>| {
            Some(line.ok()?.strip_prefix("acknowledged ")?.to_owned())
        };
        let before = acknowledged.len();
        while acknowledged.len() < before + 300 {
            acknowledged.extend(read(lines.next().unwrap()));
        }
        child.kill().unwrap();
        // What was printed before the kill was acknowledged, too. The last line may be cut.
        acknowledged.extend(lines.filter_map(read).filter(|key| key.len() == 8));
        child.wait().unwrap();

        let store = open(&path).await;
        let keys = keys(&store).await;
        let lost: Vec<_> = acknowledged
            .iter()
            .filter(|key| !keys.contains(key))
            .collect();
        assert!(lost.is_empty(), "round {round}: {lost:?}");
        let header = store.header().await.unwrap();
        assert_eq!(header.raft_term, 2 * (round + 1), "each opening counts");
        store.close().await;
    }
}
