use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    max_batch_bytes: 100,
    max_pending_bytes: 4000,
    max_journal_bytes: 2000,
};

fn drain(queue: &mut AppendQueue) -> Vec<QueueOutput> {
    std::iter::from_fn(|| queue.poll_output()).collect()
}

fn at(offset: i64) -> AppendParams {
    AppendParams {
        offset: Some(offset),
        ..AppendParams::default()
    }
}

fn journal(name: &str) -> Arc<str> {
    name.into()
}

/// The entries of the RPCs in `outputs`.
fn sent(outputs: &[QueueOutput]) -> Vec<Vec<u64>> {
    outputs
        .iter()
        .filter_map(|output| match output {
            QueueOutput::Send { entries, .. } => Some(entries.iter().map(|id| id.0).collect()),
            QueueOutput::Admitted(_) | QueueOutput::Landed { .. } | QueueOutput::Failed(_) => None,
        })
        .collect()
}

/// Queues `appends` behind one that is under way, and returns the batch that they make.
fn batch_of(appends: impl IntoIterator<Item = (usize, AppendParams)>) -> Vec<u64> {
    let mut queue = AppendQueue::new(LIMITS);
    let name = journal("a/b");
    queue.handle_append(&name, 1, AppendParams::default());
    for (length, params) in appends {
        queue.handle_append(&name, length, params);
    }
    drain(&mut queue);
    queue.handle_landed(&name, 0);
    sent(&drain(&mut queue)).remove(0)
}

#[test]
fn appends_gather_while_one_is_under_way_and_learn_their_own_offsets() {
    let mut queue = AppendQueue::new(LIMITS);
    let name = journal("a/b");
    queue.handle_append(&name, 5, AppendParams::default());
    queue.handle_append(&name, 6, AppendParams::default());
    queue.handle_append(&name, 7, AppendParams::default());
    assert_eq!(sent(&drain(&mut queue)), [[0]]);

    queue.handle_landed(&name, 100);
    assert_eq!(
        drain(&mut queue),
        [
            QueueOutput::Landed {
                entry: EntryId(0),
                begin: 100,
                end: 105
            },
            QueueOutput::Send {
                journal: Arc::clone(&name),
                params: AppendParams::default(),
                entries: vec![EntryId(1), EntryId(2)],
            },
        ]
    );
    queue.handle_landed(&name, 200);
    assert_eq!(
        drain(&mut queue),
        [
            QueueOutput::Landed {
                entry: EntryId(1),
                begin: 200,
                end: 206
            },
            QueueOutput::Landed {
                entry: EntryId(2),
                begin: 206,
                end: 213
            },
        ]
    );
    assert!(queue.is_empty());
    assert_eq!(queue.pending_bytes(), 0);
}

#[test]
fn a_failed_rpc_fails_its_appends_and_no_others() {
    let mut queue = AppendQueue::new(LIMITS);
    let name = journal("a/b");
    for _ in 0..2 {
        queue.handle_append(&name, 5, AppendParams::default());
    }
    drain(&mut queue);
    queue.handle_failed(&name, false);
    let outputs = drain(&mut queue);
    assert_eq!(outputs[0], QueueOutput::Failed(EntryId(0)));
    assert_eq!(sent(&outputs), [[1]]);
}

#[test]
fn journals_do_not_wait_for_each_other() {
    let mut queue = AppendQueue::new(LIMITS);
    queue.handle_append(&journal("a/b"), 5, AppendParams::default());
    queue.handle_append(&journal("c/d"), 5, AppendParams::default());
    assert_eq!(sent(&drain(&mut queue)), [[0], [1]]);
}

#[test]
fn only_contiguous_expected_offsets_share_an_rpc() {
    assert_eq!(
        batch_of([(10, at(1)), (10, at(11)), (10, at(21))]),
        [1, 2, 3]
    );
    assert_eq!(batch_of([(10, at(1)), (10, at(12))]), [1]);
    assert_eq!(batch_of([(10, at(1)), (10, AppendParams::default())]), [1]);
    assert_eq!(batch_of([(10, AppendParams::default()), (10, at(11))]), [1]);
    // Zero is no expectation.
    assert_eq!(
        batch_of([(10, at(0)), (10, AppendParams::default())]),
        [1, 2]
    );
}

#[test]
fn what_only_the_first_fails_for_is_tried_again_by_the_others() {
    let mut queue = AppendQueue::new(LIMITS);
    let name = journal("a/b");
    queue.handle_append(&name, 1, AppendParams::default());
    for offset in [10, 20, 30] {
        queue.handle_append(&name, 10, at(offset));
    }
    drain(&mut queue);
    queue.handle_landed(&name, 0);
    assert_eq!(sent(&drain(&mut queue)), [[1, 2, 3]]);
    queue.handle_failed(&name, true);
    let outputs = drain(&mut queue);
    assert_eq!(outputs[0], QueueOutput::Failed(EntryId(1)));
    assert_eq!(sent(&outputs), [[2, 3]]);
}

