//! The store as a pure machine: requests and the time come in, answers come out.
//!
//! Everything that a request changes can be taken back until [`Engine::commit`]; so a shell may
//! apply a group of requests, write [`Engine::changes`] to a disk, and only then answer and
//! commit, or roll back if the disk refused.

mod history;
mod lease;
#[cfg(test)]
mod tests;
mod txn;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    CoordinationError, EventKind, InvalidRequest, KeyValue, LeaseId, RangeKey, RangeRequest,
    RangeResponse, ResponseHeader, Txn, TxnResponse, WatchResponse,
};
use history::History;
use lease::Leases;

/// Events in one answer to [`Request::History`], give or take the last revision.
const HISTORY_EVENTS_MAX: usize = 4096;

/// Identity and limits of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Identity of the store, not zero.
    pub cluster_id: u64,
    /// Identity of its only member, not zero.
    pub member_id: u64,
    /// Number of times that the store was opened, not zero. Lease ids derive from it.
    pub raft_term: u64,
    /// Greatest number of compares, and of operations, of a transaction.
    pub max_txn_ops: usize,
    /// Revisions whose events are kept for watches.
    pub history_revisions: usize,
}

/// An input of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reads keys.
    Range(RangeRequest),
    /// Applies a transaction.
    Txn(Txn),
    /// Creates a lease.
    Grant {
        /// Time until it ends.
        ttl: Duration,
    },
    /// Restarts the time of a lease.
    KeepAlive {
        /// The lease.
        lease: LeaseId,
    },
    /// Ends a lease.
    Revoke {
        /// The lease.
        lease: LeaseId,
    },
    /// Forgets what was before a revision.
    Compact {
        /// The revision.
        revision: i64,
    },
    /// Reads events that have happened.
    History {
        /// Keys must begin with it.
        prefix: Bytes,
        /// First revision to return.
        start_revision: i64,
    },
}

/// An answer of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// To [`Request::Range`].
    Range(RangeResponse),
    /// To [`Request::Txn`].
    Txn(TxnResponse),
    /// To [`Request::Grant`].
    Granted(LeaseId),
    /// To [`Request::KeepAlive`]: the time until the lease ends.
    KeptAlive(Duration),
    /// To [`Request::Revoke`].
    Revoked,
    /// To [`Request::Compact`].
    Compacted,
    /// To [`Request::History`]. Everything up to the header's revision is in it.
    History(WatchResponse),
}

/// The store.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    revision: i64,
    keys: BTreeMap<Bytes, KeyValue>,
    leases: Leases,
    history: History,
    undo: Vec<Undo>,
    /// Revision at the latest commit.
    committed: i64,
}

/// How to take back one change.
#[derive(Debug)]
enum Undo {
    Key {
        key: Bytes,
        before: Option<KeyValue>,
    },
    Grant(LeaseId),
    Revoke(LeaseId, lease::Lease),
}

impl Engine {
    /// Returns an engine that holds `keys` at `revision`, and remembers nothing of before.
    ///
    /// Leases of the keys are of a process that has gone. They end here: their keys are deleted
    /// in one revision, which a watch that resumes at the revision after `revision` will see.
    pub fn new(config: EngineConfig, revision: i64, keys: Vec<KeyValue>) -> Self {
        let orphans: Vec<_> = keys
            .iter()
            .filter(|kv| kv.lease.is_some())
            .map(|kv| kv.key.clone())
            .collect();
        let keys = keys.into_iter().map(|kv| (kv.key.clone(), kv)).collect();
        let mut engine = Self {
            config,
            revision,
            keys,
            leases: Leases::new(config.raft_term),
            history: History::new(revision),
            undo: Vec::new(),
            committed: revision,
        };
        if !orphans.is_empty() {
            engine.revision += 1;
            for key in orphans {
                engine.remove(&key);
            }
        }
        engine
    }

    /// Handles one request. Leases that ended by `now` are revoked first.
    pub fn handle(
        &mut self,
        now: Instant,
        request: Request,
    ) -> Result<Response, CoordinationError> {
        self.expire(now);
        self.answer(now, request)
    }

