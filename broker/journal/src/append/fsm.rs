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

mod setup;
mod stream;

use std::{
    fmt::Debug,
    mem,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gazette_protocol::{
    AppendRequest, AppendResponse, Header, Route, Status, append_request, journal_spec,
};

use super::{AppendError, FlowControl, HostFailure, Wait};
use crate::{
    Now,
    fragment::{
        Spool,
        index::Summary,
        spool::{Cut, Rolled},
    },
    pipeline::{Closed, LocalFailure, PipelineError, Proposal, SyncOutcome},
    resolve::{Resolution, ResolveError},
};
use stream::Stream;

/// Bounds of an append. The defaults suit a cluster on one continent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Least rate of the client, in bytes per second. Zero asks for none.
    pub min_append_rate: u64,
    /// Greatest rate of any journal of the broker, in bytes per second. Zero is unlimited.
    pub max_append_rate: u64,
    /// All that comes before the client may stream.
    pub setup: Duration,
    /// Until the key space has a revision.
    pub resolve: Duration,
    /// Until earlier appends are through.
    pub pipeline: Duration,
    /// Until a former pipeline has ended and another begun.
    pub start: Duration,
    /// Until the replicas answered a proposal to synchronise.
    pub sync: Duration,
    /// Until the coordination store took a change.
    pub update: Duration,
    /// Until the stores are listed and healthy.
    pub store: Duration,
    /// Until a client that sends nothing is dropped, where it is not held to a rate.
    pub idle: Duration,
    /// Until the commit is acknowledged.
    pub acknowledge: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min_append_rate: 1 << 16,
            max_append_rate: 0,
            setup: Duration::from_secs(120),
            resolve: Duration::from_secs(30),
            pipeline: Duration::from_secs(60),
            start: Duration::from_secs(30),
            sync: Duration::from_secs(30),
            update: Duration::from_secs(15),
            store: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            acknowledge: Duration::from_secs(60),
        }
    }
}

/// What one append at a time holds of a replica.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// Its spool.
    pub spool: Spool,
    /// Its flow control.
    pub flow: FlowControl,
}

impl Held {
    /// That of a replica with this spool.
    pub fn new(spool: Spool) -> Box<Self> {
        Box::new(Self {
            spool,
            flow: FlowControl::new(),
        })
    }
}

/// What is told to an append when its turn has come.
#[derive(Debug, Clone, PartialEq)]
pub struct Acquired {
    /// What it holds from now on.
    pub held: Box<Held>,
    /// [`Pipeline::synchronised_route`](crate::pipeline::Pipeline::synchronised_route) of the
    /// present pipeline.
    pub synchronised: Option<Route>,
    /// [`Pipeline::acknowledged`](crate::pipeline::Pipeline::acknowledged) of the present
    /// pipeline, or of the last one.
    pub acknowledged: i64,
}

/// What is known of the index and the first store of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFacts {
    /// The extent of the index.
    pub index: Summary,
    /// Health of the first store. It is not looked at if the spec names none.
    pub health: Health,
}

/// Health of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It was not checked yet.
    Unknown,
    /// Its last check passed.
    Healthy,
    /// Its last check failed, and a later one may pass.
    Unhealthy(String),
    /// No check can pass.
    Unusable(String),
}

/// How a change of the coordination store ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    /// It was made, at this revision.
    Done {
        /// Revision of the change.
        revision: i64,
    },
    /// Someone else changed one of the keys first.
    Lost,
}

/// A message of the client after its first one, or the end of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMessage {
    /// A chunk of content, which is not empty.
    Content(Bytes),
    /// The empty chunk that announces a commit.
    CommitIntent,
    /// A message that is not a chunk.
    NotContent,
    /// The client has closed its side in order.
    End,
}

impl From<AppendRequest> for ClientMessage {
    fn from(request: AppendRequest) -> Self {
        let is_chunk = request.journal.is_empty()
            && request.header.is_none()
            && !request.do_not_proxy
            && request.offset == 0
            && request.check_registers.is_none()
            && request.union_registers.is_none()
            && request.subtract_registers.is_none()
            && request.suspend == append_request::Suspend::Resume as i32;
        match (is_chunk, request.content.is_empty()) {
            (false, _) => Self::NotContent,
            (true, true) => Self::CommitIntent,
            (true, false) => Self::Content(request.content),
        }
    }
}

/// What happened. Each answers an [`Output`]; the last three may come instead, where that is
/// said.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Begin.
    Start,
    /// The journal is resolved, or cannot be.
    Resolved(Result<Box<Resolution>, ResolveError>),
    /// The append's turn has come.
    Acquired(Box<Acquired>),
    /// The former pipeline ended so, and a new one is there. If there was none, it counts as
    /// one that lost nothing.
    Started(Result<Closed, PipelineError>),
    /// The spool's files were cut.
    Cut,
    /// The replicas answered, and what they agreed on is published.
    Synced(Result<SyncOutcome, PipelineError>),
    /// A change of the coordination store ended.
    Updated(Result<Updated, HostFailure>),
    /// What is known of the stores.
    Store(StoreFacts),
    /// The proposal was scattered, or could not be.
    Proposed(Result<(), PipelineError>),
    /// The client sent something.
    Message(ClientMessage),
    /// Content was sent and written, or could not be.
    Forwarded(Result<(), PipelineError>),
    /// What the append held was taken back.
    Released,
    /// The commit was gathered.
    Acknowledged(Result<(), PipelineError>),
    /// The output's `until` has come.
    TimedOut,
    /// The client went away.
    Cancelled,
    /// The assignments of the journal changed since it was resolved.
    Invalidated,
}

