//! The store as simply as can be: a copy of all keys for each revision.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    Compare, CompareOrder, CompareTarget, CoordinationError, Event, EventKind, KeyValue, LeaseId,
    Op, OpResponse, RangeKey, Txn,
};

type Keys = BTreeMap<Bytes, KeyValue>;

#[derive(Clone, Debug)]
pub(super) struct Model {
    max_ops: usize,
    /// All that ever were; the last one is the present.
    revisions: Vec<(i64, Keys)>,
    oldest: i64,
    oldest_events: i64,
    leases: BTreeMap<LeaseId, (Instant, u64)>,
}

type TxnResult = Result<(bool, i64, Vec<OpResponse>), CoordinationError>;

impl Model {
    pub(super) fn new(max_ops: usize) -> Self {
        Self {
            max_ops,
            revisions: vec![(1, Keys::new())],
            oldest: 1,
            oldest_events: 1,
            leases: BTreeMap::new(),
        }
    }

    fn present(&self) -> &(i64, Keys) {
        self.revisions.last().unwrap()
    }

    pub(super) fn revision(&self) -> i64 {
        self.present().0
    }

    pub(super) fn keys(&self) -> Vec<KeyValue> {
        self.present().1.values().cloned().collect()
    }

    pub(super) fn txn(&mut self, txn: &Txn) -> TxnResult {
        for ops in [&txn.success, &txn.failure] {
            assert!(ops.len() <= self.max_ops);
            let mut puts: Vec<&Bytes> = Vec::new();
            for op in ops {
                if let Op::Put(put) = op {
                    if puts.contains(&&put.key) {
                        return Err(CoordinationError::DuplicateKey {
                            key: put.key.clone(),
                        });
                    }
                    puts.push(&put.key);
                }
            }
            for op in ops {
                if let Op::Delete(range) = op {
                    let covered = puts.iter().filter(|key| covers(range, key)).min();
                    if let Some(key) = covered {
                        return Err(CoordinationError::DuplicateKey {
                            key: (*key).clone(),
                        });
                    }
                }
            }
        }
        let (revision, mut keys) = self.present().clone();
        let succeeded = txn.compares.iter().all(|compare| holds(&keys, compare));
        let ops = if succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        for op in ops {
            let Op::Put(put) = op else { continue };
            if (put.ignore_lease || put.ignore_value) && !keys.contains_key(&put.key) {
                return Err(CoordinationError::KeyNotFound {
                    key: put.key.clone(),
                });
            }
            if put.lease != LeaseId::NONE && !self.leases.contains_key(&put.lease) {
                return Err(CoordinationError::LeaseNotFound { lease: put.lease });
            }
        }
        let next = revision + 1;
        let mut wrote = false;
        let mut responses = Vec::new();
        for op in ops {
            match op {
                Op::Put(put) => {
                    let old = keys.get(&put.key).cloned();
                    let mut kv = old.clone().unwrap_or_else(|| KeyValue {
                        key: put.key.clone(),
                        create_revision: next,
                        ..KeyValue::default()
                    });
                    kv.version += 1;
                    kv.mod_revision = next;
                    if !put.ignore_value {
                        kv.value = put.value.clone();
                    }
                    if !put.ignore_lease {
                        kv.lease = put.lease;
                    }
                    keys.insert(put.key.clone(), kv);
                    wrote = true;
                    responses.push(OpResponse::Put);
                }
                Op::Delete(range) => {
                    let before = keys.len();
                    keys.retain(|key, _| !covers(range, key));
                    wrote |= keys.len() < before;
                    responses.push(OpResponse::Delete {
                        deleted: before - keys.len(),
                    });
                }
                Op::Range(_) => unreachable!("not generated"),
            }
        }
        if wrote {
            self.revisions.push((next, keys));
        }
        Ok((succeeded, self.revision(), responses))
    }

    pub(super) fn grant(&mut self, lease: LeaseId, end: Instant, secs: u64) {
        self.leases.insert(lease, (end, secs));
    }

    pub(super) fn keep_alive(&mut self, lease: LeaseId, now: Instant) -> bool {
        match self.leases.get_mut(&lease) {
            Some((end, secs)) => {
                *end = now + Duration::from_secs(*secs);
                true
            }
            None => false,
        }
    }

