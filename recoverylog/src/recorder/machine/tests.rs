use std::{collections::BTreeMap, time::Duration};

use gazette_recoverylog_fsm::Author;
use proptest::prelude::*;

use super::*;
use crate::recorder::Fence;

mod end;
mod hints;
mod hold;
mod simulation;

const ME: u32 = 1;
const OTHER: u32 = 2;

fn author(number: u32) -> Author {
    Author::new(number).unwrap()
}

fn limits() -> Limits {
    Limits {
        max_pending_bytes: 1000,
        shrink_reserve_bytes: 100,
        max_batch_bytes: 200,
        hold: Duration::ZERO,
        hold_bytes: 100,
        fail_after: None,
        idle: Some(Duration::from_secs(1)),
        hints_every_bytes: 500,
        hints_at_least_bytes: 100,
        hints_every: Duration::from_mins(5),
        stop_within: Duration::from_secs(10),
    }
}

fn ms(count: u64) -> Now {
    Duration::from_millis(count)
}

const NOTHING: Acked = Acked {
    offset: 0,
    seq_no: 0,
};

/// A machine whose claim, of ten bytes and the op 1, has landed, and whose first hints are out.
fn claimed_with(limits: Limits) -> Machine {
    let mut machine = Machine::new(author(ME), limits, NOTHING, ms(0));
    machine.handle_recorded(ms(0), 1, 10);
    assert_eq!(drain(&mut machine), [send(0, Check::Claim)]);
    machine.handle_outcome(ms(0), landed(0, 10));
    assert_eq!(drain(&mut machine), [released(0), Output::PublishHints]);
    machine.handle_hints_published(ms(0), true);
    assert_eq!(drain(&mut machine), []);
    machine
}

fn claimed() -> Machine {
    claimed_with(limits())
}

fn drain(machine: &mut Machine) -> Vec<Output> {
    std::iter::from_fn(|| machine.poll_output()).collect()
}

fn send(offset: i64, check: Check) -> Output {
    send_after(offset, check, 0)
}

fn send_after(offset: i64, check: Check, lost: u32) -> Output {
    Output::Send {
        offset,
        check,
        lost,
    }
}

fn landed(begin: i64, end: i64) -> Outcome {
    Outcome::Landed {
        begin,
        end,
        register: Register::Author(author(ME)),
    }
}

fn released(begin: i64) -> Output {
    Output::Release { begin }
}

/// Looks at the log, which ends at an offset as far as the only replica knows.
fn look(machine: &mut Machine, now: Now, head: i64) {
    let outputs = drain(machine);
    let Some(Output::Look { number }) = outputs.last() else {
        panic!("no look: {outputs:?}")
    };
    let is_exact = true;
    machine.handle_looked(now, *number, Ok(Seen { head, is_exact }));
}

fn answer(barrier: BarrierId, result: Result<(), Fault>) -> Output {
    Output::Answer { barrier, result }
}

fn away() -> Outcome {
    Outcome::NotDone {
        no_space: false,
        error: "away".into(),
    }
}

#[test]
fn an_op_leaves_at_once_and_later_ones_gather_behind_it() {
    let mut machine = claimed();
    machine.handle_recorded(ms(1), 2, 20);
    assert_eq!(drain(&mut machine), [send(10, Check::Own)]);
    assert!(machine.begins_batch());
    machine.handle_recorded(ms(2), 3, 20);
    assert!(!machine.begins_batch());
    machine.handle_recorded(ms(3), 4, 20);
    let barrier = machine.handle_barrier(ms(3));
    assert_eq!(drain(&mut machine), []);
    machine.handle_outcome(ms(4), landed(10, 30));
    assert_eq!(drain(&mut machine), [released(10), send(30, Check::Own)]);
    machine.handle_outcome(ms(5), landed(30, 70));
    assert_eq!(drain(&mut machine), [released(30), answer(barrier, Ok(()))]);
    assert_eq!(machine.pending_bytes(), 0);
}

