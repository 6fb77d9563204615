//! What comes before the client may stream: from the resolution to the preconditions.

use std::time::Instant;

use gazette_protocol::{
    AppendResponse, JournalSpec, LabelSet, Status, append_request, journal_spec::suspend::Level,
};

use super::{
    super::{HostFailure, Update, precondition, precondition::Verdict},
    Acquired, AppendError, AppendFsm, Health, Input, Next, Output, State, StoreFacts, Turn,
    Updated, Wait, response,
};
use crate::{
    Now,
    fragment::spool::Outcome,
    pipeline::{Closed, PipelineError, Proposal, SyncOutcome},
    resolve::{self, Resolution},
    roll, suspend,
};

/// Proposals by which the replicas must have come to agree. Each one that they do not agree on
/// raises the offset, or closes a fragment; so two are enough where nothing else happens.
pub(super) const SYNC_ATTEMPTS_MAX: u32 = 8;

impl AppendFsm {
    pub(super) fn start(&mut self, now: Now) -> Output {
        self.setup_until = Some(now.after(self.limits.setup));
        let request = &self.request;
        let revision = resolve::min_revision(request.header.as_ref(), request.min_etcd_revision);
        self.resolve(now, None, revision, Wait::Resolution)
    }

    pub(super) fn step_setup(&mut self, now: Now, state: State, input: Input) -> Output {
        match (state, input) {
            (State::Resolving { turn, .. }, Input::Resolved(Ok(resolution))) => {
                self.resolved(now, turn, resolution)
            }
            (State::Resolving { turn, .. }, Input::Resolved(Err(error))) => {
                self.finish(turn, true, Err(AppendError::Resolve(error)))
            }
            (State::Acquiring { resolution }, Input::Acquired(acquired)) => {
                self.acquired(now, resolution, *acquired)
            }
            (
                State::Acquiring { resolution } | State::AwaitingStore { resolution, .. },
                Input::Invalidated,
            ) => self.resolve(now, None, resolution.revision(), Wait::Resolution),
            (State::Starting { turn, resolution }, Input::Started(Ok(former))) => {
                self.started(now, turn, resolution, former)
            }
            (State::Starting { turn, .. }, Input::Started(Err(error))) => {
                self.finish(Some(turn), false, Err(AppendError::Replication(error)))
            }
            (State::Starting { turn, resolution }, Input::Invalidated) => {
                self.resolve(now, Some(turn), resolution.revision(), Wait::Resolution)
            }
            (State::Cutting { turn, resolution }, Input::Cut) => {
                self.sync(now, turn, resolution, 0, None)
            }
            (
                State::Syncing {
                    turn,
                    resolution,
                    attempts,
                },
                Input::Synced(result),
            ) => self.synced(now, turn, resolution, attempts, result),
            (State::UpdatingAssignments { turn, resolution }, Input::Updated(result)) => {
                self.updated(now, Some(turn), &resolution, Update::Assignments, result)
            }
            (State::UpdatingSuspend { turn, resolution }, Input::Updated(result)) => {
                self.updated(now, turn, &resolution, Update::Suspend, result)
            }
            (State::Inspecting { turn, resolution }, Input::Store(facts)) => {
                self.inspected(now, turn, resolution, facts)
            }
            (
                State::AwaitingStore {
                    resolution, until, ..
                },
                Input::Store(facts),
            ) => self.store_changed(now, resolution, facts, until),
            (state, input) => unreachable!("{input:?} is not an input of {state:?}"),
        }
    }

    pub(super) fn resolve(
        &mut self,
        now: Now,
        turn: Option<Turn>,
        min_revision: i64,
        wait: Wait,
    ) -> Output {
        if let Some(until) = self.setup_until.filter(|until| *until <= now.instant) {
            self.waiting_since = until.checked_sub(self.limits.setup);
            let error = self.timed_out(now, wait);
            return self.finish(turn, true, Err(error));
        }
        let until = self.begin_wait(now, self.limits.resolve);
        self.state = State::Resolving { turn, wait };
        Output::Resolve {
            min_revision,
            until,
        }
    }

    fn resolved(&mut self, now: Now, turn: Option<Turn>, resolution: Box<Resolution>) -> Output {
        let may_resume = self.request.suspend() == append_request::Suspend::Resume;
        let is_suspended = resolution.status == Status::Suspended;
        // Any broker may wake a journal that has no primary.
        if is_suspended && may_resume && resolution.spec.is_some() {
            let offset = resolution.suspend().offset;
            return self.update_suspend(now, turn, resolution, Level::None, offset);
        }
        if resolution.status != Status::Ok {
            let response = response(&resolution, resolution.status);
            return self.finish(turn, true, Ok(response));
        }
        match turn {
            turn if !resolution.is_local => self.check_replicas(now, turn, resolution),
            Some(turn) => self.start_pipeline(now, turn, resolution),
            None => self.acquire(now, resolution),
        }
    }

