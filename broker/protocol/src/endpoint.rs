//! Endpoints: the URLs under which processes listen.

use crate::{ValidationError, uri::Uri, validation::ValidationCause};

/// Checks that `endpoint` is an absolute URL with a host. Any scheme passes; `http`, `https`
/// and `unix` have a meaning.
pub fn validate(endpoint: &str) -> Result<(), ValidationError> {
    parse(endpoint).map(drop)
}

/// What to connect to: `host:port`, or `unix:///path` of a socket, whose host has no meaning.
pub fn dial_address(endpoint: &str) -> Result<String, ValidationError> {
    let uri = parse(endpoint)?;
    let default_port = match uri.scheme.as_str() {
        "unix" => return Ok(format!("unix://{}", uri.path)),
        "https" => ":443",
        "http" => ":80",
        _ => "",
    };
    let port = if uri.port().is_none() {
        default_port
    } else {
        ""
    };
    Ok(format!("{}{port}", uri.host))
}

fn parse(endpoint: &str) -> Result<Uri, ValidationError> {
    let uri = Uri::parse(endpoint).map_err(ValidationCause::from)?;
    let missing = |part| ValidationCause::UrlPart {
        url: endpoint.to_owned(),
        part,
    };
    if !uri.is_absolute() {
        Err(missing("scheme").into())
    } else if uri.host.is_empty() {
        Err(missing("host").into())
    } else {
        Ok(uri)
    }
}
