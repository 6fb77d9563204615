//! One append, from its request to its response.
//!
//! [`AppendFsm::step`] takes what happened and says what to do next: one effect at a time, each
//! of which has one kind of answer (see [`Output`]). The caller carries it out, and decides
//! nothing.
//!
//! **What it owns.** An append that holds the pipeline also holds the spool of the replica and
//! its flow control ([`Held`]): they are moved in with [`Input::Acquired`] and handed back
//! with [`Output::Release`], so nothing else can touch them meanwhile. The [`Pipeline`] stays
//! with the caller, since acknowledgements of earlier appends arrive while a later one streams.
//! An append releases what it holds before it waits for its own acknowledgement.
//!
//! **How it must be run.** In a task of its own, which is told of a client that went away by
//! [`Input::Cancelled`]. Extents are published as the pipeline gathers rounds, not as appends
//! end: the client of an append that took effect may be gone.
//!
//! **Differences from Gazette**, all deliberate:
//! - Every wait has an end, and so has the set-up as a whole (P7).
//! - While the stores are not listed yet, or unhealthy, the append holds nothing. There it keeps
//!   the pipeline for minutes, and barriers and route changes with it.
//! - A lost race for a key makes it resolve at a later revision than it had, so it cannot spin.
//! - A spool is rolled and acknowledged before the journal is suspended, not after.
//!
//! [`Pipeline`]: crate::pipeline::Pipeline

mod interface;
mod setup;
mod stream;

use std::{
    mem,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gazette_protocol::{AppendRequest, AppendResponse, Header, Route, Status};

use super::{AppendError, Wait};
use crate::{
    Now,
    fragment::Spool,
    pipeline::{LocalFailure, PipelineError},
    resolve::Resolution,
};
pub use interface::{
    Acquired, ClientMessage, Health, Held, Input, Limits, Output, Purpose, StoreFacts, Updated,
};
use stream::Stream;

/// What the append holds, and the route whose replicas agree with it.
#[derive(Debug)]
struct Turn {
    held: Box<Held>,
    /// None if the pipeline is of no use.
    synchronised: Option<Route>,
}

impl Turn {
    fn spool(&self) -> &Spool {
        &self.held.spool
    }
}

#[derive(Debug)]
enum State {
    /// Until it is begun.
    Created,
    /// Until the journal is resolved. `wait` says what for.
    Resolving { turn: Option<Turn>, wait: Wait },
    /// Until the turn of this append has come.
    Acquiring { resolution: Box<Resolution> },
    /// Until there is a pipeline for the route.
    Starting {
        turn: Turn,
        resolution: Box<Resolution>,
    },
    /// Until what was lost is cut.
    Cutting {
        turn: Turn,
        resolution: Box<Resolution>,
    },
    /// Until the replicas answered.
    Syncing {
        turn: Turn,
        resolution: Box<Resolution>,
        attempts: u32,
    },
    /// Until the assignments hold the route.
    UpdatingAssignments {
        turn: Turn,
        resolution: Box<Resolution>,
    },
    /// Until it is known what is known of the stores.
    Inspecting {
        turn: Turn,
        resolution: Box<Resolution>,
    },
    /// Until the stores are listed and healthy.
    AwaitingStore {
        resolution: Box<Resolution>,
        facts: StoreFacts,
        until: Instant,
    },
    /// Until the spec holds the suspension.
    UpdatingSuspend {
        turn: Option<Turn>,
        resolution: Box<Resolution>,
    },
    /// Until a roll is scattered.
    Rolling(Box<Stream>),
    /// Until the client sent something.
    Reading(Box<Stream>),
    /// Until the rate allows a chunk.
    Delaying(Box<Stream>, Bytes),
    /// Until a chunk is forwarded.
    Forwarding(Box<Stream>),
    /// Until the commit is scattered.
    Committing(Box<Stream>),
    /// Until the roll-back is scattered.
    RollingBack(Box<Stream>, Box<Result<AppendResponse, AppendError>>),
    /// Until what was held is taken back.
    Releasing(Next),
    /// Until the commit is acknowledged.
    AwaitingAcks(Box<AppendResponse>, CommitScope),
    /// After the end.
    Finished,
}

/// What follows a release.
#[derive(Debug)]
enum Next {
    Resolve {
        min_revision: i64,
        wait: Wait,
    },
    AwaitStore {
        resolution: Box<Resolution>,
        facts: StoreFacts,
    },
    AwaitAcks(Box<AppendResponse>, CommitScope),
    Proxy(Box<Header>),
    Done(Box<Result<AppendResponse, AppendError>>),
}

/// Who had a part in a commit, which tells what its failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommitScope {
    /// This replica alone.
    Local,
    /// Peers too.
    Replicated,
}

