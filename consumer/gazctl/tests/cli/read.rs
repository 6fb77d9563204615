//! Reads.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command},
    time::{Duration, Instant},
};

use gazette_client::fake::{Call, Fault};
use gazette_protocol::Status;

use crate::House;

#[test]
fn a_read_gives_all_content_and_the_offsets_to_go_on_from() {
    let house = House::new(&["tmp/a", "tmp/b"]);
    house.broker.append("tmp/a", b"one\n");
    house.broker.append("tmp/b", b"two\n");
    let read = "journals read -l prefix=tmp/ --offsets-out at.json";
    let out = house.run(read).done();
    assert!(out == "one\ntwo\n" || out == "two\none\n", "{out}");
    assert_eq!(house.text("at.json"), "{\"tmp/a\":4,\"tmp/b\":4}\n");

    house.broker.append("tmp/a", b"three\n");
    let again = format!("{read} --offsets at.json -o out");
    assert_eq!(house.run(&again).done(), "");
    assert_eq!(house.text("out"), "three\n");
    assert_eq!(house.text("at.json"), "{\"tmp/a\":10,\"tmp/b\":4}\n");
    assert_eq!(
        house.text("at.json.previous"),
        "{\"tmp/a\":4,\"tmp/b\":4}\n"
    );

    assert_eq!(house.run("journals read -l prefix=tmp/ --tail").done(), "");
    let none = house.run("journals read -l name=tmp/none");
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""));
    assert!(none.err.contains("no journals match"), "{none:?}");
    house.write("bad.json", "[1]");
    house
        .run("journals read -l name=tmp/a --offsets bad.json")
        .failed(1, &["read offsets bad.json: ", "; next: "]);
    house
        .broker
        .inject_every(Call::Read, 1, Fault::Status(Status::NotAllowed));
    house
        .run("journals read -l name=tmp/a")
        .failed(1, &["NOT_ALLOWED", "; next: "]);
}

#[test]
fn a_pruned_beginning_is_skipped_with_a_warning() {
    let house = House::new(&["tmp/a"]);
    house.broker.append("tmp/a", b"gone here\n");
    house.broker.truncate("tmp/a", 5);
    let read = house.run("journals read -l name=tmp/a");
    assert_eq!((read.code, read.out.as_str()), (Some(0), "here\n"));
    assert!(read.err.contains("content is missing"), "{read:?}");
}

#[test]
fn a_read_outlasts_broken_streams() {
    let house = House::new(&["tmp/a"]);
    let content = (0..200_000)
        .map(|n| format!("line {n}\n"))
        .collect::<Vec<_>>()
        .concat();
    house.broker.append("tmp/a", content.as_bytes());
    house.broker.inject(
        Call::Read,
        [
            Fault::BreakAfter(3),
            Fault::EndAfter(2),
            Fault::Status(Status::NotJournalBroker),
        ],
    );
    let read = house.run("journals read -l name=tmp/a");
    assert_eq!(read.code, Some(0), "{}", read.err);
    assert!(read.out == content);
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_read_well() {
    let house = House::new(&["tmp/a"]);
    house
        .broker
        .append("tmp/a", &b"0123456789abcde\n".repeat(100_000));
    let mut child = house
        .command("journals read -l name=tmp/a")
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "0123456789abcde\n");
    drop(out);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
}

/// A `journals read` that goes on, and its output line by line.
struct Follower {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Follower {
    fn new(house: &House, args: &str) -> Self {
        let mut child = house
            .command(&format!("journals read -b {args}"))
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    /// Sends SIGTERM and returns the exit code and the rest of the output.
    fn terminate(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

#[track_caller]
fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_follower_sees_appends_new_journals_and_ends_with_its_offsets() {
    let house = House::new(&["tmp/a"]);
    house.broker.append("tmp/a", b"old\n");
    let mut follower = Follower::new(&house, "-l prefix=tmp/ --offsets-out at.json");
    assert_eq!(follower.line(), "old\n");
    house.broker.append("tmp/a", b"new\n");
    assert_eq!(follower.line(), "new\n");
    house.broker.create("tmp/b");
    house.broker.append("tmp/b", b"born\n");
    assert_eq!(follower.line(), "born\n");
    house.broker.delete("tmp/a");
    house.server.cut();
    house.broker.append("tmp/b", b"alive\n");
    assert_eq!(follower.line(), "alive\n");
    assert_eq!(follower.terminate(), (Some(0), String::new()));
    assert_eq!(house.text("at.json"), "{\"tmp/a\":8,\"tmp/b\":11}\n");
}

#[test]
fn a_tail_misses_nothing_that_comes_while_the_connection_is_lost() {
    let house = House::new(&["tmp/a"]);
    house.broker.append("tmp/a", b"before\n");
    let reads = house.broker.calls(Call::Read);
    let mut follower = Follower::new(&house, "-l name=tmp/a --tail");
    // One read to find the end, and one that waits there.
    wait_until(|| house.broker.calls(Call::Read) >= reads + 2);
    house.server.cut();
    house.broker.append("tmp/a", b"missed\n");
    house.server.cut();
    assert_eq!(follower.line(), "missed\n");
    house.broker.append("tmp/a", b"seen\n");
    assert_eq!(follower.line(), "seen\n");
    assert_eq!(follower.terminate().0, Some(0));
}
