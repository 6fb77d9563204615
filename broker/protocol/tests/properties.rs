//! What holds for all messages and texts, not only for those that were recorded.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use gazette_protocol::{
    json::{JsonForm, WireMessage},
    *,
};
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    r"[a-zé0-9½\-_+/.]{2,8}"
}

fn value() -> impl Strategy<Value = String> {
    r"[=%a-zé0-9½\-_+/.]{0,6}"
}

fn label_set(prefixes: bool) -> impl Strategy<Value = LabelSet> {
    let label = (name(), value(), any::<bool>()).prop_map(move |(name, value, prefix)| Label {
        name,
        value,
        prefix: prefixes && prefix,
    });
    prop::collection::vec(label, 0..5).prop_map(|labels| {
        let mut set: LabelSet = labels.into_iter().collect();
        // A label with an empty value may have no other.
        let empty: Vec<String> = set
            .labels
            .iter()
            .filter(|l| l.value.is_empty())
            .map(|l| l.name.clone())
            .collect();
        set.labels
            .retain(|label| label.value.is_empty() || !empty.contains(&label.name));
        set
    })
}

fn selector() -> impl Strategy<Value = LabelSelector> {
    (label_set(true), label_set(true))
        .prop_map(|(include, exclude)| LabelSelector { include, exclude })
}

/// A duration that has a length in nanoseconds.
fn any_duration() -> impl Strategy<Value = prost_types::Duration> {
    any::<i64>().prop_map(duration::from_nanos)
}

/// Any spec that can be written, valid or not.
fn journal_spec() -> impl Strategy<Value = JournalSpec> {
    let fragment = (
        any::<i64>(),
        0..6_i32,
        prop::collection::vec(".{0,20}", 0..3),
        [any_duration(), any_duration(), any_duration()],
        r#"[{}a-z ."'\n:#-]{0,20}"#,
    );
    let fragment = fragment.prop_map(|(length, codec, stores, intervals, template)| {
        let [refresh_interval, retention, flush_interval] = intervals;
        journal_spec::Fragment {
            length,
            compression_codec: codec,
            stores,
            refresh_interval,
            retention,
            flush_interval,
            path_postfix_template: template,
        }
    });
    let suspend = (0..4_i32, any::<i64>());
    let suspend = suspend.prop_map(|(level, offset)| journal_spec::Suspend { level, offset });
    let text = prop_oneof![
        name(),
        ".{0,12}",
        Just("true".to_owned()),
        Just("null".to_owned())
    ];
    (
        text,
        any::<i32>(),
        label_set(false),
        fragment,
        any::<u32>(),
        any::<i64>(),
        prop::option::of(suspend),
    )
        .prop_map(
            |(name, replication, labels, fragment, flags, max_append_rate, suspend)| JournalSpec {
                name,
                replication,
                labels,
                fragment,
                flags,
                max_append_rate,
                suspend,
            },
        )
}

fn fragment() -> impl Strategy<Value = Fragment> {
    let postfix = "([a-z=%0-9]{1,5}(/[a-z=%0-9.]{2,5}){0,2})?";
    (
        0..i64::MAX,
        0..i64::MAX,
        any::<[u8; 20]>(),
        1..6_i32,
        postfix,
    )
        .prop_map(|(a, b, digest, codec, path_postfix)| Fragment {
            journal: "acme/orders".to_owned(),
            begin: a.min(b),
            end: a.max(b),
            sum: Sha1Sum::from_digest(digest),
            compression_codec: codec,
            path_postfix,
            ..Fragment::default()
        })
}

fn check_forms<M: WireMessage + PartialEq + std::fmt::Debug>(
    message: &M,
) -> Result<(), TestCaseError> {
    for form in [JsonForm::OriginalNames, JsonForm::CamelCase, JsonForm::Go] {
        let json = json::to_json(message, form);
        prop_assert_eq!(&json::from_json::<M>(&json).unwrap(), message);
        prop_assert_eq!(
            &json::from_json_str::<M>(&json.to_string()).unwrap(),
            message
        );
    }
    let bytes = message.encode_to_vec();
    prop_assert_eq!(&M::decode(bytes.as_slice()).unwrap(), message);
    let _text = (
        prototext::format(message),
        prototext::format_compact(message),
    );
    Ok(())
}

fn check_bytes<M: WireMessage + Validate>(bytes: &[u8]) {
    let Ok(message) = M::decode(bytes) else {
        return;
    };
    let _outcome = message.validate();
    let _text = prototext::format(&message);
    let json = json::to_json(&message, JsonForm::OriginalNames);
    // Durations may be malformed, and then are no JSON.
    let _message = json::from_json::<M>(&json);
}

