//! A toy kind of cluster, and a cluster of it without any I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use gazette_coordination::{
    KeyValue, LeaseId, Op, Txn, TxnResponse,
    engine::{Engine, EngineConfig, Request, Response},
};
use gazette_keyspace::{DecodeError, KeySpace};
use gazette_protocol::process_spec::Id;

use crate::{
    Assignment, Decoded, Keys, Schema, State, converge::Batch, driver::Planner, tracker::Tracker,
};

/// Items are a replication, members a limit (with "!" if exiting), assignments are consistent
/// when they say so.
#[derive(Debug)]
pub(crate) struct Toy;

#[derive(Debug)]
pub(crate) struct ToyMember {
    limit: usize,
    exiting: bool,
}

fn number(value: &[u8]) -> Result<usize, DecodeError> {
    let text = str::from_utf8(value).map_err(DecodeError::new)?;
    text.parse().map_err(DecodeError::new)
}

impl Schema for Toy {
    type Item = usize;
    type Member = ToyMember;
    type Assignment = bool;

    fn decode_item(_id: &str, value: &[u8]) -> Result<usize, DecodeError> {
        number(value)
    }

    fn decode_member(_id: &Id, value: &[u8]) -> Result<ToyMember, DecodeError> {
        let limit = value.strip_suffix(b"!");
        Ok(ToyMember {
            limit: number(limit.unwrap_or(value))?,
            exiting: limit.is_some(),
        })
    }

    fn decode_assignment(
        _item: &str,
        _member: &Id,
        _slot: u32,
        value: &[u8],
    ) -> Result<bool, DecodeError> {
        Ok(value == b"consistent")
    }

    fn replication(item: &usize) -> usize {
        *item
    }

    fn limit(member: &ToyMember) -> usize {
        member.limit
    }

    fn is_exiting(member: &ToyMember) -> bool {
        member.exiting
    }

    fn endpoint(_member: &ToyMember) -> &'static str {
        "http://toy"
    }

    fn is_consistent(one: &Assignment<bool>, _all: &[&Assignment<bool>]) -> bool {
        one.value
    }
}

/// `zone#suffix` as an identity.
pub(crate) fn id(text: &str) -> Id {
    let (zone, suffix) = text.split_once('#').unwrap();
    Id::new(zone, suffix)
}

