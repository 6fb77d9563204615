#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "anything else fails the test"
)]

mod scenarios;

use gazette_coordination::{CompareTarget, Op};
use proptest::prelude::*;

use crate::testing::Cluster;

/// A transaction as text: compared keys, then operations.
fn print(cluster: &mut Cluster) -> Vec<String> {
    let batches = cluster.plan();
    let name = |key: &[u8]| String::from_utf8_lossy(key).replace("/toy/", "");
    let mut lines = Vec::new();
    for batch in &batches {
        for compare in &batch.txn.compares {
            let what = match compare.target {
                CompareTarget::ModRevision(_) => "mod".to_owned(),
                CompareTarget::CreateRevision(revision) => format!("create={revision}"),
                ref other => panic!("{other:?}"),
            };
            lines.push(format!("if {} {}", what, name(&compare.key)));
        }
        for op in &batch.txn.success {
            lines.push(match op {
                Op::Put(put) => {
                    let lease = if put.lease.is_some() {
                        ""
                    } else {
                        " without lease"
                    };
                    format!("put {}={}{lease}", name(&put.key), name(&put.value))
                }
                Op::Delete(range) => format!("delete {}", name(range.start())),
                other @ Op::Range(_) => panic!("{other:?}"),
            });
        }
        cluster.txn(batch.txn.clone());
    }
    lines
}

#[test]
fn a_move_is_add_then_catch_up_then_remove_and_promote_then_pack() {
    let mut cluster = Cluster::new();
    cluster.member("zb#lead", 0, false);
    cluster.member("za#old", 5, false);
    cluster.member("za#two", 5, false);
    cluster.item("x", 2);
    cluster.assign("x", "za#old", 0, true);
    cluster.assign("x", "za#two", 1, true);
    cluster.converge();
    cluster.member("za#old", 0, false);
    cluster.member("zb#new", 5, false);
    assert_eq!(
        print(&mut cluster),
        [
            "if mod members/zb#lead",
            "if mod members/zb#new",
            "put assign/x#zb#new#2="
        ]
    );
    assert_eq!(
        print(&mut cluster),
        [""; 0],
        "nothing is removed before the new one caught up"
    );
    cluster.catch_up();
    assert_eq!(
        print(&mut cluster),
        [
            "if mod members/zb#lead",
            "if mod items/x",
            "if mod assign/x#za#old#0",
            "if mod assign/x#za#two#1",
            "delete assign/x#za#old#0",
            "delete assign/x#za#two#1",
            "put assign/x#za#two#0=consistent",
        ]
    );
    assert_eq!(
        print(&mut cluster),
        [
            "if mod members/zb#lead",
            "if mod assign/x#zb#new#2",
            "delete assign/x#zb#new#2",
            "put assign/x#zb#new#1=consistent",
        ]
    );
    assert_eq!(print(&mut cluster), [""; 0]);
    assert_eq!(cluster.assignments(), ["x#za#two#0", "x#zb#new#1"]);
}

#[test]
fn assignments_of_a_deleted_item_are_deleted_unless_it_is_there_again() {
    let mut cluster = Cluster::new();
    cluster.member("za#one", 500, false);
    cluster.item("x", 1);
    cluster.converge();
    cluster.remove_item("x");
    assert_eq!(
        print(&mut cluster),
        [
            "if mod members/za#one",
            "if create=0 items/x",
            "if mod assign/x#za#one#0",
            "delete assign/x#za#one#0",
        ]
    );
}

#[test]
fn a_transaction_never_has_more_than_the_limit() {
    let mut cluster = Cluster::new();
    cluster.member("za#one", 5000, false);
    cluster.member("zb#two", 5000, false);
    for n in 0..300 {
        cluster.item(&format!("{n:04}"), 2);
    }
    // Of one item that is gone, more assignments than one transaction can delete.
    for n in 0..200 {
        cluster.assign("gone", &format!("zc#{n:04}"), n, true);
    }
    let batches = cluster.plan();
    for batch in &batches {
        assert!(batch.txn.compares.len() <= 128 && batch.txn.success.len() <= 128);
        assert!(
            batch.txn.compares[0].key.ends_with(b"members/za#one"),
            "the leader is asserted"
        );
        for item in &batch.items {
            let name = format!("/assign/{item}#");
            let here = batch.txn.success.iter().filter(|op| match op {
                Op::Put(put) => String::from_utf8_lossy(&put.key).contains(&name),
                Op::Delete(_) | Op::Range(_) => false,
            });
            assert!(
                item == "gone" || here.count() == 2,
                "changes of an item stay together"
            );
        }
    }
    let ops: usize = batches.iter().map(|batch| batch.txn.success.len()).sum();
    assert_eq!(ops, 800);
    assert!(batches.len() <= 8, "{}", batches.len());
    cluster.converge();
}