/// What to do next. Where there is an `until`, [`Input::TimedOut`] must come then if nothing
/// else did, and [`Input::Cancelled`] may come at any time.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Resolve the journal once the key space has a revision. Answer: `Resolved`.
    Resolve {
        /// The revision.
        min_revision: i64,
        /// When to give up.
        until: Instant,
    },
    /// Wait until no other append holds the pipeline. Answer: `Acquired`, or `Invalidated`.
    AcquirePipeline {
        /// When to give up.
        until: Instant,
    },
    /// Close the present pipeline, if there is one, and wait until its rounds are gathered;
    /// then begin one to `header.route`. Answer: `Started`, or `Invalidated`.
    StartPipeline {
        /// The header of the new pipeline.
        header: Box<Header>,
        /// When to give up.
        until: Instant,
    },
    /// Cut the files of the spool: content that will never be acknowledged must go, on disk
    /// too. Answer: `Cut`.
    Cut(Cut),
    /// Scatter a proposal and await what the replicas say. Answer: `Synced`.
    Sync {
        /// The proposal, which the spool of this replica has already.
        proposal: Proposal,
        /// The roll of the spool that it caused.
        rolled: Option<Rolled>,
        /// When to give up.
        until: Instant,
    },
    /// Write the route into the assignments that do not have it, if none of them changed since
    /// the journal was resolved. Answer: `Updated`.
    UpdateAssignments {
        /// The route.
        route: Route,
        /// When to give up.
        until: Instant,
    },
    /// Write the suspension into the spec, if neither it nor an assignment changed since the
    /// journal was resolved. Answer: `Updated`.
    UpdateSuspend {
        /// The suspension.
        suspend: journal_spec::Suspend,
        /// When to give up.
        until: Instant,
    },
    /// Tell what is known of the stores, without waiting. Answer: `Store`.
    InspectStore,
    /// Wait until what is known of the stores is no longer what was told last. Answer: `Store`,
    /// or `Invalidated`.
    AwaitStore {
        /// When to give up.
        until: Instant,
    },
    /// Scatter a proposal, and make it durable unless it is a roll-back. Do not wait for its
    /// acknowledgement. Answer: `Proposed`.
    Propose {
        /// The proposal, which the spool of this replica has already.
        proposal: Proposal,
        /// What it is for.
        purpose: Purpose,
        /// The roll of the spool that it caused.
        rolled: Option<Rolled>,
    },
    /// Read the next message of the client. Answer: `Message`, or `Invalidated`.
    ReadMessage {
        /// When to give up.
        until: Instant,
    },
    /// Wait, for the sake of the rate. Answer: `TimedOut`, or `Invalidated`.
    Delay {
        /// Until then.
        until: Instant,
    },
    /// Send content to the peers, and write it to the file of the spool. Answer: `Forwarded`.
    Forward {
        /// The content.
        content: Bytes,
        /// Where it begins, in bytes after the committed end.
        delta: i64,
        /// Begin of the fragment that the file is of.
        fragment_begin: i64,
        /// Where it begins in the file.
        position: u64,
    },
    /// Take back what the append held, and let the next one have it. Answer: `Released`.
    Release {
        /// What it held.
        held: Box<Held>,
        /// Whether the pipeline is of use to the next one. If not, close it.
        keep_pipeline: bool,
    },
    /// Wait until the pipeline has gathered the round of the commit. Answer: `Acknowledged`.
    /// `Cancelled` has no effect: it is too late for that.
    AwaitAcks {
        /// When to give up.
        until: Instant,
    },
    /// Pass the request and all that follows it on to the primary. Final.
    Proxy {
        /// The header to pass on.
        header: Box<Header>,
    },
    /// The append is over. Final.
    Done(Box<Result<AppendResponse, AppendError>>),
}

/// What a proposal during an append is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To begin a new fragment. Peers are not asked to acknowledge it.
    Roll,
    /// To commit what was forwarded.
    Commit,
    /// To drop what was forwarded. It ends nothing that was committed before.
    RollBack,
}

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
            (state @ (State::Rolling(_) | State::Reading(_)), input)
            | (state @ (State::Delaying(..) | State::Forwarding(_)), input)
            | (state @ (State::Committing(_) | State::RollingBack(..)), input) => {
                self.step_stream(now, state, input)
            }
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
        match state {
            State::Reading(stream) | State::Delaying(stream, _) => {
                self.roll_back(stream, Err(AppendError::Cancelled))
            }
            state => {
                // Replicas that did not answer yet leave the pipeline with an answer to come.
                let keep = !matches!(state, State::Syncing { .. } | State::Starting { .. });
                let turn = state.into_turn();
                self.finish(turn, keep, Err(AppendError::Cancelled))
            }
        }
    }

    fn time_out(&mut self, now: Now, state: State) -> Output {
        let wait = match state {
            State::Reading(stream) => return self.starve(now, stream),
            State::Delaying(stream, content) => return self.delay_over(now, stream, content),
            State::AwaitingStore {
                resolution, facts, ..
            } => {
                return self.store_late(now, &resolution, facts);
            }
            State::Resolving { wait, .. } => wait,
            State::Acquiring { .. } => Wait::Pipeline,
            State::Starting { .. } => Wait::PipelineStart,
            State::Syncing { .. } => Wait::Sync,
            State::UpdatingAssignments { .. } | State::UpdatingSuspend { .. } => Wait::Update,
            State::AwaitingAcks(..) => Wait::Acknowledgement,
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
        let keep = !matches!(state, State::Syncing { .. } | State::Starting { .. });
        let error = self.timed_out(now, wait);
        self.finish(state.into_turn(), keep, Err(error))
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
