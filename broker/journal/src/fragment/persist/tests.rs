use gazette_protocol::{Fragment, LabelSet};

use super::*;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "results are relative to it")]
    Instant::now()
}

fn completed(journal: &str, end: i64) -> Completed {
    let fragment = Fragment {
        journal: journal.into(),
        begin: end - 1,
        end,
        ..Fragment::default()
    };
    Completed {
        fragment,
        registers: LabelSet::default(),
        first_append_time: None,
    }
}

/// What the schedule wants to try now: which fragments, at which store.
fn tries(schedule: &mut PersistSchedule, now: Instant) -> Vec<(PersistId, usize)> {
    let mut tries = Vec::new();
    while let Some(output) = schedule.poll_output(now) {
        match output {
            Output::Try { id, store, .. } => tries.push((id, store)),
            Output::Settled { .. } => panic!("nothing is settled"),
        }
    }
    tries
}

fn settled(schedule: &mut PersistSchedule, now: Instant) -> Vec<(PersistId, Settled)> {
    let mut all = Vec::new();
    while let Some(output) = schedule.poll_output(now) {
        match output {
            Output::Settled { id, settled, .. } => all.push((id, settled)),
            Output::Try { .. } => panic!("nothing is due"),
        }
    }
    all
}

#[test]
fn a_primary_stores_at_once_and_a_replica_later() {
    let (mut schedule, now) = (PersistSchedule::new(), start());
    let replica = schedule.handle_completed(now, completed("a/one", 1), Role::Replica, 1);
    let primary = schedule.handle_completed(now, completed("a/one", 2), Role::Primary, 2);
    assert_eq!(tries(&mut schedule, now), [(primary, 0)]);
    assert_eq!(schedule.next_timeout(), Some(now + REPLICA_DELAY));
    assert_eq!(tries(&mut schedule, now + REPLICA_DELAY), [(replica, 0)]);

    schedule.handle_tried(now, primary, Tried::Stored);
    schedule.handle_tried(now, replica, Tried::NoJournal);
    let expected = [(primary, Settled::Stored), (replica, Settled::Dropped)];
    assert_eq!(settled(&mut schedule, now), expected);
    assert!(schedule.is_empty());
    assert_eq!(schedule.next_timeout(), None);
}

#[test]
fn a_fragment_is_tried_only_once_it_is_acknowledged() {
    let (mut schedule, now) = (PersistSchedule::new(), start());
    let id = schedule.handle_completed(now, completed("a/one", 10), Role::Primary, 9);
    schedule.handle_acknowledged(now, "a/one", 9);
    schedule.handle_acknowledged(now, "a/other", 10);
    assert_eq!(tries(&mut schedule, now), []);
    assert_eq!(schedule.next_timeout(), None);
    schedule.handle_acknowledged(now, "a/one", 10);
    assert_eq!(tries(&mut schedule, now), [(id, 0)]);
}

#[test]
fn a_fragment_whose_tail_was_cut_is_forgotten() {
    let (mut schedule, now) = (PersistSchedule::new(), start());
    schedule.handle_completed(now, completed("a/one", 10), Role::Primary, 8);
    let other = schedule.handle_completed(now, completed("a/other", 10), Role::Primary, 8);
    schedule.handle_cut("a/one", 8);
    schedule.handle_acknowledged(now, "a/one", 99);
    schedule.handle_acknowledged(now, "a/other", 99);
    assert_eq!(tries(&mut schedule, now), [(other, 0)]);
    assert_eq!(schedule.len(), 1);
}

#[test]
fn so_many_are_stored_at_a_time_and_primaries_go_first() {
    let (mut schedule, now) = (PersistSchedule::new(), start());
    for at in 0..=i64::try_from(CONCURRENT_MAX).unwrap() {
        schedule.handle_completed(now, completed("a/one", at), Role::Replica, at);
    }
    let later = now + REPLICA_DELAY;
    let primary = schedule.handle_completed(later, completed("a/two", 1), Role::Primary, 1);
    let first = tries(&mut schedule, later);
    assert_eq!(first.len(), CONCURRENT_MAX);
    assert_eq!(first[0].0, primary);
    assert_eq!(
        schedule.next_timeout(),
        None,
        "nothing more can be done by time alone"
    );
    schedule.handle_tried(later, primary, Tried::Failed);
    assert_eq!(tries(&mut schedule, later).len(), 1);
}

