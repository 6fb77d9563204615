//! What every store must do. Each implementation runs [`conformance`] in a test of its own.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncReadExt;

use crate::{Content, Store, StoreError, StoreErrorKind};

/// Checks that `store` behaves as [`Store`] says, and panics where it does not.
///
/// It touches only objects below `conformance/`, and removes those that it finds there first.
pub async fn conformance(store: &dyn Store) {
    for object in list(store, "conformance/").await {
        remove(store, &format!("conformance/{object}")).await;
    }
    absent_objects_are_absent(store).await;
    objects_are_whole_and_replaceable(store).await;
    ranges_are_of_bytes(store).await;
    listings_are_of_prefixes(store).await;
    paths_stay_inside(store).await;
    odd_names_are_names(store).await;
    broken_content_leaves_nothing(store).await;
    readers_see_whole_objects(store).await;
}

async fn absent_objects_are_absent(store: &dyn Store) {
    let path = "conformance/absent/object";
    assert!(!exists(store, path).await);
    assert_eq!(kind(store.get(path).await), StoreErrorKind::NotFound);
    assert_eq!(
        kind(store.get_range(path, 0, 1).await),
        StoreErrorKind::NotFound
    );
    assert_eq!(list(store, "conformance/absent/").await, [""; 0]);
    remove(store, path).await;

    // A folder is no object.
    put(store, "conformance/folder/object", b"x").await;
    assert!(!exists(store, "conformance/folder").await);
    assert_eq!(
        kind(store.get("conformance/folder").await),
        StoreErrorKind::NotFound
    );
    // Nor is what would be below an object.
    assert!(!exists(store, "conformance/folder/object/below").await);
    let below = store.get("conformance/folder/object/below").await;
    assert_eq!(kind(below), StoreErrorKind::NotFound);
    assert_eq!(list(store, "conformance/folder/object/").await, [""; 0]);
}

async fn objects_are_whole_and_replaceable(store: &dyn Store) {
    let large: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    for content in [b"".as_slice(), b"content", &large, b"shorter"] {
        let path = "conformance/whole/deep/er/object.raw";
        put(store, path, content).await;
        assert!(exists(store, path).await);
        assert!(get(store, path).await == content, "object is what was put");

        let listed = store.list("conformance/whole/").await.expect("list");
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].path, "deep/er/object.raw");
        assert_eq!(listed[0].size, content.len() as u64);
        assert!(listed[0].mod_time > 0, "an object in a store has a time");
    }
    let path = "conformance/whole/deep/er/object.raw";
    let url = store
        .sign_get(path, Duration::from_mins(1))
        .await
        .expect("sign");
    assert!(url.contains("://") && url.contains("conformance/whole/deep/er/object.raw"));

    remove(store, path).await;
    assert!(!exists(store, path).await);
    assert_eq!(list(store, "conformance/whole/").await, [""; 0]);
}

async fn ranges_are_of_bytes(store: &dyn Store) {
    let path = "conformance/range";
    put(store, path, b"0123456789").await;
    for (begin, end, expected) in [
        (0, 10, "0123456789"),
        (3, 7, "3456"),
        (9, 10, "9"),
        (4, 4, ""),
        (10, 10, ""),
        (8, 100, "89"),
        (0, u64::MAX, "0123456789"),
    ] {
        let reader = store.get_range(path, begin, end).await.expect("get range");
        let actual = read(reader).await;
        assert_eq!(actual, expected.as_bytes(), "range {begin} to {end}");
    }
    for (begin, end) in [(11, 12), (7, 3)] {
        let result = store.get_range(path, begin, end).await;
        assert_eq!(
            kind(result),
            StoreErrorKind::Invalid,
            "range {begin} to {end}"
        );
    }
}

async fn listings_are_of_prefixes(store: &dyn Store) {
    for path in ["a/1", "a/b/2", "a/b/c/3", "ab/4", "b/5", "a-b"] {
        put(store, &format!("conformance/list/{path}"), b"x").await;
    }
    for (prefix, expected) in [
        (
            "",
            ["a-b", "a/1", "a/b/2", "a/b/c/3", "ab/4", "b/5"].as_slice(),
        ),
        ("a/", &["1", "b/2", "b/c/3"]),
        ("a/b/", &["2", "c/3"]),
        ("a/b", &["/2", "/c/3"]),
        ("a", &["-b", "/1", "/b/2", "/b/c/3", "b/4"]),
        ("a/1", &[""]),
        ("c", &[]),
        ("c/d/e/", &[]),
    ] {
        let listed = list(store, &format!("conformance/list/{prefix}")).await;
        assert_eq!(listed, expected, "prefix {prefix:?}");
    }
}

