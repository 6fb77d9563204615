//! Real programs in recorded directories: each script of this folder is one test.

mod every_op;

use std::{
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// Exit code of a script that did not run.
const NOT_RUN: i32 = 77;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// The folder of Cargo's output, where `tests/run` puts tools that are no system packages.
fn target() -> PathBuf {
    let profile = Path::new(env!("CARGO_BIN_EXE_gazfs-under-test"))
        .parent()
        .expect("a program is in a folder");
    profile.parent().expect("of a target folder").to_owned()
}

/// Runs a script with the programs of this build. Returns its exit code, and what it printed.
fn script(name: &str, arguments: &[&str], record_options: &str) -> (Option<i32>, String) {
    let programs = tempfile::tempdir().expect("make a folder");
    for (name, path) in [
        ("gazette", env!("CARGO_BIN_EXE_gazette-under-test")),
        ("gazfs", env!("CARGO_BIN_EXE_gazfs-under-test")),
    ] {
        symlink(path, programs.path().join(name)).expect("link a program");
    }
    let output = Command::new(folder().join(name))
        .args(arguments)
        .env("GAZFS_BIN", programs.path())
        .env("CARGO_TARGET_DIR", target())
        .env("RECORD_OPTIONS", record_options)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("start the script: is there a python3?");
    let mut words = output.stdout;
    words.extend(output.stderr);
    (output.status.code(), String::from_utf8_lossy(&words).into())
}

/// Returns whether the script ran, which then succeeded. A test must not pass in silence when it
/// shows nothing.
fn run_with(name: &str, arguments: &[&str], record_options: &str) -> bool {
    let (code, words) = script(name, arguments, record_options);
    match code {
        Some(0) => true,
        Some(NOT_RUN) => {
            say_not_run(name, &words);
            false
        }
        code => panic!("tests/programs/{name} ends with {code:?}:\n{words}"),
    }
}

/// Past what the test harness captures.
fn say_not_run(name: &str, words: &str) {
    let loud = format!("\n!!! tests/programs/{name} DID NOT RUN !!!\n{words}\n");
    std::io::stderr()
        .write_all(loud.as_bytes())
        .expect("write to standard error");
}

fn run(name: &str) {
    run_with(name, &[], "");
}

#[test]
fn sqlite_keeps_what_it_acknowledged_in_every_mode() {
    run("sqlite");
}

#[test]
fn every_append_of_a_run_of_sqlite_can_be_recovered() {
    run("prefixes");
}

/// `PREFIX_TRANSACTIONS=2000` is the whole of it.
#[test]
fn a_run_of_sqlite_is_sound_behind_each_of_its_ops() {
    let transactions = std::env::var("PREFIX_TRANSACTIONS").unwrap_or_else(|_| "150".to_owned());
    let saved = tempfile::tempdir().expect("make a folder");
    let path = saved.path().to_str().expect("its name is text");
    if run_with(
        "prefixes",
        &["--transactions", &transactions, "--save", path],
        "",
    ) {
        for mode in ["wal", "delete"] {
            every_op::check(saved.path(), mode, transactions.parse().expect("a number"));
        }
    }
}

/// What these tests are worth: with an fsync that does not wait, rows are missing.
#[test]
fn an_fsync_that_does_not_wait_is_found() {
    let (code, words) = script("sqlite", &[], "--fsync enqueue");
    if code == Some(NOT_RUN) {
        return say_not_run("sqlite", &words);
    }
    let found = code == Some(1) && words.contains("rows were acknowledged");
    assert!(found, "it ends with {code:?}:\n{words}");
}

#[test]
fn sqlite_keeps_what_it_acknowledged_in_a_log_that_gazette_can_read() {
    run_with("sqlite", &[], "--mode compat");
}

#[test]
fn rocksdb_keeps_what_it_acknowledged() {
    run("rocksdb");
}

#[test]
fn postgres_keeps_what_it_acknowledged() {
    run("postgres");
}

#[test]
fn redis_keeps_what_it_acknowledged() {
    run("redis");
}

#[test]
fn lmdb_keeps_what_it_acknowledged() {
    run("lmdb");
}

#[test]
fn git_keeps_what_it_acknowledged() {
    run("git");
}

#[test]
fn etcd_keeps_what_it_acknowledged() {
    run("etcd");
}

#[test]
fn pjdfstest_passes_as_on_the_bare_disk() {
    run("pjdfstest");
}

#[test]
fn fsx_finds_nothing() {
    run("fsx");
}

/// The file was as each operation left it, in order: at the end of some prefix of the log.
#[test]
fn each_operation_of_fsx_is_a_prefix_of_its_log() {
    let saved = tempfile::tempdir().expect("make a folder");
    let path = saved.path().to_str().expect("its name is text");
    if run_with("fsx", &["--save", path], "") {
        every_op::find_states(saved.path(), "fsx");
    }
}

#[test]
fn fio_verifies_what_it_wrote() {
    run("fio");
}

#[test]
fn stressors_of_file_systems_pass_as_on_the_bare_disk() {
    run("stress");
}
