//! What every implementation of [`Coordination`] must do.
//!
//! The suite reads and writes under a prefix of its own, and counts revisions from those that it
//! finds, so that it can run against a store that others use too, as long as they are idle.

mod leases;
mod ranges;
mod txns;
mod watches;

use std::time::Duration;

use bytes::Bytes;

use crate::{
    Compare, Coordination, CoordinationError, Event, EventKind, KeyValue, LeaseId, Op, OpResponse,
    RangeRequest, Txn, TxnResponse, WatchRequest, WatchStream,
};

/// Runs the suite under `prefix`, where there must be no keys. Panics at the first difference.
pub async fn run(store: &dyn Coordination, prefix: &str) {
    let suite = |name: &str| Suite {
        store,
        prefix: format!("{prefix}/{name}/"),
    };
    ranges::run(&suite("ranges")).await;
    txns::run(&suite("txns")).await;
    watches::run(&suite("watches")).await;
    leases::run(&suite("leases")).await;
    ranges::run_compaction(&suite("compaction")).await;
}

struct Suite<'a> {
    store: &'a dyn Coordination,
    prefix: String,
}

/// Longer than any answer or expiry takes, even of a busy server.
const PATIENCE: Duration = Duration::from_mins(1);

impl Suite<'_> {
    fn key(&self, name: &str) -> Bytes {
        format!("{}{name}", self.prefix).into()
    }

    async fn txn(&self, compares: Vec<Compare>, success: Vec<Op>, failure: Vec<Op>) -> TxnResponse {
        self.try_txn(compares, success, failure)
            .await
            .expect("the transaction is valid")
    }

    async fn try_txn(
        &self,
        compares: Vec<Compare>,
        success: Vec<Op>,
        failure: Vec<Op>,
    ) -> Result<TxnResponse, CoordinationError> {
        self.store
            .txn(Txn {
                compares,
                success,
                failure,
            })
            .await
    }

    /// Applies operations, and returns the revision of the answer.
    async fn apply(&self, ops: Vec<Op>) -> i64 {
        self.txn(vec![], ops, vec![]).await.header.revision
    }

    async fn put(&self, name: &str, value: &str) -> i64 {
        self.apply(vec![Op::put(self.key(name), value.to_owned())])
            .await
    }

    async fn get(&self, name: &str) -> Option<KeyValue> {
        let response = self.store.range(RangeRequest::key(self.key(name))).await;
        response.expect("a key can be read").kvs.pop()
    }

    async fn revision(&self) -> i64 {
        let response = self.store.range(RangeRequest::key(self.key("-"))).await;
        response.expect("a key can be read").header.revision
    }

    /// Names and values under the prefix, at a revision.
    async fn dump(&self, revision: Option<i64>) -> Vec<(String, String)> {
        let mut request = RangeRequest::prefix(self.prefix.clone());
        request.revision = revision;
        let response = self
            .store
            .range(request)
            .await
            .expect("the revision can be read");
        response
            .kvs
            .iter()
            .map(|kv| (self.name(&kv.key), text(&kv.value)))
            .collect()
    }

    fn name(&self, key: &Bytes) -> String {
        text(key)
            .strip_prefix(&self.prefix)
            .expect("the key is ours")
            .to_owned()
    }

    async fn watch(&self, start_revision: i64) -> WatchStream {
        let request = WatchRequest {
            prefix: self.prefix.clone().into(),
            start_revision,
        };
        self.store
            .watch(request)
            .await
            .expect("the revision can be watched")
    }

    /// Takes events from a watch until there are `count`.
    async fn events(&self, watch: &mut WatchStream, count: usize) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        while events.len() < count {
            let response = tokio::time::timeout(PATIENCE, watch.next()).await;
            let response = response
                .expect("events come in time")
                .expect("the watch goes on");
            if let (Some(last), Some(next)) = (events.last(), response.events.first()) {
                assert!(
                    last.kv.mod_revision < next.kv.mod_revision,
                    "a revision is delivered in one response"
                );
            }
            events.extend(response.events);
        }
        assert_eq!(
            events.len(),
            count,
            "no more events than expected: {events:?}"
        );
        events
    }

    /// Events as text: `+name=value@version` and `-name`.
    fn print(&self, events: &[Event]) -> Vec<String> {
        let print = |event: &Event| match event.kind {
            EventKind::Put => format!(
                "+{}={}@{}",
                self.name(&event.kv.key),
                text(&event.kv.value),
                event.kv.version
            ),
            EventKind::Delete => format!("-{}", self.name(&event.kv.key)),
        };
        events.iter().map(print).collect()
    }

    /// Event texts of one revision, sorted, since an order within a revision is not promised.
    fn print_sorted(&self, events: &[Event]) -> Vec<String> {
        let mut printed = self.print(events);
        printed.sort();
        printed
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn deleted(response: &OpResponse) -> usize {
    match response {
        OpResponse::Delete { deleted } => *deleted,
        OpResponse::Put | OpResponse::Range(_) => panic!("{response:?} is not of a delete"),
    }
}

const NO_LEASE: LeaseId = LeaseId::NONE;
