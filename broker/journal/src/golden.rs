//! Facts recorded by running Gazette, for tests.

use std::{fs, path::PathBuf};

use gazette_protocol::json::{WireMessage, from_json};
use serde_json::Value;

/// A file under `tests/golden/broker`.
pub(crate) fn load(path: &str) -> Value {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/broker");
    let text = fs::read_to_string(root.join(path)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A message in its JSON form.
pub(crate) fn message<M: WireMessage>(value: &Value) -> M {
    from_json(value).unwrap()
}

/// The entries of a list, which may be null.
pub(crate) fn entries(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A required integer.
pub(crate) fn integer(value: &Value, name: &str) -> i64 {
    value[name]
        .as_i64()
        .unwrap_or_else(|| panic!("{name} of {value} is an integer"))
}

/// A required text.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} of {value} is a text"))
}
