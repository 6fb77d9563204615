//! What the stores of a journal hold of it.

use std::time::SystemTime;

use gazette_protocol::{JournalSpec, StoredFragment};
use gazette_stores::{Store as _, StoreError, StoreErrorKind, Stores};

/// Lists the fragments of a journal in all its stores. An error of any store is an error of the
/// whole: a partial list would make stored content look lost.
///
/// A store that is not there at all holds nothing, so that a journal whose store is named wrongly
/// can be written until the name is mended; the health of the store tells of it meanwhile.
///
/// Objects of a journal whose name continues this one's (`a/b/c` within `a/b`) are left out.
/// `is_journal` tells which names are journals.
pub(crate) async fn list(
    stores: &Stores,
    spec: &JournalSpec,
    is_journal: impl Fn(&str) -> bool,
) -> Result<Vec<StoredFragment>, StoreError> {
    let mut all = Vec::new();
    let prefix = format!("{}/", spec.name);
    for url in &spec.fragment.stores {
        let listed = match stores.get(url).list(&prefix).await {
            Ok(listed) => listed,
            Err(error) if is_absent(&error) => {
                tracing::warn!(journal = spec.name, err = %error, "store is not there");
                continue;
            }
            Err(error) => return Err(error),
        };
        for object in listed {
            if is_of_nested(&spec.name, &object.path, &is_journal) {
                continue;
            }
            match StoredFragment::parse(&spec.name, &object.path) {
                Ok(mut stored) => {
                    stored.fragment.backing_store.clone_from(url);
                    stored.fragment.mod_time = object.mod_time;
                    all.push(stored);
                }
                Err(error) => {
                    tracing::debug!(journal = spec.name, path = object.path, err = %error, "object is no fragment");
                }
            }
        }
    }
    Ok(all)
}

/// Whether the store itself is missing or named wrongly, and does not only refuse us.
fn is_absent(error: &StoreError) -> bool {
    let kind = error.kind();
    error.operation() == "open"
        && matches!(kind, StoreErrorKind::NotFound | StoreErrorKind::Invalid)
}

/// Whether the folders of a path lead into another journal.
fn is_of_nested(journal: &str, path: &str, is_journal: impl Fn(&str) -> bool) -> bool {
    let slashes = path.match_indices('/').map(|(at, _)| at);
    slashes
        .into_iter()
        .any(|at| is_journal(&format!("{journal}/{}", &path[..at])))
}

/// Seconds since the Unix epoch, as stores tell them.
pub(crate) fn unix_seconds(time: SystemTime) -> i64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_nested_journals_are_told_apart() {
        let journals = |name: &str| name == "a/b/c" || name == "a/b/date=1/x";
        assert!(is_of_nested("a/b", "c/00.raw", journals));
        assert!(is_of_nested("a/b", "date=1/x/00.raw", journals));
        assert!(!is_of_nested("a/b", "date=1/00.raw", journals));
        assert!(!is_of_nested("a/b", "00.raw", journals));
    }
}
