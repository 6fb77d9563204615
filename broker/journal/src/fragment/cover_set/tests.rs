use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::golden;

fn fragment(begin: i64, end: i64) -> Fragment {
    Fragment {
        journal: "a/journal".into(),
        begin,
        end,
        ..Fragment::default()
    }
}

type Spans = Vec<(i64, i64, String)>;

fn spans(set: &CoverSet<String>) -> Spans {
    set.iter()
        .map(|(fragment, label)| (fragment.begin, fragment.end, label.clone()))
        .collect()
}

fn span(value: &Value) -> (i64, i64, String) {
    let label = golden::text(value, "label").to_owned();
    (
        golden::integer(value, "begin"),
        golden::integer(value, "end"),
        label,
    )
}

#[test]
fn fragments_are_added_and_found_as_recorded() {
    let golden = golden::load("state/cover_set.json");
    let cases = golden::entries(&golden["cases"]);
    assert_eq!(cases.len(), 12);
    for case in cases {
        let name = golden::text(case, "name");
        // The reference loses the order here: see the next test.
        if name == "covering_replaces" {
            continue;
        }
        let mut set = CoverSet::default();
        for step in golden::entries(&case["steps"]) {
            let (begin, end, label) = span(&step["add"]);
            assert_eq!(
                Value::Bool(set.add(fragment(begin, end), label)),
                step["updated"],
                "{name}"
            );
            let expected: Spans = golden::entries(&step["set"]).iter().map(span).collect();
            assert_eq!(spans(&set), expected, "{name}");
        }
        assert_eq!(set.begin(), golden::integer(case, "begin_offset"), "{name}");
        assert_eq!(set.end(), golden::integer(case, "end_offset"), "{name}");
        for lookup in golden::entries(&case["longest_overlapping"]) {
            let offset = golden::integer(lookup, "offset");
            let found = set.covering(offset);
            assert_eq!(
                Value::Bool(found.is_some()),
                lookup["found"],
                "{name} at {offset}"
            );
            let (which, _) = found.or_else(|| set.next_from(offset)).unzip();
            let index = set
                .iter()
                .take_while(|(other, _)| Some(*other) != which)
                .count();
            let index = i64::try_from(index).unwrap();
            assert_eq!(
                index,
                golden::integer(lookup, "index"),
                "{name} at {offset}"
            );
        }
    }
}

#[test]
fn a_fragment_replaces_all_that_it_covers() {
    let mut set = CoverSet::default();
    for (begin, end) in [(10, 20), (20, 30), (5, 40)] {
        assert!(set.add(fragment(begin, end), String::new()));
    }
    assert_eq!(spans(&set), [(5, 40, String::new())]);
    for offset in [5, 15, 39] {
        assert_eq!(set.covering(offset).unwrap().0.begin, 5);
    }
    assert_eq!((set.begin(), set.end(), set.len()), (5, 40, 1));
}

#[test]
fn a_union_covers_what_no_fragment_does() {
    let mut set = CoverSet::default();
    for (begin, end) in [(0, 10), (8, 20), (20, 30), (40, 50)] {
        set.add(fragment(begin, end), ());
    }
    assert!(set.covers(3, 30));
    assert!(!set.covers(3, 31));
    assert!(set.covers(7, 7));
}

proptest! {
    #[test]
    fn every_byte_of_any_fragment_is_covered_in_order(
        added in prop::collection::vec((0..60i64, 0..20i64), 0..40),
    ) {
        let mut set = CoverSet::default();
        let mut longest = [0i64; 100];
        for (age, &(begin, length)) in added.iter().enumerate() {
            let is_new = set.add(fragment(begin, begin + length), age);
            prop_assert!(!is_new || length > 0);
            for offset in begin..begin + length {
                let reach = &mut longest[usize::try_from(offset).unwrap()];
                *reach = (*reach).max(begin + length);
            }
            let (begins, ends): (Vec<_>, Vec<_>) =
                set.iter().map(|(fragment, _)| (fragment.begin, fragment.end)).unzip();
            prop_assert!(begins.is_sorted_by(|a, b| a < b));
            prop_assert!(ends.is_sorted_by(|a, b| a < b));
            for (offset, &reach) in (0..).zip(&longest) {
                let found = set.covering(offset).map(|(fragment, _)| fragment.end);
                prop_assert_eq!(found, (reach > 0).then_some(reach), "offset {}", offset);
            }
        }
    }

    #[test]
    fn the_order_of_adding_does_not_matter(
        added in prop::collection::vec((0..60i64, 1..20i64), 0..20).prop_flat_map(|added| {
            (Just(added.clone()), Just(added).prop_shuffle())
        }),
    ) {
        let build = |added: &[(i64, i64)]| {
            let mut set = CoverSet::default();
            for &(begin, length) in added {
                set.add(fragment(begin, begin + length), String::new());
            }
            spans(&set)
        };
        prop_assert_eq!(build(&added.0), build(&added.1));
    }
}
