//! Path postfix templates: where fragments go below the folder of their journal.
//!
//! They are written in the language of Go's `text/template`, over the fragment, the time of
//! its first append, the registers, and the spec:
//!
//! ```text
//! date={{ .Spool.FirstAppendTime.Format "2006-01-02" }}/{{ .JournalSpec.LabelSet.ValueOf "region" }}
//! ```
//!
//! Actions, pipelines, variables, `if`, `with` and `range` are understood, and the built-in
//! functions except `call`, `html` and `js`. Named templates are not. What is not understood
//! is an error when the template is parsed or first run, which the check of a spec does.

mod eval;
mod functions;
mod go_time;
mod lexer;
mod parser;
mod printf;
mod value;

use std::time::SystemTime;

use time::OffsetDateTime;

use crate::{Fragment, JournalSpec, LabelSet};

/// Deepest nesting of actions and parentheses.
const MAX_DEPTH: usize = 32;
/// Most operations of a run: templates come from requests, and may loop in loops.
const MAX_STEPS: usize = 10_000;
/// Longest text that a template may make. The postfix itself must be shorter.
const MAX_TEXT: usize = 1 << 14;

/// What a template can see.
#[derive(Debug, Clone, Copy)]
pub struct PostfixContext<'a> {
    /// The fragment that is to be stored.
    pub fragment: &'a Fragment,
    /// When the first append of the fragment was committed here.
    pub first_append_time: SystemTime,
    /// Registers at the end of the fragment.
    pub registers: &'a LabelSet,
    /// Spec of the journal.
    pub spec: &'a JournalSpec,
}

/// A parsed template.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    nodes: Vec<parser::Node>,
}

/// Why a template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path postfix template: {cause} (at byte {at})")]
pub struct TemplateError {
    /// Where in the template, in bytes from its start.
    pub at: usize,
    /// What is wrong there.
    pub cause: TemplateErrorCause,
}

/// What is wrong with a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateErrorCause {
    /// An action, comment, string or block has no end.
    #[error("{what} is not closed")]
    Unclosed {
        /// What has no end.
        what: &'static str,
    },
    /// Something else stands where it may not.
    #[error("expected {expected}, not {found}")]
    Unexpected {
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A function that does not exist.
    #[error("there is no function {name:?}")]
    UnknownFunction {
        /// Its name.
        name: String,
    },
    /// A variable that was not declared.
    #[error("variable {name:?} is not declared")]
    UnknownVariable {
        /// Its name.
        name: String,
    },
    /// Part of the language that is not understood here.
    #[error("{what} is not supported")]
    Unsupported {
        /// The part.
        what: String,
    },
    /// A value has no field or method of this name.
    #[error("{of} has no field or method {name:?}")]
    UnknownField {
        /// The kind of the value.
        of: &'static str,
        /// Name of the field.
        name: String,
    },
    /// A function or method was called with arguments that it cannot take.
    #[error("{function} takes {expected}")]
    Arguments {
        /// The function or method.
        function: String,
        /// What it takes.
        expected: &'static str,
    },
    /// An index is past the end.
    #[error("index {index} is out of range; the length is {length}")]
    IndexOutOfRange {
        /// The index.
        index: i64,
        /// Length of the list or text.
        length: usize,
    },
    /// Two values that are not of a kind were compared.
    #[error("{left} cannot be compared with {right}")]
    Incomparable {
        /// Kind of the left value.
        left: &'static str,
        /// Kind of the right value.
        right: &'static str,
    },
    /// The template, or a text that it makes, exceeds a limit.
    #[error("it has more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The most there may be.
        limit: usize,
    },
}

type Result<T, E = TemplateError> = std::result::Result<T, E>;

fn fail<T>(at: usize, cause: TemplateErrorCause) -> Result<T> {
    Err(TemplateError { at, cause })
}

impl Template {
    /// Parses a template.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self {
            nodes: parser::parse(text)?,
        })
    }

    /// The postfix that the template makes of `context`. It may be no valid postfix:
    /// [`Validate`](crate::Validate) of the fragment that gets it tells.
    pub fn evaluate(&self, context: &PostfixContext<'_>) -> Result<String> {
        let nanos = match context
            .first_append_time
            .duration_since(SystemTime::UNIX_EPOCH)
        {
            Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
            Err(before) => -i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX),
        };
        let time = OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or_else(|_| zero_time());
        eval::run(&self.nodes, context, time)
    }
}

/// Checks that a template parses, and that it runs over an empty spool and spec.
pub fn validate(text: &str) -> Result<()> {
    let template = Template::parse(text)?;
    let context = PostfixContext {
        fragment: &Fragment::default(),
        first_append_time: SystemTime::UNIX_EPOCH,
        registers: &LabelSet::default(),
        spec: &JournalSpec::default(),
    };
    eval::run(&template.nodes, &context, zero_time()).map(drop)
}

/// The zero time of Go, the start of year 1.
fn zero_time() -> OffsetDateTime {
    time::macros::datetime!(0001-01-01 00:00:00 UTC)
}

#[cfg(test)]
mod tests;