/// A store, and a mirror and an allocator that leads it, all in step.
pub(crate) struct Cluster {
    engine: Engine,
    now: Instant,
    leases: BTreeMap<String, LeaseId>,
    pub(crate) keys: Keys,
    pub(crate) space: KeySpace<Decoded<Toy>>,
    pub(crate) tracker: Tracker,
    planner: Planner,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let config = EngineConfig {
            cluster_id: 1,
            member_id: 1,
            raft_term: 1,
            max_txn_ops: 128,
            history_revisions: 1 << 20,
        };
        let engine = Engine::new(config, 1, Vec::new());
        let keys = Keys::new("/toy").unwrap();
        let root = keys.root().to_owned().into();
        let decoder = Toy::decoder(keys.clone());
        let (space, _) = KeySpace::load(root, engine.header(), Vec::new(), decoder);
        Self {
            engine,
            now: Instant::now(),
            leases: BTreeMap::new(),
            keys,
            space,
            tracker: Tracker::default(),
            planner: Planner::default(),
        }
    }

    pub(crate) fn state(&self) -> State<'_, Toy> {
        State::new(&self.keys, &self.space)
    }

    fn request(&mut self, request: Request) -> Response {
        let response = self.engine.handle(self.now, request).unwrap();
        self.engine.commit();
        response
    }

    /// Applies a transaction, and lets the mirror see it.
    pub(crate) fn txn(&mut self, txn: Txn) -> TxnResponse {
        let Response::Txn(response) = self.request(Request::Txn(txn)) else {
            unreachable!()
        };
        self.follow();
        response
    }

    fn follow(&mut self) {
        let start_revision = self.space.revision() + 1;
        let prefix = self.keys.root().to_owned().into();
        let history = self.request(Request::History {
            prefix,
            start_revision,
        });
        let Response::History(response) = history else {
            unreachable!()
        };
        let applied = self.space.apply(&[response]).unwrap();
        assert_eq!(applied.rejected, []);
        self.tracker.apply::<Toy>(&applied.changes);
    }

    fn put(&mut self, op: Op) {
        assert!(self.txn(Txn::new(vec![], vec![op])).succeeded);
    }

    pub(crate) fn item(&mut self, name: &str, replication: usize) {
        self.put(Op::put(self.keys.item(name), replication.to_string()));
    }

    pub(crate) fn remove_item(&mut self, name: &str) {
        self.put(Op::delete(self.keys.item(name)));
    }

    /// Adds or changes a member.
    pub(crate) fn member(&mut self, member: &str, limit: usize, exiting: bool) {
        if !self.leases.contains_key(member) {
            let ttl = std::time::Duration::from_hours(1);
            let Response::Granted(lease) = self.request(Request::Grant { ttl }) else {
                unreachable!("a grant is answered by a lease")
            };
            self.leases.insert(member.to_owned(), lease);
        }
        let lease = self.leases[member];
        let value = format!("{limit}{}", if exiting { "!" } else { "" });
        self.put(Op::put_with_lease(
            self.keys.member(&id(member)),
            value,
            lease,
        ));
    }

    /// Ends the lease of a member.
    pub(crate) fn kill(&mut self, member: &str) {
        if let Some(lease) = self.leases.remove(member) {
            self.request(Request::Revoke { lease });
            self.follow();
        }
    }

    pub(crate) fn assign(&mut self, item: &str, member: &str, slot: u32, consistent: bool) {
        let lease = self.leases.get(member).copied().unwrap_or_default();
        let value = if consistent { "consistent" } else { "" };
        let key = self.keys.assignment(item, &id(member), slot);
        self.put(Op::put_with_lease(key, value, lease));
    }

    /// Lets every member catch up.
    pub(crate) fn catch_up(&mut self) {
        let lagging: Vec<_> = self
            .state()
            .assignments()
            .filter(|entry| !entry.decoded.value)
            .map(|entry| entry.raw().key.clone())
            .collect();
        for key in lagging {
            self.put(Op::put_keeping_lease(key, "consistent"));
        }
    }

    pub(crate) fn plan(&mut self) -> Vec<Batch> {
        let state = State::<Toy>::new(&self.keys, &self.space);
        let Some(leader) = state.leader() else {
            return Vec::new();
        };
        self.planner.plan(state, leader, &mut self.tracker, 128)
    }

    /// Plans and applies one round. Returns the number of its transactions.
    pub(crate) fn round(&mut self) -> usize {
        let batches = self.plan();
        for batch in &batches {
            let before = self.consistent();
            assert!(self.txn(batch.txn.clone()).succeeded, "{batch:?}");
            self.check(&before);
        }
        batches.len()
    }

    /// Runs rounds, with members catching up after each, until nothing changes.
    pub(crate) fn converge(&mut self) -> usize {
        for round in 0..200 {
            let planned = self.round();
            let revision = self.space.revision();
            self.catch_up();
            if planned == 0 && self.space.revision() == revision {
                return round;
            }
        }
        panic!("it does not come to rest: {:#?}", self.assignments());
    }

    /// Number of consistent assignments of each item.
    fn consistent(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for entry in self
            .state()
            .assignments()
            .filter(|entry| entry.decoded.value)
        {
            *counts.entry(entry.decoded.item.clone()).or_default() += 1;
        }
        counts
    }

    /// Checks what must hold after every transaction.
    fn check(&self, before: &BTreeMap<String, usize>) {
        let state = self.state();
        let after = self.consistent();
        for item in state.items() {
            let name = &item.decoded.id;
            let slots: Vec<_> = state
                .assignments_of(name)
                .map(|entry| entry.decoded.slot)
                .collect();
            let distinct: BTreeSet<_> = slots.iter().collect();
            assert_eq!(
                distinct.len(),
                slots.len(),
                "slots of {name} are distinct: {slots:?}"
            );
            let held: Vec<_> = state
                .assignments_of(name)
                .map(|entry| &entry.decoded.member)
                .collect();
            assert!(
                held.windows(2).all(|pair| pair[0] < pair[1]),
                "{name}: {held:?}"
            );
            let (was, is) = (
                before.get(name).unwrap_or(&0),
                after.get(name).unwrap_or(&0),
            );
            assert!(
                is >= was || *is >= item.decoded.spec,
                "{name} went from {was} to {is} consistent assignments of {}",
                item.decoded.spec
            );
        }
        let mut loads: BTreeMap<&Id, usize> = BTreeMap::new();
        for entry in state.assignments() {
            *loads.entry(&entry.decoded.member).or_default() += 1;
        }
        for (member, load) in loads {
            assert_eq!(self.tracker.load(member).assigned, load, "{member}");
        }
    }

    /// Keys of assignments, without the prefix; "?" marks those that lag.
    pub(crate) fn assignments(&self) -> Vec<String> {
        let print = |kv: &KeyValue, consistent: bool| {
            let key = str::from_utf8(&kv.key).unwrap();
            let lag = if consistent { "" } else { "?" };
            format!("{}{lag}", key.strip_prefix("/toy/assign/").unwrap())
        };
        self.state()
            .assignments()
            .map(|entry| print(entry.raw(), entry.decoded.value))
            .collect()
    }
}
