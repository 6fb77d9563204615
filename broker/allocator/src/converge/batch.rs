//! Gathers the changes of items into transactions.

use std::collections::BTreeSet;

use gazette_coordination::{Compare, Op, Txn};

/// A transaction and the items that it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The transaction.
    pub txn: Txn,
    /// Names of the items.
    pub items: BTreeSet<String>,
}

#[derive(Debug)]
pub(super) struct Batcher {
    guard: Compare,
    max_ops: usize,
    open: Batch,
    done: Vec<Batch>,
}

impl Batcher {
    /// Every batch will hold `guard`.
    pub(super) fn new(guard: Compare, max_ops: usize) -> Self {
        Self {
            guard,
            max_ops,
            open: Batch::default(),
            done: Vec::new(),
        }
    }

    /// Compares and operations that fit into one batch beside the guard.
    pub(super) fn room(&self) -> usize {
        self.max_ops.saturating_sub(1).max(1)
    }

    /// Adds changes that must be applied together.
    pub(super) fn push(&mut self, item: &str, compares: Vec<Compare>, ops: Vec<Op>) {
        if ops.is_empty() {
            return;
        }
        let txn = &self.open.txn;
        let new = compares
            .iter()
            .filter(|compare| !txn.compares.contains(compare))
            .count();
        if txn.compares.len() + new > self.max_ops || txn.success.len() + ops.len() > self.max_ops {
            self.close();
        }
        let txn = &mut self.open.txn;
        if txn.compares.is_empty() {
            txn.compares.push(self.guard.clone());
        }
        for compare in compares {
            if !txn.compares.contains(&compare) {
                txn.compares.push(compare);
            }
        }
        txn.success.extend(ops);
        self.open.items.insert(item.to_owned());
    }

    fn close(&mut self) {
        let batch = std::mem::take(&mut self.open);
        if !batch.txn.success.is_empty() {
            self.done.push(batch);
        }
    }

    pub(super) fn finish(mut self) -> Vec<Batch> {
        self.close();
        self.done
    }
}