async fn paths_stay_inside(store: &dyn Store) {
    for path in [
        "..",
        "../x",
        "conformance/../../x",
        "conformance/..",
        "/conformance/x",
        "/",
        "",
        "conformance/x/",
        "conformance/\0",
    ] {
        let invalid = StoreErrorKind::Invalid;
        let ttl = Duration::from_secs(1);
        assert_eq!(kind(store.exists(path).await), invalid, "exists {path:?}");
        assert_eq!(kind(store.get(path).await), invalid, "get {path:?}");
        assert_eq!(
            kind(store.get_range(path, 0, 1).await),
            invalid,
            "get {path:?}"
        );
        assert_eq!(
            kind(try_put(store, path, b"x").await),
            invalid,
            "put {path:?}"
        );
        assert_eq!(kind(store.remove(path).await), invalid, "remove {path:?}");
        assert_eq!(
            kind(store.sign_get(path, ttl).await),
            invalid,
            "sign {path:?}"
        );
    }
    for prefix in [
        "..",
        "../",
        "conformance/../../",
        "/",
        "/conformance/",
        "conformance/..",
    ] {
        assert_eq!(
            kind(store.list(prefix).await),
            StoreErrorKind::Invalid,
            "list {prefix:?}"
        );
    }
    // What a rewritten path may have.
    put(store, "conformance/./a//b", b"x").await;
    assert_eq!(get(store, "conformance/a/b").await, b"x");
    assert_eq!(list(store, "conformance/.//a//").await, ["b"]);
}

async fn odd_names_are_names(store: &dyn Store) {
    let names = [
        "a b",
        "a%20b",
        "a#b",
        "a?b",
        "date=2026-11-30",
        "\u{e9}t\u{e9}",
        "..a",
        "a..",
        ".hidden",
    ];
    for name in names {
        put(store, &format!("conformance/odd/{name}"), name.as_bytes()).await;
    }
    let listed: BTreeSet<String> = list(store, "conformance/odd/").await.into_iter().collect();
    assert_eq!(listed, names.map(str::to_owned).into());
    for name in names {
        assert_eq!(
            get(store, &format!("conformance/odd/{name}")).await,
            name.as_bytes()
        );
    }
}

async fn broken_content_leaves_nothing(store: &dyn Store) {
    struct Broken {
        promised: u64,
        bytes: &'static [u8],
        error: Option<io::ErrorKind>,
    }

    impl Content for Broken {
        fn len(&self) -> u64 {
            self.promised
        }

        fn open(&self) -> io::Result<Box<dyn Read + Send + '_>> {
            match self.error {
                Some(error) => Ok(Box::new(Read::chain(self.bytes, Fails(error)))),
                None => Ok(Box::new(self.bytes)),
            }
        }
    }

    let path = "conformance/broken/object";
    for (promised, error) in [
        (5, None),
        (100, None),
        (7, Some(io::ErrorKind::ConnectionReset)),
    ] {
        let content = Broken {
            promised,
            bytes: b"content",
            error,
        };
        let result = store.put(path, Arc::new(content), None).await;
        assert!(
            result.is_err(),
            "content of another length, or that cannot be read"
        );
        assert!(!exists(store, path).await);
        assert_eq!(list(store, "conformance/broken/").await, [""; 0]);
    }
}

async fn readers_see_whole_objects(store: &dyn Store) {
    let path = "conformance/shared/object";
    let version = |byte: u8| vec![byte; 100_000 + usize::from(byte)];
    put(store, path, &version(0)).await;

    let write = async {
        for byte in 1..20 {
            put(store, path, &version(byte)).await;
        }
    };
    let write_too = async {
        for byte in 20..40 {
            put(store, path, &version(byte)).await;
        }
    };
    let read = async {
        for _ in 0..40 {
            let content = get(store, path).await;
            assert!(content == version(content[0]), "a reader sees one version");
        }
    };
    tokio::join!(write, write_too, read);
    assert_eq!(list(store, "conformance/shared/").await, ["object"]);
}

struct Fails(io::ErrorKind);

impl Read for Fails {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.0.into())
    }
}

async fn exists(store: &dyn Store, path: &str) -> bool {
    store.exists(path).await.expect("exists")
}

async fn try_put(store: &dyn Store, path: &str, content: &[u8]) -> Result<(), StoreError> {
    let content = Bytes::copy_from_slice(content);
    store.put(path, Arc::new(content), None).await
}

async fn put(store: &dyn Store, path: &str, content: &[u8]) {
    try_put(store, path, content).await.expect("put");
}

async fn get(store: &dyn Store, path: &str) -> Vec<u8> {
    read(store.get(path).await.expect("get")).await
}

async fn remove(store: &dyn Store, path: &str) {
    store.remove(path).await.expect("remove");
}

async fn list(store: &dyn Store, prefix: &str) -> Vec<String> {
    let listed = store.list(prefix).await.expect("list");
    listed.into_iter().map(|object| object.path).collect()
}

async fn read(mut reader: crate::BoxRead) -> Vec<u8> {
    let mut content = Vec::new();
    reader.read_to_end(&mut content).await.expect("read");
    content
}

fn kind<T>(result: Result<T, StoreError>) -> StoreErrorKind {
    result.err().expect("an error").kind()
}
