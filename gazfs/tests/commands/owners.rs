//! One log has one writer.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{House, LOG, errors};

#[test]
fn whoever_takes_over_elsewhere_is_the_owner_and_the_first_is_fenced() {
    let Some(house) = House::new() else { return };
    let first = house.record("first", &[]);
    first.write("file", "of the first");
    let second = house.record("second", &["--take-over"]);
    assert_eq!(second.read("file"), "of the first");
    second.write("file", "of the second");

    let error = fs::write(first.file("file"), "too late")
        .and_then(|()| fs::File::open(first.file("file"))?.sync_all());
    let error = error.expect_err("it is fenced");
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error())
    );
    let status = house.gazfs("status", &["first"]);
    assert_eq!(status.status.code(), Some(4));
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("state: fenced"), "{text}");
    let who = format!(
        "process {}, at {}",
        second.child.id(),
        second.point.display()
    );
    assert!(text.contains(&who), "{who}: {text}");
    let flushed = house.gazfs("flush", &["first"]);
    assert_eq!(flushed.status.code(), Some(4), "{}", errors(&flushed));

    let copy = house.recover("copy", &[]);
    let content = fs::read_to_string(copy.join("file")).expect("read");
    assert_eq!(content, "of the second");
    let mut first = first;
    let unmounted = house.gazfs("umount", &["first"]);
    assert_eq!(unmounted.status.code(), Some(4));
    let text = errors(&unmounted);
    assert!(text.contains("took over"), "{text}");
    assert_eq!(crate::harness::wait(&mut first.child).code(), Some(4));
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn a_second_owner_is_refused_and_told_of_the_first_and_the_first_is_not_disturbed() {
    let Some(house) = House::new() else { return };
    let first = house.record("first", &["--id", "the-first"]);
    first.write("file", "of the first");
    let Err((status, text)) = house.try_record("second", "second.work", &[]) else {
        panic!("it was not refused")
    };
    assert_eq!(status.code(), Some(4));
    let process = format!("process {}", first.child.id());
    for part in ["the-first", &process, "host ", "since ", "next: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    first.write("file", "the first is not disturbed");
    // One who is dead, or has ended, is not waited for.
    first.kill();
    let third = house.record("third", &[]);
    assert_eq!(third.read("file"), "the first is not disturbed");
    assert_eq!(third.end().0, Some(0));
    let fourth = house.record("fourth", &[]);
    // One who is stopped does not answer, and loses the log.
    kill_process(Pid::from_child(&fourth.child), Signal::STOP).expect("signal");
    let fifth = house.record("fifth", &[]);
    assert!(fifth.said.contains("did not answer"), "{}", fifth.said);
    kill_process(Pid::from_child(&fourth.child), Signal::CONT).expect("signal");
    let late = fs::write(fourth.file("file"), "too late")
        .and_then(|()| fs::File::open(fourth.file("file"))?.sync_all());
    late.expect_err("it is fenced");
    assert_eq!(fifth.read("file"), "the first is not disturbed");
}

#[test]
fn a_second_daemon_in_the_same_folder_is_refused_and_told_of_the_first() {
    let Some(house) = House::new() else { return };
    let first = house.record("first", &[]);
    let refused = house.try_record("second", "first.work", &[]);
    let Err((status, text)) = refused else {
        panic!("it was not refused")
    };
    assert_eq!(status.code(), Some(1));
    assert!(
        text.contains(&format!("process {}", first.child.id())),
        "{text}"
    );
    first.write("file", "the first is not disturbed");
}

#[test]
fn a_journal_of_something_else_is_not_recorded_in() {
    let Some(house) = House::new() else { return };
    fs::create_dir_all(house.path("up/journals/app")).expect("make");
    fs::write(house.path("up/journals/app/log"), "lines of text\n").expect("write");
    fs::create_dir(house.path("dir")).expect("make");
    let refused = house.gazfs("record", &["dir", "--log", "app/log", "--work", "work"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = errors(&refused);
    assert!(
        text.contains("app/log") && text.contains("next: "),
        "{text}"
    );
    let refused = house.gazfs("recover", &["--log", "app/log", "--to", "copy"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(!house.path("copy").exists());
}

#[test]
fn without_brokers_a_recovery_says_to_try_later() {
    let Some(house) = House::new() else { return };
    let mut command = house.command("recover", &["--log", LOG, "--to", "copy"]);
    let output = command.env("BROKER_ADDRESS", "http://127.0.0.1:1").output();
    let output = output.expect("run gazfs");
    assert_eq!(output.status.code(), Some(75), "{}", errors(&output));
    assert!(errors(&output).contains("next: "), "{}", errors(&output));
    assert!(!house.path("copy").exists());
}
