//! Names of journals.

use crate::{
    ValidationError,
    validation::{ValidationCause, Within, require, tokens},
};

/// Fewest bytes of a name.
pub const MIN_LENGTH: usize = 4;
/// Most bytes of a name.
pub const MAX_LENGTH: usize = 512;

/// Splits the optional metadata segment, `;meta`, from a name. The segment is for the
/// logs of whoever sees the request, and is no part of the name.
pub fn split_meta(journal: &str) -> (&str, Option<&str>) {
    match journal.split_once(';') {
        Some((name, meta)) => (name, Some(meta)),
        None => (journal, None),
    }
}

/// The name without its metadata segment.
pub fn strip_meta(journal: &str) -> &str {
    split_meta(journal).0
}

/// Checks the name of a journal, which may not have a metadata segment.
///
/// A leading `..` passes, as it does in Gazette: a store of files must refuse it.
pub fn validate(journal: &str) -> Result<(), ValidationError> {
    let (name, meta) = split_meta(journal);
    require(meta.is_none(), || ValidationCause::UnexpectedMeta {
        meta: journal[name.len()..].to_owned(),
    })?;
    Ok(tokens::path_component(name, MIN_LENGTH, MAX_LENGTH)?)
}

/// Checks the name of a journal as requests give it, perhaps with a metadata segment.
pub fn validate_with_meta(journal: &str) -> Result<(), ValidationError> {
    let (name, meta) = split_meta(journal);
    if let Some(meta) = meta {
        tokens::path_component(meta, 1, MAX_LENGTH).within("metadata path segment")?;
    }
    Ok(tokens::path_component(name, MIN_LENGTH, MAX_LENGTH)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_follows_the_first_semicolon() {
        assert_eq!(split_meta("a/b"), ("a/b", None));
        assert_eq!(split_meta("a/b;c;d"), ("a/b", Some("c;d")));
        assert_eq!(strip_meta("a/b;"), "a/b");
        validate_with_meta("acme/two;meta").unwrap();
        validate("acme/two;meta").unwrap_err();
        let error = validate_with_meta("acme/two;").unwrap_err();
        assert_eq!(error.path(), "metadata path segment");
    }
}
