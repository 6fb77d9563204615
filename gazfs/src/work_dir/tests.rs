use time::macros::datetime;

use super::*;

fn state(log: &str) -> State {
    State {
        log: log.to_owned(),
        author: 7,
        offset: 42,
        phase: Phase::Clean,
        ground: None,
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

#[test]
fn the_next_daemon_sees_what_the_last_one_was_about() {
    let temp = tempfile::tempdir().expect("make a folder");
    let work = WorkDir::open(temp.path()).expect("it is empty");
    assert_eq!(work.last_pulse(), None);
    let pulse = work.new_pulse(7).expect("map");
    pulse.begin();
    pulse.begin();
    pulse.recorded(12);
    pulse.recorded(11);
    pulse.end();
    let seen = LastPulse {
        author: 7,
        begun: 1,
        recorded: 12,
    };
    // As another process has it, without anybody having synced anything.
    assert_eq!(work.last_pulse(), Some(seen));
    let _new = work.new_pulse(8).expect("map");
    pulse.recorded(13);
    let seen = LastPulse {
        author: 8,
        begun: 0,
        recorded: 0,
    };
    assert_eq!(work.last_pulse(), Some(seen));
    fs::write(temp.path().join(PULSE), "junk").expect("write");
    assert_eq!(work.last_pulse(), None);
}

#[test]
fn the_folder_of_a_recording_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().expect("make a folder");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(temp.path(), open).expect("change");
    let work = WorkDir::open(temp.path()).expect("it is empty");
    let mode = fs::metadata(work.path())
        .expect("look")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o700);
}