    fn acquire(&mut self, now: Now, resolution: Box<Resolution>) -> Output {
        let until = self.begin_wait(now, self.limits.pipeline);
        self.state = State::Acquiring { resolution };
        Output::AcquirePipeline { until }
    }

    fn acquired(&mut self, now: Now, resolution: Box<Resolution>, acquired: Acquired) -> Output {
        let Acquired {
            mut held,
            synchronised,
            acknowledged,
        } = acquired;
        held.spool.acknowledge(acknowledged);
        self.start_pipeline(now, Turn { held, synchronised }, resolution)
    }

    fn start_pipeline(&mut self, now: Now, turn: Turn, resolution: Box<Resolution>) -> Output {
        let route = &resolution.header.route;
        if turn
            .synchronised
            .as_ref()
            .is_some_and(|known| known.is_equivalent(route))
        {
            return self.update_assignments(now, turn, resolution);
        }
        let header = Box::new(resolution.header.clone());
        let turn = Turn {
            synchronised: None,
            ..turn
        };
        let until = self.begin_wait(now, self.limits.start);
        self.state = State::Starting { turn, resolution };
        Output::StartPipeline { header, until }
    }

    fn started(
        &mut self,
        now: Now,
        mut turn: Turn,
        resolution: Box<Resolution>,
        former: Closed,
    ) -> Output {
        let spool = &mut turn.held.spool;
        spool.acknowledge(former.acknowledged);
        if former.is_local_lost
            && let Some(cut) = spool.cut()
        {
            self.state = State::Cutting { turn, resolution };
            return Output::Cut(cut);
        }
        self.sync(now, turn, resolution, 0, None)
    }

    /// Proposes what the spool has, or an empty fragment at another offset.
    fn sync(
        &mut self,
        now: Now,
        mut turn: Turn,
        resolution: Box<Resolution>,
        attempts: u32,
        roll: Option<(i64, Option<LabelSet>)>,
    ) -> Output {
        let (roll_to, adopted) = roll.unzip();
        let spool = &mut turn.held.spool;
        let fragment = roll::maybe_roll(spool, roll_to, &spec_of(&resolution).fragment, now);
        let registers = adopted
            .flatten()
            .unwrap_or_else(|| spool.registers().clone());
        let applied = spool.apply(&fragment, &registers, now.wall);
        assert!(
            matches!(applied.outcome, Outcome::RolledBack { .. }),
            "a spool agrees with what it proposes to synchronise: {applied:?}"
        );
        turn.synchronised = None;
        let until = self.begin_wait(now, self.limits.sync);
        self.state = State::Syncing {
            turn,
            resolution,
            attempts: attempts + 1,
        };
        let proposal = Proposal {
            fragment,
            registers,
        };
        Output::Sync {
            proposal,
            rolled: applied.rolled,
            until,
        }
    }

    fn synced(
        &mut self,
        now: Now,
        mut turn: Turn,
        resolution: Box<Resolution>,
        attempts: u32,
        result: Result<SyncOutcome, PipelineError>,
    ) -> Output {
        let error = match result {
            Ok(SyncOutcome::Agreed) => {
                let end = turn.spool().end();
                turn.held.spool.acknowledge(end);
                turn.synchronised = Some(resolution.header.route.clone());
                return self.update_assignments(now, turn, resolution);
            }
            Ok(SyncOutcome::NewerRoute { revision }) => {
                let min_revision = revision.max(resolution.revision());
                let next = Next::Resolve {
                    min_revision,
                    wait: Wait::Resolution,
                };
                return self.release(turn, false, next);
            }
            Ok(SyncOutcome::RollTo { offset, registers }) if attempts < SYNC_ATTEMPTS_MAX => {
                return self.sync(now, turn, resolution, attempts, Some((offset, registers)));
            }
            Ok(SyncOutcome::RollTo { .. }) => PipelineError::Unsettled { attempts },
            Err(error) => error,
        };
        self.finish(Some(turn), false, Err(AppendError::Replication(error)))
    }

    fn update_assignments(&mut self, now: Now, turn: Turn, resolution: Box<Resolution>) -> Output {
        if resolution.is_consistent() {
            return self.check_replicas(now, Some(turn), resolution);
        }
        let route = resolution.header.route.clone();
        let until = self.begin_wait(now, self.limits.update);
        self.state = State::UpdatingAssignments { turn, resolution };
        Output::UpdateAssignments { route, until }
    }

    fn update_suspend(
        &mut self,
        now: Now,
        turn: Option<Turn>,
        resolution: Box<Resolution>,
        level: Level,
        offset: i64,
    ) -> Output {
        let until = self.begin_wait(now, self.limits.update);
        self.state = State::UpdatingSuspend { turn, resolution };
        Output::UpdateSuspend {
            suspend: suspend::suspended_at(level, offset),
            until,
        }
    }

