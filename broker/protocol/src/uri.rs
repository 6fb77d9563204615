//! URLs, split as `net/url` of Go splits them.
//!
//! Stores and endpoints are checked with these rules and not with those of browsers: they
//! keep the case of hosts, know no special schemes, and add nothing that was not written.

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Uri {
    /// Lower-case scheme, empty if the URL is relative.
    pub scheme: String,
    /// What follows `scheme:` if that is not a slash.
    pub opaque: String,
    /// Text before `@` of the authority, as written.
    pub user: Option<String>,
    /// Host, with `:port` if there is one.
    pub host: String,
    /// Decoded path.
    pub path: String,
    /// Text between `?` and `#`, as written.
    pub query: String,
    /// Decoded text after `#`.
    pub fragment: String,
}

/// Why a text is not a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// A control character.
    #[error("{url:?} has a control character")]
    Control {
        /// The whole text.
        url: String,
    },
    /// A colon with nothing before it.
    #[error("{url:?} has no scheme before its colon")]
    MissingScheme {
        /// The whole text.
        url: String,
    },
    /// A colon in the first segment of a relative path.
    #[error("{url:?} has a colon in its first path segment")]
    ColonInPath {
        /// The whole text.
        url: String,
    },
    /// A `%` that two hexadecimal digits do not follow, or that may not stand there.
    #[error("{escape:?} is not a valid escape of a URL")]
    Escape {
        /// The escape.
        escape: String,
    },
    /// A character that a host may not have.
    #[error("{character:?} may not be in the host of a URL")]
    Host {
        /// The character.
        character: char,
    },
    /// An opening bracket that is not closed.
    #[error("the host {host:?} has no closing bracket")]
    Bracket {
        /// The host.
        host: String,
    },
    /// A port that is not a number.
    #[error("{port:?} is not a port")]
    Port {
        /// The port, with its colon.
        port: String,
    },
    /// Characters before `@` that may not be there.
    #[error("the user of the URL has a character that must be escaped")]
    User,
}

impl Uri {
    /// Splits `url`.
    pub fn parse(url: &str) -> Result<Self, UriError> {
        if url.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err(UriError::Control {
                url: url.to_owned(),
            });
        }
        let (head, fragment) = url.split_once('#').unwrap_or((url, ""));
        let fragment = unescape(fragment, Part::Path)?;
        let (scheme, rest) = split_scheme(head)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Self {
            scheme: scheme.to_ascii_lowercase(),
            query: query.to_owned(),
            fragment,
            ..Self::default()
        };
        if !rest.starts_with('/') && !rest.is_empty() {
            if !uri.scheme.is_empty() {
                rest.clone_into(&mut uri.opaque);
                return Ok(uri);
            }
            if rest
                .split('/')
                .next()
                .is_some_and(|segment| segment.contains(':'))
            {
                return Err(UriError::ColonInPath {
                    url: url.to_owned(),
                });
            }
        }
        let authority = rest
            .strip_prefix("//")
            .filter(|_| !uri.scheme.is_empty() || !rest.starts_with("///"));
        let path = match authority {
            None => rest,
            Some(authority) => {
                let end = authority.find('/').unwrap_or(authority.len());
                (uri.user, uri.host) = parse_authority(&authority[..end])?;
                &authority[end..]
            }
        };
        uri.path = unescape(path, Part::Path)?;
        Ok(uri)
    }

    /// Whether there is a scheme.
    pub fn is_absolute(&self) -> bool {
        !self.scheme.is_empty()
    }

    /// The port of the host, without its colon; `None` if there is none, or an empty one.
    pub fn port(&self) -> Option<&str> {
        let after_address = self
            .host
            .rfind(']')
            .map_or(self.host.as_str(), |i| &self.host[i..]);
        let (_, port) = after_address.rsplit_once(':')?;
        (!port.is_empty()).then_some(port)
    }
}

fn split_scheme(url: &str) -> Result<(&str, &str), UriError> {
    for (i, c) in url.bytes().enumerate() {
        match c {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => {
                return Err(UriError::MissingScheme {
                    url: url.to_owned(),
                });
            }
            b':' => return Ok((&url[..i], &url[i + 1..])),
            _ => break,
        }
    }
    Ok(("", url))
}

