use std::time::{Duration, Instant, UNIX_EPOCH};

use append_request::Suspend as Control;

use super::*;

const DAY: i64 = 24 * 60 * 60;
const NOW: i64 = 100 * DAY;

fn now() -> Now {
    #[expect(clippy::disallowed_methods, reason = "no result depends on it")]
    let instant = Instant::now();
    Now {
        instant,
        wall: UNIX_EPOCH + Duration::from_secs(NOW.unsigned_abs()),
    }
}

const fn facts(begin: i64, end: i64, last_mod_time: i64, has_spool: bool) -> Facts {
    let index = Summary {
        begin,
        end,
        last_mod_time,
        is_refreshed: true,
    };
    Facts {
        index,
        has_spool,
        flush_interval: 0,
    }
}

const EMPTY: Facts = facts(0, 0, 0, false);
const FLUSHED: Facts = facts(0, 10, NOW - DAY, false);
const YOUNG: Facts = facts(0, 10, NOW - DAY + 1, false);
const LOCAL: Facts = facts(0, 10, 0, true);

#[test]
fn every_control_has_its_effect_at_every_level() {
    let full = Decision::Update {
        level: Level::Full,
        roll: false,
    };
    let partial = Decision::Update {
        level: Level::Partial,
        roll: false,
    };
    let rolled = Decision::Update {
        level: Level::Partial,
        roll: true,
    };
    let awake = Decision::Update {
        level: Level::None,
        roll: false,
    };
    let (proceed, suspended) = (Decision::Proceed, Decision::Suspended);

    let table = [
        // Control, facts, then the outcomes for none, partial and full.
        (Control::Resume, LOCAL, [proceed, awake, awake]),
        (Control::Resume, EMPTY, [proceed, awake, awake]),
        (Control::NoResume, LOCAL, [proceed, suspended, suspended]),
        (Control::NoResume, EMPTY, [proceed, suspended, suspended]),
        (Control::IfFlushed, EMPTY, [full, full, suspended]),
        (Control::IfFlushed, FLUSHED, [partial, suspended, suspended]),
        (Control::IfFlushed, YOUNG, [proceed, suspended, suspended]),
        (Control::IfFlushed, LOCAL, [proceed, suspended, suspended]),
        (Control::Now, EMPTY, [full, full, suspended]),
        (Control::Now, YOUNG, [partial, suspended, suspended]),
        (Control::Now, LOCAL, [rolled, suspended, suspended]),
        (Control::Keep, LOCAL, [proceed, proceed, proceed]),
        (Control::Keep, EMPTY, [proceed, proceed, proceed]),
    ];
    for (control, facts, outcomes) in table {
        for (level, expected) in [Level::None, Level::Partial, Level::Full]
            .into_iter()
            .zip(outcomes)
        {
            let decision = decide(control, level, facts, now());
            assert_eq!(
                decision, expected,
                "{control:?} at {level:?} with {facts:?}"
            );
        }
    }
}

#[test]
fn the_flush_interval_says_what_is_idle() {
    let with = |flush_interval, last_mod_time| {
        let facts = Facts {
            flush_interval,
            ..facts(0, 10, last_mod_time, false)
        };
        decide(Control::IfFlushed, Level::None, facts, now()) != Decision::Proceed
    };
    assert!(with(60, NOW - 60));
    assert!(!with(60, NOW - 59));
    assert!(!with(60, 0), "a local fragment is in no store");
}

#[test]
fn content_that_no_reader_sees_yet_keeps_a_journal_from_full_suspension() {
    let facts = facts(0, 0, 0, true);
    let partial = Decision::Update {
        level: Level::Partial,
        roll: true,
    };
    assert_eq!(decide(Control::Now, Level::None, facts, now()), partial);
    assert_eq!(
        decide(Control::IfFlushed, Level::None, facts, now()),
        Decision::Proceed
    );
}
