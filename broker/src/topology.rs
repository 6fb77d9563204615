//! What the coordination store says, joined with the replicas of this broker.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gazette_allocator::{Brokers, Decoded, Keys, State};
use gazette_coordination::Coordination;
use gazette_journal::resolve::{
    JournalState, Resolution, ResolveError, ResolveOptions, check_peer, departed_process,
    min_revision, resolve,
};
use gazette_keyspace::{Mirror, ReadGuard};
use gazette_protocol::{
    Header, JournalSpec, LabelSelector, Route, Status, header, journal_name, process_spec,
};

use crate::replicas::Replicas;

/// How long a request waits for a revision that a peer or a client has seen already.
pub(crate) const REVISION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a journal without an assignment is waited for.
const ASSIGNMENT_WAIT: Duration = Duration::from_secs(3);
/// How long a broker that starts waits until its journals are assigned.
const START_WAIT: Duration = Duration::from_secs(30);

/// Looks journals up.
#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) mirror: Mirror<Decoded<Brokers>>,
    pub(crate) coordination: Arc<dyn Coordination>,
    pub(crate) keys: Keys,
    pub(crate) local: process_spec::Id,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) max_replication: i32,
}

/// What a request asks the topology.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    /// The journal, perhaps with a `;meta` suffix, which does not matter here.
    pub(crate) journal: &'a str,
    pub(crate) requires_primary: bool,
    pub(crate) may_proxy: bool,
    /// Of the peer that passed the request on.
    pub(crate) header: Option<&'a Header>,
    pub(crate) min_revision: i64,
    /// What the caller may see of it; none sees all.
    pub(crate) visible: Option<&'a LabelSelector>,
}

impl Topology {
    /// Resolves a journal, at the earliest when the asked revision is there.
    ///
    /// A journal that is there but not assigned yet is about to be: it was just created, or the
    /// broker just started. That is waited for, a little, instead of answered.
    pub(crate) async fn resolve(&self, question: Question<'_>) -> Result<Resolution, ResolveError> {
        let mut changed = self.mirror.changed();
        let deadline = tokio::time::Instant::now() + ASSIGNMENT_WAIT;
        loop {
            changed.borrow_and_update();
            let resolution = self.resolve_once(question).await?;
            let is_unassigned = matches!(
                resolution.status,
                Status::NoJournalPrimaryBroker | Status::InsufficientJournalBrokers
            );
            if !is_unassigned || resolution.desired_replication == 0 {
                return Ok(resolution);
            }
            match tokio::time::timeout_at(deadline, changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Ok(resolution),
            }
        }
    }

    async fn resolve_once(&self, question: Question<'_>) -> Result<Resolution, ResolveError> {
        let revision = min_revision(question.header, question.min_revision);
        let waited = REVISION_TIMEOUT;
        match tokio::time::timeout(waited, self.mirror.wait_for_revision(revision)).await {
            Ok(Ok(())) => {}
            Ok(Err(_stopped)) => return Err(ResolveError::Stopped),
            Err(_) => return Err(ResolveError::RevisionNotReached { revision, waited }),
        }
        let (name, _) = journal_name::split_meta(question.journal);
        let space = self.mirror.read();
        let state = State::new(&self.keys, &space);
        let process = state.member(&self.local).map(|_| &self.local);
        check_peer(question.header, space.header().cluster_id, process)?;

        let item = state.item(name);
        let spec = item.as_ref().map(|item| &item.decoded.spec).filter(|spec| {
            question
                .visible
                .is_none_or(|selector| selector.matches(&spec.label_set_with_meta()))
        });
        let route = spec.map_or_else(Route::unrouted, |_| state.route(name));
        let stored: Vec<Route> = state
            .assignments_of(name)
            .map(|assignment| assignment.decoded.value.clone())
            .collect();
        let journal = JournalState {
            spec,
            route: &route,
            stored_routes: &stored,
            etcd: etcd(&space),
            process,
            is_serving: self.replicas.is_serving(),
        };
        let options = ResolveOptions {
            requires_primary: question.requires_primary,
            may_proxy: question.may_proxy,
            max_replication: self.max_replication,
        };
        resolve(&journal, options)
    }

    /// The spec of a journal and the revision of its last change.
    pub(crate) fn spec(&self, journal: &str) -> Option<(JournalSpec, i64)> {
        let space = self.mirror.read();
        let item = State::new(&self.keys, &space).item(journal)?;
        Some((item.decoded.spec.clone(), item.mod_revision()))
    }

    /// The revision at which a journal was created.
    pub(crate) fn create_revision(&self, journal: &str) -> Option<i64> {
        let space = self.mirror.read();
        let item = State::new(&self.keys, &space).item(journal)?;
        Some(item.raw().create_revision)
    }

    /// Whether a name is that of a journal.
    pub(crate) fn is_journal(&self, name: &str) -> bool {
        State::new(&self.keys, &self.mirror.read())
            .item(name)
            .is_some()
    }

    /// Assignments of a journal, as key, value and revision.
    pub(crate) fn assignments(&self, journal: &str) -> Vec<(bytes::Bytes, Route, i64)> {
        let space = self.mirror.read();
        State::new(&self.keys, &space)
            .assignments_of(journal)
            .map(|entry| {
                (
                    entry.raw().key.clone(),
                    entry.decoded.value.clone(),
                    entry.mod_revision(),
                )
            })
            .collect()
    }

    /// The header of an answer that is about no journal in particular.
    pub(crate) fn unrouted_header(&self) -> Header {
        let space = self.mirror.read();
        let process = match State::new(&self.keys, &space).member(&self.local) {
            Some(_) => self.local.clone(),
            None => departed_process(),
        };
        Header::unrouted(process, etcd(&space))
    }

    /// Waits until every journal that wants a broker is assigned, or for some time.
    pub(crate) async fn assigned(&self) {
        let mut changed = self.mirror.changed();
        let assigned = async {
            loop {
                changed.borrow_and_update();
                let is_complete = {
                    let space = self.mirror.read();
                    let state = State::new(&self.keys, &space);
                    state.items().all(|item| {
                        let spec = &item.decoded.spec;
                        spec.desired_replication(self.max_replication) == 0
                            || state.assignments_of(&item.decoded.id).next().is_some()
                    })
                };
                if is_complete || changed.changed().await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(START_WAIT, assigned).await.is_err() {
            tracing::warn!("not all journals are assigned yet; their appends and reads wait");
        }
    }

    /// The revision of the mirror.
    pub(crate) fn revision(&self) -> i64 {
        self.mirror.read().revision()
    }
}

/// The state of the coordination store as headers tell it.
pub(crate) fn etcd(space: &ReadGuard<'_, Decoded<Brokers>>) -> header::Etcd {
    let header = space.header();
    header::Etcd {
        cluster_id: header.cluster_id,
        member_id: header.member_id,
        revision: header.revision,
        raft_term: header.raft_term,
    }
}

/// Recovered or running replicas by the name of their journal.
pub(crate) type ByName<T> = BTreeMap<String, T>;
