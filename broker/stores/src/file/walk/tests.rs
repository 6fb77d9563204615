use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

fn paths(top: &Path, name_prefix: &str) -> Vec<String> {
    let walked = walk(top, name_prefix).unwrap();
    walked
        .objects
        .into_iter()
        .map(|object| object.path)
        .collect()
}

fn write(top: &TempDir, path: &str) -> PathBuf {
    let path = top.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "content").unwrap();
    path
}

#[test]
fn a_walk_finds_files_at_all_depths_in_order() {
    let top = TempDir::new().unwrap();
    for path in ["b", "a/2", "a/1", "a/b/c/d", "a-"] {
        write(&top, path);
    }
    std::fs::create_dir(top.path().join("empty")).unwrap();
    assert_eq!(paths(top.path(), ""), ["a-", "a/1", "a/2", "a/b/c/d", "b"]);
    assert_eq!(paths(top.path(), "a"), ["-", "/1", "/2", "/b/c/d"]);
    assert_eq!(paths(&top.path().join("none/such"), ""), [""; 0]);
    assert_eq!(paths(&top.path().join("b/below"), ""), [""; 0]);
}

#[test]
fn links_to_files_are_followed_and_links_to_folders_are_not() {
    let top = TempDir::new().unwrap();
    let file = write(&top, "a/file");
    symlink(&file, top.path().join("a/link")).unwrap();
    symlink(top.path(), top.path().join("a/circle")).unwrap();
    symlink("nowhere", top.path().join("a/dangling")).unwrap();
    assert_eq!(paths(top.path(), ""), ["a/file", "a/link"]);
}

#[test]
fn times_are_whole_seconds_and_never_zero() {
    let top = TempDir::new().unwrap();
    let file = write(&top, "file");
    for (time, expected) in [
        (Duration::from_millis(1_700_000_000_999), 1_700_000_000),
        (Duration::from_millis(1), 1),
        (Duration::ZERO, 1),
    ] {
        let opened = std::fs::File::open(&file).unwrap();
        opened.set_modified(UNIX_EPOCH + time).unwrap();
        assert_eq!(walk(top.path(), "").unwrap().objects[0].mod_time, expected);
    }
}

#[test]
fn unfinished_files_are_no_objects_and_go_after_a_day() {
    let top = TempDir::new().unwrap();
    let young = write(&top, "a/.partial-1");
    let old = write(&top, "a/.partial-2");
    let object = write(&top, "a/object");
    let now = SystemTime::now();
    let set_age = |path: &Path, age| {
        let opened = std::fs::File::open(path).unwrap();
        opened.set_modified(now - age).unwrap();
    };
    set_age(&young, Duration::from_hours(23));
    set_age(&old, Duration::from_hours(25));
    set_age(&object, Duration::from_hours(25));

    let walked = walk(top.path(), "").unwrap();
    assert_eq!(walked.objects.len(), 1);
    assert_eq!(walked.partials.len(), 2);
    remove_stale(&walked.partials, now);
    assert!(young.exists() && !old.exists() && object.exists());
}
