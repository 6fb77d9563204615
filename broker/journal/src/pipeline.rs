//! The pipeline of a primary: what goes to the replicas of a journal, and when all have it.
//!
//! Many appends may be on their way at a time. Each proposal that asks for acknowledgement is a
//! round: it is gathered when every peer has answered and the local replica has made it
//! durable, in the order in which rounds were scattered. With no peers the local replica
//! alone decides.
//!
//! The pipeline is a machine of several effects: after each `handle_*`, take what
//! [`Pipeline::poll_output`] has until it has nothing, and call
//! [`Pipeline::handle_timeout`] at [`Pipeline::next_timeout`].
//!
//! Two things differ from Gazette. A peer that does not answer in time breaks the pipeline,
//! where there an append hangs until the connection breaks. And whatever breaks it does so at
//! once for all rounds that cannot be gathered any more, so that one fault fails no later
//! append.

mod error;
mod sync;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gazette_protocol::{
    Fragment, Header, LabelSet, ReplicateRequest, ReplicateResponse, Route, process_spec,
};

pub use error::{LocalFailure, PeerFailure, PipelineError};
pub use sync::SyncOutcome;

/// How long a peer may take for an answer.
pub const PEER_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);

/// A round of acknowledgements, in the order of their scattering. Another pipeline counts anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What is asked of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To find out whether the replicas agree, and otherwise how they can.
    Sync,
    /// To commit, or to drop, what was sent. Every replica must agree.
    Settle,
}

/// A proposal to all replicas.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The fragment that every spool shall have.
    pub fragment: Fragment,
    /// Its registers.
    pub registers: LabelSet,
}

/// Something to do for the pipeline.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Send a message to a peer.
    Send {
        /// Index of the peer among [`Pipeline::peers`].
        peer: usize,
        /// The message.
        request: Box<ReplicateRequest>,
    },
    /// Half-close the stream to a peer: nothing more is sent.
    CloseSend {
        /// Index of the peer.
        peer: usize,
    },
    /// A round ended. If all agreed, publish its fragment, and what was closed before it:
    /// every replica has them.
    Gathered(Gathered),
}

/// The end of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Gathered {
    /// The round.
    pub ticket: Ticket,
    /// What was proposed.
    pub proposal: Proposal,
    /// What the replicas said.
    pub result: Result<SyncOutcome, PipelineError>,
}

/// How a pipeline that is done ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Up to where every replica has the journal.
    pub acknowledged: i64,
    /// Whether the local replica failed to make a proposal durable. What it did not
    /// acknowledge must then be cut from its spool.
    pub is_local_lost: bool,
}

/// A round that is on its way.
#[derive(Debug)]
struct Round {
    ticket: Ticket,
    purpose: Purpose,
    proposal: Proposal,
    /// One for each peer, in their order.
    replies: Vec<Option<ReplicateResponse>>,
    local: Option<Result<(), LocalFailure>>,
    deadline: Instant,
}

#[derive(Debug)]
struct Peer {
    id: process_spec::Id,
    /// Whether the first message was sent.
    is_greeted: bool,
    /// Rounds that it has answered, of all that were scattered.
    answered: u64,
    failure: Option<PipelineError>,
}

/// What the primary of one journal sends to the peers of one route.
#[derive(Debug)]
pub struct Pipeline {
    header: Header,
    peers: Vec<Peer>,
    rounds: VecDeque<Round>,
    /// Rounds scattered, which is the next ticket.
    scattered: u64,
    acknowledged: i64,
    is_synchronised: bool,
    is_closed: bool,
    /// Why nothing more is scattered. Earlier rounds may still be gathered well.
    refusal: Option<PipelineError>,
    /// Why no round is gathered well any more: one before it was not.
    failure: Option<PipelineError>,
    is_local_lost: bool,
    peer_timeout: Duration,
    outputs: VecDeque<Output>,
}

impl Pipeline {
    /// A pipeline to the replicas of `header.route`, which are all its members but the primary.
    /// `acknowledged` is up to where the journal is known to be on all replicas.
    pub fn new(header: Header, acknowledged: i64, peer_timeout: Duration) -> Self {
        let is_primary = |at: usize| i32::try_from(at) == Ok(header.route.primary);
        let members = header.route.members.iter().enumerate();
        let peers = members
            .filter(|(at, _)| !is_primary(*at))
            .map(|(_, id)| Peer {
                id: id.clone(),
                is_greeted: false,
                answered: 0,
                failure: None,
            });
        Self {
            peers: peers.collect(),
            header,
            rounds: VecDeque::new(),
            scattered: 0,
            acknowledged,
            is_synchronised: false,
            is_closed: false,
            refusal: None,
            failure: None,
            is_local_lost: false,
            peer_timeout,
            outputs: VecDeque::new(),
        }
    }

