//! Paths of objects, checked before they touch anything.

use crate::{StoreError, StoreErrorKind};

/// Splits the path of an object into its parts, dropping empty ones and `.`.
pub(crate) fn parts<'a>(
    operation: &'static str,
    path: &'a str,
) -> Result<Vec<&'a str>, StoreError> {
    let parts = folders(operation, path)?;
    if parts.is_empty() || path.ends_with('/') {
        return Err(refuse(operation, path, "the path names no object"));
    }
    Ok(parts)
}

/// Splits a path into its parts, which may be none.
pub(crate) fn folders<'a>(
    operation: &'static str,
    path: &'a str,
) -> Result<Vec<&'a str>, StoreError> {
    if path.starts_with('/') {
        return Err(refuse(
            operation,
            path,
            "the path must be relative to the store",
        ));
    }
    if path.contains('\0') {
        return Err(refuse(operation, path, "the path holds a NUL"));
    }
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") {
        return Err(refuse(operation, path, "the path leads out of the store"));
    }
    Ok(parts)
}

/// Splits a listing's prefix into the folders that surely contain its objects, and the start of the
/// path below them.
pub(crate) fn prefix(prefix: &str) -> Result<(Vec<&str>, &str), StoreError> {
    let (folder, rest) = prefix.rsplit_once('/').unwrap_or(("", prefix));
    if rest == ".." {
        return Err(refuse("list", prefix, "the path leads out of the store"));
    }
    if folder.is_empty() && prefix.starts_with('/') {
        return Err(refuse(
            "list",
            prefix,
            "the path must be relative to the store",
        ));
    }
    Ok((folders("list", folder)?, rest))
}

/// Writes a path the way it goes into a URL.
pub(crate) fn percent_encode(path: &str) -> String {
    use std::fmt::Write;

    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => text.push(char::from(byte)),
            b'/' | b'-' | b'.' | b'_' | b'~' | b'=' | b'+' | b'@' | b':' | b'$' | b'&' | b',' => {
                text.push(char::from(byte));
            }
            _ => write!(text, "%{byte:02X}").expect("writing to a string cannot fail"),
        }
    }
    text
}

fn refuse(operation: &'static str, path: &str, cause: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Invalid,
        operation,
        format!("{path:?}"),
        cause,
    )
    .with_next("correct the name of the journal or its path postfix template")
}

#[cfg(test)]
mod tests;
