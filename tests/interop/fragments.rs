//! Stores that one broker has filled and the other goes on with.

use std::{fs, path::Path};

use crate::{
    brokers::Broker,
    programs,
    scenarios::{self, read},
    tool::Tool,
};

/// Codecs that both know, in the order of their names, with the suffix of their files.
const CODECS: [(&str, &str); 4] = [
    ("GZIP", ".gz"),
    ("NONE", ".raw"),
    ("SNAPPY", ".sz"),
    ("ZSTANDARD", ".zst"),
];

/// A tree with a journal for each codec.
fn tree() -> String {
    let journals = CODECS.map(|(codec, _)| {
        format!("- name: moved/{codec}\n  fragment: {{compression_codec: {codec}}}\n")
    });
    format!(
        "name: moved/\nreplication: 1\nfragment: {{length: 65536, stores: [\"file:///\"], \
         refresh_interval: 1s}}\nchildren:\n{}",
        journals.concat()
    )
}

fn apply(tool: &Tool) {
    tool.ok_with(&tree(), "journals apply");
    tool.until("journals list -o json", |json| {
        json.matches("\"endpoints\":[\"http").count() == CODECS.len()
    });
}

/// Lines that compress, and others that do not; each append more than a fragment.
fn content(seed: u64) -> String {
    scenarios::lines(3_000, |n| {
        // Spread as the steps of a multiplicative generator are.
        let spread = (seed << 32 | u64::from(n)).wrapping_mul(6_364_136_223_846_793_005);
        format!("line {n} of {seed} {spread:016x}")
    })
}

/// Fills each journal with several fragments and stores them all. Returns what is in each.
fn fill(tool: &Tool, root: &Path) -> String {
    let mut all = String::new();
    for seed in 1..=3 {
        let part = content(seed);
        for (codec, _) in CODECS {
            tool.ok_with(&part, &format!("journals append -l name=moved/{codec}"));
        }
        all.push_str(&part);
    }
    tool.ok("journals suspend -l prefix=moved/ --force");
    for (codec, suffix) in CODECS {
        tool.until(
            &format!("journals fragments -l name=moved/{codec} -o json"),
            |json| {
                json.lines().count() > 1
                    && json.lines().all(|line| line.contains("\"backing_store\""))
            },
        );
        let folder = fs::read_dir(root.join("moved").join(codec)).expect("there are fragments");
        for file in folder {
            let name = file.expect("read a folder").file_name();
            let name = name.to_string_lossy();
            assert!(name.ends_with(suffix), "{name}");
        }
    }
    all
}

/// Takes over what another broker stored: it is all there, and goes on behind it.
fn goes_on(tools: &[Tool; 2], root: &Path, before: &str) {
    let [tool, other] = tools;
    apply(tool);
    let root = root.display();
    for (codec, _) in CODECS {
        let journal = format!("moved/{codec}");
        for tool in tools {
            assert!(read(tool, &journal) == before, "{codec} by the broker");
            // Each tool decodes the files itself, too; the reference's does not end with this codec,
            // whoever wrote the files.
            if codec == "ZSTANDARD" && tool.program != programs::ours("gazctl") {
                continue;
            }
            let direct = tool.ok(&format!(
                "journals read -l name={journal} --file-root {root} --broker.cache.size 16"
            ));
            assert!(direct == before, "{codec} by {}", tool.program.display());
        }
        // Nobody knows whether the other broker had more, so an operator has to say that it had not.
        let refused = tool.fails_with("early\n", &format!("journals append -l name={journal}"));
        assert!(refused.contains("INDEX_HAS_GREATER_OFFSET"), "{refused}");
        tool.ok(&format!("journals reset-head -l name={journal}"));
        other.ok_with(
            "on it goes\n",
            &format!("journals append -l name={journal}"),
        );
        assert!(
            read(tool, &journal) == format!("{before}on it goes\n"),
            "{codec} goes on"
        );
    }
    tool.ok("journals suspend -l prefix=moved/ --force");
}

#[test]
fn their_broker_goes_on_with_fragments_of_ours_and_ours_with_its() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let folder = tempfile::tempdir().expect("make a folder");
    let root = folder.path();

    let first = Broker::ours_on(root);
    let tool = first.our_gazctl();
    apply(&tool);
    let before = fill(&tool, root);
    drop(first);

    let second = Broker::theirs_on(&reference, root);
    let tools = [second.our_gazctl(), second.their_gazctl(&reference)];
    goes_on(&tools, root, &before);
    drop(second);

    let third = Broker::ours_on(root);
    let tools = [third.our_gazctl(), third.their_gazctl(&reference)];
    goes_on(&tools, root, &format!("{before}on it goes\n"));
}

#[test]
fn our_broker_goes_on_with_fragments_of_theirs() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let folder = tempfile::tempdir().expect("make a folder");
    let root = folder.path();

    let first = Broker::theirs_on(&reference, root);
    let tool = first.their_gazctl(&reference);
    apply(&tool);
    let before = fill(&tool, root);
    drop(first);

    let second = Broker::ours_on(root);
    let tools = [second.their_gazctl(&reference), second.our_gazctl()];
    goes_on(&tools, root, &before);
}
