use std::collections::BTreeMap;

use url::Url;

use crate::{Rewriter, StoreError, StoreErrorKind};

/// The URL of a store, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    text: String,
    scheme: String,
    host: String,
    path: String,
    arguments: BTreeMap<String, String>,
    rewriter: Rewriter,
}

impl StoreUrl {
    /// Parses the URL of a store as it stands in a journal's spec.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let url = Url::parse(text).map_err(|error| invalid(text, error.to_string()))?;
        let path = percent_decode(url.path())
            .ok_or_else(|| invalid(text, "its path is not UTF-8 once decoded"))?;
        if !path.starts_with('/') || !path.ends_with('/') {
            return Err(invalid(text, "its path must start and end with a slash"));
        }
        let scheme = url.scheme().to_owned();
        let host = url.host_str().unwrap_or_default().to_owned();
        if scheme == "file" && !host.is_empty() {
            return Err(invalid(text, "the URL of a file store has no host"));
        }

        // Names of arguments are of any case, and the last of several wins.
        let mut arguments: BTreeMap<String, String> = url
            .query_pairs()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.into_owned()))
            .collect();
        let find = arguments.remove("find").unwrap_or_default();
        let replace = arguments.remove("replace").unwrap_or_default();

        Ok(Self {
            text: text.to_owned(),
            scheme,
            host,
            path,
            arguments,
            rewriter: Rewriter::new(find, replace),
        })
    }

    /// Returns the URL as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the scheme, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns the host, which is the bucket or container of most stores.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the decoded path. It starts and ends with a slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns how paths change on the way to this store.
    pub fn rewriter(&self) -> &Rewriter {
        &self.rewriter
    }

    /// Returns the arguments other than `find` and `replace`, with names in lower case, if all are among
    /// `known`.
    pub fn arguments(&self, known: &[&str]) -> Result<&BTreeMap<String, String>, StoreError> {
        let unknown = self
            .arguments
            .keys()
            .find(|name| !known.contains(&name.as_str()));
        match unknown {
            Some(name) => Err(invalid(
                &self.text,
                format!("a {} store has no argument {name:?}", self.scheme),
            )),
            None => Ok(&self.arguments),
        }
    }
}

pub(crate) fn invalid(url: &str, cause: impl Into<String>) -> StoreError {
    StoreError::new(
        StoreErrorKind::Invalid,
        "open",
        format!("store {url}"),
        cause,
    )
    .with_next("correct the URL in the spec")
}

fn percent_decode(path: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        if let (b'%', Some(high), Some(low)) = (byte, digit(0), digit(1)) {
            decoded.push(u8::try_from(high * 16 + low).ok()?);
            rest = &after[2..];
        } else {
            decoded.push(byte);
            rest = after;
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests;
