//! How recorded directories begin, end, and begin again.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{House, LOG, assert_same, errors, eventually};

#[test]
fn what_was_synced_is_recovered_elsewhere_and_there_at_the_next_start() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &[]);
    assert!(
        recorder.said.contains("durability: an fsync(2)"),
        "{}",
        recorder.said
    );
    recorder.write("file", "content");
    fs::create_dir(recorder.file("folder")).expect("make");
    fs::hard_link(recorder.file("file"), recorder.file("folder/link")).expect("link");
    house.gazfs_ok("flush", &["--wait", "dir"]);
    let copy = house.recover("copy", &[]);
    assert_same(&recorder.point, &copy);

    house.gazfs_ok("umount", &["dir"]);
    drop(recorder);
    let mode = fs::metadata(house.path("dir")).expect("look").permissions();
    assert_eq!(mode.mode() & 0o222, 0, "nobody writes below the mount");
    let told = house.gazfs_ok("recover", &["--log", LOG, "--to", "hinted", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert!(told["hints_offset"].is_i64(), "it left hints: {told}");
    let recorder = house.record("dir", &[]);
    assert!(
        recorder.said.contains("files are those of before"),
        "{}",
        recorder.said
    );
    assert_same(&recorder.point, &copy);
    recorder.write("folder/link", "changed");
    assert_eq!(recorder.read("file"), "changed");
    fs::rename(recorder.file("folder"), recorder.file("other")).expect("rename");
    assert_eq!(recorder.end().0, Some(0));
    let again = house.recover("again", &[]);
    let recorder = house.record("dir", &[]);
    assert_same(&recorder.point, &again);
    assert_eq!(recorder.read("other/link"), "changed");
}

#[test]
fn backing_files_are_not_kept_if_they_or_the_log_changed_since() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &[]);
    recorder.write("file", "recorded");
    assert_eq!(recorder.end().0, Some(0));
    fs::write(house.path("dir.work/tree/file"), "tampered").expect("write");
    let recorder = house.record("dir", &[]);
    assert_eq!(recorder.read("file"), "recorded");
    assert_eq!(recorder.end().0, Some(0));

    let other = house.record("other", &[]);
    other.write("file", "by another");
    assert_eq!(other.end().0, Some(0));
    let recorder = house.record("dir", &[]);
    assert_eq!(recorder.read("file"), "by another");
    assert!(!recorder.said.contains("note:"), "{}", recorder.said);
}

#[test]
fn a_killed_daemon_is_replaced_and_nothing_synced_is_lost() {
    let Some(house) = House::new() else { return };
    let mut recorder = house.record("dir", &[]);
    for nth in 0..3 {
        recorder.write("file", &format!("content {nth}"));
        recorder.kill();
        let error = fs::read_dir(house.path("dir")).expect_err("its mount is dead");
        assert_ne!(error.kind(), std::io::ErrorKind::NotFound);
        recorder = house.record("dir", &[]);
        assert_eq!(recorder.read("file"), format!("content {nth}"));
        assert!(!recorder.said.contains("note:"), "{}", recorder.said);
    }
}

#[test]
fn what_the_log_never_got_is_set_aside_and_told() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &[]);
    recorder.write("file", "recorded");
    house.signal_broker(Signal::STOP);
    fs::write(recorder.file("late"), "never recorded").expect("write");
    recorder.kill();
    house.signal_broker(Signal::CONT);
    let recorder = house.record("dir", &[]);
    assert_eq!(recorder.read("file"), "recorded");
    assert!(!recorder.file("late").exists());
    assert!(recorder.said.contains("unrecorded-"), "{}", recorder.said);
    let work = fs::read_dir(house.path("dir.work")).expect("list");
    let aside = work
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.to_string_lossy().contains("unrecorded-"))
        .expect("it is there");
    let late = fs::read_to_string(aside.join("late")).expect("read");
    assert_eq!(late, "never recorded");
    let status = house.gazfs_ok("status", &["dir", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["unrecorded"][0], aside.to_string_lossy().as_ref());
}

