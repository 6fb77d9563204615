//! When hints are published.

use super::*;

#[test]
fn hints_come_after_so_many_bytes_and_after_their_time() {
    let mut machine = claimed();
    machine.handle_recorded(ms(0), 2, 600);
    drain(&mut machine);
    machine.handle_outcome(ms(1), landed(10, 610));
    assert_eq!(drain(&mut machine), [released(10), Output::PublishHints]);
    machine.handle_recorded(ms(1), 3, 10);
    machine.handle_outcome(ms(2), landed(610, 620));
    // What landed meanwhile is not in them. They failed, and wait before the next try.
    machine.handle_hints_published(ms(3), false);
    assert_eq!(machine.hints_offset(), Some(10));
    machine.handle_timeout(ms(4000));
    assert!(!drain(&mut machine).contains(&Output::PublishHints));
    machine.handle_timeout(ms(5004));
    assert!(drain(&mut machine).contains(&Output::PublishHints));
    machine.handle_hints_published(ms(5004), true);
    assert_eq!(machine.hints_offset(), Some(620));
    // Few bytes wait for their time.
    machine.handle_outcome(ms(5004), landed(620, 620));
    machine.handle_recorded(ms(5005), 4, 10);
    machine.handle_outcome(ms(5006), landed(620, 630));
    assert!(!drain(&mut machine).contains(&Output::PublishHints));
    machine.handle_timeout(ms(305_004));
    assert!(drain(&mut machine).contains(&Output::PublishHints));
}

#[test]
fn hints_come_sooner_where_little_is_live() {
    let mut machine = claimed();
    machine.handle_live_bytes(800);
    machine.handle_recorded(ms(0), 2, 199);
    drain(&mut machine);
    machine.handle_outcome(ms(1), landed(10, 209));
    assert_eq!(drain(&mut machine), [released(10)]);
    machine.handle_recorded(ms(1), 3, 1);
    drain(&mut machine);
    machine.handle_outcome(ms(2), landed(209, 210));
    assert_eq!(drain(&mut machine), [released(209), Output::PublishHints]);
    machine.handle_hints_published(ms(3), true);
    // However little it is, and however much.
    for (live, bytes) in [(4, 100), (1 << 30, 500)] {
        let mut machine = claimed();
        machine.handle_live_bytes(live);
        machine.handle_recorded(ms(3), 2, bytes - 1);
        drain(&mut machine);
        machine.handle_outcome(ms(4), landed(10, 9 + bytes.cast_signed()));
        assert_eq!(drain(&mut machine), [released(10)]);
        machine.handle_recorded(ms(5), 3, 1);
        drain(&mut machine);
        machine.handle_outcome(
            ms(6),
            landed(9 + bytes.cast_signed(), 10 + bytes.cast_signed()),
        );
        assert!(drain(&mut machine).contains(&Output::PublishHints));
    }
}
