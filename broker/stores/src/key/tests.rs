use proptest::prelude::*;

use super::*;

#[test]
fn a_path_is_its_parts() {
    assert_eq!(parts("get", "a/b/c").unwrap(), ["a", "b", "c"]);
    assert_eq!(parts("get", "a//./b").unwrap(), ["a", "b"]);
    assert_eq!(parts("get", "...").unwrap(), ["..."]);
    for path in ["", ".", "a/", "/a", "..", "a/../b", "a/..", "a\0"] {
        let error = parts("get", path).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Invalid, "{path:?}");
    }
}

#[test]
fn the_error_names_the_path_and_what_to_do() {
    let error = parts("put", "../x").unwrap_err().to_string();
    let expected = "put \"../x\": the path leads out of the store; \
        next: correct the name of the journal or its path postfix template";
    assert_eq!(error, expected);
}

#[test]
fn a_prefix_is_folders_and_a_start_of_a_name() {
    assert_eq!(prefix("").unwrap(), (vec![], ""));
    assert_eq!(prefix("a").unwrap(), (vec![], "a"));
    assert_eq!(prefix("a/").unwrap(), (vec!["a"], ""));
    assert_eq!(prefix("a/b/c").unwrap(), (vec!["a", "b"], "c"));
    for text in ["/", "/a", "..", "a/..", "../", "a/../b"] {
        assert!(prefix(text).is_err(), "{text:?}");
    }
}

#[test]
fn ordinary_paths_need_no_encoding() {
    let path = "/store/golden/none/date=2026-11-30/00-01_a.raw";
    assert_eq!(percent_encode(path), path);
    assert_eq!(percent_encode("a b%c#d?e\u{e9}"), "a%20b%25c%23d%3Fe%C3%A9");
}

proptest! {
    #[test]
    fn an_accepted_path_never_leads_out(path in "[a./]{0,12}") {
        if let Ok(parts) = parts("get", &path) {
            prop_assert!(parts.iter().all(|part| !part.is_empty() && *part != "." && *part != ".."));
        }
    }
}
