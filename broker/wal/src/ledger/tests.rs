//! When a segment may go, and what must be done before.

use prost::Message;

use super::*;
use crate::format::payload::{JournalPart, StateMessage};

fn commit(ledger: &mut Ledger<()>, generation: u64, spool_id: u64, end: i64, placement: Placement) {
    let committed = Committed {
        journal: Arc::new(Identity::new(1, "some/journal".to_owned(), 1)),
        spool_id,
        fragment: Fragment {
            end,
            ..Fragment::default()
        },
        registers: Arc::default(),
        first_append: None,
        placement,
    };
    ledger.commit(generation, committed, || ());
}

/// The kinds and write heads of the copies.
fn copies(
    ledger: &mut Ledger<()>,
    through: u64,
    head: u64,
    room: usize,
) -> (Vec<(Kind, i64)>, bool) {
    let (frames, all) = ledger.copy_states(through, head, room, usize::MAX);
    let frames = frames.into_iter().map(|frame| {
        let kind = frame.kind;
        let (message, _) = frame.into_payload();
        let end = if kind == Kind::Journal {
            JournalPart::decode(&message[..]).unwrap().end
        } else {
            StateMessage::decode(&message[..]).unwrap().journal.end
        };
        (kind, end)
    });
    (frames.collect(), all)
}

#[test]
fn inline_bytes_pin_their_segment_until_the_spool_is_synced() {
    let mut ledger = Ledger::default();
    commit(&mut ledger, 1, 5, 10, Placement::Inline);
    assert!(ledger.is_pinned(1));
    let due = ledger.begin_sync(1);
    assert_eq!(due, [(1, 5)]);
    assert!(ledger.is_pinned(1), "the sync is not done");
    assert!(ledger.begin_sync(1).is_empty(), "it is not asked for twice");
    ledger.synced(&due);
    assert!(!ledger.is_pinned(1));
}

#[test]
fn bytes_that_come_during_a_sync_need_another_one() {
    let mut ledger = Ledger::default();
    commit(&mut ledger, 1, 5, 10, Placement::Inline);
    let due = ledger.begin_sync(1);
    commit(&mut ledger, 2, 5, 20, Placement::Inline);
    ledger.synced(&due);
    assert!(!ledger.is_pinned(1));
    assert!(ledger.is_pinned(2));
    assert_eq!(ledger.begin_sync(2), [(1, 5)]);
}

#[test]
fn a_synced_append_unpins_all_before_it() {
    let mut ledger = Ledger::default();
    commit(&mut ledger, 1, 5, 10, Placement::Inline);
    commit(&mut ledger, 1, 5, 20, Placement::InSpool);
    assert!(!ledger.is_pinned(1));
    commit(&mut ledger, 1, 5, 30, Placement::Inline);
    assert!(ledger.is_pinned(1));
}

#[test]
fn a_change_of_registers_unpins_nothing() {
    let mut ledger = Ledger::default();
    commit(&mut ledger, 1, 5, 10, Placement::Inline);
    commit(&mut ledger, 2, 5, 10, Placement::Nowhere);
    assert!(ledger.is_pinned(1));
}

#[test]
fn what_is_gone_pins_nothing() {
    let mut ledger = Ledger::default();
    commit(&mut ledger, 1, 5, 10, Placement::Inline);
    ledger.drop_spool(1, 5);
    commit(&mut ledger, 1, 6, 10, Placement::Inline);
    let due = ledger.begin_sync(1);
    assert_eq!(due, [(1, 6)]);
    assert_eq!(ledger.forget(1).len(), 1);
    assert!(!ledger.is_pinned(1));
    ledger.synced(&due);
    assert_eq!(ledger.live_bytes(), 0);
}

#[test]
fn only_states_without_a_newer_record_are_copied() {
    let mut ledger = Ledger::default();
    commit(&mut ledger, 1, 5, 10, Placement::InSpool);
    assert_eq!(copies(&mut ledger, 0, 2, 1000), (vec![], true));
    assert_eq!(
        copies(&mut ledger, 1, 2, 1000),
        (vec![(Kind::Spool, 10)], true)
    );
    assert_eq!(
        copies(&mut ledger, 1, 2, 1000),
        (vec![], true),
        "they are copied"
    );
    commit(&mut ledger, 3, 5, 20, Placement::InSpool);
    assert_eq!(
        copies(&mut ledger, 2, 4, 1000),
        (vec![], true),
        "the commit has all of it"
    );
}

#[test]
fn registers_of_a_journal_outlive_its_spools() {
    let mut ledger = Ledger::default();
    commit(&mut ledger, 1, 5, 10, Placement::InSpool);
    ledger.drop_spool(1, 5);
    assert_eq!(
        copies(&mut ledger, 1, 2, 1000),
        (vec![(Kind::Journal, 10)], true)
    );
}

#[test]
fn copies_stop_where_there_is_no_room() {
    let mut ledger = Ledger::default();
    for spool_id in 1..=5 {
        commit(&mut ledger, 1, spool_id, 10, Placement::InSpool);
    }
    let (first, all) = copies(&mut ledger, 1, 2, 250);
    assert!(!all && (1..5).contains(&first.len()), "{first:?}");
    let (second, all) = copies(&mut ledger, 1, 2, 1000);
    assert!(all && first.len() + second.len() == 5, "{second:?}");
}

#[test]
fn an_empty_spool_is_none() {
    let mut ledger = Ledger::default();
    commit(&mut ledger, 1, 5, 0, Placement::Nowhere);
    assert!(ledger.journal(1).unwrap().spools.is_empty());
    commit(&mut ledger, 1, 5, 10, Placement::Inline);
    // Taken back as a whole.
    commit(&mut ledger, 1, 5, 0, Placement::Nowhere);
    assert!(ledger.journal(1).unwrap().spools.is_empty());
    assert!(!ledger.is_pinned(1));
}