#[test]
fn failures_are_tried_again_later_and_later() {
    let (mut schedule, mut now) = (PersistSchedule::new(), start());
    let id = schedule.handle_completed(now, completed("a/one", 1), Role::Primary, 1);
    let mut waits = Vec::new();
    for _ in 0..10 {
        assert_eq!(tries(&mut schedule, now), [(id, 0)]);
        schedule.handle_tried(now, id, Tried::Denied);
        let next = schedule.next_timeout().unwrap();
        waits.push((next - now).as_secs());
        now = next;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 150, 150]);
}

#[test]
fn a_journal_without_stores_is_looked_at_again() {
    let (mut schedule, now) = (PersistSchedule::new(), start());
    let id = schedule.handle_completed(now, completed("a/one", 1), Role::Primary, 1);
    tries(&mut schedule, now);
    schedule.handle_tried(now, id, Tried::NoStore);
    assert_eq!(schedule.next_timeout(), Some(now + NO_STORES_RETRY));
    schedule.handle_exit(now, now + secs(60));
    assert_eq!(tries(&mut schedule, now), [(id, 0)]);
    schedule.handle_tried(now, id, Tried::NoStore);
    assert_eq!(settled(&mut schedule, now), [(id, Settled::Kept)]);
}

#[test]
fn a_wake_hastens_what_failed_but_no_replica() {
    let (mut schedule, now) = (PersistSchedule::new(), start());
    let replica = schedule.handle_completed(now, completed("a/one", 1), Role::Replica, 1);
    let failed = schedule.handle_completed(now, completed("a/one", 2), Role::Primary, 2);
    assert_eq!(tries(&mut schedule, now), [(failed, 0)]);
    schedule.handle_tried(now, failed, Tried::Failed);
    schedule.handle_wake(now);
    assert_eq!(tries(&mut schedule, now), [(failed, 0)]);
    schedule.handle_wake(now);
    assert_eq!(schedule.next_timeout(), Some(now + REPLICA_DELAY));
    assert_eq!(tries(&mut schedule, now + REPLICA_DELAY), [(replica, 0)]);
}

#[test]
fn an_exit_tries_the_next_store_where_one_denies_it() {
    let (mut schedule, now) = (PersistSchedule::new(), start());
    let id = schedule.handle_completed(now, completed("a/one", 1), Role::Replica, 1);
    schedule.handle_exit(now, now + secs(60));
    assert_eq!(tries(&mut schedule, now), [(id, 0)]);
    schedule.handle_tried(now, id, Tried::Denied);
    assert_eq!(tries(&mut schedule, now), [(id, 1)]);
    schedule.handle_tried(now, id, Tried::NoStore);
    assert_eq!(tries(&mut schedule, now), [], "it does not spin");
    let next = schedule.next_timeout().unwrap();
    assert_eq!(tries(&mut schedule, next), [(id, 0)]);
    schedule.handle_tried(next, id, Tried::Stored);
    assert_eq!(settled(&mut schedule, next), [(id, Settled::Stored)]);
}

#[test]
fn an_exit_ends_and_keeps_what_could_not_be_stored() {
    let (mut schedule, now) = (PersistSchedule::new(), start());
    let failing = schedule.handle_completed(now, completed("a/one", 1), Role::Primary, 1);
    let unsure = schedule.handle_completed(now, completed("a/two", 9), Role::Primary, 1);
    let until = now + secs(30);
    schedule.handle_exit(now, until);

    let mut at = now;
    let mut count = 0;
    while at < until {
        for (id, _) in tries(&mut schedule, at) {
            assert_eq!(id, failing);
            schedule.handle_tried(at, id, Tried::Failed);
            count += 1;
        }
        at = schedule.next_timeout().unwrap();
    }
    assert_eq!(count, 5);
    assert_eq!(at, until);
    let expected = [(failing, Settled::Kept), (unsure, Settled::Kept)];
    assert_eq!(settled(&mut schedule, until), expected);
    assert!(schedule.is_empty());
    schedule.handle_tried(until, failing, Tried::Stored);
    assert!(schedule.is_empty(), "a late answer does no harm");
}
