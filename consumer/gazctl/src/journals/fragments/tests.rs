use clap::Parser;

use super::*;
use crate::golden;

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    fragments: Fragments,
}

fn parse(args: &[String]) -> Fragments {
    let args = args.iter().skip(1).map(String::as_str);
    Program::try_parse_from(args).unwrap().fragments
}

/// Returns the answers of the broker, from what the reference printed as JSON.
fn responses(name: &str) -> Vec<FragmentsResponse> {
    let lines = golden::case("cases_a.json", name).stdout;
    let fragment = |line: &str| json::from_json(&serde_json::from_str(line).unwrap()).unwrap();
    let fragments = lines.lines().map(fragment).collect();
    vec![FragmentsResponse {
        fragments,
        ..FragmentsResponse::default()
    }]
}

#[test]
fn fragments_are_printed_as_the_reference_prints_them() {
    // Two minutes after the first was persisted.
    let now = 1_796_053_623 + 150;
    for (state, name) in [
        ("fragments_json", "fragments_table"),
        ("fragments_json", "fragments_json"),
        ("fragments_url", "fragments_url"),
        ("fragments_url", "fragments_url_table"),
        ("fragments_none_of_it", "fragments_none"),
    ] {
        let case = golden::case("cases_a.json", name);
        let responses = if state == "fragments_none_of_it" {
            Vec::new()
        } else {
            responses(state)
        };
        let printed = parse(&case.args).render(&responses, now);
        if name.contains("table") {
            // When it was persisted depends on the time of the run.
            let without_time = |table: &str| -> Vec<String> {
                let cells = |line: &str| {
                    let cells = line.split('│').map(str::trim);
                    cells
                        .enumerate()
                        .filter(|(at, _)| *at != 4)
                        .map(|(_, cell)| cell.to_owned())
                        .collect::<Vec<_>>()
                        .join("|")
                };
                table
                    .lines()
                    .filter(|line| line.contains('│'))
                    .map(cells)
                    .collect()
            };
            assert_eq!(without_time(&printed), without_time(&case.stdout), "{name}");
        } else {
            assert_eq!(printed, case.stdout, "{name}");
        }
    }
}

#[test]
fn a_fragment_that_is_not_persisted_has_no_time() {
    let table = parse(&golden::case("cases_a.json", "fragments_table").args)
        .render(&responses("fragments_json"), 1_796_053_623 + 150);
    let times: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split('│').nth(4))
        .map(str::trim)
        .collect();
    assert_eq!(times[..3], ["PERSISTED", "2 minutes ago", ""]);
}
