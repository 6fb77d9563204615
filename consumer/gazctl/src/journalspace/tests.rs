use gazette_protocol::{Label, duration, json};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn golden() -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/broker/journalspace/journalspace.json"
    );
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Name, delete, revision and spec of each journal.
type Flat = Vec<(Option<bool>, i64, JournalSpec)>;

fn flat(value: &Value) -> Flat {
    let journal = |journal: &Value| {
        (
            journal["delete"].as_bool(),
            journal["revision"].as_i64().unwrap(),
            json::from_json(&journal["spec"]).unwrap(),
        )
    };
    value.as_array().unwrap().iter().map(journal).collect()
}

fn flatten(tree: &Node) -> Flat {
    let leaf = |leaf: &Node| (leaf.delete, leaf.revision, leaf.spec.clone());
    tree.leaves().into_iter().map(leaf).collect()
}

#[test]
fn listings_become_the_trees_that_the_reference_prints() {
    for case in golden()["flat_to_yaml"].as_array().unwrap() {
        let name = text(&case["name"]);
        let journals: Vec<list_response::Journal> = case["journals"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|journal| list_response::Journal {
                spec: json::from_json(&journal["spec"]).unwrap(),
                mod_revision: journal["mod_revision"].as_i64().unwrap(),
                ..list_response::Journal::default()
            })
            .collect();
        let tree = Node::from_listing(&journals);
        let printed = yaml::print(&tree).unwrap();
        assert_eq!(printed, text(&case["yaml"]), "{name}");

        // And back.
        let mut parsed = yaml::parse(&printed).unwrap();
        assert_eq!(parsed, tree, "{name}");
        parsed.push_down();
        let back: Vec<_> = flatten(&parsed)
            .into_iter()
            .map(|(_, _, spec)| spec)
            .collect();
        let specs: Vec<_> = journals.into_iter().map(|journal| journal.spec).collect();
        assert_eq!(back, specs, "{name}");
    }
}

#[test]
fn trees_that_the_reference_reads_mean_the_same() {
    for case in golden()["yaml_to_flat"].as_array().unwrap() {
        let name = text(&case["name"]);
        let parsed = yaml::parse(text(&case["yaml"]));
        if let Some(error) = case.get("yaml_error").filter(|error| !error.is_null()) {
            assert!(
                parsed.is_err(),
                "{name}: the reference says {error}, we read {parsed:?}"
            );
            continue;
        }
        let mut tree = parsed.unwrap_or_else(|error| panic!("{name}: {error}"));
        let valid = tree.validate();
        if let Some(error) = case
            .get("validation_error")
            .filter(|error| !error.is_null())
        {
            assert!(valid.is_err(), "{name}: the reference says {error}");
            continue;
        }
        valid.unwrap_or_else(|error| panic!("{name}: {error}"));
        tree.push_down();
        assert_eq!(flatten(&tree), flat(&case["flat"]), "{name}");
        tree.hoist();
        let hoisted = text(&case["pushed_down_then_hoisted_yaml"]);
        assert_eq!(yaml::print(&tree).unwrap(), hoisted, "{name}");
    }
}

#[test]
fn patches_do_what_those_of_the_reference_do() {
    let mut ran = 0;
    for case in golden()["patch"].as_array().unwrap() {
        // Deleting what was not patched is not offered.
        if case["mark_unpatched_for_deletion"] == true {
            continue;
        }
        let mut tree = yaml::parse(text(&case["tree"])).unwrap();
        tree.push_down();
        for patch in case["patches"].as_array().unwrap() {
            tree.patch(yaml::parse(text(patch)).unwrap());
        }
        tree.validate().unwrap();
        assert_eq!(flatten(&tree), flat(&case["flat"]), "{}", case["name"]);
        ran += 1;
    }
    assert_eq!(ran, 4);
}

#[test]
fn errors_of_typing_have_a_line_and_a_reason() {
    for (yaml, error) in [
        (
            "name: acme/xxx\nreplicas: 2\n",
            "line 2, column 1: unknown field `replicas`, expected one of `comment`",
        ),
        (
            "name: acme/a\nname: acme/b\n",
            "line 2, column 1: duplicate mapping key: name",
        ),
        (
            "name: acme/\nchildren:\n- name: acme/a\n  fragment:\n    compression_codec: gzip\n",
            "line 5, column 24: \"gzip\" is no compression codec; write NONE, GZIP",
        ),
        (
            "name: acme/a\nfragment: {refresh_interval: soon}\n",
            "line 2, column 30: \"soon\" is not a duration",
        ),
        (
            "name: acme/a\nflags: O_BOGUS\n",
            "line 2, column 8: \"O_BOGUS\" is no flag",
        ),
        ("name: acme/a\nreplication: two\n", "line 2, column 14: "),
        ("name: acme/a\nlabels: {a: b}\n", "line 2, column 9: "),
        (
            "- name: acme/a\n",
            "line 1, column 1: expected mapping start",
        ),
        (
            "name: a\n---\nname: b\n",
            "line 3, column 1: there is more than one document",
        ),
        ("name: [a\n", "line "),
    ] {
        let found = yaml::parse(yaml).unwrap_err().to_string();
        assert!(
            found.replace('`', "").starts_with(&error.replace('`', "")),
            "{yaml}\n{found}"
        );
        assert!(!found.contains('\n'), "{found}");
    }
}

