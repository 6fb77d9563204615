//! The reference's `gazctl` with our broker.

use std::{thread, time::Duration};

use crate::{
    brokers::Broker,
    programs,
    scenarios::{self, both, lines, new_since},
};

#[test]
fn their_gazctl_applies_lists_and_deletes_at_our_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::ours();
    scenarios::specs_go_there_and_back(&broker.their_gazctl(&reference));
}

#[test]
fn their_gazctl_appends_and_reads_at_our_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::ours();
    scenarios::records_are_appended_and_read(&broker.their_gazctl(&reference));
}

#[test]
fn their_gazctl_reads_on_from_its_offsets_at_our_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::ours();
    let tool = broker.their_gazctl(&reference);
    scenarios::a_reader_goes_on_where_it_was(&tool, &broker.file("offsets"));
}

#[test]
fn their_gazctl_suspends_and_wakes_a_journal_of_our_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::ours();
    scenarios::a_journal_is_suspended_and_wakes(&broker.their_gazctl(&reference));
}

#[test]
fn their_gazctl_checks_stores_and_heads_of_our_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::ours();
    let tool = broker.their_gazctl(&reference);
    scenarios::stores_tell_their_health(&tool);
    scenarios::a_right_head_stays(&tool);
}

#[test]
fn their_gazctl_edits_specs_of_our_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::ours();
    let tool = broker.their_gazctl(&reference);
    scenarios::apply(&tool);
    tool.ok_in(
        ("GAZ_EDITOR", "sed -i s/GZIP/SNAPPY/"),
        "journals edit -l name=app/errors",
    );
    let listed = tool.ok("journals list -l name=app/errors -o yaml");
    assert!(listed.contains("compression_codec: SNAPPY"), "{listed}");
    let listed = tool.ok("journals list -l name=app/access -o yaml");
    assert!(listed.contains("compression_codec: GZIP"), "{listed}");
}

#[test]
fn their_gazctl_finds_what_to_prune_at_our_broker() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::ours();
    let tool = broker.their_gazctl(&reference);
    scenarios::apply(&tool);
    tool.ok_with("old\n", "journals append -l name=app/access");
    tool.ok("journals suspend -l name=app/access --force");
    thread::sleep(Duration::from_millis(2100)); // the retention, in whole seconds
    // It removes fragments itself, and has no option for the folder of `file://` stores: only what
    // it would do can be seen here.
    let output = tool
        .command("journals prune -l prefix=app/ --dry-run --log.level info")
        .output()
        .expect("run gazctl");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    assert!(log.contains("fragmentsPruned=1"), "{log}");
    assert!(log.contains("bytesPruned=4"), "{log}");
}

#[test]
fn both_tools_show_the_same_of_our_broker_and_of_theirs() {
    let Some(reference) = programs::reference() else {
        return;
    };
    for broker in [Broker::ours(), Broker::theirs(&reference)] {
        let (ours, theirs) = (broker.our_gazctl(), broker.their_gazctl(&reference));
        scenarios::apply(&ours);
        ours.ok_with("some\n", "journals append -l name=app/access");
        for format in [
            "yaml",
            "json",
            "proto",
            "table",
            "table --primary --replicas --rf --stores",
        ] {
            let arguments = format!("journals list -o {format}");
            let (shown, expected) = (ours.ok(&arguments), theirs.ok(&arguments));
            assert_eq!(shown.trim_end(), expected.trim_end(), "{arguments}");
        }
        for format in ["json", "proto", "table"] {
            let arguments = format!("journals fragments -l prefix=app/ -o {format}");
            let (shown, expected) = (ours.ok(&arguments), theirs.ok(&arguments));
            assert_eq!(shown.trim_end(), expected.trim_end(), "{arguments}");
        }
        let arguments = "journals apply --dry-run";
        assert_eq!(
            ours.ok_with(scenarios::TREE, arguments),
            theirs.ok_with(scenarios::TREE, arguments)
        );
    }
}

#[test]
fn both_tools_map_a_key_to_the_same_journal() {
    let Some(reference) = programs::reference() else {
        return;
    };
    let broker = Broker::ours();
    let (ours, theirs) = (broker.our_gazctl(), broker.their_gazctl(&reference));
    scenarios::apply(&ours);
    let keyed = lines(50, |n| format!("key {n}\n{n}"));
    for mapping in ["modulo", "rendezvous"] {
        let arguments = format!("journals append -l prefix=app/ -f lines -m {mapping}");
        let before = both(&ours);
        ours.ok_with(&keyed, &arguments);
        let by_us = new_since(&ours, &before);
        let before = both(&ours);
        theirs.ok_with(&keyed, &arguments);
        assert_eq!(new_since(&ours, &before), by_us, "{mapping}");
    }
}
