//! The text form of selectors. At each step the first form that matches is taken, so that
//! their order is part of the grammar.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::{Label, LabelSelector, LabelSet, Validate, ValidationError};

/// Follows the name of a label whose values are prefixes.
pub(super) const PREFIX_SUFFIX: &str = ":prefix";

/// Why a text is no selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// No form of an expression matches.
    #[error("{rest:?} does not begin with a label selector, such as `name=value`")]
    Unmatched {
        /// The text from where nothing matches.
        rest: String,
    },
    /// An element of the list of an expression is no value.
    #[error("{rest:?} does not begin with a value of a label, in {expression:?}")]
    UnmatchedElement {
        /// The text of the list from where nothing matches.
        rest: String,
        /// The text from the expression on.
        expression: String,
    },
    /// The selector contradicts itself.
    #[error(transparent)]
    Invalid(#[from] ValidationError),
}

/// Where an expression puts its labels.
#[derive(Clone, Copy)]
enum Form {
    Equal,
    NotEqual,
    In,
    NotIn,
    Exists,
    Absent,
}

static FORMS: LazyLock<Vec<(Form, Regex)>> = LazyLock::new(|| {
    const NAME: &str = r" ?(?<name>[\p{L}\p{N}\-_+/.]{2,}(?::prefix)?)";
    const VALUE: &str = r" ?(?<value>[\p{L}\p{N}\-_+/.=%]*)";
    const SET: &str = r" ?\((?<set>[^)]+)\)";
    let forms = [
        (Form::Equal, format!("{NAME} ?=?={VALUE}")),
        (Form::NotEqual, format!("{NAME} ?!={VALUE}")),
        (Form::In, format!("{NAME} in{SET}")),
        (Form::NotIn, format!("{NAME} not ?in{SET}")),
        (Form::Exists, NAME.to_owned()),
        (Form::Absent, format!(" ?!{NAME}")),
    ];
    forms
        .into_iter()
        .map(|(form, pattern)| (form, step(&pattern)))
        .collect()
});

static ELEMENT: LazyLock<Regex> = LazyLock::new(|| step(r" ?(?<value>[\p{L}\p{N}\-_+/.=%]*)"));

/// A pattern that is matched where the text begins, up to a comma or the end.
fn step(pattern: &str) -> Regex {
    Regex::new(&format!(r"\A{pattern} ?(?:,|\z)")).expect("the pattern is well formed")
}

pub(super) fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
    let mut selector = LabelSelector::default();
    let mut rest = text;
    while !rest.is_empty() {
        let (form, found) = FORMS
            .iter()
            .find_map(|(form, pattern)| Some((*form, pattern.captures(rest)?)))
            .ok_or_else(|| SelectorError::Unmatched {
                rest: rest.to_owned(),
            })?;
        let name = group(&found, "name");
        let set = match form {
            Form::Equal | Form::In | Form::Exists => &mut selector.include,
            Form::NotEqual | Form::NotIn | Form::Absent => &mut selector.exclude,
        };
        match form {
            Form::Equal | Form::NotEqual => add(set, name, group(&found, "value")),
            Form::Exists | Form::Absent => add(set, name, ""),
            Form::In | Form::NotIn => {
                for value in elements(group(&found, "set"), rest)? {
                    add(set, name, value);
                }
            }
        }
        rest = &rest[found.get_match().end()..];
    }
    selector.validate()?;
    Ok(selector)
}

fn elements<'a>(list: &'a str, expression: &str) -> Result<Vec<&'a str>, SelectorError> {
    let mut values = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let found = ELEMENT
            .captures(rest)
            .ok_or_else(|| SelectorError::UnmatchedElement {
                rest: rest.to_owned(),
                expression: expression.to_owned(),
            })?;
        values.push(found.name("value").map_or("", |value| value.as_str()));
        rest = &rest[found.get_match().end()..];
    }
    Ok(values)
}

fn group<'a>(found: &Captures<'a>, name: &str) -> &'a str {
    found.name(name).map_or("", |group| group.as_str())
}

fn add(set: &mut LabelSet, name: &str, value: &str) {
    let (name, prefix) = match name.strip_suffix(PREFIX_SUFFIX) {
        Some(name) => (name, true),
        None => (name, false),
    };
    set.insert(Label {
        name: name.to_owned(),
        value: value.to_owned(),
        prefix,
    });
}
