use super::*;
use crate::golden;

fn changes(text: &str) -> Result<Vec<Change>, String> {
    parse(text, None).and_then(|tree| changes_of(&tree))
}

#[test]
fn a_dry_run_prints_what_the_reference_prints() {
    let root = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/broker/gazctl"
    );
    let text = fs::read_to_string(format!("{root}/in/cluster.yaml")).unwrap();
    let request = ApplyRequest {
        changes: changes(&text).unwrap(),
    };
    let golden = golden::case("cases_a.json", "apply_dry_run_exists");
    assert_eq!(prototext::format(&request), golden.stdout);
}

#[test]
fn trees_are_accepted_and_refused_as_the_reference_does() {
    // Refused by the broker, because of the state that it was in.
    let conflicts = ["apply_conflict_revision"];
    let mut ran = 0;
    for case in golden::cases("cases_a.json") {
        let is_apply = case.args.len() == 2 && case.args[1] == "apply";
        if !is_apply || conflicts.contains(&case.name.as_str()) {
            continue;
        }
        let changes = changes(&case.stdin);
        assert_eq!(
            changes.is_ok(),
            case.exit == 0,
            "{}: {changes:?}",
            case.name
        );
        if let Err(error) = changes {
            assert!(error.contains("; next: "), "{}: {error}", case.name);
        }
        ran += 1;
    }
    assert_eq!(ran, 14);
}

#[test]
fn an_invalid_spec_names_its_journal_and_field() {
    let error = changes("name: acme/xxx\nreplication: 2\n").unwrap_err();
    assert!(error.starts_with("journal \"acme/xxx\": "), "{error}");
    assert!(error.contains("Fragment"), "{error}");
}

#[test]
fn a_patch_keeps_what_it_does_not_mention() {
    let present = "name: acme/\nreplication: 3\nfragment: {length: 2048, compression_codec: NONE, \
                   refresh_interval: 1m}\nchildren:\n- {name: acme/a, revision: 4}\n\
                   - {name: acme/b, revision: 5}\n";
    let mut present = journalspace::yaml::parse(present).unwrap();
    present.push_down();
    let patches = parse("name: acme/b\nflags: O_RDONLY\n", None).unwrap();
    let changes = changes_of(&patch(present, &patches)).unwrap();
    assert_eq!(changes.len(), 1);
    let spec = changes[0].upsert.as_ref().unwrap();
    assert_eq!(changes[0].expect_mod_revision, 5);
    assert_eq!(
        (spec.name.as_str(), spec.replication, spec.flags),
        ("acme/b", 3, 1)
    );
    assert_eq!(spec.fragment.length, 2048);
}
