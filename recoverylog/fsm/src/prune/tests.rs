use super::*;
use crate::{Fnode, FnodeSegments};

fn fragment(begin: i64, end: i64) -> StoredRange {
    StoredRange {
        begin,
        end,
        is_persisted: true,
    }
}

fn segment(log: &str, first: i64, last: i64, begin: i64, end: i64) -> Segment {
    Segment {
        author: 7,
        first_seq_no: first,
        first_offset: begin,
        first_checksum: 0,
        last_seq_no: last,
        last_offset: end,
        log: log.into(),
    }
}

fn hints(log: &str, segments: Vec<Segment>) -> FsmHints {
    let node = FnodeSegments {
        fnode: Fnode(1),
        segments,
        birth: Some(1),
    };
    FsmHints {
        live_nodes: vec![node],
        ..FsmHints::of_log(log)
    }
}

const FRAGMENTS: [(i64, i64); 5] = [(0, 100), (100, 200), (200, 300), (300, 400), (400, 500)];

fn fragments() -> Vec<StoredRange> {
    FRAGMENTS
        .iter()
        .map(|(begin, end)| fragment(*begin, *end))
        .collect()
}

#[test]
fn what_lies_in_a_gap_goes_and_the_rest_says_who_needs_it() {
    let new = hints(
        "a/log",
        vec![segment("", 1, 2, 0, 50), segment("", 9, 9, 350, 420)],
    );
    let old = hints(
        "a/log",
        vec![segment("", 1, 2, 0, 50), segment("", 5, 6, 200, 210)],
    );
    let keeps = [
        Keep::hints("newest hints", "a/log", &new),
        Keep::point("kept moment", "a/log", &old, (0, 0)),
    ];
    let verdicts = judge(&fragments(), &keeps);
    assert_eq!(
        verdicts,
        [
            Verdict::Needed(vec!["newest hints", "kept moment"]),
            Verdict::Goes,
            Verdict::Needed(vec!["kept moment"]),
            Verdict::Needed(vec!["newest hints"]),
            Verdict::Needed(vec!["newest hints"]),
        ]
    );
    let judged = FRAGMENTS.iter().zip(&verdicts);
    let judged = judged.map(|((begin, end), verdict)| (*begin, *end, verdict));
    assert_eq!(bytes(judged), (400, 100));
}

#[test]
fn older_hints_need_all_that_follows_upon_them() {
    let old = hints(
        "a/log",
        vec![segment("", 1, 2, 0, 50), segment("", 5, 6, 150, 160)],
    );
    let keeps = [
        Keep::hints("old", "a/log", &old),
        Keep::from("standby", 480),
    ];
    let verdicts = judge(&fragments(), &keeps);
    let needing: Vec<usize> = verdicts
        .iter()
        .map(|verdict| match verdict {
            Verdict::Needed(of) => of.len(),
            Verdict::Goes | Verdict::NotPersisted | Verdict::NothingKept => 0,
        })
        .collect();
    assert_eq!(needing, [1, 1, 1, 1, 2]);
}

#[test]
fn a_fork_needs_what_it_shares_and_no_tail() {
    let fork = hints(
        "b/log",
        vec![segment("a/log", 1, 4, 0, 120), segment("", 5, 6, 0, 90)],
    );
    let own = hints("a/log", vec![segment("", 8, 9, 450, 460)]);
    let keeps = [
        Keep::hints("fork", "a/log", &fork),
        Keep::hints("own", "a/log", &own),
    ];
    let verdicts = judge(&fragments(), &keeps);
    let goes: Vec<bool> = verdicts.iter().map(|of| *of == Verdict::Goes).collect();
    assert_eq!(goes, [false, false, true, true, false]);
    let in_fork = Keep::hints("fork", "b/log", &fork);
    assert_eq!((in_fork.ranges, in_fork.tail), (vec![(0, 90)], Some(90)));
}

#[test]
fn nothing_goes_where_nothing_is_known() {
    let none: [Keep<&str>; 0] = [];
    assert!(
        judge(&fragments(), &none)
            .iter()
            .all(|of| *of == Verdict::NothingKept)
    );
    let empty = Keep::hints("hints", "a/log", &FsmHints::of_log("a/log"));
    let verdicts = judge(&fragments(), &[empty]);
    assert!(verdicts.iter().all(|of| matches!(of, Verdict::Needed(_))));
    let point = Keep::point(
        "moment",
        "a/log",
        &hints("a/log", vec![segment("", 1, 2, 0, 50)]),
        (50, 50),
    );
    assert_eq!(judge(&fragments(), &[point])[3], Verdict::NothingKept);
    let open = Keep::hints(
        "hints",
        "a/log",
        &hints("a/log", vec![segment("", 1, 2, 250, 0)]),
    );
    let verdicts = judge(&fragments(), &[open]);
    let goes = verdicts.iter().filter(|of| **of == Verdict::Goes).count();
    assert_eq!(goes, 2, "a segment without an end reaches to the head");
}

#[test]
fn a_kept_moment_needs_what_leads_to_it_wherever_its_ranges_lie() {
    let open = hints("a/log", vec![segment("", 1, 2, 120, 0)]);
    let beyond = hints("a/log", vec![segment("", 1, 2, 10, 450)]);
    let none = FsmHints::of_log("a/log");
    for (hints, point, first, last) in [
        (&open, (210, 220), 1, 4),
        (&beyond, (30, 240), 0, 4),
        (&none, (30, 240), 0, 2),
        (&none, (0, 0), 1, 0),
    ] {
        let keep = Keep::point("moment", "a/log", hints, point);
        let verdicts = judge(&fragments(), &[keep]);
        for (at, verdict) in verdicts.iter().enumerate() {
            let is_needed = matches!(verdict, Verdict::Needed(_));
            assert_eq!(
                is_needed,
                (first..=last).contains(&at),
                "{at} for {point:?}"
            );
        }
    }
}

#[test]
fn two_readings_must_agree() {
    let keep = Keep::from("standby", 250);
    let mut second = fragments();
    second[0].is_persisted = false;
    second.remove(1);
    let one = judge(&fragments(), std::slice::from_ref(&keep));
    let other = judge(&second, &[keep]);
    assert_eq!(agreed((&fragments(), &one), (&second, &other)), []);
    assert_eq!(
        agreed((&fragments(), &one), (&fragments(), &one)),
        [fragment(0, 100), fragment(100, 200)]
    );
}
