use gazette_protocol::{Fragment, StoredFragment, endpoint, json};

use crate::fixture::{self, text};

#[test]
fn names_of_fragments_parse_and_print_as_in_the_reference() {
    let file = fixture::json("fragments/names.json");
    let journal = text(&file, "journal");
    for case in file["cases"].as_array().unwrap() {
        let relative = text(case, "relative_path");
        let parsed = StoredFragment::parse(journal, relative);
        if case.get("error").is_some_and(|error| !error.is_null()) {
            assert!(parsed.is_err(), "{relative:?} parsed to {parsed:?}");
            continue;
        }
        let stored = parsed.unwrap_or_else(|error| panic!("{relative:?}: {error}"));
        let expected: Fragment = json::from_json(&case["fragment"]).unwrap();
        assert_eq!(stored.fragment, expected, "{relative:?}");
        assert_eq!(expected.content_name(), text(case, "content_name"));
        assert_eq!(expected.content_path(), text(case, "content_path"));
        assert_eq!(stored.path(), format!("{journal}/{relative}"));
        assert_eq!(
            stored.is_canonical(),
            stored.path() == text(case, "content_path")
        );
    }
}

#[test]
fn endpoints_are_dialed_as_in_the_reference() {
    let file = fixture::json("state/misc.json");
    for case in file["endpoint_dial_address"].as_array().unwrap() {
        let dialed = endpoint::dial_address(text(case, "endpoint")).unwrap();
        assert_eq!(dialed, text(case, "dial_address"));
    }
}