#[test]
fn a_group_is_sent_in_one_append() {
    let mut machine = claimed();
    machine.handle_group_begun();
    machine.handle_recorded(ms(1), 2, 150);
    machine.handle_group_begun();
    // Full, but not whole.
    machine.handle_recorded(ms(1), 3, 150);
    machine.handle_group_ended(ms(1));
    let barrier = machine.handle_barrier(ms(1));
    machine.handle_timeout(ms(5000));
    assert_eq!(drain(&mut machine), []);
    assert!(!machine.begins_batch());
    machine.handle_group_ended(ms(5001));
    assert_eq!(drain(&mut machine), [send(10, Check::Own)]);
    // One behind it does not keep it from being sent again.
    machine.handle_group_begun();
    machine.handle_recorded(ms(5002), 4, 10);
    let error: Arc<str> = "away".into();
    let no_space = false;
    machine.handle_outcome(ms(5003), Outcome::NotDone { no_space, error });
    drain(&mut machine);
    let at = machine.next_timeout().expect("it is tried again");
    machine.handle_timeout(at);
    assert_eq!(drain(&mut machine), [send(10, Check::Own)]);
    machine.handle_outcome(at, landed(10, 310));
    let outputs = drain(&mut machine);
    assert_eq!(outputs[..2], [released(10), answer(barrier, Ok(()))]);
    assert!(
        !outputs
            .iter()
            .any(|output| matches!(output, Output::Send { .. }))
    );
    machine.handle_group_ended(at);
    assert_eq!(drain(&mut machine), [send(310, Check::Own)]);
}

#[test]
fn a_full_batch_is_sealed() {
    let mut machine = claimed();
    machine.handle_recorded(ms(1), 2, 1);
    machine.handle_recorded(ms(1), 3, 200);
    assert!(machine.begins_batch());
}

#[test]
fn a_barrier_without_ops_waits_for_a_look_that_begins_after_it() {
    let mut machine = claimed();
    let first = machine.handle_barrier(ms(1));
    let second = machine.handle_barrier(ms(2));
    look(&mut machine, ms(3), 10);
    let outputs = drain(&mut machine);
    assert_eq!(outputs[0], answer(first, Ok(())));
    let [_, Output::Look { number }] = outputs[..] else {
        panic!("{outputs:?}")
    };
    let is_exact = true;
    let seen = Ok(Seen { head: 10, is_exact });
    // The answer of an older look says nothing.
    machine.handle_looked(ms(4), number - 1, seen.clone());
    assert_eq!(drain(&mut machine), []);
    machine.handle_looked(ms(4), number, seen);
    assert_eq!(drain(&mut machine), [answer(second, Ok(()))]);
}

#[test]
fn where_another_replica_may_know_more_a_barrier_waits_for_an_empty_append() {
    let mut machine = claimed();
    let first = machine.handle_barrier(ms(1));
    let outputs = drain(&mut machine);
    let [Output::Look { number }] = outputs[..] else {
        panic!("{outputs:?}")
    };
    let is_exact = false;
    machine.handle_looked(ms(2), number, Ok(Seen { head: 10, is_exact }));
    assert_eq!(drain(&mut machine), [Output::Probe { offset: 10 }]);
    let second = machine.handle_barrier(ms(3));
    machine.handle_outcome(ms(4), landed(10, 10));
    assert_eq!(
        drain(&mut machine),
        [answer(first, Ok(())), Output::Probe { offset: 10 }]
    );
    machine.handle_outcome(ms(5), landed(10, 10));
    assert_eq!(drain(&mut machine), [answer(second, Ok(()))]);
}

