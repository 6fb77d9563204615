//! From messages to JSON.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, Value};
use serde_json::{Map, Value as Json};

use super::JsonForm;
use crate::{duration, reflect};

/// Lists that the Go form writes even when they are empty, as `null`.
const ALWAYS_WRITTEN_LISTS: [&str; 5] = [
    "protocol.LabelSet.labels",
    "protocol.Route.members",
    "protocol.ListResponse.journals",
    "protocol.ApplyRequest.changes",
    "protocol.FragmentsResponse.fragments",
];

pub(super) fn message(message: &DynamicMessage, form: JsonForm) -> Json {
    if let Some(duration) = reflect::as_duration(message) {
        return duration_of(&duration, form);
    }
    let mut object = Map::new();
    for (field, present) in reflect::fields(message) {
        let key = match form {
            JsonForm::OriginalNames | JsonForm::Go => field.name(),
            JsonForm::CamelCase => field.json_name(),
        };
        let written = match &present {
            Some(value) => Some(value_of(value, &field, form)),
            None if form == JsonForm::Go => default_of_go(&field),
            None if reflect::is_extension(&field) => None,
            None => Some(default_of(&field, form)),
        };
        if let Some(written) = written {
            object.insert(key.to_owned(), written);
        }
    }
    Json::Object(object)
}

/// What is written for a field that is not set.
fn default_of(field: &FieldDescriptor, form: JsonForm) -> Json {
    if field.is_list() {
        Json::Array(Vec::new())
    } else if matches!(field.kind(), Kind::Message(_) | Kind::Bytes) {
        // Content that is absent is nil there, and not empty.
        Json::Null
    } else {
        value_of(&Value::default_value_for_field(field), field, form)
    }
}

fn default_of_go(field: &FieldDescriptor) -> Option<Json> {
    ALWAYS_WRITTEN_LISTS
        .contains(&field.full_name())
        .then_some(Json::Null)
}

fn value_of(value: &Value, field: &FieldDescriptor, form: JsonForm) -> Json {
    let wide = |number: serde_json::Number| match form {
        JsonForm::Go => Json::Number(number),
        JsonForm::OriginalNames | JsonForm::CamelCase => Json::String(number.to_string()),
    };
    match value {
        Value::Bool(value) => Json::Bool(*value),
        Value::I32(value) => (*value).into(),
        Value::U32(value) => (*value).into(),
        Value::I64(value) => wide((*value).into()),
        Value::U64(value) => wide((*value).into()),
        Value::F32(value) => (*value).into(),
        Value::F64(value) => (*value).into(),
        Value::String(value) => Json::String(value.clone()),
        Value::Bytes(value) => Json::String(STANDARD.encode(value)),
        Value::EnumNumber(number) => enum_of(*number, field, form),
        Value::Message(value) => message(value, form),
        Value::List(values) => Json::Array(
            values
                .iter()
                .map(|value| value_of(value, field, form))
                .collect(),
        ),
        // No message of the package has a map.
        Value::Map(_) => Json::Null,
    }
}

fn enum_of(number: i32, field: &FieldDescriptor, form: JsonForm) -> Json {
    let kind = field.kind();
    let name = kind.as_enum().and_then(|kind| kind.get_value(number));
    match name {
        Some(value) if form != JsonForm::Go => Json::String(value.name().to_owned()),
        _ => number.into(),
    }
}

/// Seconds with as many of 0, 3, 6 or 9 digits of fraction as they need.
fn duration_of(value: &prost_types::Duration, form: JsonForm) -> Json {
    if form == JsonForm::Go {
        // One that has no length in nanoseconds could not be in a message there.
        return duration::to_nanos(value).unwrap_or_default().into();
    }
    let sign = if value.seconds < 0 || value.nanos < 0 {
        "-"
    } else {
        ""
    };
    let (seconds, nanos) = (value.seconds.unsigned_abs(), value.nanos.unsigned_abs());
    let digits = format!("{nanos:09}");
    let fraction = match digits.as_str() {
        "000000000" => "",
        digits => match (digits.strip_suffix("000000"), digits.strip_suffix("000")) {
            (Some(millis), _) => millis,
            (None, Some(micros)) => micros,
            (None, None) => digits,
        },
    };
    let dot = if fraction.is_empty() { "" } else { "." };
    Json::String(format!("{sign}{seconds}{dot}{fraction}s"))
}