#[test]
fn a_delete_has_no_spec_and_an_upsert_all_of_it() {
    let yaml = "name: acme/\nreplication: 1\nchildren:\n\
                - {name: acme/a, delete: true, revision: 7}\n- {name: acme/b, revision: -1}\n";
    let mut tree = yaml::parse(yaml).unwrap();
    tree.push_down();
    let changes = tree.to_changes();
    assert_eq!(changes.len(), 2);
    assert_eq!(
        (changes[0].delete.as_str(), changes[0].expect_mod_revision),
        ("acme/a", 7)
    );
    assert_eq!(changes[0].upsert, None);
    assert_eq!(
        (changes[1].delete.as_str(), changes[1].expect_mod_revision),
        ("", -1)
    );
    assert_eq!(
        changes[1].upsert.as_ref().map(|spec| spec.replication),
        Some(1)
    );
}

fn labels() -> impl Strategy<Value = LabelSet> {
    let label = ("[ab][ab]", "[xy]?");
    prop::collection::vec(label, 0..4).prop_map(LabelSet::from_pairs)
}

fn seconds() -> impl Strategy<Value = prost_types::Duration> {
    (0..3_i64).prop_map(|count| duration::from_nanos(count * 1_500_000_000))
}

fn fragment() -> impl Strategy<Value = journal_spec::Fragment> {
    let stores = prop::collection::vec("file:///[ab]/", 0..2);
    (
        0..3_i64,
        0..5_i32,
        stores,
        seconds(),
        seconds(),
        seconds(),
        "[pq]?",
    )
        .prop_map(
            |(length, compression_codec, stores, refresh, retention, flush, postfix)| {
                journal_spec::Fragment {
                    length: length * 1024,
                    compression_codec,
                    stores,
                    refresh_interval: refresh,
                    retention,
                    flush_interval: flush,
                    path_postfix_template: postfix,
                }
            },
        )
}

prop_compose! {
    fn spec()(
        name in "[ab](/[ab1-]{1,3}){0,4}",
        replication in 0..3_i32,
        labels in labels(),
        fragment in fragment(),
        flags in 0..5_u32,
        max_append_rate in 0..2_i64,
        suspend in prop::option::of((0..3_i32, 0..2_i64)),
    ) -> JournalSpec {
        let suspend = suspend.map(|(level, offset)| journal_spec::Suspend { level, offset });
        JournalSpec { name, replication, labels, fragment, flags, max_append_rate, suspend }
    }
}

fn listing() -> impl Strategy<Value = Vec<list_response::Journal>> {
    prop::collection::vec((spec(), 1..9_i64), 0..12).prop_map(|mut specs| {
        specs.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        specs.dedup_by(|(a, _), (b, _)| a.name == b.name);
        let journal = |(spec, mod_revision)| list_response::Journal {
            spec,
            mod_revision,
            ..list_response::Journal::default()
        };
        specs.into_iter().map(journal).collect()
    })
}

proptest! {
    #[test]
    fn hoisting_and_pushing_down_is_an_identity(journals in listing()) {
        let mut tree = Node::from_listing(&journals);
        if !journals.is_empty() && journals.iter().all(|journal| journal.spec.name.len() >= 4) {
            prop_assert_eq!(tree.validate(), Ok(()));
        }
        tree.push_down();
        let expected: Flat = journals
            .iter()
            .map(|journal| (None, journal.mod_revision, journal.spec.clone()))
            .collect();
        prop_assert_eq!(flatten(&tree), expected);
    }

    #[test]
    fn printing_and_parsing_is_an_identity(journals in listing()) {
        let tree = Node::from_listing(&journals);
        let printed = yaml::print(&tree).unwrap();
        prop_assert_eq!(yaml::parse(&printed), Ok(tree), "{}", printed);
    }

    #[test]
    fn a_folder_says_what_all_below_it_have_in_common(journals in listing()) {
        let mut tree = Node::from_listing(&journals);
        let hoisted = tree.clone();
        tree.push_down();
        tree.hoist();
        prop_assert_eq!(tree, hoisted);
    }

    #[test]
    fn patching_with_the_whole_changes_nothing(journals in listing()) {
        let mut tree = Node::from_listing(&journals);
        tree.push_down();
        let before = flatten(&tree);
        for leaf in tree.clone().leaves() {
            tree.patch(leaf.clone());
        }
        prop_assert_eq!(flatten(&tree), before);
    }

    #[test]
    fn any_word_survives_as_a_label(value in any::<String>()) {
        let mut node = Node::default();
        node.spec.name = "acme/a".to_owned();
        node.spec.labels = LabelSet { labels: vec![Label::new("aa", value)] };
        let printed = yaml::print(&node).unwrap();
        prop_assert_eq!(yaml::parse(&printed), Ok(node), "{}", printed);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(yaml in any::<String>()) {
        let parsed = yaml::parse(&yaml);
        drop(parsed.map(|tree| tree.validate()));
    }
}