#[test]
fn an_idle_owner_looks_whether_the_log_is_still_his() {
    let mut machine = claimed();
    assert_eq!(machine.next_timeout(), Some(ms(1000)));
    machine.handle_timeout(ms(1000));
    look(&mut machine, ms(1001), 10);
    assert_eq!(machine.next_timeout(), Some(ms(2001)));
    machine.handle_timeout(ms(2001));
    look(&mut machine, ms(2002), 17);
    assert_eq!(drain(&mut machine), [Output::ReadBack { offset: 10 }]);
    let author = Some(author(OTHER));
    machine.handle_found(ms(2003), Found::Other { author });
    let fence = Fence { author, offset: 10 };
    let fault = Fault::Fenced(fence);
    assert_eq!(drain(&mut machine), [Output::Report(fault.clone())]);
    assert_eq!(machine.reserve(ms(2003), 1, true), Err(Hold::Fenced(fence)));
    let barrier = machine.handle_barrier(ms(2003));
    assert_eq!(drain(&mut machine), [answer(barrier, Err(fault))]);
    assert_eq!(machine.state(ms(2003)), State::Fenced(fence));
}

#[test]
fn what_comes_does_not_wait_for_a_look() {
    let mut machine = claimed();
    machine.handle_timeout(ms(1000));
    let outputs = drain(&mut machine);
    let [Output::Look { number }] = outputs[..] else {
        panic!("{outputs:?}")
    };
    machine.handle_recorded(ms(1001), 2, 20);
    assert_eq!(drain(&mut machine), [send(10, Check::Own)]);
    // Its answer comes too late to mean anything.
    let is_exact = true;
    machine.handle_looked(ms(1002), number, Ok(Seen { head: 30, is_exact }));
    assert_eq!(drain(&mut machine), []);
    machine.handle_outcome(ms(1003), landed(10, 30));
    machine.handle_timeout(ms(2003));
    let number = number + 2;
    assert_eq!(drain(&mut machine), [released(10), Output::Look { number }]);
    machine.handle_looked(ms(2004), number, Err("away".into()));
    assert!(matches!(machine.state(ms(2004)), State::Stalled { .. }));
    drain(&mut machine);
    machine.handle_barrier(ms(2005));
    let number = number + 1;
    assert_eq!(drain(&mut machine), [Output::Look { number }]);
}

#[test]
fn a_fence_that_cannot_be_located_is_reported_with_what_is_known() {
    let mut machine = claimed();
    machine.handle_recorded(ms(1), 2, 20);
    drain(&mut machine);
    let register = Register::Author(author(OTHER));
    machine.handle_outcome(ms(2), Outcome::Mismatch { register });
    drain(&mut machine);
    machine.handle_found(ms(3), Found::Failed { error: "?".into() });
    let author = Some(author(OTHER));
    let fault = Fault::Fenced(Fence { author, offset: 10 });
    assert_eq!(drain(&mut machine), [Output::Report(fault)]);
}

#[test]
fn a_lost_answer_is_found_in_the_log() {
    let mut machine = claimed();
    machine.handle_recorded(ms(1), 2, 20);
    let barrier = machine.handle_barrier(ms(1));
    drain(&mut machine);
    machine.handle_outcome(ms(2), Outcome::Unknown { error: "?".into() });
    assert_eq!(drain(&mut machine), []);
    assert!(matches!(machine.state(ms(2)), State::Stalled { .. }));
    let at = machine.next_timeout().unwrap();
    machine.handle_timeout(at);
    assert_eq!(drain(&mut machine), [Output::ReadBack { offset: 10 }]);
    machine.handle_found(at, Found::Own { end: 30 });
    // That it landed does not show that the log is ours still.
    look(&mut machine, at, 30);
    assert_eq!(drain(&mut machine), [answer(barrier, Ok(()))]);
    assert_eq!(machine.state(at), State::Recording);
}

