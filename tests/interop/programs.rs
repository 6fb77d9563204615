//! Where the programs are that meet here.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Folder of the reference's programs. If there is none, says so where nobody can miss it.
pub(crate) fn reference() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("GAZETTE_REFERENCE").filter(|folder| !folder.is_empty())
    else {
        say(
            "the reference is not there; next: set GAZETTE_REFERENCE to the folder of its \
             gazette, gazctl and etcd",
        );
        return None;
    };
    let folder = PathBuf::from(folder);
    for program in ["gazette", "gazctl", "etcd"] {
        let path = folder.join(program);
        assert!(
            path.is_file(),
            "GAZETTE_REFERENCE has no {}",
            path.display()
        );
    }
    Some(folder)
}

/// Says where nobody can miss it that a test shows nothing, and why.
pub(crate) fn say(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Not `eprintln`, which the harness keeps to itself while a test passes.
    let said = writeln!(
        std::io::stderr(),
        "!!! NOT RUN, NOTHING IS SHOWN: {test}: {why}"
    );
    said.expect("standard error is open");
}

/// Our broker.
pub(crate) fn our_broker() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_gazette-under-test"))
}

/// One of our programs `gazctl` and `gazfs`.
pub(crate) fn ours(program: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(our_folder).join(program)
}

fn our_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("GAZFS_BIN") {
        return folder.into();
    }
    // They belong to other packages, so that nobody built them for these tests.
    let folder = our_broker().parent().expect("a program is in a folder");
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--bins"])
        .args(["-p", "gazette-gazctl", "-p", "gazfs", "--target-dir"])
        .arg(folder.parent().expect("a profile is in a target folder"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let status = build.status().expect("run cargo build");
    assert!(status.success(), "cargo build: {status}");
    folder.to_owned()
}
