//! What the README says, as it is written there.

use std::{fs, process::Command};

use crate::harness::{PROGRAM, has_fuse};

/// The block of commands of which a line begins so.
fn block(begins: &str) -> String {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let text = fs::read_to_string(readme).expect("read the README");
    let blocks = text.split("```sh\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| rest.split("```").next());
    let found = blocks.find(|block| block.lines().any(|line| line.starts_with(begins)));
    found
        .unwrap_or_else(|| panic!("no block with {begins}"))
        .to_owned()
}

/// Runs a block beside a `gazfs up demo`. Returns the lines that it printed.
fn run(block: &str) -> Vec<String> {
    let temp = tempfile::tempdir().expect("make a folder");
    let bin = temp.path().join("bin");
    fs::create_dir(&bin).expect("make");
    std::os::unix::fs::symlink(PROGRAM, bin.join("gazfs")).expect("link");
    let script = format!(
        "gazfs up demo >up.log 2>&1 & up=$!
         trap 'kill $(jobs -p); wait $up' EXIT
         until grep -q 'end it with' up.log; do sleep 0.1; done
         {block}"
    );
    let path = std::env::var("PATH").expect("there is a PATH");
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(temp.path())
        .env("PATH", format!("{}:{path}", bin.display()))
        // Where backing files go that are not told another place.
        .env("STATE_DIRECTORY", temp.path().join("state"))
        .output()
        .expect("run bash");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines.lines().map(ToOwned::to_owned).collect()
}

#[test]
fn a_journal_is_a_file_as_the_readme_shows() {
    if !has_fuse() {
        return;
    }
    let lines = run(&block("echo hello"));
    assert_eq!(lines.last().map(String::as_str), Some("3"), "{lines:?}");
}

#[test]
fn a_database_survives_its_host_as_the_readme_shows() {
    if !has_fuse() {
        return;
    }
    if Command::new("sqlite3").arg("-version").output().is_err() {
        eprintln!("SKIPPED, NOT TESTED: sqlite3 is not installed");
        return;
    }
    // The second block goes on where the first ends.
    let blocks = block("export BROKER_ADDRESS") + &block("mkdir data");
    let lines = run(&blocks);
    let results: Vec<&String> = lines
        .iter()
        .filter(|line| !line.starts_with("recovered ") && !line.starts_with("as of "))
        .collect();
    assert_eq!(results, ["0", "keep me", "app.db"], "{lines:?}");
}
