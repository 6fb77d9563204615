mod ends;
mod setup;
mod simulation;
mod stream;
mod world;

use std::time::{Instant, UNIX_EPOCH};

use gazette_protocol::{Header, JournalSpec, Route, Status, header, journal_spec, process_spec};

use super::*;
use crate::fragment::index::Summary;

fn start() -> Now {
    #[expect(clippy::disallowed_methods, reason = "results are relative to it")]
    let instant = Instant::now();
    Now {
        instant,
        wall: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
    }
}

fn spec(replication: i32) -> JournalSpec {
    JournalSpec {
        name: "a/journal".into(),
        replication,
        fragment: journal_spec::Fragment {
            length: 1 << 20,
            compression_codec: 1,
            stores: vec!["file:///".into()],
            ..journal_spec::Fragment::default()
        },
        ..JournalSpec::default()
    }
}

fn route(members: usize) -> Route {
    Route {
        members: (0..members)
            .map(|at| process_spec::Id::new("zone", format!("member-{at}")))
            .collect(),
        primary: 0,
        endpoints: Vec::new(),
    }
}

/// The resolution of a journal of which this broker is the primary of all desired replicas.
fn resolution(members: usize, revision: i64) -> Resolution {
    let spec = spec(i32::try_from(members).unwrap());
    Resolution {
        status: Status::Ok,
        header: Header {
            process_id: route(members).members[0].clone(),
            route: route(members),
            etcd: header::Etcd {
                cluster_id: 7,
                member_id: 8,
                revision,
                raft_term: 10,
            },
        },
        is_local: true,
        stored_routes: vec![route(members); members],
        desired_replication: spec.replication,
        spec: Some(spec),
    }
}

fn ready(begin: i64, end: i64) -> StoreFacts {
    let index = Summary {
        begin,
        end,
        last_mod_time: 0,
        is_refreshed: true,
    };
    StoreFacts {
        index,
        health: Health::Healthy,
    }
}
