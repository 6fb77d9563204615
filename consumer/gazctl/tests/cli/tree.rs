//! Journals and their tree.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader},
};

use gazette_client::fake::{Call, Fault};
use gazette_protocol::Status;
use serde_json::Value;

use crate::House;

const TREE: &str = "\
name: app/
replication: 1
fragment: {length: 65536, compression_codec: NONE, stores: [\"file:///\"], refresh_interval: 1m}
children:
- name: app/access
- name: app/errors
";

#[test]
fn a_tree_is_applied_listed_edited_and_deleted() {
    let house = House::new(&[]);
    house.write("app.yaml", TREE);
    let dry = house
        .run("journals apply --specs app.yaml --dry-run")
        .done();
    assert!(dry.contains("name: \"app/errors\""), "{dry}");
    assert_eq!(house.run("journals list -o yaml").done(), "{}\n");

    let applied = house
        .run_with("journals apply -o json", TREE.as_bytes())
        .done();
    let applied: Value = serde_json::from_str(&applied).unwrap();
    assert_eq!(applied["applied"], 2);
    house.run("journals apply --specs app.yaml").failed(
        1,
        &["apply 2 changes: ", "ETCD_TRANSACTION_FAILED", "; next: "],
    );

    let yaml = house.run("journals list -o yaml").done();
    let edited = yaml.replace("replication: 1", "replication: 2");
    house
        .run_with("journals apply --max-txn-size 1", edited.as_bytes())
        .done();
    let listed = house.run("journals list -o json").done();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["journals"][1]["spec"]["name"], "app/errors");
    assert_eq!(listed["journals"][1]["spec"]["replication"], 2);

    let patch = b"name: app/errors\nflags: O_RDONLY\n";
    house.run_with("journals apply --patch", patch).done();
    let yaml = house.run("journals list -o yaml -l name=app/errors").done();
    assert!(
        yaml.contains("flags: O_RDONLY") && yaml.contains("replication: 2"),
        "{yaml}"
    );

    let dry = house.run("journals delete -l prefix=app/ --dry-run").done();
    assert!(
        dry.starts_with("would delete app/access\nwould delete app/errors\n"),
        "{dry}"
    );
    let deleted = house.run("journals delete -l name=app/errors").done();
    assert!(
        deleted.starts_with("deleted app/errors\n1 journal at revision "),
        "{deleted}"
    );
    let table = house.run("journals list --rf -p --stores").done();
    assert!(
        table.contains("│ app/access │ 2  │ fake    │ file:/// │"),
        "{table}"
    );
    assert!(!table.contains("app/errors"), "{table}");
}

#[test]
fn a_typing_error_in_a_tree_is_one_line_with_its_place() {
    let house = House::new(&[]);
    house.write("bad.yaml", "name: app/log\nreplicas: 2\n");
    house
        .run("journals apply --specs bad.yaml")
        .failed(2, &["apply bad.yaml:2:1: ", "replicas", "; next: "]);
    house
        .run_with("journals apply", b"name: app/log\nreplication: 1\n")
        .failed(
            2,
            &[
                "apply standard input: journal \"app/log\": ",
                "Fragment",
                "; next: ",
            ],
        );
    house
        .run("journals apply")
        .failed(2, &["it has no journals", "; next: "]);
    house
        .run("journals apply --specs none.yaml")
        .failed(1, &["none.yaml"]);
}

#[test]
fn more_journals_than_a_transaction_holds_are_several() {
    let house = House::new(&[]);
    let mut tree = TREE[..TREE.find("- ").unwrap()].to_owned();
    for n in 100..400 {
        writeln!(tree, "- name: app/{n}").unwrap();
    }
    let said = house.run_with("journals apply", tree.as_bytes()).done();
    assert!(
        said.starts_with("applied 300 journals in 3 transactions at revision "),
        "{said}"
    );
    let said = house.run("journals delete -l prefix=app/ -o json").done();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["transactions"], 3);
    assert_eq!(house.run("journals list -o yaml").done(), "{}\n");
}

#[test]
fn a_failure_after_the_first_transaction_says_how_far_it_got() {
    let house = House::new(&[]);
    house.broker.inject(
        Call::Apply,
        [Fault::None, Fault::Status(Status::EtcdTransactionFailed)],
    );
    house
        .run_with("journals apply --max-txn-size 1", TREE.as_bytes())
        .failed(1, &["1 of 2 changes were applied: apply app/errors: "]);
}

#[test]
fn a_watch_lists_again_whenever_something_changes() {
    let house = House::new(&["app/access"]);
    let mut child = house
        .command("journals list --watch -o json")
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let listing: Value = serde_json::from_str(&line).unwrap();
        let journals = listing["journals"].as_array().unwrap().iter();
        journals
            .map(|journal| journal["spec"]["name"].to_string())
            .collect::<Vec<_>>()
            .join(",")
    };
    assert_eq!(next(), "\"app/access\"");
    house.broker.create("app/errors");
    assert_eq!(next(), "\"app/access\",\"app/errors\"");
    house.server.cut();
    house.broker.delete("app/access");
    assert_eq!(next(), "\"app/errors\"");
    // Nobody reads the next one, which ends it well.
    drop(out);
    house.broker.create("app/last");
    assert!(child.wait().unwrap().success());
}
