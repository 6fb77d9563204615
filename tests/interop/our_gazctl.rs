//! Our `gazctl` with the reference's broker.

use crate::{
    brokers::Broker,
    programs,
    scenarios::{self, read},
};

#[test]
fn our_gazctl_applies_lists_and_deletes_at_their_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    let tool = broker.our_gazctl();
    scenarios::specs_go_there_and_back(&tool);

    let planned = tool.ok("journals delete -l prefix=app/ --dry-run");
    assert!(planned.contains("would delete app/access"), "{planned}");
    let deleted = tool.ok("journals delete -l prefix=app/");
    assert!(deleted.contains("deleted app/access"), "{deleted}");
    assert!(!tool.ok("journals list").contains("app/"));
}

#[test]
fn our_gazctl_changes_a_part_of_a_spec_at_their_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    let tool = broker.our_gazctl();
    scenarios::apply(&tool);
    tool.ok_with(
        "name: app/errors\nflags: O_RDONLY\n",
        "journals apply --patch",
    );
    let listed = tool.ok("journals list -l name=app/errors -o yaml");
    assert!(listed.contains("flags: O_RDONLY"), "{listed}");
    assert!(listed.contains("compression_codec: GZIP"), "{listed}");
    let refused = tool.fails_with("no\n", "journals append -l name=app/errors");
    assert!(refused.contains("NOT_ALLOWED"), "{refused}");
}

#[test]
fn our_gazctl_applies_more_than_a_transaction_holds_at_either_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let (head, _) = scenarios::TREE.split_once("- name").expect("a child");
    let tree = head.to_owned() + &scenarios::lines(300, |n| format!("- name: app/{n:03}"));
    for broker in [Broker::theirs(&reference), Broker::ours()] {
        let tool = broker.our_gazctl();
        let said = tool.ok_with(&tree, "journals apply");
        assert!(said.contains("300 journals in 3 transactions"), "{said}");
        let listed = tool.ok("journals list -l prefix=app/");
        assert_eq!(listed.matches("app/").count(), 300);
        let said = tool.ok("journals delete -l prefix=app/");
        assert!(said.contains("300 journals in 3 transactions"), "{said}");
    }
}

#[test]
fn our_gazctl_appends_and_reads_at_their_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    let tool = broker.our_gazctl();
    scenarios::records_are_appended_and_read(&tool);

    // The reference's tool cannot do this with any broker.
    let before = read(&tool, "app/errors");
    tool.ok_with(
        "app/errors\nto you\n",
        "journals append -l prefix=app/ -f lines -m direct",
    );
    assert_eq!(read(&tool, "app/errors"), format!("{before}to you\n"));
}

#[test]
fn our_gazctl_reads_on_from_its_offsets_at_their_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    scenarios::a_reader_goes_on_where_it_was(&broker.our_gazctl(), &broker.file("offsets"));
}

#[test]
fn our_gazctl_suspends_and_wakes_a_journal_of_their_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    scenarios::a_journal_is_suspended_and_wakes(&broker.our_gazctl());
}

#[test]
fn our_gazctl_checks_stores_and_heads_of_their_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    let tool = broker.our_gazctl();
    scenarios::stores_tell_their_health(&tool);
    scenarios::a_right_head_stays(&tool);
}

#[test]
fn our_gazctl_flushes_what_is_due_at_their_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    let tool = broker.our_gazctl();
    let tree = scenarios::TREE.replace("length: 1048576", "length: 1024");
    tool.ok_with(&tree, "journals apply");
    tool.until("journals list -o json", |json| {
        json.matches("\"endpoints\":[\"http").count() == 2
    });
    // It is due when it is longer than a fragment; such a broker does not flush when it is told.
    tool.ok_with(&"due".repeat(1024), "journals append -l name=app/access");
    let said = tool.ok("journals flush -l name=app/access --timeout 30s");
    assert!(said.contains("is stored"), "{said}");
}

#[test]
fn our_bench_measures_their_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::theirs(&reference);
    let tool = broker.our_gazctl();
    for what in ["append --size 1KiB", "read --size 64KiB --fill 1MiB"] {
        let arguments =
            format!("bench {what} --clients 4 --journals 2 --duration 1s --warmup 0s -o json");
        let printed = tool.ok(&arguments);
        let last = printed.lines().last().expect("it prints a result");
        let result: serde_json::Value = serde_json::from_str(last).expect("the result is JSON");
        assert_eq!(result["errors"], 0, "{what}: {result}");
        assert!(result["p99_us"].as_f64() > Some(0.0), "{what}: {result}");
    }
    // Its journals are gone.
    assert!(!tool.ok("journals list").contains("bench"));
}