#[test]
fn what_did_not_land_is_sent_again_at_the_same_offset() {
    let mut machine = claimed();
    machine.handle_recorded(ms(1), 2, 20);
    drain(&mut machine);
    machine.handle_outcome(ms(2), Outcome::WrongOffset);
    assert_eq!(drain(&mut machine), [Output::ReadBack { offset: 10 }]);
    machine.handle_found(ms(3), Found::Nothing);
    assert_eq!(drain(&mut machine), [send(10, Check::Own)]);
    // A broker that goes on like that is not asked in a tight circle.
    machine.handle_outcome(ms(4), Outcome::WrongOffset);
    assert_eq!(drain(&mut machine), [Output::ReadBack { offset: 10 }]);
    machine.handle_found(ms(5), Found::Nothing);
    assert_eq!(drain(&mut machine), []);
    let at = machine.next_timeout().unwrap();
    assert!(at > ms(5));
    machine.handle_timeout(at);
    assert_eq!(drain(&mut machine), [send(10, Check::Own)]);
}

#[test]
fn a_batch_whose_answers_are_lost_gets_more_time_and_the_next_one_none_of_it() {
    let mut machine = claimed();
    machine.handle_recorded(ms(1), 2, 20);
    assert_eq!(drain(&mut machine), [send(10, Check::Own)]);
    let mut at = ms(2);
    for lost in 1..4 {
        machine.handle_outcome(at, Outcome::Unknown { error: "?".into() });
        at = machine.next_timeout().unwrap();
        machine.handle_timeout(at);
        assert_eq!(drain(&mut machine), [Output::ReadBack { offset: 10 }]);
        machine.handle_found(at, Found::Nothing);
        at = machine.next_timeout().unwrap();
        machine.handle_timeout(at);
        assert_eq!(drain(&mut machine), [send_after(10, Check::Own, lost)]);
    }
    // What is known not to have been done says nothing of the network.
    let error = "away".into();
    let no_space = false;
    machine.handle_outcome(at, Outcome::NotDone { no_space, error });
    at = machine.next_timeout().unwrap();
    machine.handle_timeout(at);
    assert_eq!(drain(&mut machine), [send_after(10, Check::Own, 3)]);
    machine.handle_outcome(at, landed(10, 30));
    assert_eq!(drain(&mut machine), [released(10)]);
    machine.handle_recorded(at, 3, 20);
    assert_eq!(drain(&mut machine), [send(30, Check::Own)]);
}

#[test]
fn a_fence_fails_barriers_also_of_what_landed_before_it_and_tells_where_it_begins() {
    let mut machine = claimed();
    machine.handle_recorded(ms(1), 2, 20);
    let barrier = machine.handle_barrier(ms(1));
    drain(&mut machine);
    machine.handle_outcome(
        ms(2),
        Outcome::Mismatch {
            register: Register::Author(author(OTHER)),
        },
    );
    let fence = |offset| {
        Fault::Fenced(Fence {
            author: Some(author(OTHER)),
            offset,
        })
    };
    assert_eq!(
        drain(&mut machine),
        [
            answer(barrier, Err(fence(10))),
            Output::ReadBack { offset: 10 }
        ]
    );
    machine.handle_found(ms(3), Found::Own { end: 30 });
    assert_eq!(drain(&mut machine), [Output::Report(fence(30))]);
}

#[test]
fn a_log_that_is_shorter_than_it_was_is_lost() {
    let mut machine = claimed();
    machine.handle_recorded(ms(1), 2, 20);
    machine.handle_outcome(ms(2), Outcome::WrongOffset);
    machine.handle_found(ms(3), Found::Shorter { head: 4 });
    let fault = Fault::Lost {
        acknowledged: 10,
        head: 4,
    };
    assert!(drain(&mut machine).contains(&Output::Report(fault.clone())));
    assert_eq!(machine.state(ms(3)), State::Failed(fault));
}

#[test]
fn waiting_becomes_a_fault_after_its_time_and_recording_goes_on() {
    let mut machine = claimed_with(Limits {
        fail_after: Some(ms(500)),
        idle: None,
        ..limits()
    });
    machine.handle_recorded(ms(0), 2, 990);
    let barrier = machine.handle_barrier(ms(0));
    drain(&mut machine);
    machine.handle_outcome(ms(1), away());
    assert_eq!(machine.reserve(ms(499), 20, false), Err(Hold::Full));
    machine.handle_timeout(ms(500));
    let fault = Fault::TimedOut {
        after: ms(500),
        cause: Some("away".into()),
    };
    assert_eq!(
        drain(&mut machine),
        [send(10, Check::Own), answer(barrier, Err(fault.clone()))]
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
    );
    assert_eq!(
        machine.reserve(ms(500), 20, false),
        Err(Hold::Failed(fault))
    );
    machine.handle_outcome(ms(600), landed(10, 1000));
    machine.reserve(ms(600), 20, false).unwrap();
    assert_eq!(machine.state(ms(600)), State::Recording);
}

