use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use tempfile::TempDir;

use super::*;
use crate::conformance::conformance;

async fn open(root: &TempDir) -> FileStore {
    FileStore::open("file:///", root.path(), "/").await.unwrap()
}

fn content() -> Arc<dyn Content> {
    Arc::new(Bytes::from_static(b"content"))
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn it_behaves_as_a_store() {
    let root = TempDir::new().unwrap();
    conformance(&open(&root).await).await;
}

#[tokio::test]
async fn it_is_the_folder_below_the_root_that_its_url_names() {
    let root = TempDir::new().unwrap();
    std::fs::create_dir_all(root.path().join("a/b")).unwrap();
    let store = FileStore::open("file:///a/b/", root.path(), "/a/b/")
        .await
        .unwrap();
    store
        .put("journal/00-01.raw", content(), Some("gzip"))
        .await
        .unwrap();

    let file = root.path().join("a/b/journal/00-01.raw");
    assert_eq!(std::fs::read(&file).unwrap(), b"content");
    assert_eq!(mode(&file), 0o640);
    assert_eq!(mode(file.parent().unwrap()), 0o750);

    let ttl = Duration::from_mins(1);
    let url = store.sign_get("journal/00-01.raw", ttl).await.unwrap();
    assert_eq!(url, "file:///a/b/journal/00-01.raw");
    let url = store.sign_get("journal/100% #1", ttl).await.unwrap();
    assert_eq!(url, "file:///a/b/journal/100%25%20%231");
}

#[tokio::test]
async fn it_lists_what_the_reference_wrote() {
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/broker/fragments"
    );
    let store = FileStore::open("file:///store/", Path::new(golden), "/store/")
        .await
        .unwrap();
    let listed = store.list("golden/none/postfix/").await.unwrap();
    let found: Vec<(&str, u64)> = listed.iter().map(|o| (o.path.as_str(), o.size)).collect();
    let expected = [
        (
            "codec=NONE/begin=000000/rf=1/\
             0000000000000000-0000000000000040-b03525e4aa255f937156f53bcef3f56c6e84f94c.raw",
            64,
        ),
        (
            "codec=NONE/begin=000064/rf=1/\
             0000000000000040-00000000000000c0-a2d16dd53e3227033d5a2b869ee46331eacc0a46.raw",
            128,
        ),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn errors_name_the_file() {
    let root = TempDir::new().unwrap();
    let store = open(&root).await;
    let error = store.get("a/b").await.err().unwrap().to_string();
    let expected = format!(
        "get {}: no such object; next: list the store to see what it holds",
        root.path().join("a/b").display()
    );
    assert_eq!(error, expected);
}

#[test]
fn a_full_disk_is_known_as_one() {
    for code in [28, 122] {
        let error = io::Error::from_raw_os_error(code); // ENOSPC, EDQUOT
        let error = StoreError::from_io("put", "a", &error);
        assert_eq!(error.kind(), StoreErrorKind::NoSpace, "{error}");
    }
}

#[tokio::test]
async fn without_its_folder_it_is_no_store() {
    let root = TempDir::new().unwrap();
    let base = root.path().join("base");
    std::fs::create_dir(&base).unwrap();
    let store = FileStore::open("file:///base/", root.path(), "/base/")
        .await
        .unwrap();
    assert_eq!(store.list("journal/").await, Ok(vec![]));

    std::fs::remove_dir(&base).unwrap();
    let listing = store.list("journal/").await.unwrap_err();
    let put = store.put("journal/x", content(), None).await.unwrap_err();
    assert!(!base.exists(), "it is not made again");
    for error in [listing, put] {
        assert_eq!(error.kind(), StoreErrorKind::NotFound, "{error}");
        assert!(
            store.is_auth_error(&error),
            "another store is worth a try: {error}"
        );
    }
}

#[tokio::test]
async fn names_of_unfinished_files_are_reserved() {
    let root = TempDir::new().unwrap();
    let store = open(&root).await;
    for path in [".partial-x", "a/.partial-x"] {
        let error = store.put(path, content(), None).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Invalid, "{error}");
        assert!(store.get(path).await.is_err());
    }
}

#[tokio::test]
async fn a_put_that_nobody_waits_for_goes_on_to_its_end() {
    let root = TempDir::new().unwrap();
    let store = open(&root).await;
    let put = store.put("a/b", content(), None);
    let cancelled = tokio::time::timeout(Duration::ZERO, put).await;
    drop(cancelled);
    while store.list("").await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(std::fs::read(root.path().join("a/b")).unwrap(), b"content");
}