    /// Goes on at a later revision, at which the change is there: ours, or that of whoever was
    /// faster. Its keys are in the key space, so that revision comes.
    fn updated(
        &mut self,
        now: Now,
        turn: Option<Turn>,
        resolution: &Resolution,
        operation: Update,
        result: Result<Updated, HostFailure>,
    ) -> Output {
        let later = resolution.revision().saturating_add(1);
        let min_revision = match result {
            Ok(Updated::Done { revision }) => revision.max(later),
            Ok(Updated::Lost) => later,
            Err(failure) => {
                let error = AppendError::Coordination { operation, failure };
                return self.finish(turn, true, Err(error));
            }
        };
        self.resolve(now, turn, min_revision, Wait::Resolution)
    }

    /// Compares how many replicas there are with how many there shall be. Only then an append
    /// is passed on, or goes on here.
    fn check_replicas(
        &mut self,
        now: Now,
        turn: Option<Turn>,
        resolution: Box<Resolution>,
    ) -> Output {
        let actual = i32::try_from(resolution.header.route.members.len()).unwrap_or(i32::MAX);
        let desired = resolution.desired_replication;
        // Another primary needs another pipeline.
        let keep = resolution.is_local;
        if actual > desired {
            let min_revision = resolution.revision().saturating_add(1);
            let wait = Wait::Replicas;
            return match turn {
                Some(turn) => self.release(turn, keep, Next::Resolve { min_revision, wait }),
                None => self.resolve(now, None, min_revision, wait),
            };
        }
        if actual < desired {
            let response = response(&resolution, Status::InsufficientJournalBrokers);
            return self.finish(turn, keep, Ok(response));
        }
        match turn {
            Some(turn) if resolution.is_local => {
                self.state = State::Inspecting { turn, resolution };
                Output::InspectStore
            }
            Some(turn) => self.release(turn, false, Next::Proxy(Box::new(resolution.header))),
            None => Output::Proxy {
                header: Box::new(resolution.header),
            },
        }
    }

    fn inspected(
        &mut self,
        now: Now,
        turn: Turn,
        resolution: Box<Resolution>,
        facts: StoreFacts,
    ) -> Output {
        if !is_ready(&resolution, &facts) {
            return self.release(turn, true, Next::AwaitStore { resolution, facts });
        }
        let spool = turn.spool();
        let verdict =
            precondition::check(&self.request, spec_of(&resolution), spool, facts.index, now);
        match verdict {
            Verdict::Stream { roll_to } => self.begin_stream(now, turn, resolution, roll_to),
            Verdict::Resync { roll_to } => {
                self.sync(now, turn, resolution, 0, Some((roll_to, None)))
            }
            Verdict::Suspend(level) => {
                let offset = spool.end();
                self.update_suspend(now, Some(turn), resolution, level, offset)
            }
            Verdict::Respond(status) => {
                let registers = spool.registers().clone();
                let registers = (status == Status::RegisterMismatch).then_some(registers);
                let response = AppendResponse {
                    registers,
                    ..response(&resolution, status)
                };
                self.finish(Some(turn), true, Ok(response))
            }
        }
    }

    fn store_changed(
        &mut self,
        now: Now,
        resolution: Box<Resolution>,
        facts: StoreFacts,
        until: Instant,
    ) -> Output {
        if is_ready(&resolution, &facts) {
            return self.acquire(now, resolution);
        }
        if matches!(facts.health, Health::Unusable(_)) || until <= now.instant {
            return self.store_late(now, &resolution, facts);
        }
        self.state = State::AwaitingStore {
            resolution,
            facts,
            until,
        };
        Output::AwaitStore { until }
    }

    /// Ends an append whose journal's stores did not become ready.
    pub(super) fn store_late(
        &mut self,
        now: Now,
        resolution: &Resolution,
        facts: StoreFacts,
    ) -> Output {
        let store_health_error = match facts.health {
            Health::Unhealthy(text) | Health::Unusable(text) => text,
            Health::Unknown | Health::Healthy if !facts.index.is_refreshed => {
                let error = self.timed_out(now, Wait::Index);
                return self.end(Err(error));
            }
            Health::Unknown | Health::Healthy => "the store was not checked in time".to_owned(),
        };
        let response = response(resolution, Status::FragmentStoreUnhealthy);
        self.end(Ok(AppendResponse {
            store_health_error,
            ..response
        }))
    }
}

/// Whether an append may rely on the index and on the store. A journal without stores has no
/// store to be healthy.
fn is_ready(resolution: &Resolution, facts: &StoreFacts) -> bool {
    let has_stores = !spec_of(resolution).fragment.stores.is_empty();
    facts.index.is_refreshed && (!has_stores || facts.health == Health::Healthy)
}

pub(super) fn spec_of(resolution: &Resolution) -> &JournalSpec {
    resolution
        .spec
        .as_ref()
        .expect("a journal that is resolved as OK has a spec")
}