#[test]
fn the_status_tells_by_which_way_requests_come() {
    let Some(house) = House::new() else { return };
    for way in ["classic", "auto"] {
        let recorder = house.record("dir", &["--transport", way]);
        let status = house.gazfs_ok("status", &["dir", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let told = status["transport"].as_str().expect("it is told");
        let said = format!("transport: {told} (");
        assert!(recorder.said.contains(&said), "{told}: {}", recorder.said);
    }
}

#[test]
fn while_the_broker_is_away_changes_go_on_and_fsync_waits() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &[]);
    recorder.write("before", "x");
    house.signal_broker(Signal::STOP);
    fs::write(recorder.file("meanwhile"), "y").expect("it does not wait");
    let path = recorder.file("meanwhile");
    let syncing = std::thread::spawn(move || fs::File::open(path)?.sync_all());
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!syncing.is_finished(), "fsync does not wait for the log");
    let late = house.gazfs("flush", &["dir", "--timeout", "300ms"]);
    assert_eq!(late.status.code(), Some(75), "{}", errors(&late));
    house.signal_broker(Signal::CONT);
    syncing.join().expect("it ends").expect("it is in the log");
    let copy = house.recover("copy", &[]);
    assert_eq!(
        fs::read_to_string(copy.join("meanwhile")).expect("read"),
        "y"
    );
}

#[test]
fn without_room_changes_wait_and_go_on_when_the_broker_is_back() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &["--max-pending", "256KiB"]);
    recorder.write("before", "x");
    house.signal_broker(Signal::STOP);
    let (path, content) = (recorder.file("large"), vec![b'y'; 4 << 20]);
    let written = content.clone();
    let writing = std::thread::spawn(move || fs::write(path, written));
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!writing.is_finished(), "it does not wait for room");
    house.signal_broker(Signal::CONT);
    writing.join().expect("it ends").expect("there is room");
    house.gazfs_ok("flush", &["dir"]);
    let copy = house.recover("copy", &[]);
    assert!(fs::read(copy.join("large")).expect("read") == content);
}

#[test]
fn what_root_writes_below_a_mount_is_never_hidden() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &[]);
    assert_eq!(recorder.end().0, Some(0));
    fs::set_permissions(house.path("dir"), PermissionsExt::from_mode(0o755)).expect("change");
    fs::write(house.path("dir/file"), "in no log").expect("write");
    let refused = house.try_record("dir", "dir.work", &[]);
    let Err((status, text)) = refused else {
        panic!("it is hidden")
    };
    assert_eq!(status.code(), Some(1));
    assert!(
        text.contains("not empty") && text.contains("next: "),
        "{text}"
    );
}

#[test]
fn ctrl_c_waits_until_the_log_has_all() {
    let Some(house) = House::new() else { return };
    let mut recorder = house.record("dir", &[]);
    fs::write(recorder.file("file"), "not synced").expect("write");
    kill_process(Pid::from_child(&recorder.child), Signal::INT).expect("signal");
    assert_eq!(crate::harness::wait(&mut recorder.child).code(), Some(0));
    let copy = house.recover("copy", &[]);
    let content = fs::read_to_string(copy.join("file")).expect("read");
    assert_eq!(content, "not synced");
}

#[test]
fn with_fail_after_fsync_fails_and_recording_goes_on() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &["--fail-after", "300ms"]);
    recorder.write("before", "x");
    house.signal_broker(Signal::STOP);
    fs::write(recorder.file("meanwhile"), "y").expect("write");
    let synced = fs::File::open(recorder.file("meanwhile")).and_then(|file| file.sync_all());
    let error = synced.expect_err("the broker is away");
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error())
    );
    house.signal_broker(Signal::CONT);
    eventually("it goes on", || {
        fs::File::open(recorder.file("meanwhile"))
            .and_then(|file| file.sync_all())
            .is_ok()
    });
    let copy = house.recover("copy", &[]);
    assert_eq!(
        fs::read_to_string(copy.join("meanwhile")).expect("read"),
        "y"
    );
}

