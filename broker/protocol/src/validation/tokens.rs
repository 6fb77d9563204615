//! Which characters and lengths names may have.

use std::sync::LazyLock;

use regex::Regex;

use super::ValidationCause;
use crate::clean_path;

/// Symbols of a token, beside letters and numbers.
pub(crate) const TOKEN_SYMBOLS: &str = "- _ + / .";
/// Symbols of a path component, beside letters and numbers.
pub(crate) const PATH_SYMBOLS: &str = "- _ + / . = %";

static TOKEN: LazyLock<Regex> = LazyLock::new(|| class(r"\-_+/."));
static PATH: LazyLock<Regex> = LazyLock::new(|| class(r"\-_+/.=%"));

fn class(symbols: &str) -> Regex {
    Regex::new(&format!(r"\A[\p{{L}}\p{{N}}{symbols}]*\z")).expect("the pattern is well formed")
}

/// Checks the length of a text in bytes.
pub(crate) fn length(text: &str, min: usize, max: usize) -> Result<(), ValidationCause> {
    if (min..=max).contains(&text.len()) {
        Ok(())
    } else {
        Err(ValidationCause::Length {
            actual: text.len(),
            min,
            max,
        })
    }
}

/// Checks that `text` is a token of `min..=max` bytes.
pub(crate) fn token(text: &str, min: usize, max: usize) -> Result<(), ValidationCause> {
    length(text, min, max)?;
    matches(text, &TOKEN, TOKEN_SYMBOLS)
}

/// Checks that `text` is a token that may also have `=` and `%`.
pub(crate) fn path_token(text: &str, min: usize, max: usize) -> Result<(), ValidationCause> {
    length(text, min, max)?;
    matches(text, &PATH, PATH_SYMBOLS)
}

fn matches(text: &str, class: &Regex, symbols: &'static str) -> Result<(), ValidationCause> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_+/.".contains(&b);
    if text.bytes().all(plain) || class.is_match(text) {
        Ok(())
    } else {
        Err(ValidationCause::Token {
            text: text.to_owned(),
            symbols,
        })
    }
}

/// Checks that `path` is a relative, clean path of tokens. It may be empty if `min` is zero.
pub(crate) fn path_component(path: &str, min: usize, max: usize) -> Result<(), ValidationCause> {
    path_token(path, min, max)?;
    if path.is_empty() {
        Ok(())
    } else if path.starts_with('/') {
        Err(ValidationCause::LeadingSlash {
            path: path.to_owned(),
        })
    } else if !clean_path::is_clean(path) {
        let clean = clean_path::clean(path);
        Err(ValidationCause::UncleanPath {
            path: path.to_owned(),
            clean,
        })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_hold_letters_and_numbers_of_any_script() {
        for text in ["", "a-b_c+d/e.f", "acmé", "名", "½²", "ⅷ"] {
            token(text, 0, 64).unwrap();
        }
        for text in [
            "a b", "a=b", "a,b", "a:b", "a;b", "a#b", "a!b", "(a)", "\u{fffd}", "a\u{301}",
        ] {
            token(text, 0, 64).unwrap_err();
        }
        path_token("a=b%20", 0, 64).unwrap();
    }

    #[test]
    fn lengths_count_bytes() {
        length("名", 3, 3).unwrap();
        length("名", 1, 2).unwrap_err();
    }

    #[test]
    fn path_components_are_relative_and_clean() {
        for path in ["a", "a/b=c", "../a", "....", ""] {
            path_component(path, 0, 64).unwrap();
        }
        for path in ["/a", "a/", "a//b", "a/./b", "a/../b", ".", "/"] {
            if path == "." {
                // Equal to its own cleaned form, so it passes: its length refuses it elsewhere.
                path_component(path, 0, 64).unwrap();
                continue;
            }
            path_component(path, 0, 64).unwrap_err();
        }
    }
}
