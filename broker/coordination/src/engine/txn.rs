//! Transactions: check everything, then apply.

use std::{cmp::Ordering, collections::BTreeSet};

use bytes::Bytes;

use super::{Engine, covered};
use crate::{
    Compare, CompareOrder, CompareTarget, CoordinationError, InvalidRequest, KeyValue, Op,
    OpResponse, Put, RangeKey, Txn, TxnResponse,
};

impl Engine {
    /// Applies a transaction. If it returns an error, nothing has changed.
    pub(super) fn txn(&mut self, txn: &Txn) -> Result<TxnResponse, CoordinationError> {
        self.check_shape(txn)?;
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        let ops = if succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        self.check_ops(ops)?;

        let before = self.revision;
        let wrote = ops.iter().any(|op| self.would_write(op));
        if wrote {
            self.revision += 1;
        }
        let mut responses = Vec::with_capacity(ops.len());
        for op in ops {
            responses.push(match op {
                Op::Put(put) => {
                    self.put(put);
                    OpResponse::Put
                }
                Op::Delete(range) => OpResponse::Delete {
                    deleted: self.delete(range),
                },
                Op::Range(request) => OpResponse::Range(self.range(request)?),
            });
        }
        debug_assert_eq!(
            self.revision,
            before + i64::from(wrote),
            "one revision for all writes"
        );
        Ok(TxnResponse {
            header: self.header(),
            succeeded,
            responses,
        })
    }

    /// Checks what can be checked without looking at the store, in both lists.
    fn check_shape(&self, txn: &Txn) -> Result<(), CoordinationError> {
        let limit = self.config.max_txn_ops;
        let count = txn
            .compares
            .len()
            .max(txn.success.len())
            .max(txn.failure.len());
        if count > limit {
            return Err(CoordinationError::TooManyOps { count, limit });
        }
        if txn.compares.iter().any(|compare| compare.key.is_empty()) {
            return Err(InvalidRequest::EmptyKey.into());
        }
        check_list(&txn.success)?;
        check_list(&txn.failure)
    }

    /// Checks, against the store, the list that will be applied.
    fn check_ops(&self, ops: &[Op]) -> Result<(), CoordinationError> {
        for op in ops {
            match op {
                Op::Put(put) => {
                    if (put.ignore_lease || put.ignore_value) && !self.keys.contains_key(&put.key) {
                        return Err(CoordinationError::KeyNotFound {
                            key: put.key.clone(),
                        });
                    }
                    if put.lease.is_some() && !self.leases.contains(put.lease) {
                        return Err(CoordinationError::LeaseNotFound { lease: put.lease });
                    }
                }
                Op::Range(request) => {
                    if let Some(revision) = request.revision {
                        self.history.check(revision, self.revision)?;
                    }
                }
                Op::Delete(_) => {}
            }
        }
        Ok(())
    }

    fn holds(&self, compare: &Compare) -> bool {
        let stored = self.keys.get(&compare.key);
        let number = |of: fn(&KeyValue) -> i64, given: i64| stored.map_or(0, of).cmp(&given);
        let ordering = match &compare.target {
            CompareTarget::ModRevision(given) => number(|kv| kv.mod_revision, *given),
            CompareTarget::CreateRevision(given) => number(|kv| kv.create_revision, *given),
            CompareTarget::Version(given) => number(|kv| kv.version, *given),
            CompareTarget::Lease(given) => number(|kv| kv.lease.0, given.0),
            CompareTarget::Value(given) => match stored {
                Some(kv) => kv.value.cmp(given),
                None => return false,
            },
        };
        match compare.order {
            CompareOrder::Equal => ordering == Ordering::Equal,
            CompareOrder::NotEqual => ordering != Ordering::Equal,
            CompareOrder::Less => ordering == Ordering::Less,
            CompareOrder::Greater => ordering == Ordering::Greater,
        }
    }

    fn would_write(&self, op: &Op) -> bool {
        match op {
            Op::Put(_) => true,
            Op::Delete(range) => covered(&self.keys, range, None).next().is_some(),
            Op::Range(_) => false,
        }
    }

    fn put(&mut self, put: &Put) {
        let revision = self.revision;
        let kv = match self.keys.get(&put.key) {
            Some(stored) => KeyValue {
                key: stored.key.clone(),
                value: if put.ignore_value {
                    stored.value.clone()
                } else {
                    put.value.clone()
                },
                create_revision: stored.create_revision,
                mod_revision: revision,
                version: stored.version + 1,
                lease: if put.ignore_lease {
                    stored.lease
                } else {
                    put.lease
                },
            },
            None => KeyValue {
                key: put.key.clone(),
                value: put.value.clone(),
                create_revision: revision,
                mod_revision: revision,
                version: 1,
                lease: put.lease,
            },
        };
        self.store(kv);
    }

    fn delete(&mut self, range: &RangeKey) -> usize {
        let keys: Vec<_> = covered(&self.keys, range, None)
            .map(|kv| kv.key.clone())
            .collect();
        for key in &keys {
            self.remove(key);
        }
        keys.len()
    }
}

/// Checks that puts make sense, and that no key is written twice.
fn check_list(ops: &[Op]) -> Result<(), CoordinationError> {
    let mut written: BTreeSet<&Bytes> = BTreeSet::new();
    for op in ops {
        match op {
            Op::Put(put) => {
                check_put(put)?;
                if !written.insert(&put.key) {
                    return Err(CoordinationError::DuplicateKey {
                        key: put.key.clone(),
                    });
                }
            }
            Op::Delete(RangeKey::Key(key)) if key.is_empty() => {
                return Err(InvalidRequest::EmptyKey.into());
            }
            Op::Range(request) if request.key == RangeKey::Key(Bytes::new()) => {
                return Err(InvalidRequest::EmptyKey.into());
            }
            Op::Delete(_) | Op::Range(_) => {}
        }
    }
    for op in ops {
        let Op::Delete(range) = op else { continue };
        let mut after = written.range::<Bytes, _>(range.start()..);
        if let Some(key) = after.next().filter(|key| range.covers(key)) {
            return Err(CoordinationError::DuplicateKey {
                key: (*key).clone(),
            });
        }
    }
    Ok(())
}

fn check_put(put: &Put) -> Result<(), InvalidRequest> {
    if put.key.is_empty() {
        return Err(InvalidRequest::EmptyKey);
    }
    if put.ignore_lease && put.lease.is_some() {
        return Err(InvalidRequest::LeaseGiven);
    }
    if put.ignore_value && !put.value.is_empty() {
        return Err(InvalidRequest::ValueGiven);
    }
    Ok(())
}
