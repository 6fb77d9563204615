//! Leases and the keys attached to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{CoordinationError, LeaseId};

#[derive(Debug)]
pub(super) struct Leases {
    /// Id of the next lease. Ids of two openings of a store differ in their upper half.
    next: i64,
    leases: BTreeMap<LeaseId, Lease>,
}

#[derive(Debug)]
pub(super) struct Lease {
    ttl: Duration,
    /// When it ends; never, if that is further away than an `Instant` can tell.
    deadline: Option<Instant>,
    keys: BTreeSet<Bytes>,
}

impl Leases {
    pub(super) fn new(raft_term: u64) -> Self {
        let term = i64::try_from(raft_term & 0x3fff_ffff).expect("30 bits fit");
        Self {
            next: (term << 32) + 1,
            leases: BTreeMap::new(),
        }
    }

    pub(super) fn grant(&mut self, now: Instant, ttl: Duration) -> LeaseId {
        let id = LeaseId(self.next);
        self.next += 1;
        let lease = Lease {
            ttl,
            deadline: now.checked_add(ttl),
            keys: BTreeSet::new(),
        };
        self.leases.insert(id, lease);
        id
    }

    pub(super) fn keep_alive(
        &mut self,
        now: Instant,
        id: LeaseId,
    ) -> Result<Duration, CoordinationError> {
        let lease = self
            .leases
            .get_mut(&id)
            .ok_or(CoordinationError::LeaseNotFound { lease: id })?;
        lease.deadline = now.checked_add(lease.ttl);
        Ok(lease.ttl)
    }

    pub(super) fn contains(&self, id: LeaseId) -> bool {
        self.leases.contains_key(&id)
    }

    /// Keys attached to a lease.
    pub(super) fn keys(&self, id: LeaseId) -> Result<Vec<Bytes>, CoordinationError> {
        let lease = self
            .leases
            .get(&id)
            .ok_or(CoordinationError::LeaseNotFound { lease: id })?;
        Ok(lease.keys.iter().cloned().collect())
    }

    pub(super) fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        self.leases.remove(&id)
    }

    pub(super) fn restore(&mut self, id: LeaseId, lease: Lease) {
        self.leases.insert(id, lease);
    }

    pub(super) fn attach(&mut self, id: LeaseId, key: Bytes) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.insert(key);
        }
    }

    pub(super) fn detach(&mut self, id: LeaseId, key: &Bytes) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.remove(key);
        }
    }

    /// Leases whose time is over, in the order in which they ended.
    pub(super) fn ended_by(&self, now: Instant) -> Vec<LeaseId> {
        let mut ended: Vec<_> = self
            .leases
            .iter()
            .filter_map(|(&id, lease)| Some((lease.deadline.filter(|&end| end <= now)?, id)))
            .collect();
        ended.sort_unstable();
        ended.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.leases
            .values()
            .filter_map(|lease| lease.deadline)
            .min()
    }
}