#[test]
fn a_full_member_gets_no_more_until_it_has_room() {
    let mut cluster = Cluster::new();
    cluster.member("za#one", 2, false);
    cluster.item("a", 1);
    cluster.item("b", 1);
    cluster.converge();
    cluster.member("zb#two", 1, false);
    cluster.item("c", 1);
    cluster.converge();
    assert_eq!(
        cluster.assignments(),
        ["a#za#one#0", "b#za#one#0", "c#zb#two#0"]
    );
    // The new item is first in order, but has to wait.
    cluster.item("0", 1);
    cluster.converge();
    assert_eq!(cluster.assignments().len(), 3);
    cluster.remove_item("b");
    cluster.converge();
    assert_eq!(
        cluster.assignments(),
        ["0#za#one#0", "a#za#one#0", "c#zb#two#0"]
    );
}

#[test]
fn a_lost_member_is_replaced_and_its_primary_is_taken_over() {
    let mut cluster = Cluster::new();
    for member in ["za#one", "zb#two", "zc#three"] {
        cluster.member(member, 10, false);
    }
    for n in 0..5 {
        cluster.item(&format!("{n}"), 2);
    }
    cluster.converge();
    cluster.kill("za#one");
    cluster.converge();
    let expected: Vec<_> = (0..5).map(|n| format!("{n}#")).collect();
    for prefix in expected {
        let of: Vec<_> = cluster
            .assignments()
            .into_iter()
            .filter(|key| key.starts_with(&prefix))
            .collect();
        assert_eq!(of.len(), 2, "{of:?}");
        assert!(
            of.iter().any(|key| key.ends_with("#0")) && of.iter().any(|key| key.ends_with("#1"))
        );
    }
}

#[derive(Clone, Debug)]
enum Event {
    Item {
        name: u8,
        replication: usize,
    },
    RemoveItem {
        name: u8,
    },
    Member {
        zone: u8,
        name: u8,
        limit: usize,
        exiting: bool,
    },
    Kill {
        zone: u8,
        name: u8,
    },
    Rounds {
        count: u8,
    },
    CatchUp,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..6u8, 0..4usize).prop_map(|(name, replication)| Event::Item { name, replication }),
        1 => (0..6u8).prop_map(|name| Event::RemoveItem { name }),
        4 => (0..3u8, 0..3u8, 0..6usize, prop::bool::weighted(0.2))
            .prop_map(|(zone, name, limit, exiting)| Event::Member { zone, name, limit, exiting }),
        1 => (0..3u8, 0..3u8).prop_map(|(zone, name)| Event::Kill { zone, name }),
        3 => (1..3u8).prop_map(|count| Event::Rounds { count }),
        2 => Just(Event::CatchUp),
    ]
}

proptest! {
    /// [`Cluster::round`] checks, after each transaction, what must always hold.
    #[test]
    fn whatever_happens_assignments_come_to_rest(events in prop::collection::vec(event(), 1..40)) {
        let mut cluster = Cluster::new();
        cluster.member("z0#lead", 6, false);
        for event in events {
            match event {
                Event::Item { name, replication } => cluster.item(&name.to_string(), replication),
                Event::RemoveItem { name } => cluster.remove_item(&name.to_string()),
                Event::Member { zone, name, limit, exiting } => {
                    cluster.member(&format!("z{zone}#{name}"), limit, exiting);
                }
                Event::Kill { zone, name } => cluster.kill(&format!("z{zone}#{name}")),
                Event::Rounds { count } => (0..count).for_each(|_| {
                    cluster.round();
                }),
                Event::CatchUp => cluster.catch_up(),
            }
        }
        cluster.converge();
        let state = cluster.state();
        let problem = crate::solve::Problem::of(state);
        let items: Vec<_> = state.items().map(|item| item.decoded.id.as_str()).collect();
        for entry in state.assignments() {
            prop_assert!(items.contains(&entry.decoded.item.as_str()), "dead: {entry:?}");
        }
        let room: usize = problem.members.iter().map(|member| member.limit).sum();
        for item in state.items() {
            let mut slots: Vec<_> =
                state.assignments_of(&item.decoded.id).map(|entry| entry.decoded.slot).collect();
            slots.sort_unstable();
            // Slots are packed when nothing is surplus; what is surplus may have to stay.
            prop_assert!(slots.is_empty() || slots[0] == 0, "{slots:?}");
            prop_assert!(item.decoded.spec > 0 || slots.is_empty(), "{slots:?}");
            if room > 0 && item.decoded.spec > 0 && slots.is_empty() {
                let used = state.assignments().count();
                prop_assert!(used >= room, "an item without members while there is room");
            }
        }
    }
}
