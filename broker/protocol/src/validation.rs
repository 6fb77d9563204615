//! Checks of messages before they are acted upon.
//!
//! An error says where in the message the fault is, as a path of fields in the spelling that
//! operators know from Gazette: `Changes[0].Upsert.Fragment`.

mod requests;
mod responses;
pub(crate) mod tokens;

use std::fmt;

use crate::{postfix::TemplateError, uri::UriError};

/// A message that has rules beyond its types.
pub trait Validate {
    /// Checks the rules, in the order in which Gazette checks them.
    fn validate(&self) -> Result<(), ValidationError>;
}

/// What is wrong with a message, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ValidationError {
    /// Fields from the outermost to the innermost. Empty if the fault is the message's own.
    pub context: Vec<String>,
    /// The fault.
    pub cause: ValidationCause,
}

impl ValidationError {
    /// The fields, joined: `Changes[0].Upsert`.
    pub fn path(&self) -> String {
        self.context.join(".")
    }

    /// The same error, inside `field`.
    #[must_use]
    pub fn within(mut self, field: impl Into<String>) -> Self {
        self.context.insert(0, field.into());
        self
    }
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.context.is_empty() {
            write!(f, "{}: ", self.path())?;
        }
        self.cause.fmt(f)
    }
}

impl From<ValidationCause> for ValidationError {
    fn from(cause: ValidationCause) -> Self {
        Self {
            context: Vec::new(),
            cause,
        }
    }
}

