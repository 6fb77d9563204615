use super::*;

#[test]
fn a_url_is_taken_apart() {
    let url =
        StoreUrl::parse("s3://bucket/some/prefix/?Region=here&FIND=a%2F&replace=b&region=there")
            .unwrap();
    assert_eq!(
        (url.scheme(), url.host(), url.path()),
        ("s3", "bucket", "/some/prefix/")
    );
    assert_eq!(url.rewriter(), &Rewriter::new("a/", "b"));
    let arguments = url.arguments(&["region", "profile"]).unwrap();
    assert_eq!(arguments["region"], "there", "the last one wins");
    assert_eq!(arguments.len(), 1);
}

#[test]
fn an_unknown_argument_is_an_error_once_the_store_opens() {
    let url = StoreUrl::parse("file:///x/?region=here").unwrap();
    let error = url.arguments(&[]).unwrap_err().to_string();
    let expected = "open store file:///x/?region=here: a file store has no argument \"region\"; \
        next: correct the URL in the spec";
    assert_eq!(error, expected);
}

#[test]
fn paths_are_decoded() {
    let url = StoreUrl::parse("file:///a%20b/100%25/%C3%A9/").unwrap();
    assert_eq!(url.path(), "/a b/100%/\u{e9}/");
}

#[test]
fn paths_cannot_climb_out() {
    for text in ["file:///a/../../b/", "file:///%2e%2e/b/"] {
        assert_eq!(StoreUrl::parse(text).unwrap().path(), "/b/");
    }
}

#[test]
fn what_is_no_url_of_a_store_is_refused() {
    for text in [
        "",
        "x",
        "/a/b/",
        "file:///a",
        "file://host/a/",
        "s3://bucket",
        "s3://bucket/a",
        "file:///%ff/",
        "mailto:x",
    ] {
        let error = StoreUrl::parse(text).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Invalid, "{text:?}");
    }
}
