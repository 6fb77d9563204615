use super::*;

#[test]
fn a_path_is_below_itself_and_its_directories() {
    assert!(is_below(b"/a/b", b"/a"));
    assert!(is_below(b"/a/b", b"/a/"));
    assert!(is_below(b"/a", b"/a"));
    assert!(is_below(b"/a", b"/"));
    assert!(!is_below(b"/ab", b"/a"));
    assert!(!is_below(b"/", b"/a"));
}
