use std::collections::BTreeMap;

use serde_json::Value;

use crate::fixture::{self, text};

/// The fields before the first colon of an error's text. Other texts have colons too.
fn context_of(error: &str) -> &str {
    let (context, _) = error.split_once(": ").unwrap_or_default();
    let is_path = context.starts_with(|c: char| c.is_ascii_uppercase())
        && !context
            .replace("metadata path segment", "")
            .contains([' ', '(']);
    if is_path { context } else { "" }
}

/// Cases whose messages are of packages that this crate does not have.
const CASES_OF_OTHER_PACKAGES: usize = 36;

#[test]
fn messages_are_accepted_or_refused_as_in_the_reference() {
    let file = fixture::json("validation/validation.json");
    let cases = file["cases"].as_array().unwrap();
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for case in cases {
        let name = text(case, "type");
        let Some(kind) = fixture::kind(name) else {
            *skipped.entry(name).or_default() += 1;
            continue;
        };
        let bytes = (kind.json_to_bytes)(&case["input"]).unwrap();
        let outcome = (kind.validate)(&bytes).expect("the type has rules");
        let panics = case.get("panic").is_some_and(|panic| panic == true);
        let expected = match case.get("error") {
            Some(Value::String(error)) => Err(context_of(error)),
            // Where the reference ends its process, ours refuses the message.
            _ if panics => Err("Fragment.Stores[0]"),
            _ => Ok(()),
        };
        let path = outcome
            .as_ref()
            .map_err(gazette_protocol::ValidationError::path)
            .copied();
        if path.as_ref().map_err(String::as_str) != expected.as_ref().map_err(|path| *path) {
            faults.push(format!(
                "{name} {} expected {expected:?} is {outcome:?}",
                case["input"]
            ));
        }
    }
    println!("skipped, as they are of other packages: {skipped:?}");
    assert_eq!(skipped.values().sum::<usize>(), CASES_OF_OTHER_PACKAGES);
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
