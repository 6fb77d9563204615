//! Standbys, and what makes owners of them.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    mount::{UnmountFlags, unmount},
    process::{Pid, Signal, kill_process},
};

use crate::harness::{House, LOG, errors, eventually, wait};

/// A `gazfs standby` that waits.
struct Standby {
    child: Child,
    point: PathBuf,
    said: String,
}

impl Standby {
    fn start(house: &House, name: &str, more: &[&str], program: &[&str]) -> Self {
        Self::start_at(house, &house.broker(), name, more, program)
    }

    fn start_at(
        house: &House,
        broker: &str,
        name: &str,
        more: &[&str],
        program: &[&str],
    ) -> Self {
        let point = house.path(name);
        fs::create_dir_all(&point).expect("make a folder");
        let mut child = house
            .command("standby", &[name, "--log", LOG, "--id", name])
            .args(["--work", &format!("{name}.work")])
            .args(more)
            .arg("--")
            .args(program)
            .env("BROKER_ADDRESS", broker)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("run gazfs");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut said = String::new();
        while !said.contains("takes over") {
            if out.read_line(&mut said).expect("read what it says") == 0 {
                let mut errors = String::new();
                let mut stderr = child.stderr.take().expect("it is piped");
                stderr.read_to_string(&mut errors).expect("read errors");
                panic!("it ended: {errors}");
            }
        }
        // It says more when it owns the log.
        thread::spawn(move || {
            let mut rest = String::new();
            out.read_to_string(&mut rest)
        });
        Self { child, point, said }
    }

    fn owns(&self, house: &House) -> bool {
        let status = house.gazfs("status", &["--json", &self.point.to_string_lossy()]);
        String::from_utf8_lossy(&status.stdout).contains("\"state\": \"recording\"")
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal");
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        let _gone = unmount(&self.point, UnmountFlags::DETACH);
    }
}

fn sync(path: PathBuf, content: &str) -> std::io::Result<()> {
    fs::write(&path, content)?;
    fs::File::open(path)?.sync_all()
}

