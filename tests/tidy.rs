//! Rules of this repository that no lint knows. Each failure says which file and what to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Names that the top folder may hold; settings are dotfiles.
const TOP_LEVEL: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "LICENSE",
    "README.md",
    "broker",
    "consumer",
    "deploy",
    "docs",
    "examples",
    "gazfs",
    "recoverylog",
    "tests",
];
/// Lines at which a file without its tests holds more than one idea for sure.
const FILE_LINES_MAX: usize = 1000;
/// Crates that may not be among the dependencies of a pure one.
const IMPURE: &[&str] = &["tokio", "tonic", "hyper", "reqwest", "mio"];
/// Files that may start a task by themselves: each keeps the handle of what it starts.
const SPAWNS: &[&str] = &[
    "broker/process/src/tasks.rs",
    // The client is below `process`; its tasks end with the object that owns their handles.
    "broker/client/src/",
    "broker/keyspace/src/watch.rs",
    "broker/coordination/src/",
    "broker/allocator/src/",
    "broker/stores/src/",
    // Beside `process`, too: each stretch that is read ahead ends with its reader.
    "recoverylog/src/source/read.rs",
];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ has a parent")
        .to_owned()
}

/// Files that git knows, or would add, as paths relative to the top.
fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(top())
        .output()
        .expect("run git ls-files");
    assert!(
        output.status.success(),
        "git ls-files fails: is this a checkout?"
    );
    let text = String::from_utf8(output.stdout).expect("file names are UTF-8");
    text.lines()
        .filter(|path| top().join(path).exists())
        .map(ToOwned::to_owned)
        .collect()
}

fn rust_files() -> Vec<(String, String)> {
    let sources = files().into_iter().filter(|path| {
        Path::new(path)
            .extension()
            .is_some_and(|extension| extension == "rs")
    });
    sources
        .map(|path| {
            let text = fs::read_to_string(top().join(&path)).expect("source is UTF-8");
            (path, text)
        })
        .collect()
}

/// The part of a source that is not its tests, by the convention that tests come last.
fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

fn is_test_file(path: &str) -> bool {
    let folders = ["/tests/", "/examples/", "/benches/"];
    path.ends_with("/tests.rs")
        || path.starts_with("tests/")
        || folders.iter().any(|folder| path.contains(folder))
}

fn assert_none(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

#[derive(Debug)]
struct Layer {
    level: u32,
    folder: String,
    may_use: BTreeSet<String>,
    pure: bool,
}

fn layers() -> BTreeMap<String, Layer> {
    let text = fs::read_to_string(top().join("docs/ARCHITECTURE.md")).expect("read the layers");
    let rows = text.lines().filter(|line| {
        line.strip_prefix("| ")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [level, name, folder, may_use, pure] = cells[..] else {
            panic!("odd row: {row}")
        };
        let may_use = may_use.split(", ").filter(|name| *name != "-");
        let layer = Layer {
            level: level.parse().expect("a level is a number"),
            folder: folder.to_owned(),
            may_use: may_use.map(full_name).collect(),
            pure: pure == "yes",
        };
        (name.to_owned(), layer)
    })
    .collect()
}

fn full_name(short: &str) -> String {
    if short == "gazfs" {
        short.to_owned()
    } else {
        format!("gazette-{short}")
    }
}

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(top())
        .output()
        .expect("run cargo metadata");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

#[test]
fn the_layer_table_is_what_cargo_says() {
    let layers = layers();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for package in packages {
        let name = package["name"].as_str().expect("a name").to_owned();
        let Some(layer) = layers.get(&name) else {
            wrong.push(format!("{name} is not in docs/ARCHITECTURE.md"));
            continue;
        };
        let manifest = package["manifest_path"].as_str().expect("a manifest");
        if Path::new(manifest) != top().join(&layer.folder).join("Cargo.toml") {
            wrong.push(format!("{name} is not in {}", layer.folder));
        }
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let used = dependency["name"].as_str().expect("a name");
            let Some(below) = layers.get(used) else {
                continue;
            };
            // A crate may test with fixtures of a crate above it, and with itself.
            if dependency["kind"] == "dev" {
                continue;
            }
            if !layer.may_use.contains(used) {
                wrong.push(format!(
                    "{name} uses {used}, which the table does not allow"
                ));
            }
            let same_level_below = layer.level == below.level && layer.may_use.contains(used);
            if below.level > layer.level || (below.level == layer.level && !same_level_below) {
                wrong.push(format!(
                    "{name} (level {}) uses {used} above it",
                    layer.level
                ));
            }
        }
        seen.insert(name);
    }
    wrong.extend(
        layers
            .keys()
            .filter(|n| !seen.contains(*n))
            .map(|n| format!("{n} is no crate")),
    );
    assert_none("docs/ARCHITECTURE.md and cargo disagree", &wrong);
}

