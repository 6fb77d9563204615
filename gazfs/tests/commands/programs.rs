//! `gazfs run`: a program in a recorded directory.

use std::{fs, os::unix::fs::chown, process::Command, process::Stdio};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::harness::{House, LOG, PROGRAM, errors, eventually, wait};

#[test]
fn the_program_finds_its_directory_and_its_exit_code_is_passed_on() {
    let Some(house) = House::new() else { return };
    fs::create_dir(house.path("dir")).expect("make");
    let run = |script: &str| {
        let arguments = [
            "--log", LOG, "--work", "work", "dir", "--", "sh", "-c", script,
        ];
        house.gazfs("run", &arguments)
    };
    let first = run("echo content > dir/file; exit 7");
    assert_eq!(first.status.code(), Some(7), "{}", errors(&first));
    let second = run("cat dir/file");
    assert_eq!(second.status.code(), Some(0), "{}", errors(&second));
    assert_eq!(second.stdout, b"content\n");
    // It is flushed when the program has ended, synced or not.
    let copy = house.recover("copy", &[]);
    assert_eq!(
        fs::read_to_string(copy.join("file")).expect("read"),
        "content\n"
    );
    let missing = house.gazfs(
        "run",
        &[
            "--log",
            LOG,
            "--work",
            "work",
            "dir",
            "--",
            "/no/such/program",
        ],
    );
    assert_eq!(missing.status.code(), Some(127), "{}", errors(&missing));
}

#[test]
fn signals_reach_the_program() {
    let Some(house) = House::new() else { return };
    fs::create_dir(house.path("dir")).expect("make");
    let script = "trap 'echo usr1 >> dir/got' USR1; trap 'echo term >> dir/got; exit 9' TERM; \
                  touch dir/ready; while :; do sleep 0.05; done";
    let mut child = house
        .command(
            "run",
            &[
                "--log", LOG, "--work", "work", "dir", "--", "sh", "-c", script,
            ],
        )
        .spawn()
        .expect("run gazfs");
    eventually("the program runs", || house.path("dir/ready").exists());
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::USR1).expect("signal");
    eventually("it got the first", || house.path("dir/got").exists());
    kill_process(pid, Signal::TERM).expect("signal");
    assert_eq!(wait(&mut child).code(), Some(9));
    let copy = house.recover("copy", &[]);
    let got = fs::read_to_string(copy.join("got")).expect("read");
    assert_eq!(got, "usr1\nterm\n");
}

#[test]
fn the_program_of_a_fenced_owner_is_ended() {
    let Some(house) = House::new() else { return };
    fs::create_dir(house.path("dir")).expect("make");
    let mut child = house
        .command(
            "run",
            &["--log", LOG, "--work", "work", "dir", "--", "sleep", "1000"],
        )
        .stderr(Stdio::null())
        .spawn()
        .expect("run gazfs");
    eventually("it is mounted", || {
        let status = house.gazfs("status", &["dir"]);
        status.status.success()
    });
    let second = house.record("second", &[]);
    assert_eq!(wait(&mut child).code(), Some(4));
    second.write("file", "goes on");
}

#[test]
fn without_privilege_the_mount_is_in_a_namespace_where_the_user_is_who_he_is() {
    let Some(house) = House::new() else { return };
    if !geteuid().is_root() {
        eprintln!("SKIPPED, NOT TESTED: only root can become another user");
        return;
    }
    // The socket of the broker is open to its user only: this one is on the network.
    let open = house.path("open");
    fs::create_dir(&open).expect("make");
    fs::set_permissions(
        house.path(""),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("open the folder");
    let user = open.join("user");
    fs::create_dir_all(user.join("dir")).expect("make");
    for path in [&user, &user.join("dir")] {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("give away");
    }
    fs::copy(PROGRAM, open.join("gazfs")).expect("copy");
    let broker = house.network_broker();
    let script = "mount -t tmpfs tmpfs /mnt && mknod -m 666 /mnt/fuse c 10 229 && \
                  mount --bind /mnt/fuse /dev/fuse && cd $1 && shift && \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let program = "id -u; echo content > dir/file; stat -c %u dir/file";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-ec", script, "sh"])
        .arg(&user)
        .arg(open.join("gazfs"))
        .args([
            "run", "--log", LOG, "--work", "work", "--broker", &broker, "dir", "--",
        ])
        .args(["sh", "-ec", program])
        .output()
        .expect("run unshare");
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(output.stdout, b"65534\n65534\n");
    assert_eq!(fs::read_dir(user.join("dir")).expect("list").count(), 0);
    let copy = house.recover("copy", &[]);
    assert_eq!(
        fs::read_to_string(copy.join("file")).expect("read"),
        "content\n"
    );
}

const NOBODY: u32 = 65534;
