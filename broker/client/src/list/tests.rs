use gazette_protocol::ListRequest;

use super::*;
use crate::{fake::FakeBroker, golden};

fn journal(name: &str, create_revision: i64, mod_revision: i64) -> list_response::Journal {
    list_response::Journal {
        spec: FakeBroker::spec(name),
        create_revision,
        mod_revision,
        ..list_response::Journal::default()
    }
}

fn listing(journals: Vec<list_response::Journal>) -> Listing {
    Listing {
        header: Header::default(),
        journals,
    }
}

#[test]
fn a_diff_names_what_came_went_and_changed() {
    let before = listing(vec![
        journal("app/changed", 1, 2),
        journal("app/gone", 1, 1),
        journal("app/remade", 1, 1),
        journal("app/same", 1, 1),
    ]);
    let after = listing(vec![
        journal("app/changed", 1, 7),
        journal("app/new", 5, 5),
        journal("app/remade", 6, 6),
        journal("app/same", 1, 1),
    ]);
    let names = |journals: Vec<list_response::Journal>| -> Vec<String> {
        journals
            .into_iter()
            .map(|journal| journal.spec.name)
            .collect()
    };
    let diff = after.diff(&before);
    assert_eq!(names(diff.added), ["app/new", "app/remade"]);
    assert_eq!(names(diff.removed), ["app/gone", "app/remade"]);
    assert_eq!(names(diff.changed), ["app/changed"]);
    assert_eq!(after.diff(&after), ListingDiff::default());
    assert_eq!(after.get("app/new"), Some(&after.journals[1]));
    assert_eq!(after.get("app"), None);
}

#[test]
fn a_list_that_ends_before_it_begins_is_an_error() {
    assert!(matches!(
        Assembler::default().finish(),
        Err(Cause::Protocol(_))
    ));
}

#[test]
fn all_answers_of_gazette_are_understood() {
    for case in golden::cases("List") {
        let request: ListRequest = case.request();
        let mut assembler = Assembler::default();
        let mut snapshots = 0;
        for message in case.responses() {
            if let Some(listing) = assembler.push(message).unwrap() {
                assert!(listing.header.etcd.revision > 0, "{}", case.name);
                snapshots += 1;
            }
        }
        if request.watch {
            assert!(snapshots > 0, "{}", case.name);
            assert!(assembler.finish().is_err(), "{}", case.name);
        } else {
            assert_eq!(snapshots, 0, "{}", case.name);
            assembler.finish().unwrap();
        }
    }
}
