//! Who serves a request about a journal: the status and the header of its resolution.

use std::time::Duration;

use gazette_protocol::{Header, JournalSpec, Route, Status, header, journal_spec, process_spec};

/// Name of a broker whose own key is gone, because it leaves or lost its lease. It is no member
/// of any route, so what it is asked is passed on.
pub fn departed_process() -> process_spec::Id {
    process_spec::Id {
        zone: "local-BrokerSpec".into(),
        suffix: "missing-from-Etcd".into(),
    }
}

/// What a request needs of the broker that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolveOptions {
    /// Only the primary can serve it.
    pub requires_primary: bool,
    /// It may be passed on to another broker.
    pub may_proxy: bool,
    /// The most replicas that this cluster gives a journal.
    pub max_replication: i32,
}

/// What the key space holds about a journal, at one revision.
#[derive(Debug, Clone, Copy)]
pub struct JournalState<'a> {
    /// The spec; none if the journal does not exist, or the caller may not know that it does.
    pub spec: Option<&'a JournalSpec>,
    /// Members, primary and endpoints as the assignment keys tell. Unrouted where `spec` is
    /// none, so that nothing leaks.
    pub route: &'a Route,
    /// The routes that the values of the assignments hold.
    pub stored_routes: &'a [Route],
    /// Revision of the key space.
    pub etcd: header::Etcd,
    /// This broker; none if its key is gone.
    pub process: Option<&'a process_spec::Id>,
    /// Whether this broker still serves the replicas that it was assigned.
    pub is_serving: bool,
}

/// The answer: how the request goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// OK, or why the request ends here.
    pub status: Status,
    /// Who serves it. The process is empty if any member of the route may.
    pub header: Header,
    /// Whether this broker serves it.
    pub is_local: bool,
    /// The spec, if there is one.
    pub spec: Option<JournalSpec>,
    /// The routes that the values of the assignments hold.
    pub stored_routes: Vec<Route>,
    /// How many replicas the journal shall have.
    pub desired_replication: i32,
}

impl Resolution {
    /// Revision at which the journal was resolved.
    pub fn revision(&self) -> i64 {
        self.header.etcd.revision
    }

    /// How far the journal is suspended.
    pub fn suspend(&self) -> journal_spec::Suspend {
        self.spec
            .as_ref()
            .and_then(|spec| spec.suspend)
            .unwrap_or_default()
    }

    /// Whether every assignment holds the present route.
    pub fn is_consistent(&self) -> bool {
        self.stored_routes
            .iter()
            .all(|stored| stored.is_equivalent(&self.header.route))
    }
}

/// Why a journal could not be resolved. That is not a status, but an error of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// A peer passed the request on, but belongs to another cluster.
    #[error("the request is for cluster {expected:#x}, this broker is of {actual:#x}")]
    WrongCluster {
        /// The cluster that the peer named.
        expected: u64,
        /// Our cluster.
        actual: u64,
    },
    /// A peer passed the request on, but meant another process.
    #[error(
        "the request is for process {}/{}, this is {}/{}",
        expected.zone, expected.suffix, actual.zone, actual.suffix
    )]
    WrongProcess {
        /// The process that the peer named.
        expected: process_spec::Id,
        /// This process.
        actual: process_spec::Id,
    },
    /// The broker is stopping: its assignments are still there, but its replicas are not.
    #[error("this broker is stopping and serves its replicas no longer; next: try again")]
    Stopped,
    /// The revision that the request needs did not arrive.
    #[error(
        "revision {revision} of the key space did not arrive within {waited:?}; next: look \
         whether the coordination store is reachable, and try again"
    )]
    RevisionNotReached {
        /// The revision.
        revision: i64,
        /// How long it was waited for.
        waited: Duration,
    },
}

/// The revision that must be there before a request is resolved.
pub fn min_revision(header: Option<&Header>, min_etcd_revision: i64) -> i64 {
    header
        .map_or(0, |header| header.etcd.revision)
        .max(min_etcd_revision)
}

/// Checks that a peer which passed a request on meant this process.
pub fn check_peer(
    header: Option<&Header>,
    cluster_id: u64,
    process: Option<&process_spec::Id>,
) -> Result<(), ResolveError> {
    let Some(Header {
        process_id: expected,
        etcd,
        ..
    }) = header
    else {
        return Ok(());
    };
    if etcd.cluster_id != cluster_id {
        let expected = etcd.cluster_id;
        return Err(ResolveError::WrongCluster {
            expected,
            actual: cluster_id,
        });
    }
    let actual = process.cloned().unwrap_or_else(departed_process);
    if *expected != process_spec::Id::default() && *expected != actual {
        return Err(ResolveError::WrongProcess {
            expected: expected.clone(),
            actual,
        });
    }
    Ok(())
}

/// Resolves a journal. The first that applies is its status: not found, suspended, no primary,
/// no brokers, may not be passed on, OK. With any but OK the answer is this process's own.
pub fn resolve(
    journal: &JournalState<'_>,
    options: ResolveOptions,
) -> Result<Resolution, ResolveError> {
    let process = journal.process.cloned().unwrap_or_else(departed_process);
    let route = journal.route;
    let primary = usize::try_from(route.primary)
        .ok()
        .and_then(|at| route.members.get(at));

    let serving = if options.requires_primary {
        primary.cloned().unwrap_or_default()
    } else if route.members.contains(&process) {
        process.clone()
    } else {
        process_spec::Id::default()
    };
    let is_local = serving == process;
    if is_local && !journal.is_serving {
        return Err(ResolveError::Stopped);
    }

    let level = journal
        .spec
        .map(|spec| spec.suspend.unwrap_or_default().level());
    let status = match level {
        None => Status::JournalNotFound,
        Some(journal_spec::suspend::Level::Full) => Status::Suspended,
        Some(_) if options.requires_primary && primary.is_none() => Status::NoJournalPrimaryBroker,
        Some(_) if route.members.is_empty() => Status::InsufficientJournalBrokers,
        Some(_) if !options.may_proxy && !is_local && options.requires_primary => {
            Status::NotJournalPrimaryBroker
        }
        Some(_) if !options.may_proxy && !is_local => Status::NotJournalBroker,
        Some(_) => Status::Ok,
    };
    Ok(Resolution {
        status,
        header: Header {
            process_id: if status == Status::Ok {
                serving
            } else {
                process
            },
            route: route.clone(),
            etcd: journal.etcd,
        },
        is_local: is_local && status == Status::Ok,
        spec: journal.spec.cloned(),
        stored_routes: journal.stored_routes.to_vec(),
        desired_replication: journal
            .spec
            .map_or(0, |spec| spec.desired_replication(options.max_replication)),
    })
}

#[cfg(test)]
mod tests;