/// One append.
#[derive(Debug)]
pub struct AppendFsm {
    request: AppendRequest,
    limits: Limits,
    state: State,
    /// When the set-up must be done.
    setup_until: Option<Instant>,
    /// Since when the present wait lasts.
    waiting_since: Option<Instant>,
}

impl AppendFsm {
    /// An append with this first message, which is valid.
    pub fn new(request: AppendRequest, limits: Limits) -> Self {
        Self {
            request,
            limits,
            state: State::Created,
            setup_until: None,
            waiting_since: None,
        }
    }

    /// The first message.
    pub fn request(&self) -> &AppendRequest {
        &self.request
    }

    /// Whether the append is over.
    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    /// Takes what happened, and tells what to do next.
    pub fn step(&mut self, now: Now, input: Input) -> Output {
        match (mem::replace(&mut self.state, State::Finished), input) {
            (State::Created, Input::Start) => self.start(now),
            (State::Releasing(next), Input::Released) => self.follow(now, next),
            (State::AwaitingAcks(response, scope), Input::Cancelled) => {
                self.await_acks(now, response, scope)
            }
            (State::AwaitingAcks(response, scope), Input::Acknowledged(result)) => self.end(
                result
                    .map(|()| *response)
                    .map_err(|error| scope.error(error)),
            ),
            (state, Input::Cancelled) => self.cancel(state),
            (state, Input::TimedOut) => self.time_out(now, state),
            (state, input) if state.is_streaming() => self.step_stream(now, state, input),
            (state, input) => self.step_setup(now, state, input),
        }
    }

    /// Gives up what the append holds, for a caller that cannot go on with it. The pipeline must
    /// be closed then. Uncommitted content is rolled back.
    pub fn abandon(&mut self) -> Option<Box<Held>> {
        let mut turn = mem::replace(&mut self.state, State::Finished).into_turn()?;
        turn.held.spool.roll_back();
        turn.held.flow.end();
        Some(turn.held)
    }

    fn cancel(&mut self, state: State) -> Output {
        let (turn, keep) = match state {
            State::Reading(stream) | State::Delaying(stream, _) => {
                return self.roll_back(stream, Err(AppendError::Cancelled));
            }
            State::Resolving { turn, .. } | State::UpdatingSuspend { turn, .. } => (turn, true),
            State::UpdatingAssignments { turn, .. } => (Some(turn), true),
            // A pipeline whose replicas did not agree is of no use to the next append.
            State::Starting { turn, .. } | State::Syncing { turn, .. } => (Some(turn), false),
            State::Acquiring { .. } | State::AwaitingStore { .. } => (None, true),
            State::Created
            | State::Cutting { .. }
            | State::Inspecting { .. }
            | State::Rolling(_)
            | State::Forwarding(_)
            | State::Committing(_)
            | State::RollingBack(..)
            | State::Releasing(_)
            | State::AwaitingAcks(..)
            | State::Finished => unreachable!("{state:?} cannot be cancelled"),
        };
        self.finish(turn, keep, Err(AppendError::Cancelled))
    }

    fn time_out(&mut self, now: Now, state: State) -> Output {
        let (turn, keep, wait) = match state {
            State::Reading(stream) => return self.starve(now, stream),
            State::Delaying(stream, content) => return self.delay_over(now, stream, content),
            State::AwaitingStore {
                resolution, facts, ..
            } => {
                return self.store_late(now, &resolution, facts);
            }
            State::Resolving { turn, wait } => (turn, true, wait),
            State::Acquiring { .. } => (None, true, Wait::Pipeline),
            State::Starting { turn, .. } => (Some(turn), false, Wait::PipelineStart),
            State::Syncing { turn, .. } => (Some(turn), false, Wait::Sync),
            State::UpdatingAssignments { turn, .. } => (Some(turn), true, Wait::Update),
            State::UpdatingSuspend { turn, .. } => (turn, true, Wait::Update),
            State::AwaitingAcks(..) => (None, true, Wait::Acknowledgement),
            State::Created
            | State::Cutting { .. }
            | State::Inspecting { .. }
            | State::Rolling(_)
            | State::Forwarding(_)
            | State::Committing(_)
            | State::RollingBack(..)
            | State::Releasing(_)
            | State::Finished => unreachable!("{state:?} has no end"),
        };
        let error = self.timed_out(now, wait);
        self.finish(turn, keep, Err(error))
    }