#[test]
fn an_append_that_may_change_what_the_next_one_checks_stands_alone() {
    let check = LabelSelector::equal("owner", "me");
    let union = LabelSet::from_pairs([("owner", "me")]);
    let checked = AppendParams {
        check_registers: Some(check),
        ..AppendParams::default()
    };
    let both = AppendParams {
        union_registers: Some(union.clone()),
        ..checked.clone()
    };
    let union = AppendParams {
        union_registers: Some(union),
        ..AppendParams::default()
    };

    assert_eq!(
        batch_of([(10, checked.clone()), (10, checked.clone())]),
        [1, 2]
    );
    assert_eq!(batch_of([(10, union.clone()), (10, union.clone())]), [1, 2]);
    assert_eq!(batch_of([(10, both.clone()), (10, both)]), [1]);
    assert_eq!(
        batch_of([(10, checked), (10, AppendParams::default())]),
        [1]
    );
    // Empty with registers is an error, which content of others must not hide.
    assert_eq!(batch_of([(0, union.clone()), (10, union.clone())]), [1]);
    assert_eq!(batch_of([(10, union.clone()), (0, union)]), [1]);
    assert_eq!(
        batch_of([(0, AppendParams::default()), (10, AppendParams::default())]),
        [1, 2]
    );
    let now = AppendParams {
        suspend: Suspend::Now,
        ..AppendParams::default()
    };
    assert_eq!(batch_of([(0, now.clone()), (0, now)]), [1]);
}

#[test]
fn a_batch_is_bounded_unless_one_append_is_larger() {
    let plain = AppendParams::default();
    assert_eq!(
        batch_of([(60, plain.clone()), (40, plain.clone()), (1, plain.clone())]),
        [1, 2]
    );
    assert_eq!(batch_of([(600, plain.clone()), (1, plain)]), [1]);
}

#[test]
fn a_journal_that_is_stuck_does_not_take_the_room_of_others() {
    let mut queue = AppendQueue::new(LIMITS);
    let (stuck, free) = (journal("stuck"), journal("free"));
    for _ in 0..20 {
        queue.handle_append(&stuck, 1000, AppendParams::default());
    }
    drain(&mut queue);
    assert!(queue.pending_bytes() <= LIMITS.max_journal_bytes);
    let id = queue.handle_append(&free, 1000, AppendParams::default());
    assert!(drain(&mut queue).contains(&QueueOutput::Admitted(id)));
}

#[test]
fn an_append_larger_than_all_bounds_is_admitted_when_it_is_alone() {
    let mut queue = AppendQueue::new(LIMITS);
    let name = journal("a/b");
    queue.handle_append(&name, 10, AppendParams::default());
    let large = queue.handle_append(&name, 1 << 20, AppendParams::default());
    queue.handle_append(&journal("c/d"), 10, AppendParams::default());
    drain(&mut queue);
    queue.handle_landed(&name, 0);
    // It waits for the others, and the ones behind it wait for it.
    let behind = queue.handle_append(&journal("e/f"), 10, AppendParams::default());
    assert!(!drain(&mut queue).contains(&QueueOutput::Admitted(behind)));
    queue.handle_landed("c/d", 0);
    let outputs = drain(&mut queue);
    assert!(outputs.contains(&QueueOutput::Admitted(large)));
    assert!(!outputs.contains(&QueueOutput::Admitted(behind)));
    queue.handle_landed(&name, 0);
    assert!(drain(&mut queue).contains(&QueueOutput::Admitted(behind)));
    queue.handle_landed("e/f", 0);
    drain(&mut queue);
    assert!(queue.is_empty());
}

#[test]
fn an_append_that_is_taken_back_leaves_no_trace() {
    let mut queue = AppendQueue::new(LIMITS);
    let name = journal("a/b");
    let first = queue.handle_append(&name, 1400, AppendParams::default());
    let second = queue.handle_append(&name, 1400, AppendParams::default());
    let third = queue.handle_append(&name, 10, AppendParams::default());
    let outputs = drain(&mut queue);
    assert!(
        !outputs.contains(&QueueOutput::Admitted(third)),
        "it would overtake the second"
    );
    assert_eq!(queue.newest(&name, None), Some(third));
    assert!(queue.handle_withdraw(second));
    assert!(drain(&mut queue).contains(&QueueOutput::Admitted(third)));
    assert!(!queue.handle_withdraw(first), "it is under way");
    assert_eq!(queue.newest(&name, Some(second)), Some(first));
}

