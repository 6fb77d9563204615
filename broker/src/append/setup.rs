//! Before the content: the route, the turn, replicas that agree, and a store that is known.

use std::{sync::Arc, time::Instant};

use gazette_coordination::{Compare, Op, Txn};
use gazette_journal::{
    append::{
        HostFailure, Input,
        fsm::{Acquired, Health, StoreFacts, Updated},
    },
    fragment::spool::{Cut, Rolled},
    pipeline::{Pipeline, PipelineError, Proposal},
};
use gazette_protocol::{Header, JournalSpec, Route, journal_spec};
use gazette_wal::{Commit, Content};
use prost::Message as _;

use super::{Shell, at, gone, invalidated, now};
use crate::{
    replica::{Phase, Replica},
    topology::Question,
};

impl Shell<'_> {
    pub(super) async fn resolve(&mut self, min_revision: i64, until: Instant) -> Input {
        let question = Question {
            journal: &self.journal,
            requires_primary: true,
            may_proxy: true,
            header: self.header.as_ref(),
            min_revision,
            visible: None,
        };
        let topology = self.service.topology();
        let resolved = tokio::select! {
            biased;
            resolved = topology.resolve(question) => resolved,
            () = at(until) => return Input::TimedOut,
            () = gone(&mut self.client_gone) => return Input::Cancelled,
        };
        if let Ok(resolution) = &resolved {
            // The replica of a turn that is held stays: the machine releases it first.
            if self.turn.is_none() {
                self.replica = self.service.replicas().get(&self.journal);
            }
            self.assignments = self
                .replica
                .as_ref()
                .map(|replica| replica.assignment_changes());
            self.resolution = Some(resolution.clone());
        }
        Input::Resolved(resolved.map(Box::new))
    }

    pub(super) async fn acquire(&mut self, until: Instant) -> Result<Input, tonic::Status> {
        let Some(replica) = self.replica.clone() else {
            return Err(tonic::Status::unavailable(format!(
                "append {}: its replica is about to begin or to end; next: try again",
                self.journal
            )));
        };
        let mut turn = tokio::select! {
            biased;
            turn = replica.acquire() => turn,
            () = at(until) => return Ok(Input::TimedOut),
            () = gone(&mut self.client_gone) => return Ok(Input::Cancelled),
            () = invalidated(self.assignments.as_mut()) => return Ok(Input::Invalidated),
        };
        let Some(held) = turn.as_mut().and_then(|turn| turn.held.take()) else {
            return Err(match replica.phase().borrow().clone() {
                Phase::Failed(reason) => {
                    tonic::Status::data_loss(format!("append {}: {reason}", self.journal))
                }
                Phase::Starting | Phase::Serving => tonic::Status::unavailable(format!(
                    "append {}: its replica has ended; next: try again",
                    self.journal
                )),
            });
        };
        self.turn = Some(turn);
        let lines = replica.lines();
        Ok(Input::Acquired(Box::new(Acquired {
            held,
            synchronised: lines.synchronised(),
            acknowledged: lines.acknowledged(),
        })))
    }

    pub(super) async fn start_pipeline(&mut self, header: Header, until: Instant) -> Input {
        let replica = Arc::clone(self.replica());
        self.close_pipeline();
        loop {
            let changed = replica.lines_changed();
            let closed = replica.lines().closed();
            if let Some(closed) = closed {
                let timeout = self.service.limits().acknowledge;
                let pipeline = Pipeline::new(header, closed.acknowledged, timeout);
                replica.lines().begin(pipeline);
                return Input::Started(Ok(closed));
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = at(until) => return Input::TimedOut,
                () = gone(&mut self.client_gone) => return Input::Cancelled,
            }
        }
    }

    /// Takes back what was committed here and will never be acknowledged.
    pub(super) async fn cut(&mut self, cut: &Cut) -> Input {
        let replica = Arc::clone(self.replica());
        if let Some(turn) = self.turn.as_ref().and_then(|turn| turn.as_ref()) {
            let taken_back = replica.log().commit(Commit {
                spool: turn.file.clone(),
                fragment: cut.fragment.clone(),
                append_begin: cut.fragment.end,
                registers: Arc::new(cut.registers.clone()),
                first_append: None,
                content: Content::Inline(Vec::new()),
            });
            // If the log is broken, the broker ends, and what was not acknowledged with it.
            drop(taken_back.await);
        }
        Input::Cut
    }

    pub(super) async fn sync(
        &mut self,
        proposal: Proposal,
        rolled: Option<Rolled>,
        until: Instant,
    ) -> Input {
        let replica = Arc::clone(self.replica());
        let durable = rolled.and_then(|rolled| self.roll(rolled, &proposal));
        let (ticket, gathered) = {
            let mut lines = replica.lines();
            let scattered = lines
                .pipeline()
                .and_then(|pipeline| pipeline.handle_sync(now().instant, proposal));
            match scattered {
                Ok(ticket) => (ticket, lines.wait_for(ticket)),
                Err(error) => return Input::Synced(Err(error)),
            }
        };
        let durable = match durable {
            Some(durable) => durable.await,
            None => Ok(()),
        };
        replica.durable(ticket, &durable);
        tokio::select! {
            biased;
            gathered = gathered => Input::Synced(gathered.unwrap_or(Err(PipelineError::Closed))),
            () = at(until) => Input::TimedOut,
            () = gone(&mut self.client_gone) => Input::Cancelled,
        }
    }

    pub(super) async fn update_assignments(&mut self, route: &Route, until: Instant) -> Input {
        let topology = self.service.topology();
        let bare = Route {
            endpoints: Vec::new(),
            ..route.clone()
        };
        let assignments = topology.assignments(&self.journal);
        let compares = assignments
            .iter()
            .map(|(key, _, revision)| Compare::mod_revision(key.clone(), *revision));
        let stale = assignments
            .iter()
            .filter(|(_, stored, _)| !stored.is_equivalent(route));
        let ops = stale.map(|(key, _, _)| Op::put_keeping_lease(key.clone(), bare.encode_to_vec()));
        let txn = Txn::new(compares.collect(), ops.collect());
        self.update(txn, until).await
    }

    pub(super) async fn update_suspend(
        &mut self,
        suspend: journal_spec::Suspend,
        until: Instant,
    ) -> Input {
        let topology = self.service.topology();
        let Some((spec, revision)) = topology.spec(&self.journal) else {
            return Input::Updated(Ok(Updated::Lost));
        };
        // The spec may have changed since the machine looked at it; then it looks again.
        let is_same = self.resolution.as_ref().and_then(|r| r.spec.as_ref()) == Some(&spec);
        if !is_same {
            return Input::Updated(Ok(Updated::Lost));
        }
        let key = topology.keys.item(&self.journal);
        let mut compares = vec![Compare::mod_revision(key.clone(), revision)];
        let assignments = topology.assignments(&self.journal);
        compares.extend(
            assignments
                .into_iter()
                .map(|(key, _, at)| Compare::mod_revision(key, at)),
        );
        let spec = JournalSpec {
            suspend: Some(suspend),
            ..spec
        };
        let txn = Txn::new(compares, vec![Op::put(key, spec.encode_to_vec())]);
        self.update(txn, until).await
    }

    async fn update(&mut self, txn: Txn, until: Instant) -> Input {
        let coordination = Arc::clone(&self.service.topology().coordination);
        let answered = tokio::select! {
            biased;
            answered = coordination.txn(txn) => answered,
            () = at(until) => return Input::TimedOut,
        };
        Input::Updated(match answered {
            Ok(response) if response.succeeded => Ok(Updated::Done {
                revision: response.header.revision,
            }),
            Ok(_) => Ok(Updated::Lost),
            Err(error) => Err(HostFailure(error.to_string())),
        })
    }

    pub(super) fn store_facts(&self) -> StoreFacts {
        let replica = self.replica();
        StoreFacts {
            index: replica.summary(),
            health: store_health(replica),
        }
    }

    pub(super) async fn await_store(&mut self, until: Instant) -> Input {
        let replica = Arc::clone(self.replica());
        let mut index = replica.index_changes();
        loop {
            index.borrow_and_update();
            let facts = self.store_facts();
            if self.store_seen.as_ref() != Some(&facts) {
                self.store_seen = Some(facts.clone());
                return Input::Store(facts);
            }
            tokio::select! {
                biased;
                _ = index.changed() => {}
                () = at(until) => return Input::TimedOut,
                () = gone(&mut self.client_gone) => return Input::Cancelled,
                () = invalidated(self.assignments.as_mut()) => return Input::Invalidated,
            }
        }
    }
}

/// The health of a journal's first store, as far as an append must care: what is acknowledged is
/// safe on this disk, so only a store that cannot be listed holds appends up, since it may have
/// content that nobody here knows of.
fn store_health(replica: &Replica) -> Health {
    match replica.listing_error() {
        Some(error) if !replica.index().is_refreshed() => Health::Unhealthy(error),
        Some(_) | None => Health::Healthy,
    }
}
