use gazette_protocol::json::JsonForm;
use serde_json::Value;

use crate::fixture::{self, Kind, text};

/// The messages of package `protocol`, with their name, kind, bytes and recorded forms.
fn messages() -> impl Iterator<Item = (String, Kind, Vec<u8>, Value)> {
    let index = fixture::json("wire/index.json");
    let entries = index.as_array().unwrap().clone().into_iter();
    entries.filter_map(|entry| {
        let kind = fixture::kind(text(&entry, "type"))?;
        let name = text(&entry, "name").to_owned();
        let bytes = fixture::bytes(&format!("wire/{name}.pb"));
        let forms = fixture::json(&format!("wire/{name}.json"));
        Some((name, kind, bytes, forms))
    })
}

#[test]
fn every_recorded_message_is_looked_at() {
    assert_eq!(messages().count(), 64);
}

#[test]
fn messages_decode_and_encode_to_the_same_bytes() {
    for (name, kind, bytes, _) in messages() {
        assert_eq!((kind.decode_encode)(&bytes).unwrap(), bytes, "{name}");
    }
}

#[test]
fn json_of_messages_is_that_of_the_reference() {
    for (name, kind, bytes, forms) in messages() {
        for (form, key) in [
            (JsonForm::OriginalNames, "json_gazctl"),
            (JsonForm::CamelCase, "json_rest"),
            (JsonForm::Go, "json_go"),
        ] {
            let json = (kind.to_json)(&bytes, form);
            assert_eq!(json, forms[key], "{name} as {key}");
            // Fields come in the same order too.
            assert_eq!(json.to_string(), forms[key].to_string(), "{name} as {key}");
        }
    }
}

#[test]
fn json_of_the_reference_decodes_to_the_same_bytes() {
    for (name, kind, bytes, forms) in messages() {
        for key in ["json_gazctl", "json_rest", "json_go"] {
            assert_eq!(
                (kind.json_to_bytes)(&forms[key]).unwrap(),
                bytes,
                "{name} as {key}"
            );
        }
    }
}

#[test]
fn text_of_messages_is_that_of_the_reference() {
    for (name, kind, bytes, forms) in messages() {
        assert_eq!(
            (kind.prototext)(&bytes, false),
            text(&forms, "prototext"),
            "{name}"
        );
        assert_eq!(
            (kind.prototext)(&bytes, true),
            text(&forms, "prototext_compact"),
            "{name}"
        );
    }
}

#[test]
fn recorded_messages_validate_as_they_did() {
    for (name, kind, bytes, forms) in messages() {
        let Some(result) = (kind.validate)(&bytes) else {
            continue;
        };
        assert_eq!(
            result.is_ok(),
            forms["validates"] == true,
            "{name}: {result:?}"
        );
    }
}

#[test]
fn damaged_messages_decode_or_fail_but_do_not_panic() {
    for (_, kind, bytes, _) in messages() {
        for cut in 0..bytes.len() {
            let _outcome = (kind.decode_encode)(&bytes[..cut]);
        }
    }
}
