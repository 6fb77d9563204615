//! How a recorder ends.

use super::*;

#[test]
fn the_end_waits_for_what_is_pending_and_for_hints() {
    let mut machine = claimed();
    machine.handle_recorded(ms(0), 2, 20);
    machine.handle_stop(ms(0));
    assert!(matches!(
        machine.reserve(ms(0), 1, true),
        Err(Hold::Failed(Fault::Ended))
    ));
    drain(&mut machine);
    machine.handle_outcome(ms(1), landed(10, 30));
    let end = answer(BarrierId(0), Ok(()));
    assert_eq!(
        drain(&mut machine),
        [released(10), end, Output::PublishHints]
    );
    machine.handle_hints_published(ms(2), true);
    let acked = Acked {
        offset: 30,
        seq_no: 2,
    };
    assert_eq!(drain(&mut machine), [Output::Ended(Ok(acked))]);
    let barrier = machine.handle_barrier(ms(3));
    assert_eq!(drain(&mut machine), [answer(barrier, Err(Fault::Ended))]);
}

#[test]
fn the_end_finds_out_whether_the_log_is_still_ours() {
    let mut machine = claimed();
    machine.handle_stop(ms(1));
    look(&mut machine, ms(2), 17);
    let author = Some(author(OTHER));
    machine.handle_found(ms(3), Found::Other { author });
    let outputs = drain(&mut machine);
    let ended = outputs.iter().find(|o| matches!(o, Output::Ended(_)));
    assert!(
        matches!(ended, Some(Output::Ended(Err(Fault::Fenced(_))))),
        "{outputs:?}"
    );
}

#[test]
fn the_end_comes_in_its_time_also_without_a_broker() {
    let mut machine = claimed();
    machine.handle_recorded(ms(0), 2, 20);
    let barrier = machine.handle_barrier(ms(0));
    machine.handle_outcome(ms(0), away());
    machine.handle_stop(ms(1));
    machine.handle_timeout(ms(10_001));
    let outputs = drain(&mut machine);
    let is_answered =
        |o: &Output| matches!(o, Output::Answer { barrier: id, result: Err(_) } if *id == barrier);
    assert!(outputs.iter().any(is_answered), "{outputs:?}");
    assert!(matches!(outputs.last(), Some(Output::Ended(Err(_)))));
    assert_eq!(machine.next_timeout(), None);
}
