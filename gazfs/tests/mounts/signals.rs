//! Brokers that are away, and programs that do not want to wait any longer.

use std::{
    fs::{self, File},
    io::{Read, Write},
    time::{Duration, Instant},
};

use gazette_client::fake::FakeBroker;
use gazfs::journals::Ack;
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use crate::harness::{Mount, Way, appender, ends_within, errno, eventually};

/// What is promised is 200 ms. The machine may be busy.
const PROMPT: Duration = Duration::from_millis(600);

fn away(change: impl FnOnce(&mut gazfs::journals::Options)) -> Option<Mount> {
    let broker = FakeBroker::new();
    broker.create("app/log");
    broker.append("app/log", b"first\n");
    Mount::of(broker, Way::Socket, change)
}

fn pid(child: &std::process::Child) -> Pid {
    Pid::from_child(child)
}

// A blocked call ends within 200 ms when its process is killed: for read, write, fsync and close.
#[test]
fn a_killed_program_does_not_wait() {
    let Some(mount) = away(|options| options.ack = Ack::Close) else {
        return;
    };
    mount.sh_ok("cat $J/app/log >/dev/null");
    mount.server().freeze();
    let dd = "dd of=$J/app/log oflag=append conv=notrunc status=none";
    let scripts = [
        ("read", "cat $J/app/log".to_owned()),
        ("close", "echo a >> $J/app/log".to_owned()),
        ("fsync", format!("{dd} conv=fsync <<E\na\nE")),
        ("write", format!("{dd} oflag=sync <<E\na\nE")),
        ("create", ": > $J/app/new".to_owned()),
        ("look", "ls $J/app/unknown".to_owned()),
    ];
    for (call, script) in scripts {
        let mut child = mount.spawn(&format!("exec {script}"));
        // An `exec` of a redirection alone leaves the shell, which is as good.
        // Opening takes a second at most, as nobody has news of the file.
        std::thread::sleep(Duration::from_millis(1200));
        let ended = child.try_wait().expect("look");
        assert!(
            ended.is_none() || call == "look",
            "{call} does not wait: {ended:?}"
        );
        child.kill().expect("kill");
        let took = ends_within(&mut child, PROMPT);
        eprintln!("{call}: ended {took:?} after kill -9");
    }
    mount.server().thaw();
}

// The same for the default, where write(2) waits.
#[test]
fn a_killed_writer_does_not_wait_and_its_append_lands_once_or_not() {
    let Some(mount) = away(|_| {}) else { return };
    mount.server().freeze();
    let mut child =
        mount.spawn("exec dd of=$J/app/log oflag=append conv=notrunc status=none <<E\nb\nE");
    std::thread::sleep(Duration::from_millis(1500));
    child.kill().expect("kill");
    let took = ends_within(&mut child, PROMPT);
    eprintln!("write: ended {took:?} after kill -9");
    mount.server().thaw();
    mount.sh_ok("echo c >> $J/app/log");
    let content = String::from_utf8(mount.broker.content("app/log")).expect("text");
    assert!(
        matches!(&*content, "first\nc\n" | "first\nb\nc\n"),
        "{content}"
    );
}

// A signal that a program handles ends its call with EINTR.
#[test]
fn a_handled_signal_interrupts_a_call() {
    let Some(mount) = away(|_| {}) else { return };
    mount.server().freeze();
    let mut child = mount.spawn(
        "exec python3 -c \"
import os,signal,sys
signal.signal(signal.SIGTERM, lambda *a: sys.exit(5))
signal.signal(signal.SIGCHLD, lambda *a: None)
open(os.environ['T']+'/ready','w').close()
open(os.environ['J']+'/app/log','rb',buffering=0).read()\"",
    );
    eventually("the program is ready", || {
        mount.beside().join("ready").exists()
    });
    std::thread::sleep(Duration::from_millis(300));
    kill_process(pid(&child), Signal::CHILD).expect("signal");
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        child.try_wait().expect("look").is_none(),
        "that signal disturbs nobody"
    );
    kill_process(pid(&child), Signal::TERM).expect("signal");
    let took = ends_within(&mut child, PROMPT);
    eprintln!("handled signal: ended {took:?} later");
    assert_eq!(child.wait().expect("wait").code(), Some(5));
}

// The flush at exit: a program that ends does not hang in the kernel.
#[test]
fn a_program_that_exits_does_not_hang() {
    let Some(mount) = away(|options| options.ack = Ack::Close) else {
        return;
    };
    mount.sh_ok("cat $J/app/log >/dev/null");
    mount.server().freeze();
    let mut child = mount.spawn("exec python3 -c \"import os
fd=os.open(os.environ['J']+'/app/log',os.O_WRONLY|os.O_APPEND); os.write(fd,b'exit'); os._exit(0)\"");
    ends_within(&mut child, Duration::from_secs(5));
    mount.server().thaw();
    assert_eq!(mount.block_on(mount.fs.drain()), 0);
    assert_eq!(mount.broker.content("app/log"), b"first\nexit");
}

// Broker away: bounded wait, then an errno; the mount comes back by itself.
#[test]
fn calls_fail_in_bounded_time_and_the_mount_comes_back() {
    const TIMEOUT: Duration = Duration::from_millis(1500);
    let Some(mount) = away(|options| options.timeout = TIMEOUT) else {
        return;
    };
    let path = mount.path("app/log");
    let mut file = appender(&path);
    file.write_all(b"second\n").expect("write");
    let mut reader = File::open(&path).expect("open");
    let mut buffer = [0; 6];
    reader.read_exact(&mut buffer).expect("read");
    mount.server().freeze();
    let started = Instant::now();
    let failed = errno(file.write(b"lost?\n"));
    assert!(matches!(failed, Errno::TIMEDOUT | Errno::IO), "{failed}");
    // A file that is known can still be looked at.
    assert_eq!(file.metadata().expect("look").len(), 13);
    let mut rest = Vec::new();
    let failed = errno(reader.read_to_end(&mut rest));
    assert!(matches!(failed, Errno::TIMEDOUT | Errno::IO), "{failed}");
    // An offset that is there, but not fetched.
    let failed = errno(fs::read(&path));
    assert!(matches!(failed, Errno::TIMEDOUT | Errno::IO), "{failed}");
    // Three calls, of which an append may wait two seconds more for the client to give up.
    assert!(started.elapsed() < 10 * TIMEOUT, "{:?}", started.elapsed());
    mount.server().thaw();
    eventually("the mount comes back", || {
        file.write_all(b"third\n").is_ok()
    });
    let content = fs::read_to_string(&path).expect("read");
    assert!(
        content.starts_with("first\nsecond\n") && content.ends_with("third\n"),
        "{content}"
    );
}

// A program that reads does not hold up one that closes its own file.
#[test]
fn a_parked_write_does_not_hold_up_readers() {
    let Some(mount) = away(|_| {}) else { return };
    mount.sh_ok("cat $J/app/log >/dev/null");
    let reader = File::open(mount.path("app/log")).expect("open");
    mount.server().freeze();
    let mut writer = mount.spawn("exec sh -c 'echo b >> $J/app/log'");
    std::thread::sleep(Duration::from_millis(1500));
    let started = Instant::now();
    drop(reader);
    assert!(
        started.elapsed() < PROMPT,
        "close took {:?}",
        started.elapsed()
    );
    writer.kill().expect("kill");
    ends_within(&mut writer, PROMPT);
    mount.server().thaw();
}
