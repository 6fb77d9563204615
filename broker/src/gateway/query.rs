//! Paths and parameters of the gateway.

use thiserror::Error;

/// What is wrong with a request's path or parameters.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum QueryError {
    #[error("parameter {0:?} is not known here")]
    Unknown(String),
    #[error("parameter {name:?} has the value {value:?}, which is not {expected}")]
    Value {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("the path is not valid UTF-8 after percent-decoding")]
    Encoding,
}

/// Parameters of a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) offset: i64,
    pub(super) block: bool,
}

/// The journal that a path names.
pub(super) fn journal(path: &str) -> Result<String, QueryError> {
    percent_decode(path.strip_prefix('/').unwrap_or(path)).ok_or(QueryError::Encoding)
}

/// Where a path that is not clean leads: `//` and dots are resolved. `None` if it is clean.
pub(super) fn redirect(path: &str) -> Option<String> {
    let mut kept: Vec<&str> = Vec::new();
    for part in path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        if part == ".." {
            kept.pop();
        } else {
            kept.push(part);
        }
    }
    let mut clean = format!("/{}", kept.join("/"));
    if path.ends_with('/') && clean.len() > 1 {
        clean.push('/');
    }
    (clean != path).then_some(clean)
}

/// Parses the parameters of a read. Their names are case-insensitive; the last value counts.
pub(super) fn read(query: &str) -> Result<Read, QueryError> {
    let mut read = Read::default();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match name.to_ascii_lowercase().as_str() {
            "offset" if value.is_empty() => read.offset = 0,
            "offset" => read.offset = value.parse().map_err(|_| integer(&value))?,
            "block" => read.block = boolean(&value)?,
            _ => return Err(QueryError::Unknown(name.into_owned())),
        }
    }
    Ok(read)
}

/// Refuses parameters where there are none.
pub(super) fn none(query: &str) -> Result<(), QueryError> {
    match url::form_urlencoded::parse(query.as_bytes()).next() {
        Some((name, _)) => Err(QueryError::Unknown(name.into_owned())),
        None => Ok(()),
    }
}

fn integer(value: &str) -> QueryError {
    QueryError::Value {
        name: "offset",
        value: value.to_owned(),
        expected: "an integer of 64 bits",
    }
}

fn boolean(value: &str) -> Result<bool, QueryError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" | "on" => Ok(true),
        "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(QueryError::Value {
            name: "block",
            value: value.to_owned(),
            expected: "true or false",
        }),
    }
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escape = (byte == b'%').then(|| tail.get(..2)).flatten();
        let value = escape
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(value) = value {
            bytes.push(value);
            rest = &tail[2..];
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_case_insensitive_and_checked() {
        assert_eq!(read(""), Ok(Read::default()));
        assert_eq!(
            read("OFFSET=3100&Block=on"),
            Ok(Read {
                offset: 3100,
                block: true
            })
        );
        assert_eq!(
            read("offset=-1&block=T"),
            Ok(Read {
                offset: -1,
                block: true
            })
        );
        assert_eq!(read("offset="), Ok(Read::default()));
        assert!(matches!(read("offset=abc"), Err(QueryError::Value { .. })));
        assert!(matches!(read("block=maybe"), Err(QueryError::Value { .. })));
        assert_eq!(read("foo=bar"), Err(QueryError::Unknown("foo".to_owned())));
        assert_eq!(
            none("offset=1"),
            Err(QueryError::Unknown("offset".to_owned()))
        );
    }

    #[test]
    fn unclean_paths_are_redirected_and_clean_ones_are_not() {
        assert_eq!(
            redirect("/acme//orders/part-001").as_deref(),
            Some("/acme/orders/part-001")
        );
        assert_eq!(
            redirect("/acme/x/../orders").as_deref(),
            Some("/acme/orders")
        );
        assert_eq!(redirect("/../../etc").as_deref(), Some("/etc"));
        for clean in ["/", "/acme/orders", "/acme/orders/"] {
            assert_eq!(redirect(clean), None, "{clean}");
        }
    }

    #[test]
    fn names_are_percent_decoded() {
        assert_eq!(journal("/acme/bad%20name"), Ok("acme/bad name".to_owned()));
        assert_eq!(journal("/acme/50%"), Ok("acme/50%".to_owned()));
        assert_eq!(journal("/acme/%ff"), Err(QueryError::Encoding));
    }
}
