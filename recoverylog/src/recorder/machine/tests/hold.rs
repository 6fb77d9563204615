//! How long ops are held that nobody waits for.

use super::*;

const HOLD: Duration = Duration::from_millis(10);

fn holding() -> Machine {
    claimed_with(Limits {
        hold: HOLD,
        // Looks and hints are of other tests.
        idle: None,
        hints_every_bytes: u64::MAX,
        ..limits()
    })
}

/// Lets time pass up to a moment, timer by timer. Returns what comes out, and when.
fn pass(machine: &mut Machine, to: Now) -> Vec<(Now, Output)> {
    let mut came = Vec::new();
    while let Some(at) = machine.next_timeout().filter(|at| *at <= to) {
        machine.handle_timeout(at);
        came.extend(drain(machine).into_iter().map(|output| (at, output)));
    }
    came
}

#[test]
fn an_op_shares_its_append_with_the_barrier_that_follows_it() {
    let mut machine = holding();
    machine.handle_recorded(ms(1), 2, 10);
    machine.handle_recorded(ms(2), 3, 10);
    assert_eq!(drain(&mut machine), []);
    machine.handle_barrier(ms(3));
    assert_eq!(drain(&mut machine), [send(10, Check::Own)]);
    machine.handle_outcome(ms(4), landed(10, 30));
    let outputs = drain(&mut machine);
    assert!(
        matches!(
            &outputs[..],
            [
                Output::Release { begin: 10 },
                Output::Answer { result: Ok(()), .. }
            ]
        ),
        "{outputs:?}"
    );
    assert_eq!(machine.acked().seq_no, 3);
}

#[test]
fn one_that_nobody_waits_for_leaves_by_itself() {
    let mut machine = holding();
    machine.handle_recorded(ms(100), 2, 10);
    let came = pass(&mut machine, ms(1000));
    assert_eq!(came, [(ms(110), send(10, Check::Own))]);
}

#[test]
fn enough_of_them_leave_at_once() {
    let mut machine = holding();
    machine.handle_recorded(ms(1), 2, 99);
    assert_eq!(drain(&mut machine), []);
    machine.handle_recorded(ms(1), 3, 1);
    assert_eq!(drain(&mut machine), [send(10, Check::Own)]);
}

#[test]
fn what_gathers_behind_an_append_is_held_too_and_not_longer() {
    let mut machine = holding();
    machine.handle_recorded(ms(0), 2, 100);
    assert_eq!(drain(&mut machine), [send(10, Check::Own)]);
    machine.handle_recorded(ms(1), 3, 10);
    machine.handle_outcome(ms(2), landed(10, 110));
    assert_eq!(drain(&mut machine), [released(10)]);
    let came = pass(&mut machine, ms(1000));
    assert!(
        matches!(came[..], [(at, Output::Send { offset: 110, .. })] if at <= ms(21)),
        "{came:?}"
    );
}

#[test]
fn the_end_of_a_recorder_holds_nothing() {
    let mut machine = holding();
    machine.handle_recorded(ms(1), 2, 10);
    machine.handle_stop(ms(1));
    assert_eq!(drain(&mut machine), [send(10, Check::Own)]);
}

proptest! {
    #[test]
    fn no_op_waits_longer_than_twice_the_time_and_no_timer_goes_on_without_ops(
        gaps in proptest::collection::vec(0..40_u64, 1..60),
    ) {
        let mut machine = holding();
        let (mut now, mut seq_no, mut end) = (ms(0), 1, 10);
        // Ops with their times, oldest first.
        let mut waiting: VecDeque<Now> = VecDeque::new();
        let mut sent = |machine: &mut Machine, at: Now, outputs: Vec<Output>, waiting: &mut VecDeque<Now>| {
            for output in outputs {
                assert_eq!(output, send(end, Check::Own));
                let bytes = i64::try_from(waiting.len()).unwrap();
                for since in waiting.drain(..) {
                    assert!(at.saturating_sub(since) <= HOLD * 2, "held from {since:?} to {at:?}");
                }
                machine.handle_outcome(at, landed(end, end + bytes));
                assert_eq!(drain(machine), [released(end)]);
                end += bytes;
            }
        };
        for gap in gaps {
            now += ms(gap);
            while let Some(at) = machine.next_timeout().filter(|at| *at <= now) {
                machine.handle_timeout(at);
                let outputs = drain(&mut machine);
                sent(&mut machine, at, outputs, &mut waiting);
            }
            seq_no += 1;
            waiting.push_back(now);
            machine.handle_recorded(now, seq_no, 1);
            let outputs = drain(&mut machine);
            sent(&mut machine, now, outputs, &mut waiting);
        }
        let mut ticks = 0;
        while let Some(at) = machine.next_timeout().filter(|at| *at <= now + ms(1000)) {
            ticks += 1;
            machine.handle_timeout(at);
            let outputs = drain(&mut machine);
            sent(&mut machine, at, outputs, &mut waiting);
        }
        prop_assert!(waiting.is_empty());
        prop_assert!(ticks <= 3, "{ticks} timers after the last op");
    }
}
