//! What a tool does with a broker, whoever made them.

use std::collections::BTreeMap;

use crate::tool::Tool;

/// Two journals as a tree.
pub(crate) const TREE: &str = "\
name: app/
replication: 1
fragment:
  length: 1048576
  compression_codec: GZIP
  stores:
  - file:///
  refresh_interval: 1s
  retention: 1s
children:
- name: app/access
- name: app/errors
  labels:
  - name: content-type
    value: application/x-ndjson
";

/// Applies the tree, and waits until its journals are served.
pub(crate) fn apply(tool: &Tool) {
    tool.ok_with(TREE, "journals apply");
    tool.until("journals list -l prefix=app/ -o json", |json| {
        json.matches("\"endpoints\":[\"http").count() == 2
    });
}

/// A tree comes out as it went in, is refused when it is stale, and can be changed and deleted.
pub(crate) fn specs_go_there_and_back(tool: &Tool) {
    let planned = tool.ok_with(TREE, "journals apply --dry-run");
    assert_eq!(planned.matches("upsert").count(), 2, "{planned}");
    assert!(!tool.ok("journals list").contains("app/"), "dry is dry");

    apply(tool);
    let tree = tool.ok("journals list -l prefix=app/ -o yaml");
    let without_revisions: Vec<&str> = tree
        .lines()
        .filter(|line| !line.contains("revision:"))
        .collect();
    assert_eq!(without_revisions, TREE.lines().collect::<Vec<_>>());

    // Without revisions the tree says that there are no such journals yet.
    let refused = tool.fails_with(TREE, "journals apply");
    assert!(refused.contains("ETCD_TRANSACTION_FAILED"), "{refused}");
    // With those that were listed it can be changed, once.
    let changed = tree.replace("length: 1048576", "length: 2097152");
    tool.ok_with(&changed, "journals apply");
    let refused = tool.fails_with(&changed, "journals apply");
    assert!(refused.contains("ETCD_TRANSACTION_FAILED"), "{refused}");
    let listed = tool.ok("journals list -l name=app/access -o yaml");
    assert!(listed.contains("length: 2097152"), "{listed}");

    for format in ["table", "json", "proto"] {
        let listed = tool.ok(&format!(
            "journals list -l content-type=application/x-ndjson -o {format}"
        ));
        assert!(listed.contains("app/errors"), "{format}: {listed}");
        assert!(!listed.contains("app/access"), "{format}: {listed}");
    }

    tool.ok_with(
        "name: app/errors\ndelete: true\nrevision: -1\n",
        "journals apply",
    );
    let listed = tool.ok("journals list");
    assert!(!listed.contains("app/errors"), "{listed}");
}

/// Records reach journals under each framing and mapping, and are read from where one left off.
pub(crate) fn records_are_appended_and_read(tool: &Tool) {
    apply(tool);
    tool.ok_with("hello\nworld\n", "journals append -l name=app/access");
    assert_eq!(read(tool, "app/access"), "hello\nworld\n");

    for mapping in ["modulo", "rendezvous"] {
        let keyed = lines(50, |n| format!("key {n}\n{n}"));
        let before = both(tool);
        let arguments = format!("journals append -l prefix=app/ -f lines -m {mapping}");
        tool.ok_with(&keyed, &arguments);
        let first = new_since(tool, &before);
        let counts: Vec<usize> = first.values().map(|text| text.lines().count()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 50, "{mapping}: {counts:?}");
        assert!(
            counts.iter().all(|count| *count > 5),
            "{mapping}: {counts:?}"
        );

        // A key has its journal.
        let before = both(tool);
        tool.ok_with(&keyed, &arguments);
        assert_eq!(new_since(tool, &before), first, "{mapping}");
    }

    // `a2V5` is `key`.
    let before = both(tool);
    let arguments = "journals append -l prefix=app/ -f lines -m modulo";
    tool.ok_with("key\nplain\n", arguments);
    tool.ok_with("a2V5\nplain\n", &format!("{arguments} --base64"));
    let appended: Vec<String> = new_since(tool, &before).into_values().collect();
    assert!(
        appended.contains(&"plain\nplain\n".to_owned()),
        "{appended:?}"
    );
}