#[test]
fn pure_crates_reach_no_runtime_and_no_socket() {
    let mut wrong = Vec::new();
    for name in layers()
        .iter()
        .filter(|(_, layer)| layer.pure)
        .map(|(name, _)| name)
    {
        let output = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--offline",
                "-e",
                "normal",
                "--prefix",
                "none",
                "-p",
                name,
            ])
            .current_dir(top())
            .output()
            .expect("run cargo tree");
        assert!(
            output.status.success(),
            "cargo tree: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let tree = String::from_utf8_lossy(&output.stdout);
        let reached = tree.lines().filter_map(|line| line.split(' ').next());
        let impure: BTreeSet<&str> = reached.filter(|name| IMPURE.contains(name)).collect();
        wrong.extend(impure.iter().map(|used| format!("{name} reaches {used}")));
    }
    assert_none("a pure crate depends on a runtime", &wrong);
}

#[test]
fn the_top_folder_holds_only_the_agreed_names() {
    let names: BTreeSet<String> = files()
        .iter()
        .filter_map(|path| path.split('/').next())
        .map(ToOwned::to_owned)
        .collect();
    let odd: Vec<String> = names
        .into_iter()
        .filter(|name| !name.starts_with('.') && !TOP_LEVEL.contains(&name.as_str()))
        .collect();
    assert_none("move it into a folder, or make it a dotfile", &odd);
}

#[test]
fn no_file_holds_two_ideas() {
    let mut wrong = Vec::new();
    for (path, text) in rust_files() {
        let lines = without_tests(&text).lines().count();
        if lines > FILE_LINES_MAX && !is_test_file(&path) {
            wrong.push(format!(
                "{path}: {lines} lines without its tests; cut it along an idea"
            ));
        }
    }
    assert_none("files over the limit", &wrong);
}

#[test]
fn sources_are_ascii_and_have_no_leftovers() {
    let mut wrong = Vec::new();
    for (path, text) in rust_files() {
        for (number, line) in text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
        {
            let leftover = ["TO", "DO"].concat();
            let fix_me = ["FIX", "ME"].concat();
            if line.contains(&fix_me)
                || (line.contains(&leftover) && !line.contains(&format!("{leftover}(#")))
            {
                wrong.push(format!("{path}:{number}: a leftover without an issue"));
            }
            if !line.is_ascii() && !is_test_file(&path) && !without_tests(&text).contains(line) {
                continue;
            }
            if !line.is_ascii() && !is_test_file(&path) {
                wrong.push(format!("{path}:{number}: not ASCII; write an escape"));
            }
        }
    }
    assert_none("sources", &wrong);
}

#[test]
fn select_is_biased() {
    let mut wrong = Vec::new();
    for (path, text) in rust_files()
        .iter()
        .filter(|(path, _)| path != "tests/tidy.rs")
    {
        let code: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect::<Vec<_>>()
            .join("\n");
        for (at, _) in code.match_indices("select! {") {
            let body = code[at + "select! {".len()..].trim_start();
            if !body.starts_with("biased;") {
                let line = code[..at].matches('\n').count() + 1;
                wrong.push(format!(
                    "{path}: select {line} (comments not counted) is not biased"
                ));
            }
        }
    }
    assert_none(
        "a random order of branches cannot be replayed; write `biased;` first",
        &wrong,
    );
}

#[test]
fn tasks_are_started_where_their_handles_are_kept() {
    let mut wrong = Vec::new();
    for (path, text) in rust_files().iter().filter(|(path, _)| !is_test_file(path)) {
        if SPAWNS.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        for (index, line) in without_tests(text).lines().enumerate() {
            if line.contains("tokio::spawn(") || line.contains("task::spawn(") {
                wrong.push(format!("{path}:{}: use a TaskGroup", index + 1));
            }
        }
    }
    assert_none("a bare task loses its panic and outlives its owner", &wrong);
}

#[test]
fn every_crate_has_a_readme_of_at_most_a_page() {
    let mut wrong = Vec::new();
    for (name, layer) in layers() {
        match fs::read_to_string(top().join(&layer.folder).join("README.md")) {
            Ok(text) if text.lines().count() > 80 => wrong.push(format!("{name}: over 80 lines")),
            Ok(text) if text.lines().count() < 5 => wrong.push(format!("{name}: says too little")),
            Ok(_) => {}
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert_none("READMEs", &wrong);
}

#[test]
fn every_metric_is_in_the_documents() {
    let documents = fs::read_to_string(top().join("docs/METRICS.md")).unwrap_or_default();
    let mut wrong = BTreeSet::new();
    for (path, text) in rust_files().iter().filter(|(path, _)| !is_test_file(path)) {
        for line in without_tests(text)
            .lines()
            .filter(|line| line.contains(": &str = \"gaz"))
        {
            let name = line.split('"').nth(1).unwrap_or_default();
            let metric = [
                "_total", "_totals", "_seconds", "_bytes", "_count", "_head", "_active",
            ];
            if metric.iter().any(|end| name.ends_with(end)) && !documents.contains(name) {
                wrong.insert(format!("{path}: {name}"));
            }
        }
    }
    assert_none(
        "describe it in docs/METRICS.md",
        &wrong.into_iter().collect::<Vec<_>>(),
    );
}
