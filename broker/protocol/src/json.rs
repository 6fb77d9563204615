//! Messages as JSON, in the forms in which Gazette writes it.

mod decode;
mod encode;

use serde_json::Value as Json;

use crate::reflect;
pub use crate::reflect::WireMessage;

/// How names, defaults and numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonForm {
    /// `max_append_rate`. Defaults are written, and 64-bit numbers are strings. What tools print.
    OriginalNames,
    /// `maxAppendRate`, otherwise as [`JsonForm::OriginalNames`]. What the gateway serves.
    CamelCase,
    /// `max_append_rate`. Defaults are left out, enumerations and durations are numbers. What
    /// tokens hold.
    Go,
}

/// Why JSON is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{cause}", if .path.is_empty() { String::new() } else { format!("{}: ", .path) })]
pub struct JsonError {
    /// Where in the document, such as `changes[0].upsert`. Empty at its root.
    pub path: String,
    /// What is wrong there.
    pub cause: JsonErrorCause,
}

/// What is wrong with a value of JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonErrorCause {
    /// The text is not JSON.
    #[error("not JSON: {reason}")]
    Syntax {
        /// Why, and where.
        reason: String,
    },
    /// The value is of another kind.
    #[error("expected {expected}, not {actual}")]
    Kind {
        /// What it should be.
        expected: &'static str,
        /// What it is.
        actual: String,
    },
}

/// The JSON of a message.
pub fn to_json<M: WireMessage>(message: &M, form: JsonForm) -> Json {
    encode::message(&reflect::to_tree(message), form)
}

/// The message of a JSON value in any form. Names may be spelled in either way, unknown ones
/// are passed over, and `null` is the default.
pub fn from_json<M: WireMessage>(json: &Json) -> Result<M, JsonError> {
    Ok(reflect::from_tree(&decode::message(
        reflect::descriptor::<M>(),
        json,
    )?))
}

/// The message of a JSON text in any form.
pub fn from_json_str<M: WireMessage>(text: &str) -> Result<M, JsonError> {
    let json = serde_json::from_str(text).map_err(|error| JsonError {
        path: String::new(),
        cause: JsonErrorCause::Syntax {
            reason: error.to_string(),
        },
    })?;
    from_json(&json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApplyRequest, FragmentsRequest, LabelSelector, ListRequest, ReadRequest, Route};

    #[test]
    fn both_spellings_and_unknown_names_are_read() {
        let request: ReadRequest = from_json_str(
            r#"{"endOffset":"7","begin_mod_time":3,"doNotProxy":true,"bogus":[1],"header":null}"#,
        )
        .unwrap();
        let expected = ReadRequest {
            end_offset: 7,
            begin_mod_time: 3,
            do_not_proxy: true,
            ..Default::default()
        };
        assert_eq!(request, expected);
        assert_eq!(
            from_json_str::<ListRequest>("{}"),
            Ok(ListRequest::default())
        );
        let selector: LabelSelector =
            from_json_str(r#"{"Include":{"labels":null},"exclude":{"LABELS":[]}}"#).unwrap();
        assert_eq!(selector, LabelSelector::default());
    }

    #[test]
    fn errors_tell_where_they_are() {
        let error = |json: &str| from_json_str::<ApplyRequest>(json).unwrap_err().to_string();
        assert_eq!(
            error(r#"{"changes":[{},{"upsert":{"fragment":{"stores":["a",1]}}}]}"#),
            "changes[1].upsert.fragment.stores[1]: expected a string, not 1",
        );
        assert_eq!(
            error(r#"{"changes":[{"upsert":{"replication":3000000000}}]}"#),
            "changes[0].upsert.replication: expected a 32-bit integer, not 3000000000",
        );
        assert_eq!(
            error(r#"{"changes":[{"upsert":{"fragment":{"retention":"1m"}}}]}"#),
            "changes[0].upsert.fragment.retention: expected a duration such as \"60s\", not \"1m\"",
        );
        assert_eq!(error("[]"), "expected an object, not an array");
        assert!(error("{").starts_with("not JSON: "));
        from_json_str::<Route>(r#"{"primary":1.5}"#).unwrap_err();
        from_json_str::<FragmentsRequest>(r#"{"pageLimit":"x"}"#).unwrap_err();
    }

    #[test]
    fn extensions_are_printed_only_if_they_are_set() {
        use crate::apply_request::Change;

        let has = |change: &Change| {
            to_json(change, JsonForm::OriginalNames)
                .get("delete_fragments")
                .is_some()
        };
        assert!(!has(&Change::default()));
        assert!(has(&Change {
            delete_fragments: true,
            ..Change::default()
        }));
    }
}
