//! URLs of the stores that keep fragments.

use crate::{ValidationError, uri::Uri, validation::ValidationCause};

const SCHEMES: &str = "s3, gs, azure, azure-ad, file";

/// Checks the URL of a store and splits it. Its query arguments are the business of whoever
/// opens the store.
pub fn parse(store: &str) -> Result<Uri, ValidationError> {
    let uri = Uri::parse(store).map_err(ValidationCause::from)?;
    let missing = |part| {
        Err(ValidationCause::UrlPart {
            url: store.to_owned(),
            part,
        }
        .into())
    };
    if !uri.is_absolute() {
        return missing("scheme");
    }
    // A path that is absent is no folder either. Gazette ends its process on some of these.
    if !uri.path.ends_with('/') {
        return Err(ValidationCause::NoTrailingSlash { path: uri.path }.into());
    }
    match uri.scheme.as_str() {
        "s3" | "gs" | "azure" => {
            if uri.host.is_empty() {
                return missing("bucket");
            }
        }
        "azure-ad" => {
            let folders = uri
                .path
                .split('/')
                .filter(|folder| !folder.is_empty())
                .count();
            match (uri.host.as_str(), folders) {
                ("", _) => return missing("tenant"),
                (_, 0) => return missing("storage account"),
                (_, 1) => return missing("storage container"),
                (_, _) => {}
            }
        }
        "file" => {
            if !uri.host.is_empty() {
                let url = store.to_owned();
                return Err(ValidationCause::UrlUnexpectedPart { url, part: "host" }.into());
            }
        }
        _ => {
            let scheme = uri.scheme;
            return Err(ValidationCause::StoreScheme {
                scheme,
                known: SCHEMES,
            }
            .into());
        }
    }
    Ok(uri)
}

/// Checks the URL of a store.
pub fn validate(store: &str) -> Result<(), ValidationError> {
    parse(store).map(drop)
}
