use gazette_protocol::StoredFragment;

use super::*;
use crate::fragment::Index;

/// Three stored fragments of ascending age of ten bytes each, and a local one.
fn index() -> Index<()> {
    let mut index = Index::new();
    let fragment = |at: i64| Fragment {
        journal: "a/journal".into(),
        begin: at * 10,
        end: at * 10 + 10,
        mod_time: if at == 3 { 0 } else { 100 + at },
        compression_codec: 1,
        ..Fragment::default()
    };
    index.replace_stored((0..3).map(fragment).map(|fragment| StoredFragment {
        relative_path: fragment.content_name(),
        fragment,
    }));
    index.commit_local(fragment(3), ());
    index
}

fn list(request: &FragmentsRequest) -> (Vec<i64>, i64) {
    let page = list_fragments(index().cover(), request);
    (
        page.fragments
            .iter()
            .map(|fragment| fragment.begin)
            .collect(),
        page.next_page_token,
    )
}

#[test]
fn all_fragments_are_listed_by_default() {
    assert_eq!(list(&FragmentsRequest::default()), (vec![0, 10, 20, 30], 0));
}

#[test]
fn both_bounds_of_the_time_are_inclusive() {
    let request = FragmentsRequest {
        begin_mod_time: 101,
        end_mod_time: 101,
        ..FragmentsRequest::default()
    };
    assert_eq!(list(&request), (vec![10], 0));
}

#[test]
fn local_fragments_are_listed_only_without_an_end_time() {
    let request = FragmentsRequest {
        begin_mod_time: 1000,
        ..FragmentsRequest::default()
    };
    assert_eq!(list(&request), (vec![30], 0));
    let request = FragmentsRequest {
        end_mod_time: 1000,
        ..FragmentsRequest::default()
    };
    assert_eq!(list(&request), (vec![0, 10, 20], 0));
}

#[test]
fn a_page_ends_at_its_limit_and_names_the_next_fragment() {
    let mut request = FragmentsRequest {
        page_limit: 3,
        ..FragmentsRequest::default()
    };
    assert_eq!(list(&request), (vec![0, 10, 20], 30));
    request.next_page_token = 30;
    assert_eq!(list(&request), (vec![30], 0));
    request.next_page_token = 11;
    assert_eq!(list(&request), (vec![20, 30], 0));
}

#[test]
fn a_full_page_names_the_next_fragment_even_if_that_is_not_selected() {
    let request = FragmentsRequest {
        page_limit: 1,
        end_mod_time: 100,
        ..FragmentsRequest::default()
    };
    assert_eq!(list(&request), (vec![0], 10));
}
