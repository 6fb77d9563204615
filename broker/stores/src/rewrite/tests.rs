use super::*;

#[test]
fn the_first_occurrence_is_replaced() {
    for (find, replace, path, expected) in [
        ("", "x", "a/b", "a/b"),
        ("b", "", "a/b/b", "a//b"),
        ("none", "x", "a/b", "a/b"),
        ("a/", "z/", "a/a/", "z/a/"),
        ("a", "aa", "aa", "aaa"),
    ] {
        assert_eq!(Rewriter::new(find, replace).rewrite(path), expected);
    }
}

#[test]
fn rewritten_paths_equal_those_of_the_reference() {
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/broker/state/misc.json"
    );
    let golden: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
    for case in golden["store_path_rewriter"].as_array().unwrap() {
        let text = |name: &str| case[name].as_str().unwrap();
        let rewriter = Rewriter::new(text("find"), text("replace"));
        let key = format!("{}{}", text("store_prefix"), rewriter.rewrite(text("path")));
        assert_eq!(key, text("result"), "{case}");
    }
}