/// A reader that noted where it was goes on from there.
pub(crate) fn a_reader_goes_on_where_it_was(tool: &Tool, offsets: &std::path::Path) {
    apply(tool);
    std::fs::write(offsets, "{}").expect("write offsets");
    let path = offsets.display();
    let arguments = format!("journals read -l prefix=app/ --offsets {path} --offsets-out {path}");
    tool.ok_with("one\n", "journals append -l name=app/access");
    assert_eq!(tool.ok(&arguments), "one\n");
    tool.ok_with("two\n", "journals append -l name=app/access");
    assert_eq!(tool.ok(&arguments), "two\n");
    assert_eq!(tool.ok(&arguments), "");
    assert_eq!(read(tool, "app/access"), "one\ntwo\n");
}

/// A journal is suspended, read, and woken by the next append; its fragments are listed.
pub(crate) fn a_journal_is_suspended_and_wakes(tool: &Tool) {
    apply(tool);
    tool.ok_with("before\n", "journals append -l name=app/access");
    tool.ok("journals suspend -l name=app/access --force");
    let listed = tool.until("journals list -l name=app/access -o yaml", |listed| {
        listed.contains("level: PARTIAL")
    });
    assert!(listed.contains("offset: 7"), "{listed}");
    let stored = tool.until("journals fragments -l name=app/access -o json", |json| {
        json.contains("\"backing_store\":\"file:///\"")
    });
    assert!(stored.contains("\"end\":7"), "{stored}");
    let table = tool.ok("journals fragments -l name=app/access");
    assert!(table.contains("7 B") && table.contains("GZIP"), "{table}");
    assert_eq!(read(tool, "app/access"), "before\n");

    tool.ok_with("after\n", "journals append -l name=app/access");
    assert_eq!(read(tool, "app/access"), "before\nafter\n");
    let listed = tool.ok("journals list -l name=app/access -o yaml");
    assert!(!listed.contains("PARTIAL"), "{listed}");

    // An empty journal needs no broker at all.
    tool.ok("journals suspend -l name=app/errors --force");
    tool.until("journals list -l name=app/errors -o yaml", |listed| {
        listed.contains("level: FULL")
    });
}

/// Stores are healthy where there is a folder.
pub(crate) fn stores_tell_their_health(tool: &Tool) {
    let healthy = tool.ok("journals store-health file:///");
    assert!(healthy.contains("is healthy"), "{healthy}");
    let healthy = tool.ok("journals store-health file:/// --check-delete-prefix=app/");
    assert!(healthy.contains("is healthy"), "{healthy}");
    let refused = tool.fails_with("", "journals store-health file:///not/there/");
    assert!(refused.contains("file:///not/there/"), "{refused}");
}

/// Resetting the head leaves alone what is right.
pub(crate) fn a_right_head_stays(tool: &Tool) {
    apply(tool);
    tool.ok_with("kept\n", "journals append -l name=app/access");
    tool.ok("journals reset-head -l prefix=app/");
    tool.ok_with("more\n", "journals append -l name=app/access");
    assert_eq!(read(tool, "app/access"), "kept\nmore\n");
}

/// As many lines, each made from its number.
pub(crate) fn lines(count: u32, line: impl Fn(u32) -> String) -> String {
    let mut text = String::new();
    for number in 0..count {
        text.push_str(&line(number));
        text.push('\n');
    }
    text
}

/// All that is in a journal.
pub(crate) fn read(tool: &Tool, journal: &str) -> String {
    tool.ok(&format!("journals read -l name={journal}"))
}

/// All that is in both journals of the tree.
pub(crate) fn both(tool: &Tool) -> BTreeMap<&'static str, String> {
    ["app/access", "app/errors"]
        .into_iter()
        .map(|journal| (journal, read(tool, journal)))
        .collect()
}

/// What came to both journals since.
pub(crate) fn new_since(
    tool: &Tool,
    before: &BTreeMap<&'static str, String>,
) -> BTreeMap<&'static str, String> {
    let mut now = both(tool);
    for (journal, text) in &mut now {
        let rest = text.strip_prefix(before[journal].as_str());
        *text = rest.expect("a journal only grows").to_owned();
    }
    now
}