    pub(super) fn revoke(&mut self, lease: LeaseId) -> bool {
        let existed = self.leases.remove(&lease).is_some();
        let (revision, mut keys) = self.present().clone();
        let before = keys.len();
        keys.retain(|_, kv| kv.lease != lease);
        if existed && keys.len() < before {
            self.revisions.push((revision + 1, keys));
        }
        existed
    }

    pub(super) fn expire(&mut self, now: Instant) {
        let mut ended: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, (end, _))| *end <= now)
            .map(|(&id, &(end, _))| (end, id))
            .collect();
        ended.sort();
        for (_, lease) in ended {
            self.revoke(lease);
        }
    }

    pub(super) fn compact(&mut self, revision: i64) -> bool {
        if revision < self.oldest || revision > self.revision() {
            return false;
        }
        self.oldest = revision;
        self.oldest_events = self.oldest_events.max(revision);
        true
    }

    pub(super) fn read_a(&self, revision: i64) -> Option<Vec<KeyValue>> {
        let (_, keys) = self
            .revisions
            .iter()
            .find(|(at, _)| *at == revision && *at >= self.oldest)?;
        Some(
            keys.values()
                .filter(|kv| kv.key.starts_with(b"a"))
                .cloned()
                .collect(),
        )
    }

    /// Events of keys that begin with "a", from revision `start` on.
    pub(super) fn events_of_a(&self, start: i64) -> Option<Vec<Event>> {
        if start < self.oldest_events {
            return None;
        }
        let mut events = Vec::new();
        for pair in self.revisions.windows(2) {
            let [(_, before), (revision, after)] = pair else {
                unreachable!()
            };
            if *revision < start {
                continue;
            }
            for (key, kv) in after {
                if before.get(key) != Some(kv) {
                    events.push(Event {
                        kind: EventKind::Put,
                        kv: kv.clone(),
                    });
                }
            }
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                let kv = KeyValue {
                    key: key.clone(),
                    mod_revision: *revision,
                    ..KeyValue::default()
                };
                events.push(Event {
                    kind: EventKind::Delete,
                    kv,
                });
            }
        }
        events.retain(|event| event.kv.key.starts_with(b"a"));
        Some(sorted(events))
    }

    /// What a disk holds that `changes` are written to.
    pub(super) fn keys_after(&self, changes: &[(Bytes, Option<KeyValue>)]) -> Vec<KeyValue> {
        let mut keys = self.present().1.clone();
        for (key, kv) in changes {
            match kv {
                Some(kv) => keys.insert(key.clone(), kv.clone()),
                None => keys.remove(key),
            };
        }
        keys.into_values().collect()
    }

    /// Keys and leases as they were, but leases that were kept alive since stay so, and what was
    /// compacted stays compacted.
    pub(super) fn rolled_back_to(&self, committed: &Self) -> Self {
        let mut back = committed.clone();
        (back.oldest, back.oldest_events) = (self.oldest, self.oldest_events);
        if back.oldest > back.revision() {
            back.oldest = back.revision();
            back.oldest_events = back.revision() + 1;
        }
        for (lease, kept) in &mut back.leases {
            if let Some(now) = self.leases.get(lease) {
                *kept = *now;
            }
        }
        back
    }
}

pub(super) fn sorted(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by(|one, two| {
        (one.kv.mod_revision, &one.kv.key).cmp(&(two.kv.mod_revision, &two.kv.key))
    });
    events
}

fn covers(range: &RangeKey, key: &Bytes) -> bool {
    match range {
        RangeKey::Key(only) => only == key,
        RangeKey::Prefix(prefix) => key.starts_with(prefix),
    }
}

fn holds(keys: &Keys, compare: &Compare) -> bool {
    let none = KeyValue::default();
    let stored = keys.get(&compare.key);
    let kv = stored.unwrap_or(&none);
    let ordering = match &compare.target {
        CompareTarget::ModRevision(given) => kv.mod_revision.cmp(given),
        CompareTarget::CreateRevision(given) => kv.create_revision.cmp(given),
        CompareTarget::Version(given) => kv.version.cmp(given),
        CompareTarget::Lease(given) => kv.lease.cmp(given),
        CompareTarget::Value(_) if stored.is_none() => return false,
        CompareTarget::Value(given) => kv.value.cmp(given),
    };
    match compare.order {
        CompareOrder::Equal => ordering.is_eq(),
        CompareOrder::NotEqual => ordering.is_ne(),
        CompareOrder::Less => ordering.is_lt(),
        CompareOrder::Greater => ordering.is_gt(),
    }
}