    /// Processes that the pipeline sends to, in the order of their indices.
    pub fn peers(&self) -> impl Iterator<Item = &process_spec::Id> {
        self.peers.iter().map(|peer| &peer.id)
    }

    /// The route whose replicas agreed, as long as nothing is wrong with the pipeline. An append
    /// on another route needs another pipeline.
    pub fn synchronised_route(&self) -> Option<&Route> {
        let is_sound = self.is_synchronised && self.refusal.is_none() && !self.is_closed;
        is_sound.then_some(&self.header.route)
    }

    /// Up to where every replica has the journal.
    pub fn acknowledged(&self) -> i64 {
        self.acknowledged
    }

    /// How the pipeline ended, once it is closed or broken and no round is on its way.
    pub fn closed(&self) -> Option<Closed> {
        let is_over = self.is_closed || self.refusal.is_some();
        (is_over && self.rounds.is_empty()).then_some(Closed {
            acknowledged: self.acknowledged,
            is_local_lost: self.is_local_lost,
        })
    }

    /// Proposes that the replicas agree on `proposal`, and asks what they have if they do not.
    pub fn handle_sync(
        &mut self,
        now: Instant,
        proposal: Proposal,
    ) -> Result<Ticket, PipelineError> {
        self.scatter_round(now, Purpose::Sync, proposal)
    }

    /// Ends an append: `proposal` extends the fragment by what was sent, or it is the present
    /// one and drops it.
    pub fn handle_settle(
        &mut self,
        now: Instant,
        proposal: Proposal,
    ) -> Result<Ticket, PipelineError> {
        self.scatter_round(now, Purpose::Settle, proposal)
    }

    /// Begins a new fragment. No answer is asked for: the end of the append has one.
    pub fn handle_roll(&mut self, proposal: &Proposal) -> Result<(), PipelineError> {
        self.scatter(&ReplicateRequest {
            proposal: Some(proposal.fragment.clone()),
            registers: Some(proposal.registers.clone()),
            ..ReplicateRequest::default()
        })
    }

    /// Sends content which begins `delta` bytes after the committed end.
    pub fn handle_content(&mut self, content: Bytes, delta: i64) -> Result<(), PipelineError> {
        self.scatter(&ReplicateRequest {
            content,
            content_delta: delta,
            ..ReplicateRequest::default()
        })
    }

    fn scatter_round(
        &mut self,
        now: Instant,
        purpose: Purpose,
        proposal: Proposal,
    ) -> Result<Ticket, PipelineError> {
        self.scatter(&ReplicateRequest {
            proposal: Some(proposal.fragment.clone()),
            registers: Some(proposal.registers.clone()),
            acknowledge: true,
            ..ReplicateRequest::default()
        })?;
        let ticket = Ticket(self.scattered);
        self.scattered += 1;
        self.rounds.push_back(Round {
            ticket,
            purpose,
            proposal,
            replies: vec![None; self.peers.len()],
            local: None,
            deadline: now + self.peer_timeout,
        });
        Ok(ticket)
    }

