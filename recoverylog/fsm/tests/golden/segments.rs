//! The tables of segment sets.

use gazette_recoverylog_fsm::{Segment, SegmentConflict, SegmentError, SegmentSet};

use crate::support::{int, json, list, segment};

/// The beginning of the reference's text.
fn reference_text(error: &SegmentError) -> &'static str {
    match error {
        SegmentError::Author => "Author is zero",
        SegmentError::FirstSeqNo(_) => "FirstSeqNo <= 0",
        SegmentError::FirstOffset(_) => "FirstOffset < 0",
        SegmentError::LastSeqNo { .. } => "LastSeqNo < segment.FirstSeqNo",
        SegmentError::LastOffset { .. } => "LastOffset <= segment.FirstOffset",
        SegmentError::Log(_) => "Log: ",
        SegmentError::Conflict(_, _, conflict) => match conflict {
            SegmentConflict::FirstOffset => "expected monotonic FirstOffset",
            SegmentConflict::FirstChecksum => "expected FirstChecksum equality",
            SegmentConflict::UnknownEnd => "expected preceding Segment to also include LastOffset",
            SegmentConflict::UnknownEndOfLog => {
                "Segment cannot use a different log where preceding Segment.LastOffset is zero"
            }
            SegmentConflict::LastOffset => "expected monotonic LastOffset",
            SegmentConflict::Author => "expected Segment Author equality",
            SegmentConflict::Log => "expected Segment Log equality",
        },
    }
}

#[test]
fn segments_add_up_as_in_the_reference() {
    let table = json("segments.json");
    for row in list(&table["add"]) {
        let name = row["name"].as_str().unwrap();
        let mut set = SegmentSet::default();
        for step in list(&row["steps"]) {
            let added = set.add(segment(&step["add"]));
            match (added, step["error"].as_str()) {
                (Ok(()), None) => {}
                (Err(error), Some(expected)) => {
                    let text = reference_text(&error);
                    assert!(
                        expected.starts_with(text),
                        "{name}: {error}, not {expected}"
                    );
                }
                (other, expected) => panic!("{name}: {other:?}, not {expected:?}"),
            }
            let expected: Vec<Segment> = list(&step["set"]).iter().map(segment).collect();
            let set: Vec<Segment> = set.iter().cloned().collect();
            assert_eq!(set, expected, "{name}");
        }
    }
}

#[test]
fn ranges_of_offsets_find_their_segments() {
    let table = json("segments.json");
    let mut set = SegmentSet::default();
    for value in list(&table["intersect_set"]) {
        set.add(segment(value)).unwrap();
    }
    for row in list(&table["intersect"]) {
        let (first, last) = (int(row, "first"), int(row, "last"));
        let found: Vec<Segment> = set.intersect("a/log", first, last).cloned().collect();
        let expected: Vec<Segment> = list(&row["result"]).iter().map(segment).collect();
        assert_eq!(found, expected, "[{first}, {last})");
        assert_eq!(set.intersect("other/log", first, last).count(), 0);
    }
}