#[test]
fn an_orderly_handoff_moves_all_that_was_recorded_and_tells_the_time_without_service() {
    let Some(house) = House::new() else { return };
    let first = house.record("first", &[]);
    first.write("file", "before");
    let standby = Standby::start(&house, "second", &[], &[]);
    first.write("file", "after");
    let told = house.gazfs_ok("handoff", &["--log", LOG, "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("it is JSON");
    assert!(told["owner"].as_str().expect("a name").starts_with("second, "), "{told}");
    assert!(told["milliseconds_without_service"].as_f64().expect("a number") > 0.0);
    assert_eq!(fs::read_to_string(standby.point.join("file")).expect("read"), "after");
    sync(standby.point.join("file"), "of the second").expect("it is the owner");
    sync(first.file("file"), "too late").expect_err("it is none any more");
    let status = house.gazfs("status", &["first"]);
    assert_eq!(status.status.code(), Some(4));
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("owner: second"), "{text}");
    assert_eq!(house.gazfs("umount", &["first"]).status.code(), Some(4));
    let copy = house.recover("copy", &[]);
    assert_eq!(fs::read_to_string(copy.join("file")).expect("read"), "of the second");
}

#[test]
fn a_handoff_stops_the_program_there_and_starts_it_here() {
    let Some(house) = House::new() else { return };
    let script = |name: &str| {
        format!(
            "trap 'echo bye >>{name}/log; exit 0' TERM; echo hello from {name} >>{name}/log; \
             while :; do sleep 0.01; done"
        )
    };
    fs::create_dir(house.path("first")).expect("make a folder");
    let mut first = house
        .command("run", &["first", "--log", LOG, "--work", "first.work", "--", "bash", "-c"])
        .arg(script("first"))
        .spawn()
        .expect("run gazfs");
    eventually("it runs", || house.path("first/log").exists());
    let standby = Standby::start(&house, "second", &[], &["bash", "-c", &script("second")]);
    let third = Standby::start(&house, "third", &[], &[]);
    house.gazfs_ok("handoff", &["--log", LOG, "--to", "second"]);
    assert_eq!(wait(&mut first).code(), Some(4), "it owns the log no more");
    let log = || fs::read_to_string(standby.point.join("log")).unwrap_or_default();
    eventually("it says hello", || log() == "hello from first\nbye\nhello from second\n");
    // And on to the next one, which has followed all of that.
    house.gazfs_ok("handoff", &["--log", LOG, "--to", "third"]);
    let all = "hello from first\nbye\nhello from second\nbye\n";
    assert_eq!(fs::read_to_string(third.point.join("log")).expect("read"), all);
}

#[test]
fn a_program_that_does_not_end_keeps_the_log_where_it_is() {
    let Some(house) = House::new() else { return };
    fs::create_dir(house.path("first")).expect("make a folder");
    let program = "trap '' TERM; while :; do echo on >>first/log; sleep 0.05; done";
    let mut first = house
        .command("run", &["first", "--log", LOG, "--work", "first.work", "--", "bash", "-c"])
        .arg(program)
        .spawn()
        .expect("run gazfs");
    eventually("it runs", || house.path("first/log").exists());
    let _standby = Standby::start(&house, "second", &[], &[]);
    let refused = house.gazfs("handoff", &["--log", LOG]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("did not end"), "{}", errors(&refused));
    let length = || fs::metadata(house.path("first/log")).expect("look").len();
    let before = length();
    eventually("it goes on", || length() > before);
    drop(first.kill());
    drop(first.wait());
}

#[test]
fn without_a_standby_a_handoff_says_so() {
    let Some(house) = House::new() else { return };
    let _first = house.record("first", &[]);
    let refused = house.gazfs("handoff", &["--log", LOG]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("no standby"), "{}", errors(&refused));
}

#[test]
fn a_standby_shows_its_copy_and_takes_no_change() {
    let Some(house) = House::new() else { return };
    let first = house.record("first", &[]);
    first.write("file", "one");
    fs::create_dir(first.file("folder")).expect("make");
    std::os::unix::fs::symlink("file", first.file("folder/link")).expect("link");
    let standby = Standby::start(&house, "second", &["--read-only-mount"], &[]);
    let seen = || fs::read_to_string(standby.point.join("file")).unwrap_or_default();
    eventually("it is there", || seen() == "one");
    first.write("file", "two, and longer");
    eventually("it follows", || seen() == "two, and longer");
    let target = fs::read_link(standby.point.join("folder/link")).expect("read");
    assert_eq!(target, PathBuf::from("file"));
    crate::harness::assert_same(&first.point, &standby.point);
    let read_only = rustix::io::Errno::ROFS.raw_os_error();
    for refused in [
        fs::write(standby.point.join("file"), "no"),
        fs::write(standby.point.join("new"), "no"),
        fs::create_dir(standby.point.join("new")),
        fs::remove_file(standby.point.join("file")),
        fs::rename(standby.point.join("file"), standby.point.join("new")),
    ] {
        assert_eq!(refused.expect_err("it is a copy").raw_os_error(), Some(read_only));
    }
    // Also with a file open there it becomes the directory.
    let open = fs::File::open(standby.point.join("file")).expect("open");
    house.gazfs_ok("handoff", &["--log", LOG]);
    sync(standby.point.join("file"), "of the second").expect("it is the owner");
    drop(open);
    drop(first);
}

#[test]
fn a_silent_owner_is_replaced_by_one_standby_and_an_idle_one_is_not() {
    let Some(house) = House::new() else { return };
    let first = house.record("first", &[]);
    first.write("file", "of the first");
    let standbys: Vec<_> = ["second", "third", "fourth"]
        .map(|name| Standby::start(&house, name, &["--takeover-after", "3s"], &[]))
        .into();
    // Idle, and alive.
    thread::sleep(Duration::from_secs(8));
    first.write("file", "still of the first");
    kill_process(Pid::from_child(&first.child), Signal::STOP).expect("signal");
    let owners = || standbys.iter().filter(|standby| standby.owns(&house)).count();
    eventually("one takes over", || owners() == 1);
    kill_process(Pid::from_child(&first.child), Signal::CONT).expect("signal");
    sync(first.file("file"), "too late").expect_err("it is fenced");
    thread::sleep(Duration::from_secs(5));
    assert_eq!(owners(), 1, "the others go on standing by");
    let owner = standbys.iter().find(|standby| standby.owns(&house)).expect("one does");
    let content = fs::read_to_string(owner.point.join("file")).expect("read");
    assert_eq!(content, "still of the first");
    assert!(owner.said.contains("takes over by itself"), "{}", owner.said);
}

#[test]
fn a_standby_that_is_cut_off_or_stopped_does_not_take_over() {
    let Some(house) = House::new() else { return };
    let first = house.record("first", &[]);
    first.write("file", "of the first");
    let standby = Standby::start(&house, "second", &["--takeover-after", "2s"], &[]);
    standby.signal(Signal::STOP);
    thread::sleep(Duration::from_secs(4));
    standby.signal(Signal::CONT);
    // The broker is away for both.
    house.signal_broker(Signal::STOP);
    thread::sleep(Duration::from_secs(4));
    house.signal_broker(Signal::CONT);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        assert!(!standby.owns(&house));
        thread::sleep(Duration::from_millis(100));
    }
    first.write("file", "still of the first");
}

#[test]
fn a_standby_ends_when_it_is_asked_to() {
    let Some(house) = House::new() else { return };
    let _first = house.record("first", &[]);
    let mut standby = Standby::start(&house, "second", &[], &[]);
    standby.signal(Signal::TERM);
    assert_eq!(wait(&mut standby.child).code(), Some(0));
    let left: Vec<_> = fs::read_dir(house.path("second.work")).expect("list").collect();
    let left = left.iter().flatten().map(fs::DirEntry::file_name);
    let left: Vec<_> = left.filter(|name| name != "lock" && name != "state.json").collect();
    assert!(left.is_empty(), "{left:?}");
}