    fn scatter(&mut self, request: &ReplicateRequest) -> Result<(), PipelineError> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if self.is_closed {
            return Err(PipelineError::Closed);
        }
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let mut request = Box::new(request.clone());
            if !peer.is_greeted {
                peer.is_greeted = true;
                let header = Header {
                    process_id: peer.id.clone(),
                    ..self.header.clone()
                };
                request.header = Some(header);
                if let Some(proposal) = &request.proposal {
                    request.deprecated_journal.clone_from(&proposal.journal);
                }
            }
            self.outputs.push_back(Output::Send {
                peer: index,
                request,
            });
        }
        Ok(())
    }

    /// Takes an answer of a peer, which belongs to the first round that it did not answer yet.
    pub fn handle_reply(&mut self, peer: usize, reply: ReplicateResponse) {
        let first = self.first_round();
        let Some(sender) = self
            .peers
            .get_mut(peer)
            .filter(|peer| peer.failure.is_none())
        else {
            return;
        };
        if sender.answered == self.scattered || !sync::makes_sense(&reply) {
            self.handle_peer_failure(peer, PeerFailure::Unexpected);
            return;
        }
        let at = sender
            .answered
            .checked_sub(first)
            .and_then(|at| usize::try_from(at).ok());
        sender.answered += 1;
        if let Some(round) = at.and_then(|at| self.rounds.get_mut(at)) {
            round.replies[peer] = Some(reply);
        }
        self.gather();
    }

    /// Notes that the stream to a peer is over. That is as it should be only after a close,
    /// when the peer has answered everything.
    pub fn handle_peer_failure(&mut self, peer: usize, failure: PeerFailure) {
        let scattered = self.scattered;
        let is_closed = self.is_closed;
        let Some(peer) = self
            .peers
            .get_mut(peer)
            .filter(|peer| peer.failure.is_none())
        else {
            return;
        };
        let is_expected = is_closed && failure == PeerFailure::Ended && peer.answered == scattered;
        let failure = PipelineError::Peer {
            peer: peer.id.clone(),
            failure,
        };
        peer.failure = Some(failure.clone());
        if !is_expected {
            self.refuse(failure);
        }
        self.gather();
    }

    /// Notes that the local replica has made the proposal of a round durable; or that it cannot,
    /// and neither those of any later one.
    ///
    /// Success is that of the one round. Earlier ones have their own: a roll-back, for one, is
    /// durable at once, and says nothing of commits that are being synced.
    pub fn handle_durable(&mut self, ticket: Ticket, result: Result<(), LocalFailure>) {
        for round in &mut self.rounds {
            let is_meant = match result {
                Ok(()) => round.ticket == ticket,
                Err(_) => round.ticket >= ticket,
            };
            if is_meant && round.local.is_none() {
                round.local = Some(result);
            }
        }
        if let Err(failure) = result {
            self.is_local_lost = true;
            self.refuse(PipelineError::Local(failure));
        }
        self.gather();
    }

    /// Gives up on peers whose answers are late.
    pub fn handle_timeout(&mut self, now: Instant) {
        for peer in 0..self.peers.len() {
            if self
                .deadline_of(&self.peers[peer])
                .is_some_and(|deadline| deadline <= now)
            {
                self.handle_peer_failure(peer, PeerFailure::TimedOut);
            }
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.peers
            .iter()
            .filter_map(|peer| self.deadline_of(peer))
            .min()
    }

    fn deadline_of(&self, peer: &Peer) -> Option<Instant> {
        if peer.failure.is_some() {
            return None;
        }
        let at = usize::try_from(peer.answered.checked_sub(self.first_round())?).ok()?;
        Some(self.rounds.get(at)?.deadline)
    }

    /// Closes the pipeline. Rounds that are on their way are gathered still.
    pub fn handle_close(&mut self) {
        if !self.is_closed {
            self.is_closed = true;
            self.close_sends();
        }
    }

    /// Something to do, until there is nothing.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn first_round(&self) -> u64 {
        self.rounds
            .front()
            .map_or(self.scattered, |round| round.ticket.0)
    }

    fn refuse(&mut self, failure: PipelineError) {
        if self.refusal.is_none() {
            self.refusal = Some(failure);
            self.close_sends();
        }
    }

    fn close_sends(&mut self) {
        let is_first = self.is_closed != self.refusal.is_some();
        if is_first {
            let live = self
                .peers
                .iter()
                .enumerate()
                .filter(|(_, peer)| peer.failure.is_none());
            self.outputs
                .extend(live.map(|(peer, _)| Output::CloseSend { peer }));
        }
    }

    /// Ends the rounds that can be, in order.
    fn gather(&mut self) {
        while let Some(round) = self.rounds.front() {
            let Some(local) = round.local else { break };
            let missing = round
                .replies
                .iter()
                .zip(&self.peers)
                .find(|(reply, _)| reply.is_none());
            let result = match (&self.failure, local, missing) {
                (Some(failure), ..) => Err(failure.clone()),
                (None, Err(failure), _) => Err(PipelineError::Local(failure)),
                (None, Ok(()), Some((_, peer))) => match &peer.failure {
                    Some(failure) => Err(failure.clone()),
                    None => break,
                },
                (None, Ok(()), None) => self.judge(round),
            };
            let Some(Round {
                ticket,
                purpose,
                proposal,
                ..
            }) = self.rounds.pop_front()
            else {
                break;
            };
            match &result {
                Ok(SyncOutcome::Agreed) => {
                    self.acknowledged = self.acknowledged.max(proposal.fragment.end);
                    self.is_synchronised = true;
                }
                Ok(SyncOutcome::RollTo { .. } | SyncOutcome::NewerRoute { .. }) => {
                    debug_assert_eq!(purpose, Purpose::Sync, "only a sync may end undecided");
                    self.is_synchronised = false;
                }
                Err(failure) => {
                    self.failure = Some(failure.clone());
                    self.refuse(failure.clone());
                }
            }
            self.outputs.push_back(Output::Gathered(Gathered {
                ticket,
                proposal,
                result,
            }));
        }
    }

    fn judge(&self, round: &Round) -> Result<SyncOutcome, PipelineError> {
        let replies = self.peers.iter().zip(round.replies.iter().flatten());
        let replies = replies.map(|(peer, reply)| (&peer.id, reply));
        match round.purpose {
            Purpose::Sync => sync::gather(&self.header, &round.proposal.fragment, replies),
            Purpose::Settle => sync::all_ok(replies).map(|()| SyncOutcome::Agreed),
        }
    }
}

#[cfg(test)]
mod tests;
