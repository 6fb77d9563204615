use gazette_recoverylog_fsm::{Fnode, FnodeSegments, FsmHints, Segment};

use super::*;

fn segment(first: i64, last: i64, first_offset: i64, last_offset: i64, log: &str) -> Segment {
    Segment {
        author: 1,
        first_seq_no: first,
        first_offset,
        first_checksum: 0,
        last_seq_no: last,
        last_offset,
        log: log.into(),
    }
}

fn plan(
    segments: Vec<Segment>,
    ends: &[(&str, i64)],
) -> Result<Vec<(String, i64, i64, bool)>, BeyondEnd> {
    let live_nodes = segments
        .into_iter()
        .map(|segment| FnodeSegments {
            fnode: Fnode(segment.first_seq_no),
            segments: vec![segment],
            birth: None,
        })
        .collect();
    let hints = FsmHints {
        live_nodes,
        ..FsmHints::of_log("a/log")
    };
    let fsm = Fsm::new(&hints).unwrap();
    let ends = ends.iter().map(|&(log, end)| (log.into(), end)).collect();
    let legs = legs(&fsm, &ends)?;
    Ok(legs
        .into_iter()
        .map(|leg| (leg.log.to_string(), leg.begin, leg.end, leg.is_needed))
        .collect())
}

fn leg(log: &str, begin: i64, end: i64, is_needed: bool) -> (String, i64, i64, bool) {
    (log.to_owned(), begin, end, is_needed)
}

#[test]
fn without_hints_all_is_read() {
    assert_eq!(
        plan(vec![], &[("a/log", 70)]),
        Ok(vec![leg("a/log", 0, 70, true)])
    );
    assert_eq!(plan(vec![], &[("a/log", 0)]), Ok(vec![]));
}

#[test]
fn hinted_segments_are_read_and_what_follows_upon_the_last() {
    let segments = vec![
        segment(1, 2, 0, 20, ""),
        segment(4, 5, 40, 60, ""),
        segment(6, 7, 60, 80, ""),
        segment(9, 9, 90, 100, ""),
    ];
    assert_eq!(
        plan(segments, &[("a/log", 150)]),
        Ok(vec![
            leg("a/log", 0, 20, true),
            leg("a/log", 40, 80, true),
            leg("a/log", 90, 150, true)
        ])
    );
}

#[test]
fn from_a_segment_of_unknown_end_on_all_is_read() {
    let segments = vec![
        segment(1, 2, 0, 20, ""),
        segment(4, 5, 40, 0, ""),
        segment(9, 9, 60, 0, ""),
    ];
    assert_eq!(
        plan(segments, &[("a/log", 150)]),
        Ok(vec![
            leg("a/log", 0, 20, true),
            leg("a/log", 40, 150, false)
        ])
    );
}

#[test]
fn segments_of_another_log_are_read_there() {
    let segments = vec![segment(1, 2, 5, 20, "old/log"), segment(4, 5, 0, 30, "")];
    assert_eq!(
        plan(segments, &[("a/log", 50), ("old/log", 20)]),
        Ok(vec![leg("old/log", 5, 20, true), leg("a/log", 0, 50, true)])
    );
}

#[test]
fn hints_that_name_what_is_not_there_are_refused() {
    let beyond = |offset| {
        Err(BeyondEnd {
            log: "a/log".into(),
            offset,
            end: 50,
        })
    };
    let ends = &[("a/log", 50)];
    assert_eq!(plan(vec![segment(1, 2, 50, 0, "")], ends), beyond(50));
    assert_eq!(plan(vec![segment(1, 2, 0, 51, "")], ends), beyond(51));
    assert!(plan(vec![segment(1, 2, 0, 50, "")], ends).is_ok());
}
