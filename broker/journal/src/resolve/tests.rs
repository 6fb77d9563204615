use super::*;
use journal_spec::{Suspend, suspend::Level};

fn id(suffix: &str) -> process_spec::Id {
    process_spec::Id {
        zone: "zone".into(),
        suffix: suffix.into(),
    }
}

fn etcd() -> header::Etcd {
    header::Etcd {
        cluster_id: 7,
        member_id: 8,
        revision: 9,
        raft_term: 10,
    }
}

fn spec(level: Level) -> JournalSpec {
    let suspend = Some(Suspend {
        level: level.into(),
        offset: 0,
    });
    JournalSpec {
        name: "a/journal".into(),
        replication: 2,
        suspend,
        ..JournalSpec::default()
    }
}

/// A route of these members; the one marked by `*` is the primary.
fn route(members: &[&str]) -> Route {
    let primary = members.iter().position(|member| member.starts_with('*'));
    Route {
        members: members
            .iter()
            .map(|member| id(member.trim_start_matches('*')))
            .collect(),
        primary: primary.map_or(-1, |at| i32::try_from(at).unwrap()),
        endpoints: Vec::new(),
    }
}

const ANY: ResolveOptions = ResolveOptions {
    requires_primary: false,
    may_proxy: true,
    max_replication: 9,
};
const ANY_HERE: ResolveOptions = ResolveOptions {
    may_proxy: false,
    ..ANY
};
const PRIMARY: ResolveOptions = ResolveOptions {
    requires_primary: true,
    ..ANY
};
const PRIMARY_HERE: ResolveOptions = ResolveOptions {
    may_proxy: false,
    ..PRIMARY
};

/// Status, suffix of the process, and whether it is local, as `self` sees it.
fn outcome(
    spec: Option<&JournalSpec>,
    members: &[&str],
    options: ResolveOptions,
) -> (Status, String, bool) {
    let resolution = resolve(
        &JournalState {
            spec,
            route: &route(members),
            stored_routes: &[],
            etcd: etcd(),
            process: Some(&id("self")),
            is_serving: true,
        },
        options,
    )
    .unwrap();
    let process = resolution.header.process_id.suffix;
    (resolution.status, process, resolution.is_local)
}

/// Spec, members, options, and what comes of them.
type Row<'a> = (
    Option<&'a JournalSpec>,
    &'a [&'a str],
    ResolveOptions,
    (Status, &'a str, bool),
);

#[test]
fn the_first_status_that_applies_is_the_answer() {
    use Status::{
        InsufficientJournalBrokers as Insufficient, JournalNotFound as NotFound,
        NoJournalPrimaryBroker as NoPrimary, NotJournalBroker as NotBroker,
        NotJournalPrimaryBroker as NotPrimary, Ok as Fine, Suspended,
    };
    let (awake, partial, full) = (spec(Level::None), spec(Level::Partial), spec(Level::Full));
    #[rustfmt::skip]
    let table: &[Row<'_>] = &[
        (None, &[], ANY, (NotFound, "self", false)),
        (None, &["*self"], PRIMARY, (NotFound, "self", false)),
        (Some(&full), &[], PRIMARY, (Suspended, "self", false)),
        (Some(&partial), &["*self"], PRIMARY, (Fine, "self", true)),
        (Some(&awake), &[], PRIMARY, (NoPrimary, "self", false)),
        (Some(&awake), &["other"], PRIMARY_HERE, (NoPrimary, "self", false)),
        (Some(&awake), &[], ANY, (Insufficient, "self", false)),
        (Some(&awake), &["*self"], PRIMARY, (Fine, "self", true)),
        (Some(&awake), &["*other", "self"], PRIMARY, (Fine, "other", false)),
        (Some(&awake), &["*other", "self"], PRIMARY_HERE, (NotPrimary, "self", false)),
        (Some(&awake), &["*other", "self"], ANY, (Fine, "self", true)),
        (Some(&awake), &["*other", "self"], ANY_HERE, (Fine, "self", true)),
        (Some(&awake), &["other", "self"], ANY_HERE, (Fine, "self", true)),
        (Some(&awake), &["*other"], ANY, (Fine, "", false)),
        (Some(&awake), &["*other"], ANY_HERE, (NotBroker, "self", false)),
    ];
    for &(spec, members, options, (status, process, is_local)) in table {
        let expected = (status, process.to_owned(), is_local);
        assert_eq!(
            outcome(spec, members, options),
            expected,
            "{members:?} {options:?}"
        );
    }
}

fn resolve_at<'a>(
    route: &'a Route,
    spec: &'a JournalSpec,
    process: Option<&'a process_spec::Id>,
    is_serving: bool,
) -> Result<Resolution, ResolveError> {
    let stored_routes = std::slice::from_ref(route);
    let state = JournalState {
        spec: Some(spec),
        route,
        stored_routes,
        etcd: etcd(),
        process,
        is_serving,
    };
    resolve(&state, PRIMARY)
}

#[test]
fn a_broker_that_left_passes_on_what_it_is_asked() {
    let (route, spec) = (route(&["*other"]), spec(Level::None));
    let resolution = resolve_at(&route, &spec, None, false).unwrap();
    assert_eq!(resolution.header.process_id, id("other"));
    assert!(!resolution.is_local);
}

#[test]
fn a_broker_that_stops_does_not_serve_what_it_is_still_assigned() {
    let (route, spec, own) = (route(&["*self"]), spec(Level::None), id("self"));
    let stopped = resolve_at(&route, &spec, Some(&own), false);
    assert_eq!(stopped, Err(ResolveError::Stopped));
}

#[test]
fn a_resolution_has_what_an_append_needs() {
    let (route, own) = (route(&["*self"]), id("self"));
    let resolution = resolve_at(&route, &spec(Level::Partial), Some(&own), true).unwrap();
    assert_eq!(resolution.desired_replication, 1);
    assert_eq!(resolution.revision(), 9);
    assert!(resolution.is_consistent());
    assert_eq!(resolution.suspend().level(), Level::Partial);
}

#[test]
fn a_peer_must_mean_this_process_of_this_cluster() {
    let own = id("self");
    let header = |cluster_id, process_id| Header {
        process_id,
        route: Route::unrouted(),
        etcd: header::Etcd {
            cluster_id,
            ..etcd()
        },
    };
    assert_eq!(check_peer(None, 7, Some(&own)), Ok(()));
    assert_eq!(
        check_peer(Some(&header(7, own.clone())), 7, Some(&own)),
        Ok(())
    );
    assert_eq!(
        check_peer(Some(&header(7, process_spec::Id::default())), 7, Some(&own)),
        Ok(())
    );
    assert_eq!(
        check_peer(Some(&header(6, own.clone())), 7, Some(&own)),
        Err(ResolveError::WrongCluster {
            expected: 6,
            actual: 7
        })
    );
    let wrong = check_peer(Some(&header(7, id("other"))), 7, None).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "the request is for process zone/other, this is local-BrokerSpec/missing-from-Etcd"
    );
}

#[test]
fn the_later_of_two_revisions_is_waited_for() {
    let header = Header {
        etcd: etcd(),
        ..Header::unrouted(id("self"), etcd())
    };
    assert_eq!(min_revision(None, 4), 4);
    assert_eq!(min_revision(Some(&header), 4), 9);
    assert_eq!(min_revision(Some(&header), 14), 14);
}
