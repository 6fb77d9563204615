use time::macros::datetime;

use super::*;

fn state(log: &str) -> State {
    State {
        log: log.to_owned(),
        author: 7,
        offset: 42,
        phase: Phase::Clean,
    }
}

#[test]
fn the_second_daemon_is_told_of_the_first() {
    let temp = tempfile::tempdir().expect("make a folder");
    let dir = temp.path().join("work");
    let held = WorkDir::open(&dir).expect("nobody uses it");
    // A lock belongs to the open file, so the same process is refused too.
    let error = WorkDir::open(&dir).expect_err("it is held").to_string();
    assert!(
        error.contains(&format!("process {}", std::process::id())),
        "{error}"
    );
    drop(held);
    WorkDir::open(&dir).expect("nobody uses it any more");
}

#[test]
fn a_folder_of_something_else_is_refused() {
    let temp = tempfile::tempdir().expect("make a folder");
    fs::write(temp.path().join("letter"), "x").expect("write");
    assert!(matches!(
        WorkDir::open(temp.path()),
        Err(WorkDirError::Foreign { .. })
    ));
}

#[test]
fn a_state_is_read_back_and_one_of_another_log_is_refused() {
    let temp = tempfile::tempdir().expect("make a folder");
    let work = WorkDir::open(temp.path()).expect("it is empty");
    assert_eq!(work.read_state("a/log").expect("read"), None);
    work.write_state(&state("a/log")).expect("write");
    assert_eq!(
        work.read_state("a/log").expect("read"),
        Some(state("a/log"))
    );
    assert!(matches!(
        work.read_state("b/log"),
        Err(WorkDirError::OtherLog { .. })
    ));
    fs::write(temp.path().join(STATE), "{ half of").expect("write");
    assert_eq!(work.read_state("a/log").expect("read"), None);
}

#[test]
fn what_is_set_aside_stays_apart() {
    let temp = tempfile::tempdir().expect("make a folder");
    let work = WorkDir::open(temp.path()).expect("it is empty");
    for nth in ["1", "2"] {
        fs::create_dir(work.tree()).expect("make");
        fs::write(work.tree().join("f"), nth).expect("write");
        work.set_aside(datetime!(2026-11-30 12:13:14 UTC))
            .expect("rename");
    }
    let asides = work.asides();
    let names: Vec<_> = asides.iter().filter_map(|path| path.file_name()).collect();
    assert_eq!(
        names,
        [
            "unrecorded-2026-11-30T121314Z",
            "unrecorded-2026-11-30T121314Z-2"
        ]
    );
    assert_eq!(fs::read(asides[1].join("f")).expect("read"), b"2");
    assert!(!work.tree().exists());
}

#[test]
fn names_of_folders_tell_logs_apart() {
    assert_eq!(file_name("a/b"), "a%2Fb");
    assert_ne!(file_name("a/b"), file_name("a%2Fb"));
}
