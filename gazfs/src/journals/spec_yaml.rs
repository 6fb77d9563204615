//! Specs as people write them.

use gazette_protocol::{JournalSpec, json};

pub(super) type Error = String;

pub(super) fn parse(text: &str) -> Result<JournalSpec, Error> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    json::from_json(&value).map_err(|error| error.to_string())
}

pub(super) fn print(spec: &JournalSpec) -> String {
    json::to_json(spec, json::JsonForm::OriginalNames).to_string()
}
