//! Command lines and what the reference printed.

use serde_json::Value;

/// One command line.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) args: Vec<String>,
    pub(crate) stdin: String,
    pub(crate) exit: i64,
    pub(crate) stdout: String,
}

/// Returns the cases of a file whose input and output are text.
pub(crate) fn cases(file: &str) -> Vec<Case> {
    let root = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/broker/gazctl"
    );
    let text = std::fs::read_to_string(format!("{root}/{file}")).unwrap();
    let golden: Value = serde_json::from_str(&text).unwrap();
    let case = |case: &Value| {
        let args = case["args"]
            .as_array()?
            .iter()
            .map(|arg| arg.as_str().unwrap().to_owned());
        Some(Case {
            name: case["name"].as_str()?.to_owned(),
            args: args.collect(),
            stdin: case["stdin"].as_str().unwrap_or_default().to_owned(),
            exit: case["exit"].as_i64()?,
            stdout: case["stdout"].as_str()?.to_owned(),
        })
    };
    golden["cases"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(case)
        .collect()
}

/// Returns the case with a name.
pub(crate) fn case(file: &str, name: &str) -> Case {
    cases(file)
        .into_iter()
        .find(|case| case.name == name)
        .unwrap()
}
