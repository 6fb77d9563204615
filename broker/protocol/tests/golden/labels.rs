use gazette_protocol::{LabelSelector, LabelSet, SelectorError};

use crate::fixture::{self, labels, text};

#[test]
fn selectors_parse_and_print_as_in_the_reference() {
    let file = fixture::json("labels/selectors.json");
    for case in file["parse"].as_array().unwrap() {
        let source = text(case, "text");
        let parsed = LabelSelector::parse(source);
        if case.get("error").is_some() {
            assert!(parsed.is_err(), "{source:?} parsed to {parsed:?}");
            continue;
        }
        let parsed = parsed.unwrap_or_else(|error| panic!("{source:?}: {error}"));
        assert_eq!(parsed.include, labels(&case["include"]), "{source:?}");
        assert_eq!(parsed.exclude, labels(&case["exclude"]), "{source:?}");
        let printed = parsed.to_string();
        // What the reference prints is not always the same selector; ours is.
        if case["printed_parses_to_same"] == true {
            assert_eq!(printed, text(case, "printed"), "{source:?}");
        }
        assert_eq!(
            LabelSelector::parse(&printed).as_ref(),
            Ok(&parsed),
            "{source:?}"
        );
    }
}

#[test]
fn a_value_that_begins_with_an_equal_sign_survives_printing() {
    let selector = LabelSelector::parse("foo===x,bar!==y,baz in (=1,=2)").unwrap();
    assert_eq!(selector.include.value_of("foo"), Some("=x"));
    assert_eq!(selector.to_string(), "baz in (=1,=2),foo===x,bar!==y");
    assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
}

#[test]
fn errors_of_selectors_quote_what_did_not_parse() {
    let rest = |rest: &str| SelectorError::Unmatched {
        rest: rest.to_owned(),
    };
    assert_eq!(LabelSelector::parse("foo,,bar"), Err(rest(",bar")));
    assert_eq!(LabelSelector::parse("foo,  bar"), Err(rest("  bar")));
    let error = LabelSelector::parse("aa,foo in (a b)").unwrap_err();
    let expected = SelectorError::UnmatchedElement {
        rest: "a b".to_owned(),
        expression: "foo in (a b)".to_owned(),
    };
    assert_eq!(error, expected);
}

#[test]
fn selectors_match_as_in_the_reference() {
    let file = fixture::json("labels/matching.json");
    for case in file["matching"].as_array().unwrap() {
        let selector = LabelSelector::parse(text(case, "selector")).unwrap();
        for (name, matches) in case["matches"].as_object().unwrap() {
            let set = labels(&file["label_sets"][name]);
            assert_eq!(
                selector.matches(&set),
                *matches == true,
                "{selector} of {name}"
            );
        }
    }
}

#[test]
fn the_order_of_a_selector_does_not_matter() {
    let file = fixture::json("labels/matching.json");
    for case in file["unsorted_selectors"].as_array().unwrap() {
        let mut unsorted = LabelSet::default();
        for label in case["labels_in_this_order"].as_array().unwrap() {
            unsorted
                .labels
                .extend(labels(&serde_json::json!([label])).labels);
        }
        let sorted: LabelSet = unsorted.labels.iter().cloned().collect();
        for (name, set) in file["label_sets"].as_object().unwrap() {
            let set = labels(set);
            let include = |labels: &LabelSet| LabelSelector {
                include: labels.clone(),
                exclude: LabelSet::default(),
            };
            let exclude = |labels: &LabelSet| LabelSelector {
                include: LabelSet::default(),
                exclude: labels.clone(),
            };
            for selector in [include, exclude] {
                let (unsorted, sorted) = (selector(&unsorted), selector(&sorted));
                assert_eq!(
                    unsorted.matches(&set),
                    sorted.matches(&set),
                    "{sorted} of {name}"
                );
            }
        }
    }
}

#[test]
fn the_algebra_of_sets_is_that_of_the_reference() {
    let file = fixture::json("labels/set_algebra.json");
    for case in file["cases"].as_array().unwrap() {
        let (lhs, rhs) = (labels(&case["lhs"]), labels(&case["rhs"]));
        assert_eq!(
            LabelSet::union(&lhs, &rhs),
            labels(&case["union"]),
            "{case}"
        );
        assert_eq!(
            LabelSet::intersect(&lhs, &rhs),
            labels(&case["intersect"]),
            "{case}"
        );
        assert_eq!(
            LabelSet::subtract(&lhs, &rhs),
            labels(&case["subtract"]),
            "{case}"
        );
    }
}
