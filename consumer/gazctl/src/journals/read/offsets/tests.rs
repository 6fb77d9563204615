use super::*;

#[test]
fn offsets_that_go_back_to_their_file_keep_the_previous_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("same.json");
    fs::write(&path, r#"{"tmp/a": 18}"#).unwrap();
    let mut offsets = Offsets::load(&path).unwrap();
    assert_eq!(offsets.get("tmp/a"), Some(18));
    assert_eq!(offsets.get("tmp/b"), None);
    offsets.set("tmp/b", 21);
    offsets.set("tmp/a", 37);
    offsets.store(&path, true).unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "{\"tmp/a\":37,\"tmp/b\":21}\n"
    );
    let previous = folder.path().join("same.json.previous");
    assert_eq!(fs::read_to_string(previous).unwrap(), r#"{"tmp/a": 18}"#);
    assert_eq!(Offsets::load(&path).unwrap(), offsets);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_file_that_is_no_map_of_offsets_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("offsets");
    for text in [
        "",
        "[]",
        "{\"a\": \"b\"}",
        "{\"a\": -1}",
        "{\"a\": 99999999999999999999}",
    ] {
        fs::write(&path, text).unwrap();
        let error = format!("{:#}", Offsets::load(&path).unwrap_err());
        assert!(error.contains("; next: "), "{text:?}: {error}");
    }
    let missing = Offsets::load(&folder.path().join("missing")).unwrap_err();
    assert!(format!("{missing:#}").contains("No such file"));
}
