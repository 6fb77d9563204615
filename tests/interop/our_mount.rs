//! Our mount over the reference's broker.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    brokers::{Broker, Daemon, eventually},
    programs, scenarios, tool,
};

/// A mount that is taken away when this is dropped.
struct Mount {
    point: PathBuf,
    daemon: Option<Daemon>,
}

impl Mount {
    /// Mounts the journals of a broker at a name in its folder, or says loudly that it cannot.
    fn of(broker: &Broker, name: &str, options: &[&str]) -> Option<Self> {
        let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if let Err(error) = opened {
            programs::say(&format!("/dev/fuse does not open: {error}"));
            return None;
        }
        let point = broker.file(name);
        std::fs::create_dir(&point).expect("make a folder");
        let mut command = Command::new(programs::ours("gazfs"));
        command
            .arg("mount")
            .arg(&point)
            .args(["--broker", &broker.address])
            .args(options);
        let log = broker.file(&format!("{name}.log"));
        let mount = Self {
            daemon: Some(Daemon::start(command, &log)),
            point,
        };
        eventually("the journals are mounted", || is_mounted(&mount.point));
        Some(mount)
    }

    /// Runs a shell script that finds the mount as `$J`; it must succeed.
    fn sh(&self, script: &str) -> String {
        let mut command = Command::new("sh");
        command
            .args(["-euc", script])
            .env("J", &self.point)
            .env("LC_ALL", "C");
        let output = tool::run(command, "");
        assert!(
            output.status.success(),
            "{script}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("it prints text")
    }

    /// Ends it as a user does.
    fn end(mut self) {
        let mut command = Command::new(programs::ours("gazfs"));
        command.arg("umount").arg(&self.point);
        let output = tool::run(command, "");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!is_mounted(&self.point));
        self.daemon.take().expect("it runs").ended();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            drop(daemon);
            let mut command = Command::new("umount");
            command.arg("-l").arg(&self.point);
            drop(tool::run(command, ""));
        }
    }
}

fn is_mounted(point: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("read the mounts");
    let point = point.display().to_string();
    table
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(&point))
}

#[test]
fn journals_of_their_broker_are_files() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    let theirs = broker.their_gazctl(&reference);
    let Some(mount) = Mount::of(&broker, "journals", &[]) else {
        return;
    };

    // Made by a shell, seen by their tool, and the other way round.
    mount.sh("mkdir $J/app; echo one >> $J/app/log; echo two >> $J/app/log");
    assert_eq!(scenarios::read(&theirs, "app/log"), "one\ntwo\n");
    theirs.ok_with("three\n", "journals append -l name=app/log");
    assert_eq!(mount.sh("cat $J/app/log"), "one\ntwo\nthree\n");
    assert_eq!(mount.sh("tail -c 6 $J/app/log"), "three\n");
    assert_eq!(mount.sh("tail -n 2 $J/app/log"), "two\nthree\n");
    assert_eq!(mount.sh("tac $J/app/log"), "three\ntwo\none\n");
    assert_eq!(mount.sh("grep -c o $J/app/log"), "2\n");
    assert_eq!(mount.sh("stat -c %s $J/app/log"), "14\n");

    theirs.ok_with(
        "name: app/theirs\nreplication: 1\nfragment: {length: 65536, compression_codec: NONE, \
         refresh_interval: 1m}\n",
        "journals apply",
    );
    mount.sh("until [ -e $J/app/theirs ]; do sleep 0.1; done; echo hi >> $J/app/theirs");
    assert_eq!(mount.sh("ls $J/app"), "log\ntheirs\n");
    assert_eq!(scenarios::read(&theirs, "app/theirs"), "hi\n");
    theirs.ok_with(
        "name: app/theirs\ndelete: true\nrevision: -1\n",
        "journals apply",
    );
    mount.sh("while [ -e $J/app/theirs ]; do sleep 0.1; done");
    mount.end();
}