proptest! {
    #[test]
    fn selectors_parse_to_what_was_printed(selector in selector()) {
        prop_assume!(selector.validate().is_ok());
        let printed = selector.to_string();
        prop_assert_eq!(LabelSelector::parse(&printed), Ok(selector));
    }

    #[test]
    fn any_text_is_a_selector_or_an_error(text in "[a-z=!,() :prefixn%]{0,20}|.*") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            selector.validate().unwrap();
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn a_selector_of_a_set_selects_it(set in label_set(false)) {
        let selector = LabelSelector { include: set.clone(), exclude: LabelSet::default() };
        prop_assert!(selector.matches(&set));
        let negated = LabelSelector { include: LabelSet::default(), exclude: set.clone() };
        prop_assert_eq!(negated.matches(&set), set.is_empty());
    }

    #[test]
    fn the_algebra_of_sets_keeps_them_sorted(lhs in label_set(false), rhs in label_set(false)) {
        let union = LabelSet::union(&lhs, &rhs);
        let common = LabelSet::intersect(&lhs, &rhs);
        let rest = LabelSet::subtract(&lhs, &rhs);
        for set in [&union, &common, &rest] {
            set.validate().unwrap();
        }
        prop_assert_eq!(&LabelSet::union(&common, &rest), &lhs);
        for label in &lhs.labels {
            prop_assert!(union.values_of(&label.name).eq(lhs.values_of(&label.name)));
        }
        prop_assert_eq!(LabelSet::union(&lhs, &lhs), lhs);
    }

    #[test]
    fn values_that_are_set_are_found(mut set in label_set(false), name in name(), value in value()) {
        set.set_value(&name, &value);
        prop_assert_eq!(set.values_of(&name).collect::<Vec<_>>(), vec![value.as_str()]);
        set.validate().unwrap();
        set.remove(&name);
        prop_assert_eq!(set.value_of(&name), None);
    }

    #[test]
    fn names_of_fragments_parse_to_the_fragment(fragment in fragment()) {
        prop_assume!(fragment.validate().is_ok());
        let path = fragment.content_path();
        let relative = path.strip_prefix("acme/orders/").unwrap();
        let stored = StoredFragment::parse("acme/orders", relative).unwrap();
        prop_assert!(stored.is_canonical());
        prop_assert_eq!(stored.fragment, fragment);
    }

    #[test]
    fn any_path_is_a_fragment_or_an_error(path in r"([a-f0-9/.+]{0,9}-){2}[a-f0-9]{39,41}(\.(gz|raw|GZOD|x))?|.*") {
        if let Ok(stored) = StoredFragment::parse("acme/orders", &path) {
            let fragment = stored.fragment;
            fragment.validate().unwrap();
            let canonical = fragment.content_path();
            if let Some(relative) = canonical.strip_prefix("acme/orders/") {
                prop_assert_eq!(Fragment::parse_relative("acme/orders", relative), Ok(fragment));
            }
        }
    }

    #[test]
    fn specs_survive_every_form(spec in journal_spec()) {
        check_forms(&spec)?;
        let _outcome = spec.validate();
    }

    #[test]
    fn specs_survive_yaml(spec in journal_spec()) {
        // There, codecs have names only, and zero is left out.
        prop_assume!(spec.fragment.compression_codec().as_str_name() != "INVALID"
            || spec.fragment.compression_codec == 0);
        let printed = yaml::print_spec(&spec).unwrap();
        let parsed = yaml::parse_spec(&printed);
        prop_assert_eq!(parsed, Ok(spec), "{}", printed);
    }

    #[test]
    fn selectors_and_fragments_survive_every_form(selector in selector(), fragment in fragment()) {
        check_forms(&selector)?;
        check_forms(&fragment)?;
        let request = AppendRequest {
            journal: "acme/orders".to_owned(),
            check_registers: Some(selector.clone()),
            union_registers: Some(selector.include),
            offset: fragment.end,
            content: vec![0, 255].into(),
            ..AppendRequest::default()
        };
        check_forms(&request)?;
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..64),
            prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 8, 10, 16, 18, 26, 34]), 0..32),
        ],
    ) {
        macro_rules! check {
            ($($message:ty),*) => {
                $(check_bytes::<$message>(&bytes);)*
            };
        }
        check!(
            JournalSpec, BrokerSpec, Fragment, Route, Header, ReadRequest, ReadResponse,
            AppendRequest, AppendResponse, ReplicateRequest, ReplicateResponse, ListRequest,
            ListResponse, ApplyRequest, ApplyResponse, FragmentsRequest, FragmentsResponse,
            FragmentStoreHealthRequest, FragmentStoreHealthResponse
        );
    }
}
