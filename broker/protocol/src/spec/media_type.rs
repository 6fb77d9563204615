//! Media types, as far as the value of a label can spell them.

/// Whether `value` is a media type: `token` or `token/token`. Parameters cannot occur, as
/// labels have no semicolons, but are passed over.
pub(super) fn is_valid(value: &str) -> bool {
    let base = value.split(';').next().unwrap_or_default().trim();
    match base.split_once('/') {
        Some((kind, subtype)) => is_token(kind) && is_token(subtype),
        None => is_token(base),
    }
}

fn is_token(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&b);
    !text.is_empty() && text.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_are_one_or_two_tokens() {
        for value in [
            "text",
            "text/csv",
            "application/x-ndjson",
            "a/b; c=d",
            "A+b.c/%",
        ] {
            assert!(is_valid(value), "{value}");
        }
        for value in ["", "bogus/", "/bogus", "a/b/c", "a=b", "né/x"] {
            assert!(!is_valid(value), "{value}");
        }
    }
}