    /// Handles one request, with leases as they are.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        request: Request,
    ) -> Result<Response, CoordinationError> {
        match request {
            Request::Range(request) => self.range(&request).map(Response::Range),
            Request::Txn(txn) => self.txn(&txn).map(Response::Txn),
            Request::Grant { ttl } => self.grant(now, ttl).map(Response::Granted),
            Request::KeepAlive { lease } => {
                self.leases.keep_alive(now, lease).map(Response::KeptAlive)
            }
            Request::Revoke { lease } => self.revoke(lease).map(|()| Response::Revoked),
            Request::Compact { revision } => self
                .history
                .compact(revision, self.revision)
                .map(|()| Response::Compacted),
            Request::History {
                prefix,
                start_revision,
            } => self
                .events_since(&prefix, start_revision)
                .map(Response::History),
        }
    }

    /// Revokes the leases that ended by `now`, each in a revision of its own.
    pub fn expire(&mut self, now: Instant) {
        for lease in self.leases.ended_by(now) {
            self.revoke(lease).expect("an ended lease exists");
        }
    }

    /// When the next lease ends, unless it is kept alive.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.leases.next_expiry()
    }

    /// The header of an answer given now.
    pub fn header(&self) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.config.cluster_id,
            member_id: self.config.member_id,
            revision: self.revision,
            raft_term: self.config.raft_term,
        }
    }

    /// Keys that changed since the latest commit, as they are now; `None` if deleted.
    pub fn changes(&self) -> BTreeMap<&Bytes, Option<&KeyValue>> {
        self.undo
            .iter()
            .filter_map(|undo| match undo {
                Undo::Key { key, .. } => Some((key, self.keys.get(key))),
                Undo::Grant(_) | Undo::Revoke(..) => None,
            })
            .collect()
    }

    /// Makes the changes since the latest commit final.
    pub fn commit(&mut self) {
        self.undo.clear();
        self.committed = self.revision;
        self.history.trim(self.config.history_revisions);
    }

    /// Takes the changes since the latest commit back.
    pub fn roll_back(&mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Key { key, before } => {
                    self.replace(key, before);
                }
                Undo::Grant(lease) => {
                    self.leases.remove(lease);
                }
                Undo::Revoke(id, lease) => self.leases.restore(id, lease),
            }
        }
        self.revision = self.committed;
        self.history.roll_back(self.committed);
    }

    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, CoordinationError> {
        let mut response = RangeResponse {
            header: self.header(),
            ..RangeResponse::default()
        };
        match request.revision {
            Some(revision) if revision != self.revision => {
                self.history.check(revision, self.revision)?;
                let mut then: BTreeMap<_, _> = covered(&self.keys, &request.key, None)
                    .map(|kv| (kv.key.clone(), kv.clone()))
                    .collect();
                self.history.undo_since(revision, &request.key, &mut then);
                collect(
                    covered(&then, &request.key, request.from.as_ref()),
                    request,
                    &mut response,
                );
            }
            _ => {
                let kvs = covered(&self.keys, &request.key, request.from.as_ref());
                collect(kvs, request, &mut response);
            }
        }
        Ok(response)
    }

    fn events_since(
        &self,
        prefix: &Bytes,
        start_revision: i64,
    ) -> Result<WatchResponse, CoordinationError> {
        let mut header = self.header();
        let (events, through) = self
            .history
            .since(start_revision, prefix, HISTORY_EVENTS_MAX)?;
        header.revision = through.unwrap_or(self.revision);
        Ok(WatchResponse { header, events })
    }

    fn grant(&mut self, now: Instant, ttl: Duration) -> Result<LeaseId, CoordinationError> {
        if ttl.is_zero() {
            return Err(InvalidRequest::ZeroTtl.into());
        }
        let lease = self.leases.grant(now, ttl);
        self.undo.push(Undo::Grant(lease));
        Ok(lease)
    }

    fn revoke(&mut self, id: LeaseId) -> Result<(), CoordinationError> {
        let keys = self.leases.keys(id)?;
        if !keys.is_empty() {
            self.revision += 1;
            for key in keys {
                self.remove(&key);
            }
        }
        let lease = self
            .leases
            .remove(id)
            .expect("the lease was just looked up");
        self.undo.push(Undo::Revoke(id, lease));
        Ok(())
    }

    /// Stores `kv`, as a change of the present revision.
    fn store(&mut self, kv: KeyValue) {
        let key = kv.key.clone();
        let before = self.replace(key.clone(), Some(kv.clone()));
        self.history
            .push(self.revision, EventKind::Put, kv, before.clone());
        self.undo.push(Undo::Key { key, before });
    }

    /// Deletes `key`, as a change of the present revision. Returns whether it existed.
    fn remove(&mut self, key: &Bytes) -> bool {
        let Some(before) = self.replace(key.clone(), None) else {
            return false;
        };
        let gone = KeyValue {
            key: key.clone(),
            mod_revision: self.revision,
            ..KeyValue::default()
        };
        self.history
            .push(self.revision, EventKind::Delete, gone, Some(before.clone()));
        self.undo.push(Undo::Key {
            key: key.clone(),
            before: Some(before),
        });
        true
    }

    /// Sets what is stored under `key`, and keeps the leases' lists of keys right.
    fn replace(&mut self, key: Bytes, kv: Option<KeyValue>) -> Option<KeyValue> {
        let lease = kv.as_ref().map_or(LeaseId::NONE, |kv| kv.lease);
        let before = match kv {
            Some(kv) => self.keys.insert(key.clone(), kv),
            None => self.keys.remove(&key),
        };
        let lease_before = before.as_ref().map_or(LeaseId::NONE, |kv| kv.lease);
        if lease != lease_before {
            self.leases.detach(lease_before, &key);
            self.leases.attach(lease, key);
        }
        before
    }
}

/// Iterates over the keys that `range` covers, beginning at `from` if that is later.
fn covered<'a>(
    keys: &'a BTreeMap<Bytes, KeyValue>,
    range: &'a RangeKey,
    from: Option<&'a Bytes>,
) -> impl Iterator<Item = &'a KeyValue> {
    let start = range.start();
    let start = from.filter(|from| *from > start).unwrap_or(start);
    keys.range::<Bytes, _>(start..)
        .map(|(_, kv)| kv)
        .take_while(|kv| range.covers(&kv.key))
}

fn collect<'a>(
    kvs: impl Iterator<Item = &'a KeyValue>,
    request: &RangeRequest,
    response: &mut RangeResponse,
) {
    let limit = if request.limit == 0 {
        usize::MAX
    } else {
        request.limit
    };
    for kv in kvs {
        response.count += 1;
        if request.count_only {
            continue;
        }
        if response.kvs.len() == limit {
            response.more = true;
        } else {
            let value = if request.keys_only {
                Bytes::new()
            } else {
                kv.value.clone()
            };
            response.kvs.push(KeyValue {
                value,
                ..kv.clone()
            });
        }
    }
}
