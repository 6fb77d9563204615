use gazette_recoverylog_fsm::{Body, RecordedOp};

use super::*;

fn decoded(author: u32, seq_no: i64, checksum: u32, next_checksum: u32) -> DecodedOp {
    let op = RecordedOp::new(seq_no, checksum, author, Body::NoOp { mark: None });
    DecodedOp {
        op,
        next_checksum,
        begin: 0,
        frame_end: 20,
        end: 20,
    }
}

const fn wrong(expected: i64, actual: i64) -> FsmError {
    FsmError::WrongSeqNo { expected, actual }
}

#[test]
fn a_repeated_op_is_dead() {
    let mut branches = Branches::default();
    let op = decoded(1, 3, 33, 34);
    assert_eq!(branches.judge(&op, &wrong(5, 3), false), Verdict::Dead);
}

#[test]
fn an_op_that_goes_on_with_a_dead_branch_is_dead() {
    let mut branches = Branches::default();
    let fork = decoded(1, 4, 40, 41);
    assert_eq!(branches.judge(&fork, &wrong(5, 4), false), Verdict::Dead);
    let mismatch = FsmError::ChecksumMismatch {
        expected: 7,
        actual: 41,
    };
    let next = decoded(1, 5, 41, 42);
    assert_eq!(branches.judge(&next, &mismatch, false), Verdict::Dead);
    // Also by another author, that took the dead branch over.
    let heir = decoded(2, 6, 42, 43);
    assert_eq!(branches.judge(&heir, &wrong(5, 6), false), Verdict::Dead);
    // Not once an op of it is missing.
    let late = decoded(2, 8, 44, 45);
    assert_eq!(
        branches.judge(&late, &wrong(5, 8), false),
        Verdict::Unfounded
    );
}

#[test]
fn an_op_whose_predecessor_is_missing_is_unfounded() {
    let mut branches = Branches::default();
    let op = decoded(1, 9, 90, 91);
    assert_eq!(branches.judge(&op, &wrong(5, 9), false), Verdict::Unfounded);
    // Unless its author is known to be of the past.
    branches.pass(1);
    assert_eq!(branches.judge(&op, &wrong(5, 9), false), Verdict::Dead);
}

#[test]
fn with_hints_only_ops_of_the_hinted_author_can_be_missing() {
    let mut branches = Branches::default();
    let op = decoded(1, 9, 90, 91);
    assert_eq!(branches.judge(&op, &wrong(5, 9), true), Verdict::Unfounded);
    let other = FsmError::NotHintedAuthor {
        hinted: 2,
        actual: 1,
    };
    assert_eq!(branches.judge(&op, &other, true), Verdict::Dead);
}

#[test]
fn an_op_that_follows_and_cannot_be_applied_is_a_contradiction() {
    let mut branches = Branches::default();
    let op = decoded(1, 5, 50, 51);
    assert_eq!(
        branches.judge(&op, &FsmError::LinkExists, false),
        Verdict::Contradiction
    );
}

#[test]
fn an_op_of_a_passed_number_must_repeat_it_or_begin_a_branch_there() {
    let mut branches = Branches::default();
    for (seq_no, checksum) in [(3, 30), (4, 40), (5, 50)] {
        branches.follow(seq_no, checksum);
    }
    let judge = |branches: &mut Branches, seq_no, checksum| {
        let op = decoded(1, seq_no, checksum, checksum + 1);
        branches.judge(&op, &wrong(6, seq_no), false)
    };
    assert_eq!(judge(&mut branches, 4, 40), Verdict::Dead);
    // It goes on with the dead branch.
    assert_eq!(judge(&mut branches, 5, 41), Verdict::Dead);
    assert_eq!(judge(&mut branches, 4, 44), Verdict::Unfounded);
    // Nobody knows any more.
    assert_eq!(judge(&mut branches, 2, 22), Verdict::Dead);
}