    fn timed_out(&self, now: Now, wait: Wait) -> AppendError {
        let since = self.waiting_since.unwrap_or(now.instant);
        AppendError::TimedOut {
            wait,
            waited: now.instant.saturating_duration_since(since),
        }
    }

    /// When a wait of the set-up that begins now must end.
    fn begin_wait(&mut self, now: Now, longest: Duration) -> Instant {
        self.waiting_since = Some(now.instant);
        let until = now.after(longest);
        self.setup_until.map_or(until, |setup| until.min(setup))
    }

    /// Hands back what is held, then goes on.
    fn release(&mut self, turn: Turn, keep: bool, next: Next) -> Output {
        let Turn {
            mut held,
            synchronised,
        } = turn;
        held.flow.end();
        self.state = State::Releasing(next);
        Output::Release {
            held,
            keep_pipeline: keep && synchronised.is_some(),
        }
    }

    fn follow(&mut self, now: Now, next: Next) -> Output {
        match next {
            Next::Resolve { min_revision, wait } => self.resolve(now, None, min_revision, wait),
            Next::AwaitStore { resolution, facts } => {
                let until = self.begin_wait(now, self.limits.store);
                self.state = State::AwaitingStore {
                    resolution,
                    facts,
                    until,
                };
                Output::AwaitStore { until }
            }
            Next::AwaitAcks(response, scope) => {
                self.waiting_since = Some(now.instant);
                self.await_acks(now, response, scope)
            }
            Next::Proxy(header) => Output::Proxy { header },
            Next::Done(result) => Output::Done(result),
        }
    }

    fn await_acks(
        &mut self,
        now: Now,
        response: Box<AppendResponse>,
        scope: CommitScope,
    ) -> Output {
        self.state = State::AwaitingAcks(response, scope);
        let since = self.waiting_since.unwrap_or(now.instant);
        Output::AwaitAcks {
            until: since + self.limits.acknowledge,
        }
    }

    fn finish(
        &mut self,
        turn: Option<Turn>,
        keep: bool,
        result: Result<AppendResponse, AppendError>,
    ) -> Output {
        match turn {
            Some(turn) => self.release(turn, keep, Next::Done(Box::new(result))),
            None => self.end(result),
        }
    }

    fn end(&mut self, result: Result<AppendResponse, AppendError>) -> Output {
        self.state = State::Finished;
        Output::Done(Box::new(result))
    }
}

impl State {
    fn is_streaming(&self) -> bool {
        matches!(
            self,
            Self::Rolling(_)
                | Self::Reading(_)
                | Self::Delaying(..)
                | Self::Forwarding(_)
                | Self::Committing(_)
                | Self::RollingBack(..)
        )
    }

    fn into_turn(self) -> Option<Turn> {
        match self {
            Self::Resolving { turn, .. } | Self::UpdatingSuspend { turn, .. } => turn,
            Self::Starting { turn, .. }
            | Self::Cutting { turn, .. }
            | Self::Syncing { turn, .. }
            | Self::UpdatingAssignments { turn, .. }
            | Self::Inspecting { turn, .. } => Some(turn),
            Self::Rolling(stream)
            | Self::Reading(stream)
            | Self::Delaying(stream, _)
            | Self::Forwarding(stream)
            | Self::Committing(stream)
            | Self::RollingBack(stream, _) => Some(stream.into_turn()),
            Self::Created
            | Self::Acquiring { .. }
            | Self::AwaitingStore { .. }
            | Self::Releasing(_)
            | Self::AwaitingAcks(..)
            | Self::Finished => None,
        }
    }
}

impl CommitScope {
    /// What it means that a commit was not acknowledged.
    fn error(self, error: PipelineError) -> AppendError {
        match (self, error) {
            // Nobody else has it, and here it will be cut.
            (Self::Local, PipelineError::Local(failure @ LocalFailure::NoSpace)) => {
                AppendError::Local(failure)
            }
            (_, error) => AppendError::Unacknowledged(error),
        }
    }
}

/// A response with a status but no commit.
fn response(resolution: &Resolution, status: Status) -> AppendResponse {
    AppendResponse {
        status: status.into(),
        header: resolution.header.clone(),
        ..AppendResponse::default()
    }
}

#[cfg(test)]
mod tests;
