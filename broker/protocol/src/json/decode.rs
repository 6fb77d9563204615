//! From JSON to messages.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};
use serde_json::Value as Json;

use super::{JsonError, JsonErrorCause};
use crate::{duration, reflect};

pub(super) fn message(
    descriptor: MessageDescriptor,
    json: &Json,
) -> Result<DynamicMessage, JsonError> {
    if reflect::is_duration(&descriptor) {
        let mut tree = DynamicMessage::new(descriptor);
        let duration =
            duration_of(json).ok_or_else(|| wrong("a duration such as \"60s\"", json))?;
        tree.transcode_from(&duration)
            .expect("a duration decodes as itself");
        return Ok(tree);
    }
    let object = json.as_object().ok_or_else(|| wrong("an object", json))?;
    let mut tree = DynamicMessage::new(descriptor.clone());
    for (key, json) in object {
        let Some(field) = field_of(&descriptor, key) else {
            continue;
        };
        if json.is_null() {
            continue;
        }
        let value = if field.is_list() {
            list(&field, json).map_err(|error| within(key, error))?
        } else {
            value(&field, json).map_err(|error| within(key, error))?
        };
        tree.set_field(&field, value);
    }
    Ok(tree)
}

fn field_of(message: &MessageDescriptor, key: &str) -> Option<FieldDescriptor> {
    let exact = message
        .get_field_by_name(key)
        .or_else(|| message.get_field_by_json_name(key));
    exact.or_else(|| {
        message
            .fields()
            .find(|field| field.name().eq_ignore_ascii_case(key))
    })
}

fn list(field: &FieldDescriptor, json: &Json) -> Result<Value, JsonError> {
    let items = json.as_array().ok_or_else(|| wrong("an array", json))?;
    let values = items.iter().enumerate().map(|(index, json)| {
        value(field, json).map_err(|error| within(&format!("[{index}]"), error))
    });
    values.collect::<Result<_, _>>().map(Value::List)
}

fn value(field: &FieldDescriptor, json: &Json) -> Result<Value, JsonError> {
    let found = match field.kind() {
        Kind::Bool => json.as_bool().map(Value::Bool).ok_or("true or false"),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            integer(json).map(Value::I32).ok_or("a 32-bit integer")
        }
        Kind::Uint32 | Kind::Fixed32 => integer(json)
            .map(Value::U32)
            .ok_or("an unsigned 32-bit integer"),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            integer(json).map(Value::I64).ok_or("a 64-bit integer")
        }
        Kind::Uint64 | Kind::Fixed64 => integer(json)
            .map(Value::U64)
            .ok_or("an unsigned 64-bit integer"),
        Kind::String => json
            .as_str()
            .map(|text| Value::String(text.into()))
            .ok_or("a string"),
        Kind::Bytes => {
            let bytes = json.as_str().and_then(|text| STANDARD.decode(text).ok());
            bytes
                .map(|bytes| Value::Bytes(bytes.into()))
                .ok_or("a string of base64")
        }
        Kind::Enum(kind) => {
            let named = json.as_str().and_then(|name| kind.get_value_by_name(name));
            let number = named.map(|value| value.number());
            let number = number.or_else(|| json.is_number().then(|| integer(json)).flatten());
            number
                .map(Value::EnumNumber)
                .ok_or("the name or number of a known value")
        }
        Kind::Message(descriptor) => return message(descriptor, json).map(Value::Message),
        // No message of the package has fractions.
        Kind::Float | Kind::Double => Err("no number with a fraction"),
    };
    found.map_err(|expected| wrong(expected, json))
}

/// An integer, or a string of one.
fn integer<T: TryFrom<i128>>(json: &Json) -> Option<T> {
    let number = match json {
        Json::String(text) => text.parse::<i128>().ok()?,
        Json::Number(number) => number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))?,
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => return None,
    };
    T::try_from(number).ok()
}

/// `"60.5s"`, or nanoseconds.
fn duration_of(json: &Json) -> Option<prost_types::Duration> {
    let Json::String(text) = json else {
        return json.as_i64().map(duration::from_nanos);
    };
    let text = text.strip_suffix('s')?;
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if seconds.is_empty() || fraction.len() > 9 || !is_digits(seconds) || !is_digits(fraction) {
        return None;
    }
    let seconds: i64 = seconds.parse().ok()?;
    let nanos: i32 = format!("{fraction:0<9}").parse().ok()?;
    let (seconds, nanos) = if negative {
        (-seconds, -nanos)
    } else {
        (seconds, nanos)
    };
    Some(prost_types::Duration { seconds, nanos })
}

fn wrong(expected: &'static str, json: &Json) -> JsonError {
    /// Most characters of a value that an error repeats.
    const MAX_SHOWN: usize = 60;
    let actual: String = match json {
        Json::Array(_) => "an array".to_owned(),
        Json::Object(_) => "an object".to_owned(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {
            json.to_string().chars().take(MAX_SHOWN).collect()
        }
    };
    JsonError {
        path: String::new(),
        cause: JsonErrorCause::Kind { expected, actual },
    }
}

/// The same error, inside `outer`.
fn within(outer: &str, error: JsonError) -> JsonError {
    let joint = if error.path.is_empty() || error.path.starts_with('[') {
        ""
    } else {
        "."
    };
    JsonError {
        path: format!("{outer}{joint}{}", error.path),
        ..error
    }
}
