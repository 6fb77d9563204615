//! Golden files, and messages by the name of their type.

use std::path::PathBuf;

use gazette_protocol::{
    ValidationError,
    json::{JsonError, JsonForm},
};
use prost::DecodeError;
use serde_json::Value;

pub(crate) fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/broker")
        .join(file)
}

pub(crate) fn bytes(file: &str) -> Vec<u8> {
    let path = path(file);
    std::fs::read(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
}

pub(crate) fn json(file: &str) -> Value {
    serde_json::from_slice(&bytes(file)).unwrap()
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} is no text of {value}"))
}

/// A list of labels, as the files of labels and selectors have them.
pub(crate) fn labels(list: &Value) -> gazette_protocol::LabelSet {
    let set = serde_json::json!({ "labels": list });
    gazette_protocol::json::from_json(&set).unwrap()
}

/// What a test does with a type of message.
pub(crate) struct Kind {
    pub(crate) decode_encode: fn(&[u8]) -> Result<Vec<u8>, DecodeError>,
    pub(crate) to_json: fn(&[u8], JsonForm) -> Value,
    pub(crate) prototext: fn(&[u8], bool) -> String,
    pub(crate) json_to_bytes: fn(&Value) -> Result<Vec<u8>, JsonError>,
    pub(crate) validate: fn(&[u8]) -> Option<Result<(), ValidationError>>,
}

macro_rules! kind {
    ($message:ty, $validate:expr) => {
        Kind {
            decode_encode: |bytes| {
                let message = <$message as prost::Message>::decode(bytes)?;
                Ok(prost::Message::encode_to_vec(&message))
            },
            to_json: |bytes, form| {
                let message = <$message as prost::Message>::decode(bytes).unwrap();
                gazette_protocol::json::to_json(&message, form)
            },
            prototext: |bytes, compact| {
                let message = <$message as prost::Message>::decode(bytes).unwrap();
                match compact {
                    true => gazette_protocol::prototext::format_compact(&message),
                    false => gazette_protocol::prototext::format(&message),
                }
            },
            json_to_bytes: |json| {
                let message: $message = gazette_protocol::json::from_json(json)?;
                Ok(prost::Message::encode_to_vec(&message))
            },
            validate: |bytes| {
                let message = <$message as prost::Message>::decode(bytes).unwrap();
                let validate: fn(&$message) -> Option<Result<(), ValidationError>> = $validate;
                validate(&message)
            },
        }
    };
    ($message:ty) => {
        kind!($message, |message| Some(message.validate()))
    };
}

/// The type of package `protocol` of this name; `None` for types of other packages.
pub(crate) fn kind(name: &str) -> Option<Kind> {
    use gazette_protocol::{journal_spec, *};
    Some(match name.strip_prefix("protocol.")? {
        "Label" => kind!(Label),
        "LabelSet" => kind!(LabelSet),
        "LabelSelector" => kind!(LabelSelector),
        "JournalSpec" => kind!(JournalSpec),
        "JournalSpec.Fragment" => kind!(journal_spec::Fragment),
        "JournalSpec.Suspend" => kind!(journal_spec::Suspend),
        "ProcessSpec" => kind!(ProcessSpec),
        "BrokerSpec" => kind!(BrokerSpec),
        "SHA1Sum" => kind!(Sha1Sum, |_| None),
        "Fragment" => kind!(Fragment),
        "Route" => kind!(Route),
        "Header" => kind!(Header),
        "ReadRequest" => kind!(ReadRequest),
        "ReadResponse" => kind!(ReadResponse),
        "AppendRequest" => kind!(AppendRequest),
        "AppendResponse" => kind!(AppendResponse),
        "ReplicateRequest" => kind!(ReplicateRequest),
        "ReplicateResponse" => kind!(ReplicateResponse),
        "ListRequest" => kind!(ListRequest),
        "ListResponse" => kind!(ListResponse),
        "ApplyRequest" => kind!(ApplyRequest),
        "ApplyResponse" => kind!(ApplyResponse),
        "FragmentsRequest" => kind!(FragmentsRequest),
        "FragmentsResponse" => kind!(FragmentsResponse),
        "FragmentStoreHealthRequest" => kind!(FragmentStoreHealthRequest),
        "FragmentStoreHealthResponse" => kind!(FragmentStoreHealthResponse),
        other => panic!("package protocol has no {other}"),
    })
}
