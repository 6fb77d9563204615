use gazette_recoverylog_fsm::{Author, FsmHints, Timestamp};

use super::*;
use crate::hints::Pin;

fn published(begin: i64, offset: i64) -> ((i64, i64), PublishedHints) {
    let hints = PublishedHints {
        author: Author::new(9).unwrap(),
        offset,
        seq_no: 1,
        checksum: 0,
        time: Timestamp::default(),
        hints: FsmHints::of_log("a/log"),
    };
    ((begin, begin + 10), hints)
}

#[test]
fn the_hints_that_lead_to_a_kept_moment_stay_beside_its_pin_and_so_does_what_ended_one() {
    let pin = Pin {
        name: "keep/then".to_owned(),
        until: None,
        from: 200,
        to: 250,
        hints: FsmHints::of_log("a/log"),
    };
    let keeping = Keeping {
        hints: (1..=9).map(|at| published(at * 100, at * 100)).collect(),
        pins: vec![((350, 360), pin)],
        ends: BTreeMap::from([("keep/gone".to_owned(), (450, 460))]),
        ..Keeping::default()
    };
    let (_, records) = keeps("a/log", &keeping, &[], PruneOptions::default());
    let ranges: Vec<StoredRange> = (0..10)
        .map(|at| StoredRange {
            begin: at * 100,
            end: at * 100 + 100,
            is_persisted: true,
        })
        .collect();
    let verdicts = judge(&ranges, &records);
    let stays: Vec<usize> = (0..verdicts.len())
        .filter(|at| verdicts[*at] != Verdict::Goes)
        .collect();
    // The hints of 200, the pin, what ended another one, and the newest hints with those before them.
    assert_eq!(stays, [2, 3, 4, 8, 9]);
}