#[derive(Debug, Clone)]
enum Step {
    Append {
        journal: usize,
        length: usize,
        offset: Option<i64>,
    },
    Withdraw {
        nth: usize,
    },
    Finish {
        nth: usize,
        landed: bool,
        only_first: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3usize, prop_oneof![0..50usize, 400..3000usize], proptest::option::weighted(0.2, 0..5i64))
            .prop_map(|(journal, length, offset)| Step::Append { journal, length, offset }),
        1 => (0..10usize).prop_map(|nth| Step::Withdraw { nth }),
        3 => (0..3usize, any::<bool>(), any::<bool>())
            .prop_map(|(nth, landed, only_first)| Step::Finish { nth, landed, only_first }),
    ]
}

/// Follows the queue from outside, and asserts what must hold.
#[derive(Default)]
struct Observer {
    /// Length of each append that is not settled.
    open: BTreeMap<EntryId, (String, usize)>,
    waiting: BTreeSet<EntryId>,
    in_flight: BTreeMap<String, Vec<EntryId>>,
    last_settled: BTreeMap<String, EntryId>,
    heads: BTreeMap<String, i64>,
}

impl Observer {
    fn see(&mut self, queue: &mut AppendQueue) {
        while let Some(output) = queue.poll_output() {
            match output {
                QueueOutput::Admitted(id) => assert!(self.waiting.remove(&id)),
                QueueOutput::Send {
                    journal, entries, ..
                } => {
                    assert!(!entries.is_empty());
                    assert!(entries.is_sorted());
                    for id in &entries {
                        assert_eq!(&*journal, self.open[id].0);
                        assert!(!self.waiting.contains(id));
                    }
                    let length: usize = entries.iter().map(|id| self.open[id].1).sum();
                    assert!(entries.len() == 1 || length <= LIMITS.max_batch_bytes);
                    let previous = self.in_flight.insert(journal.to_string(), entries);
                    assert!(previous.is_none(), "two RPCs of one journal");
                }
                QueueOutput::Landed { entry, begin, end } => {
                    let (name, length) = self.settle(entry);
                    let head = self.heads.entry(name).or_default();
                    assert_eq!(begin, *head);
                    *head += i64::try_from(length).unwrap();
                    assert_eq!(end, *head);
                }
                QueueOutput::Failed(entry) => drop(self.settle(entry)),
            }
        }
        let held: usize = self
            .open
            .iter()
            .filter(|(id, _)| !self.waiting.contains(id))
            .map(|(_, (_, length))| length + ENTRY_OVERHEAD_BYTES)
            .sum();
        assert_eq!(held, queue.pending_bytes());
        let alone = self.open.len() - self.waiting.len() <= 1;
        assert!(
            alone || held <= LIMITS.max_pending_bytes,
            "{held} bytes are held"
        );
        // Somebody is always being served.
        assert!(self.open.is_empty() || !self.in_flight.is_empty());
    }

    fn settle(&mut self, id: EntryId) -> (String, usize) {
        let (name, length) = self.open.remove(&id).expect("it is settled once");
        let last = self.last_settled.insert(name.clone(), id);
        assert!(last < Some(id), "{id:?} of {name} after {last:?}");
        (name, length)
    }
}

proptest! {
    #[test]
    fn order_bounds_and_progress_hold_whatever_happens(
        steps in proptest::collection::vec(step(), 1..200)
    ) {
        let mut queue = AppendQueue::new(LIMITS);
        let mut observer = Observer::default();
        for step in steps {
            match step {
                Step::Append { journal: n, length, offset } => {
                    let name = format!("journal/{n}");
                    let params = AppendParams { offset, ..AppendParams::default() };
                    let id = queue.handle_append(&journal(&name), length, params);
                    observer.open.insert(id, (name, length));
                    observer.waiting.insert(id);
                }
                Step::Withdraw { nth } => {
                    let Some(id) = observer.open.keys().nth(nth).copied() else { continue };
                    let withdrawn = queue.handle_withdraw(id);
                    prop_assert_eq!(withdrawn, observer.waiting.remove(&id));
                    if withdrawn {
                        observer.open.remove(&id);
                    }
                }
                Step::Finish { nth, landed, only_first } => {
                    let Some(name) = observer.in_flight.keys().nth(nth).cloned() else { continue };
                    observer.in_flight.remove(&name);
                    if landed {
                        let head = observer.heads.get(&name).copied().unwrap_or(0);
                        queue.handle_landed(&name, head);
                    } else {
                        queue.handle_failed(&name, only_first);
                    }
                }
            }
            observer.see(&mut queue);
        }
        while let Some((name, _)) = observer.in_flight.pop_first() {
            let head = observer.heads.get(&name).copied().unwrap_or(0);
            queue.handle_landed(&name, head);
            observer.see(&mut queue);
        }
        prop_assert!(observer.open.is_empty());
        prop_assert!(queue.is_empty());
        prop_assert_eq!(queue.pending_bytes(), 0);
    }
}