#[test]
fn a_journal_of_their_broker_only_grows() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    let Some(mount) = Mount::of(&broker, "journals", &[]) else {
        return;
    };
    mount.sh("mkdir $J/app; printf 0123456789 > $J/app/log");
    // The end as a precondition holds at the end, and nowhere else.
    mount
        .sh("printf abc | dd of=$J/app/log bs=3 oflag=seek_bytes seek=10 conv=notrunc status=none");
    mount
        .sh("! printf no | dd of=$J/app/log bs=2 oflag=seek_bytes seek=4 conv=notrunc 2>/dev/null");
    mount.sh("! printf no > $J/app/log");
    mount.sh("! truncate -s 3 $J/app/log");
    mount.sh("! mv $J/app/log $J/app/other");
    mount.sh("! rm $J/app/log");
    mount.sh("touch $J/app/log");
    assert_eq!(mount.sh("cat $J/app/log"), "0123456789abc");
    mount.end();
}

#[test]
fn attributes_tell_about_journals_of_their_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    scenarios::apply(&broker.their_gazctl(&reference));
    let Some(mount) = Mount::of(&broker, "journals", &[]) else {
        return;
    };
    mount.sh("echo hello >> $J/app/errors");
    let attribute = |name: &str| {
        let path = mount.point.join("app/errors");
        let mut value = vec![0; 4096];
        let length = rustix::fs::getxattr(&path, format!("user.gazette.{name}"), &mut value)
            .expect("there is the attribute");
        value.truncate(length);
        String::from_utf8(value).expect("it is text")
    };
    assert_eq!(attribute("write_head"), "6");
    assert_eq!(attribute("first_offset"), "0");
    assert!(attribute("labels").contains("application/x-ndjson"));
    assert!(attribute("spec").contains("compression_codec: GZIP"));
    // Its name is made anew at each start.
    assert!(attribute("primary").starts_with("local/"));
    mount.end();
}

#[test]
fn writers_in_two_mounts_of_their_broker_lose_nothing() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    let mounts = (
        Mount::of(&broker, "one", &[]),
        Mount::of(&broker, "two", &["--ack", "close"]),
    );
    let (Some(one), Some(two)) = mounts else {
        return;
    };
    one.sh("mkdir $J/app; : >> $J/app/log");
    let write = "for n in $(seq 100); do echo $0 $n >> $J/app/log; done";
    std::thread::scope(|scope| {
        for (mount, writer) in [(&one, "a"), (&one, "b"), (&two, "c"), (&two, "d")] {
            let script = write.replace("$0", writer);
            scope.spawn(move || mount.sh(&script));
        }
    });
    let text = one.sh("cat $J/app/log");
    assert_eq!(two.sh("cat $J/app/log"), text);
    assert_eq!(text.lines().count(), 400);
    for writer in ["a", "b", "c", "d"] {
        let numbers = text
            .lines()
            .filter_map(|line| line.strip_prefix(writer)?.trim().parse::<u32>().ok());
        assert!(numbers.eq(1..=100), "{writer} in {text}");
    }
    one.end();
    two.end();
}

#[test]
fn a_follower_sees_what_their_tool_appends() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    let theirs = broker.their_gazctl(&reference);
    scenarios::apply(&theirs);
    let Some(mount) = Mount::of(&broker, "journals", &[]) else {
        return;
    };
    std::thread::scope(|scope| {
        let follower =
            scope.spawn(|| mount.sh("timeout 60 tail -s 0.1 -n +1 -f $J/app/access | head -n 20"));
        for n in 0..20 {
            theirs.ok_with(&format!("line {n}\n"), "journals append -l name=app/access");
        }
        let seen = follower.join().expect("the follower does not panic");
        let expected = scenarios::lines(20, |n| format!("line {n}"));
        assert_eq!(seen, expected);
    });
    mount.end();
}