#[test]
fn places_that_overlap_or_are_missing_are_refused_at_once() {
    let Some(house) = House::new() else { return };
    for name in ["a", "b"] {
        fs::create_dir(house.path(name)).expect("make");
    }
    std::os::unix::fs::symlink(house.path("a"), house.path("link")).expect("link");
    for (point, work) in [("a", "a"), ("a", "a/in"), ("a", "link/in"), ("b/in", "b")] {
        let refused = house.gazfs("record", &[point, "--log", LOG, "--work", work]);
        assert_eq!(refused.status.code(), Some(1), "{point} {work}");
        let text = errors(&refused);
        assert!(
            text.contains(&*house.path(point).to_string_lossy()),
            "{text}"
        );
        assert!(text.contains("next: "), "{text}");
        assert!(!house.path("a/in").exists(), "{point} {work}: left behind");
    }
}

#[test]
fn systemd_is_told_when_it_is_ready() {
    let Some(house) = House::new() else { return };
    let path = house.path("notify");
    let socket = UnixDatagram::bind(&path).expect("bind");
    fs::create_dir(house.path("dir")).expect("make");
    let mut child = house
        .command("record", &["dir", "--log", LOG, "--work", "work"])
        .env("NOTIFY_SOCKET", &path)
        .spawn()
        .expect("run gazfs");
    let mut buffer = [0; 256];
    let length = socket.recv(&mut buffer).expect("receive");
    let told = String::from_utf8_lossy(&buffer[..length]);
    assert!(told.starts_with("READY=1\n"), "{told}");
    house.gazfs_ok("umount", &["dir"]);
    assert_eq!(crate::harness::wait(&mut child).code(), Some(0));
}

#[test]
fn the_doctor_says_one_line_each() {
    let Some(house) = House::new() else { return };
    let text = house.gazfs_ok("doctor", &[]);
    for name in [
        "/dev/fuse",
        "fusermount3",
        "user namespaces",
        "passthrough",
        "io_uring",
        "disk",
    ] {
        // A verdict comes before it.
        let names = text.lines().filter_map(|line| line.get(8..));
        let found = names.filter(|line| line.starts_with(name)).count();
        assert_eq!(found, 1, "{name}: {text}");
    }
    let json = house.gazfs_ok("doctor", &["--json"]);
    let findings: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(findings.as_array().is_some_and(|all| all.len() >= 6));
    house.gazfs_ok("doctor", &["--work", "."]);
    let left = fs::read_dir(house.path("")).expect("list");
    let names = left.map(|entry| entry.expect("an entry").file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["up"], "it leaves nothing");
}

#[test]
fn a_log_in_compat_mode_is_recorded_and_recovered_too() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &["--mode", "compat"]);
    fs::create_dir(recorder.file("folder")).expect("make");
    recorder.write("folder/file", &"content".repeat(10_000));
    fs::hard_link(recorder.file("folder/file"), recorder.file("link")).expect("link");
    fs::rename(recorder.file("folder"), recorder.file("other")).expect("rename");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(recorder.file("link"));
    let file = file.expect("open");
    file.set_len(30_000).expect("cut");
    file.set_len(50_000).expect("grow");
    rustix::fs::fallocate(
        &file,
        rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
        4096,
        8192,
    )
    .expect("punch");
    drop(file);
    house.gazfs_ok("flush", &["dir"]);
    let copy = house.recover("copy", &[]);
    assert_same(&recorder.point, &copy);
    let other = house.try_record("second", "second.work", &["--mode", "native"]);
    let Err((status, text)) = other else {
        panic!("a log has one mode")
    };
    assert_eq!(status.code(), Some(1));
    assert!(text.contains("compat"), "{text}");
    assert_eq!(recorder.end().0, Some(0));
    let recorder = house.record("dir", &[]);
    assert_same(&recorder.point, &copy);
}
