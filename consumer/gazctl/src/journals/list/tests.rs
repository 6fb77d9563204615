use clap::Parser;
use gazette_protocol::{LabelSelector, Validate as _};

use super::*;
use crate::golden;

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    list: List,
}

/// Parses what follows `journals list`.
fn parse(args: &[String]) -> List {
    let args = args.iter().skip(1).map(String::as_str);
    Program::try_parse_from(args).unwrap().list
}

/// Returns the listing that the reference printed as JSON, as far as `selector` matches it.
fn listing(file: &str, name: &str, selector: &LabelSelector) -> Listing {
    let response: ListResponse = json::from_json_str(&golden::case(file, name).stdout).unwrap();
    response.validate().unwrap();
    let matches = |journal: &list_response::Journal| {
        selector
            .with_prefixes_as_names()
            .matches(&journal.spec.label_set_with_meta())
    };
    let journals = response.journals.into_iter().filter(matches).collect();
    Listing {
        header: response.header,
        journals,
    }
}

/// Returns the cells of a table whose columns are the values of labels. The reference prints the
/// names of labels in capitals and with spaces; ours does not.
fn cells(table: &str) -> Vec<Vec<String>> {
    let plain = |cell: &str| match cell.trim() {
        "APP . GAZETTE . DEV / TAG" => "app.gazette.dev/tag".to_owned(),
        "CONTENT - TYPE" => "content-type".to_owned(),
        "ABSENT" => "absent".to_owned(),
        cell => cell.to_owned(),
    };
    let lines = table.lines().filter(|line| line.starts_with('│'));
    lines
        .map(|line| line.split('│').map(plain).collect())
        .collect()
}

#[test]
fn listings_are_printed_as_the_reference_prints_them() {
    let mut ran = Vec::new();
    for (file, state) in [
        ("cases_a.json", "list_json"),
        ("cases_b.json", "list_suspended_json"),
    ] {
        let of_state = |case: &golden::Case| {
            case.exit == 0
                && case.args.starts_with(&["journals".to_owned(), "list".to_owned()])
                // Others were printed in another state.
                && (file == "cases_a.json" || case.name.starts_with("list_suspended"))
                && case.name != "list_tmp_yaml"
        };
        for case in golden::cases(file).into_iter().filter(of_state) {
            let list = parse(&case.args);
            let printed = list
                .render(&listing(file, state, &list.selector.selector.0))
                .unwrap();
            if list.labels.is_empty() {
                // JSON ends without a newline there.
                let end = if list.format == Format::Json {
                    "\n"
                } else {
                    ""
                };
                assert_eq!(printed, case.stdout + end, "{}", case.name);
            } else {
                assert_eq!(cells(&printed), cells(&case.stdout), "{}", case.name);
            }
            ran.push(case.name);
        }
    }
    assert_eq!(ran.len(), 15, "{ran:?}");
}

#[test]
fn a_suspended_journal_is_marked() {
    let selector = LabelSelector::default();
    let journals = listing("cases_b.json", "list_suspended_json", &selector).journals;
    let primaries: Vec<String> = journals.iter().map(primary).collect();
    assert_eq!(primaries, ["broker-1 <S>", "<none> <S>", "broker-1"]);
}

#[test]
fn an_unknown_format_is_a_usage_error() {
    let case = golden::case("cases_a.json", "list_bad_format");
    let args = case.args.iter().skip(1);
    let error = Program::try_parse_from(args).unwrap_err();
    assert_eq!(error.exit_code(), 2);
}