#[test]
fn a_full_disk_still_takes_what_frees_space() {
    let mut machine = claimed();
    machine.handle_recorded(ms(0), 2, 20);
    machine.handle_outcome(
        ms(1),
        Outcome::NotDone {
            no_space: true,
            error: "full".into(),
        },
    );
    assert_eq!(machine.reserve(ms(2), 10, false), Err(Hold::NoSpace));
    machine.reserve(ms(2), 10, true).unwrap();
    machine.reserve(ms(2), 1100, true).unwrap_err();
    machine.handle_timeout(ms(2000));
    machine.handle_outcome(ms(2000), landed(10, 30));
    machine.reserve(ms(2001), 10, false).unwrap();
    machine.handle_room(Some(Room {
        total: 100,
        available: 10,
        reserve: 20,
    }));
    assert_eq!(machine.reserve(ms(2002), 10, false), Err(Hold::NoSpace));
    machine.reserve(ms(2002), 10, true).unwrap();
}

#[test]
fn room_is_held_from_the_reservation_to_the_acknowledgement() {
    let mut machine = claimed();
    machine.reserve(ms(0), 600, false).unwrap();
    assert_eq!(machine.reserve(ms(0), 600, false), Err(Hold::Full));
    machine.release(600);
    machine.handle_recorded(ms(0), 2, 600);
    assert_eq!(machine.reserve(ms(0), 600, false), Err(Hold::Full));
    machine.handle_outcome(ms(1), landed(10, 610));
    // One that is larger than all room is taken when there is nothing else.
    machine.reserve(ms(1), 6000, false).unwrap();
}

#[test]
fn a_register_that_the_brokers_lost_is_set_again() {
    let mut machine = claimed();
    machine.handle_recorded(ms(0), 2, 20);
    drain(&mut machine);
    let empty = |begin, end| Outcome::Landed {
        begin,
        end,
        register: Register::Empty,
    };
    machine.handle_outcome(ms(1), empty(10, 30));
    assert_eq!(drain(&mut machine), [released(10), Output::Mark]);
    machine.handle_recorded(ms(1), 3, 10);
    assert_eq!(drain(&mut machine), [send(30, Check::Reassert)]);
    machine.handle_outcome(ms(2), landed(30, 40));
    machine.handle_recorded(ms(3), 4, 10);
    assert_eq!(drain(&mut machine), [released(30), send(40, Check::Own)]);
}

#[test]
fn a_claim_that_landed_is_not_mistaken_for_another_owner() {
    let mut machine = Machine::new(author(ME), limits(), NOTHING, ms(0));
    machine.handle_recorded(ms(0), 1, 10);
    drain(&mut machine);
    machine.handle_outcome(ms(0), Outcome::Unknown { error: "?".into() });
    let at = machine.next_timeout().unwrap();
    machine.handle_timeout(at);
    machine.handle_found(at, Found::Nothing);
    let at = machine.next_timeout().unwrap();
    drain(&mut machine);
    machine.handle_timeout(at);
    assert_eq!(drain(&mut machine), [send_after(0, Check::Claim, 1)]);
    let register = Register::Author(author(ME));
    machine.handle_outcome(at, Outcome::Mismatch { register });
    assert_eq!(drain(&mut machine), [Output::ReadBack { offset: 0 }]);
    machine.handle_found(at, Found::Own { end: 10 });
    assert_eq!(drain(&mut machine), [released(0), Output::PublishHints]);
}