fn parse_authority(authority: &str) -> Result<(Option<String>, String), UriError> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let host = parse_host(host)?;
    if let Some(user) = user {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(plain) {
            return Err(UriError::User);
        }
        unescape(user, Part::Path)?;
    }
    Ok((user.map(str::to_owned), host))
}

fn parse_host(host: &str) -> Result<String, UriError> {
    let port_at = if host.starts_with('[') {
        let end = host.rfind(']').ok_or_else(|| UriError::Bracket {
            host: host.to_owned(),
        })?;
        end + 1
    } else {
        host.rfind(':').unwrap_or(host.len())
    };
    let port = &host[port_at..];
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !port.is_empty() && (!port.starts_with(':') || !digits.bytes().all(|b| b.is_ascii_digit())) {
        return Err(UriError::Port {
            port: port.to_owned(),
        });
    }
    if host.starts_with('[')
        && let Some(zone) = host[..port_at].find("%25")
    {
        let address = unescape(&host[..zone], Part::Host)?;
        let zone = unescape(&host[zone..port_at], Part::Zone)?;
        return Ok(format!("{address}{zone}{port}"));
    }
    unescape(host, Part::Host)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
}

fn hex_digit(byte: Option<&u8>) -> Option<u8> {
    byte.and_then(|b| char::from(*b).to_digit(16))
        .and_then(|digit| u8::try_from(digit).ok())
}

fn unescape(text: &str, part: Part) -> Result<String, UriError> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%' {
            let escape = || UriError::Escape {
                escape: text[at..].chars().take(3).collect(),
            };
            let (Some(high), Some(low)) =
                (hex_digit(bytes.get(at + 1)), hex_digit(bytes.get(at + 2)))
            else {
                return Err(escape());
            };
            let value = high << 4 | low;
            let allowed = match part {
                Part::Path => true,
                Part::Host => high >= 8 || value == b'%',
                Part::Zone => value == b'%' || value == b' ' || host_may_have(value),
            };
            if !allowed {
                return Err(escape());
            }
            decoded.push(value);
            at += 3;
            continue;
        }
        if part != Part::Path && byte < 0x80 && !host_may_have(byte) {
            return Err(UriError::Host {
                character: char::from(byte),
            });
        }
        decoded.push(byte);
        at += 1;
    }
    // Escapes may spell bytes that are not UTF-8; nothing here looks at such paths again.
    Ok(String::from_utf8_lossy(&decoded).into_owned())
}

fn host_may_have(byte: u8) -> bool {
    byte >= 0x80 || byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(url: &str) -> (String, String, String) {
        let uri = Uri::parse(url).unwrap();
        (uri.scheme, uri.host, uri.path)
    }

    #[test]
    fn urls_split_into_their_parts() {
        let own = |s: &str, h: &str, p: &str| (s.to_owned(), h.to_owned(), p.to_owned());
        assert_eq!(
            parts("s3://bucket/p/?region=x#f"),
            own("s3", "bucket", "/p/")
        );
        assert_eq!(parts("FILE:///a/"), own("file", "", "/a/"));
        assert_eq!(parts("file:/a/"), own("file", "", "/a/"));
        assert_eq!(parts("HTTP://Host:1"), own("http", "Host:1", ""));
        assert_eq!(parts("/a/"), own("", "", "/a/"));
        assert_eq!(parts("s3://user:pw@bucket/%41"), own("s3", "bucket", "/A"));
        assert_eq!(Uri::parse("host:80").unwrap().opaque, "80");
        assert_eq!(Uri::parse("http://[::1]:80").unwrap().port(), Some("80"));
        assert_eq!(Uri::parse("http://[::1]").unwrap().port(), None);
        assert_eq!(Uri::parse("s3://b/?a=b?c#d").unwrap().query, "a=b?c");
    }

    #[test]
    fn malformed_urls_are_refused() {
        for url in [
            "s3://b/%zz/",
            "http://h:port",
            "http://x y/",
            "http://[::1",
            ":x",
            "1:2/x",
            "a\tb",
            "http://a%41/",
            "http://a b@h/",
        ] {
            Uri::parse(url).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn any_text_splits_or_is_refused(url in ".*") {
            let _parsed = Uri::parse(&url);
        }
    }
}
