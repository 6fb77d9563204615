use gazette_keyspace::DecodeError;
use gazette_protocol::{CompressionCodec, ProcessSpec, journal_spec};
use proptest::prelude::*;

use super::*;

fn journal(name: &str) -> JournalSpec {
    let mut spec = JournalSpec {
        name: name.to_owned(),
        replication: 2,
        fragment: journal_spec::Fragment {
            length: 1 << 20,
            compression_codec: CompressionCodec::None.into(),
            ..journal_spec::Fragment::default()
        },
        ..JournalSpec::default()
    };
    spec.fragment.refresh_interval.seconds = 60;
    spec
}

fn broker(id: Id) -> BrokerSpec {
    BrokerSpec {
        process_spec: ProcessSpec {
            id,
            endpoint: "http://host:8080".to_owned(),
        },
        journal_limit: 10,
        exiting: false,
    }
}

fn text<T>(result: Result<T, DecodeError>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn values_must_name_what_their_keys_name() {
    let value = journal("a/journal").encode_to_vec();
    assert!(Brokers::decode_item("a/journal", &value).is_ok());
    let err = text(Brokers::decode_item("another", &value));
    assert_eq!(
        err,
        "journal spec is named \"a/journal\", and its key \"another\""
    );
    let id = Id::new("zone", "suffix");
    let value = broker(id.clone()).encode_to_vec();
    assert!(Brokers::decode_member(&id, &value).is_ok());
    let err = text(Brokers::decode_member(&Id::new("zone", "other"), &value));
    assert_eq!(
        err,
        "broker spec is of zone/suffix, and its key of zone/other"
    );
}

#[test]
fn values_must_be_valid() {
    let value = JournalSpec {
        replication: 9,
        ..journal("a/journal")
    }
    .encode_to_vec();
    let err = text(Brokers::decode_item("a/journal", &value));
    assert!(err.contains("Replication"), "{err}");
    let id = Id::new("zone", "suffix");
    let value = BrokerSpec {
        journal_limit: 1 << 20,
        ..broker(id.clone())
    }
    .encode_to_vec();
    let err = text(Brokers::decode_member(&id, &value));
    assert!(err.contains("JournalLimit"), "{err}");
    let value = Route {
        primary: 7,
        ..Route::unrouted()
    }
    .encode_to_vec();
    let err = text(Brokers::decode_assignment("a/journal", &id, 0, &value));
    assert!(err.contains("Primary"), "{err}");
}

#[test]
fn an_empty_assignment_has_no_route_yet() {
    let route = Brokers::decode_assignment("a/journal", &Id::new("zone", "suffix"), 0, b"");
    assert_eq!(route, Ok(Route::unrouted()));
}

#[test]
fn one_assignment_that_lags_makes_the_journal_inconsistent() {
    let route = |members: &[&str], primary| Route {
        members: members
            .iter()
            .map(|suffix| Id::new("zone", *suffix))
            .collect(),
        primary,
        endpoints: Vec::new(),
    };
    let assignment = |suffix: &str, slot, value| Assignment {
        item: "a/journal".to_owned(),
        member: Id::new("zone", suffix),
        slot,
        value,
    };
    let both = || route(&["one", "two"], 1);
    let is_consistent = |first: Route, second: Route| {
        let (one, two) = (assignment("one", 1, first), assignment("two", 0, second));
        Brokers::is_consistent(&one, &[&one, &two])
    };
    assert!(is_consistent(both(), both()));
    let endpoints = vec!["http://one".to_owned(), String::new()];
    assert!(
        is_consistent(
            Route {
                endpoints,
                ..both()
            },
            both()
        ),
        "endpoints do not count"
    );
    assert!(
        !is_consistent(both(), Route::unrouted()),
        "a new one has not caught up"
    );
    assert!(
        !is_consistent(both(), route(&["one", "two"], 0)),
        "the primary was another"
    );
    assert!(
        !is_consistent(route(&["one", "two", "zoo"], 1), both()),
        "a member is gone"
    );
}

proptest! {
    #[test]
    fn any_bytes_can_be_decoded(value in prop::collection::vec(any::<u8>(), 0..64)) {
        let id = Id::new("zone", "suffix");
        Brokers::decode_item("a/journal", &value).ok();
        Brokers::decode_member(&id, &value).ok();
        Brokers::decode_assignment("a/journal", &id, 0, &value).ok();
    }
}
