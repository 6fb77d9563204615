//! What goes into an append, and what comes out of it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use gazette_protocol::{
    AppendRequest, AppendResponse, Header, Route, append_request, journal_spec,
};

use super::super::{AppendError, FlowControl, HostFailure};
use crate::{
    fragment::{
        Spool,
        index::Summary,
        spool::{Cut, Rolled},
    },
    pipeline::{Closed, PipelineError, Proposal, SyncOutcome},
    resolve::{Resolution, ResolveError},
};

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
            setup: Duration::from_mins(2),
            resolve: Duration::from_secs(30),
            pipeline: Duration::from_mins(1),
            start: Duration::from_secs(30),
            sync: Duration::from_secs(30),
            update: Duration::from_secs(15),
            store: Duration::from_secs(30),
            idle: Duration::from_mins(1),
            acknowledge: Duration::from_mins(1),
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
