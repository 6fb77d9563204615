//! Lexical cleaning of slash-separated paths, as `path.Clean` and `path.Join` of Go do it.

/// The shortest path that is lexically the same: no `.`, no `//`, no `..` after a name, and
/// no trailing slash. An empty path becomes `.`.
pub fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if kept.last().is_some_and(|last| *last != "..") => {
                kept.pop();
            }
            ".." if rooted => {}
            _ => kept.push(part),
        }
    }
    let joined = kept.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

/// Whether `path` is what [`clean`] makes of it, without allocating.
pub fn is_clean(path: &str) -> bool {
    let parts = match path {
        "." | "/" => return true,
        _ => path.strip_prefix('/').unwrap_or(path),
    };
    let rooted = path.starts_with('/');
    let mut seen_name = false;
    parts.split('/').all(|part| match part {
        "" | "." => false,
        ".." => !rooted && !seen_name,
        _ => {
            seen_name = true;
            true
        }
    })
}

/// Joins the parts that are not empty, and cleans the result. Nothing to join is empty.
pub fn join(parts: &[&str]) -> String {
    let joined: Vec<&str> = parts
        .iter()
        .copied()
        .filter(|part| !part.is_empty())
        .collect();
    if joined.is_empty() {
        String::new()
    } else {
        clean(&joined.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_cleaned_as_go_does() {
        for (path, want) in [
            ("", "."),
            (".", "."),
            ("/", "/"),
            ("//", "/"),
            ("a", "a"),
            ("a/", "a"),
            ("a//b", "a/b"),
            ("a/./b", "a/b"),
            ("a/../b", "b"),
            ("a/..", "."),
            ("../a", "../a"),
            ("../../a", "../../a"),
            ("a/../../b", "../b"),
            ("/..", "/"),
            ("/../a", "/a"),
            ("....", "...."),
        ] {
            assert_eq!(clean(path), want, "{path:?}");
            assert_eq!(is_clean(path), path == want, "{path:?}");
        }
    }

    #[test]
    fn empty_parts_do_not_join() {
        assert_eq!(join(&["a/b", "", "c"]), "a/b/c");
        assert_eq!(join(&["a/b", "..", "c"]), "a/c");
        assert_eq!(join(&["", ""]), "");
    }

    proptest! {
        #[test]
        fn is_clean_agrees_with_clean(path in "[a./]{0,12}") {
            prop_assert_eq!(is_clean(&path), clean(&path) == path);
            let once = clean(&path);
            prop_assert_eq!(clean(&once), once);
        }
    }
}
