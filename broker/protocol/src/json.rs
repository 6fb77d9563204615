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
