//! Recovering what was, and where it can be put.

use std::{fs, thread::sleep, time::Duration};

use crate::harness::{House, LOG, errors};

#[test]
fn any_moment_of_the_past_can_be_had() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &[]);
    let mut points = Vec::new();
    for nth in 0..4 {
        recorder.write("file", &format!("{nth}"));
        let status = house.gazfs_ok("status", &["dir", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        points.push((nth, status["acked_offset"].to_string()));
        sleep(Duration::from_millis(50));
        points.push((nth, now()));
        sleep(Duration::from_millis(50));
    }
    for (at, (nth, point)) in points.iter().enumerate() {
        let copy = house.recover(&format!("at-{at}"), &["--at", point]);
        let content = fs::read_to_string(copy.join("file")).expect("read");
        assert_eq!(content, nth.to_string(), "as of {point}");
    }
    let early = house.gazfs(
        "recover",
        &["--log", LOG, "--to", "early", "--at", "1 day ago"],
    );
    assert_eq!(early.status.code(), Some(1));
    assert!(errors(&early).contains("next: "), "{}", errors(&early));
    assert!(!house.path("early").exists());
}

#[test]
fn a_recovery_appears_whole_or_not_at_all_and_takes_nobodys_place() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &[]);
    recorder.write("file", "content");
    fs::create_dir(house.path("taken")).expect("make");
    fs::write(house.path("taken/mine"), "x").expect("write");
    let refused = house.gazfs("recover", &["--log", LOG, "--to", "taken"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(fs::read_dir(house.path("taken")).expect("list").count(), 1);
    fs::create_dir(house.path("empty")).expect("make");
    let copy = house.recover("empty", &["--json"]);
    assert_eq!(
        fs::read_to_string(copy.join("file")).expect("read"),
        "content"
    );
    let missing = house.gazfs("recover", &["--log", "no/such/log", "--to", "none"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        errors(&missing).contains("no/such/log"),
        "{}",
        errors(&missing)
    );
}

#[test]
fn a_store_alone_is_enough_and_what_is_not_in_it_is_told() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &[]);
    recorder.write("file", "content");
    house.gazfs_ok("umount", &["dir"]);
    drop(recorder);
    house.persist(LOG);
    house.gazfs_ok("umount", &["up/journals"]);
    let store = format!("file://{}/", house.path("up/broker/fragments").display());
    let told = house.gazfs_ok(
        "recover",
        &["--log", LOG, "--to", "copy", "--store", &store],
    );
    assert!(told.contains("only the store was read"), "{told}");
    let content = fs::read_to_string(house.path("copy/file")).expect("read");
    assert_eq!(content, "content");
}

#[test]
fn the_history_tells_what_happened_to_which_file() {
    let Some(house) = House::new() else { return };
    let recorder = house.record("dir", &[]);
    recorder.write("one", "content");
    fs::create_dir(recorder.file("folder")).expect("make");
    fs::rename(recorder.file("one"), recorder.file("folder/two")).expect("rename");
    fs::remove_file(recorder.file("folder/two")).expect("remove");
    house.gazfs_ok("flush", &["dir"]);
    let text = house.gazfs_ok("log", &["--log", LOG]);
    for wanted in [
        "create        /one",
        "7 B at 0",
        "/one -> /folder/two",
        "unlink        /folder/two",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let json = house.gazfs_ok("log", &["--log", LOG, "--path", "folder", "--json"]);
    let entries: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert!(entries.iter().all(|entry| {
        let mut paths = entry["paths"].as_array().expect("a list").iter();
        paths.any(|path| {
            path.as_str()
                .is_some_and(|path| path.starts_with("/folder"))
        })
    }));
    // Just before the file was removed it is there.
    let removed = entries.iter().find(|entry| entry["event"] == "unlink");
    let before = removed.expect("it is told")["offset"].to_string();
    let copy = house.recover("copy", &["--at", &before]);
    let content = fs::read_to_string(copy.join("folder/two")).expect("read");
    assert_eq!(content, "content");
    let late = house.gazfs_ok("log", &["--log", LOG, "--since", "now"]);
    assert!(!late.contains("folder"), "{late}");
}

fn now() -> String {
    let output = std::process::Command::new("date")
        .args(["-u", "+%Y-%m-%dT%H:%M:%S.%NZ"])
        .output()
        .expect("run date");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
