use std::time::{Duration, SystemTime};

use gazette_protocol::{
    Fragment, JournalSpec, LabelSet, StoredFragment, endpoint, json,
    postfix::{PostfixContext, Template},
};

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

#[test]
fn postfix_templates_make_what_they_make_in_the_reference() {
    let file = fixture::json("fragments/postfix_templates.json");
    let fragment: Fragment = json::from_json(&file["spool_fragment"]).unwrap();
    let spec: JournalSpec = json::from_json(&file["spec"]).unwrap();
    let registers: LabelSet = json::from_json(&file["registers"]).unwrap();
    assert_eq!(
        text(&file, "first_append_time"),
        "2024-02-09T05:07:08.123456789Z"
    );
    let context = PostfixContext {
        fragment: &fragment,
        first_append_time: SystemTime::UNIX_EPOCH + Duration::new(1_707_455_228, 123_456_789),
        registers: &registers,
        spec: &spec,
    };
    for case in file["cases"].as_array().unwrap() {
        let template = text(case, "template");
        let result = Template::parse(template).and_then(|parsed| parsed.evaluate(&context));
        let Some(expected) = case["result"].as_str() else {
            assert!(result.is_err(), "{template:?} made {result:?}");
            continue;
        };
        assert_eq!(result.as_deref(), Ok(expected), "{template:?}");
        let stored = Fragment {
            path_postfix: expected.to_owned(),
            ..fragment.clone()
        };
        assert_eq!(
            stored.content_path(),
            text(case, "content_path"),
            "{template:?}"
        );
    }
}