/// The rule that a message breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValidationCause {
    /// A text is too short or too long.
    #[error("is {actual} bytes long, and must be {min} to {max}")]
    Length {
        /// Bytes of the text.
        actual: usize,
        /// Fewest bytes allowed.
        min: usize,
        /// Most bytes allowed.
        max: usize,
    },
    /// A text has a character that is no letter, number or allowed symbol.
    #[error("{text:?} may only have letters, numbers, and the symbols {symbols}")]
    Token {
        /// The text.
        text: String,
        /// The symbols allowed.
        symbols: &'static str,
    },
    /// A path that must be relative is not.
    #[error("{path:?} may not begin with '/'")]
    LeadingSlash {
        /// The path.
        path: String,
    },
    /// A path has `//`, `.`, an inner `..`, or a trailing slash.
    #[error("{path:?} is not a clean path; expected {clean:?}")]
    UncleanPath {
        /// The path.
        path: String,
        /// What it would be if it were clean.
        clean: String,
    },
    /// A path that must name a folder does not.
    #[error("{path:?} must end in '/'")]
    NoTrailingSlash {
        /// The path.
        path: String,
    },
    /// A path leads out of its folder.
    #[error("{path:?} leads out of the store")]
    Traversal {
        /// The path.
        path: String,
    },
    /// A number is out of its range.
    #[error("{field} is {value}, and must be {expected}")]
    OutOfRange {
        /// Field that holds it.
        field: &'static str,
        /// Its value.
        value: String,
        /// The range, in words.
        expected: String,
    },
    /// A number of an enumeration that has no such value.
    #[error("{value} is not a {what}")]
    Variant {
        /// What the enumeration lists.
        what: &'static str,
        /// The number, or its name where that is known but not allowed.
        value: String,
    },
    /// A list is out of order, or repeats an entry.
    #[error("{what} must be sorted and unique, but entry {index} is {next} after {previous}")]
    Unsorted {
        /// What the list holds.
        what: &'static str,
        /// Index of the entry that is out of order.
        index: usize,
        /// The entry before it.
        previous: String,
        /// The entry.
        next: String,
    },
    /// A label has both the empty value and another.
    #[error("label {name} has an empty value, and also {value:?} (index {index})")]
    EmptyAndOtherValues {
        /// Name of the label.
        name: String,
        /// Its other value.
        value: String,
        /// Index of the other value.
        index: usize,
    },
    /// A label that may have one value has several.
    #[error("label {name} may have one value only, but also has {value:?} (index {index})")]
    ManyValues {
        /// Name of the label.
        name: String,
        /// The value too many.
        value: String,
        /// Its index.
        index: usize,
    },
    /// A label may not be set by an operator.
    #[error("label {name:?} is derived from the spec and may not be among its labels")]
    ReservedLabel {
        /// Name of the label.
        name: String,
    },
    /// A label needs another one beside it.
    #[error("label {name} needs the label {needs} beside it")]
    MissingLabel {
        /// The label that is there.
        name: &'static str,
        /// The label that is not.
        needs: &'static str,
    },
    /// The value of label `content-type` is no media type.
    #[error("content-type {value:?} is not a media type")]
    MediaType {
        /// The value.
        value: String,
    },
    /// A journal is named with a metadata segment where that has no meaning.
    #[error("{meta:?} may not follow the name of a journal here")]
    UnexpectedMeta {
        /// The segment, with its semicolon.
        meta: String,
    },
    /// A field must be set.
    #[error("{field} must be set {condition}")]
    Missing {
        /// The field.
        field: &'static str,
        /// When it must be set.
        condition: &'static str,
    },
    /// A field must not be set.
    #[error("{field} may not be set {condition}")]
    Unexpected {
        /// The field.
        field: &'static str,
        /// When it may not be set.
        condition: &'static str,
    },
    /// Two fields contradict each other.
    #[error("{left} {left_value} and {right} {right_value} do not agree")]
    Mismatch {
        /// One field.
        left: &'static str,
        /// Its value.
        left_value: String,
        /// The other field.
        right: &'static str,
        /// Its value.
        right_value: String,
    },
    /// A text is no URL.
    #[error(transparent)]
    Url(#[from] UriError),
    /// A URL lacks a part.
    #[error("{url:?} has no {part}")]
    UrlPart {
        /// The URL.
        url: String,
        /// The part.
        part: &'static str,
    },
    /// A URL has a part that it may not have.
    #[error("{url:?} may not have a {part}")]
    UrlUnexpectedPart {
        /// The URL.
        url: String,
        /// The part.
        part: &'static str,
    },
    /// No store is known for the scheme of a URL.
    #[error("{scheme:?} is not the scheme of a store; expected one of {known}")]
    StoreScheme {
        /// The scheme.
        scheme: String,
        /// The schemes that are known.
        known: &'static str,
    },
    /// A codec cannot be used with the store that fragments are written to.
    #[error("{codec} cannot be written to {store}")]
    CodecOfStore {
        /// Name of the codec.
        codec: &'static str,
        /// URL of the store.
        store: String,
    },
    /// A path postfix template is malformed, or uses what is not there.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl ValidationCause {
    /// A number that is out of its range.
    pub fn out_of_range(
        field: &'static str,
        value: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        Self::OutOfRange {
            field,
            value: value.to_string(),
            expected: expected.to_string(),
        }
    }
}

/// Adds the place where a check failed.
pub(crate) trait Within: Sized {
    /// The same result; an error is inside `field`.
    fn within(self, field: &str) -> Result<(), ValidationError>;
    /// The same result; an error is inside entry `index` of `field`.
    fn within_entry(self, field: &str, index: usize) -> Result<(), ValidationError>;
}

impl<E: Into<ValidationError>> Within for Result<(), E> {
    fn within(self, field: &str) -> Result<(), ValidationError> {
        self.map_err(|error| error.into().within(field))
    }

    fn within_entry(self, field: &str, index: usize) -> Result<(), ValidationError> {
        self.map_err(|error| error.into().within(format!("{field}[{index}]")))
    }
}

/// Fails with `cause` unless `holds`.
pub(crate) fn require(
    holds: bool,
    cause: impl FnOnce() -> ValidationCause,
) -> Result<(), ValidationError> {
    if holds { Ok(()) } else { Err(cause().into()) }
}

/// Fails unless `set` is false.
pub(crate) fn unset(
    set: bool,
    field: &'static str,
    condition: &'static str,
) -> Result<(), ValidationError> {
    require(!set, || ValidationCause::Unexpected { field, condition })
}

/// Checks a message that may be absent.
pub(crate) fn validate_option<M: Validate>(
    message: Option<&M>,
    field: &str,
) -> Result<(), ValidationError> {
    message.map_or(Ok(()), |message| message.validate().within(field))
}
