//! Appends that overlap, with a real pipeline, peers that keep real spools, and a disk that is
//! late. One choice after another is made of what may happen next; the first is what usually
//! does.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use gazette_protocol::{ReplicateRequest, ReplicateResponse};
use proptest::prelude::*;
use sha1::{Digest, Sha1};

use super::*;
use crate::{
    append::HostFailure,
    fragment::spool::{self, Outcome},
    pipeline::{
        self, Closed, PEER_TIMEOUT_DEFAULT, PeerFailure, Pipeline, Proposal, SyncOutcome, Ticket,
    },
    resolve::ResolveError,
};

type Gathered = Result<SyncOutcome, PipelineError>;

/// A round of one of the pipelines.
type Key = (usize, Ticket);

/// What happens next.
#[derive(Debug, Clone)]
enum Event {
    /// An append is told something.
    Input(usize, Input),
    /// The disk makes the oldest proposal durable, or fails.
    Disk(Result<(), LocalFailure>),
    /// A peer takes its next message.
    Peer(usize),
    /// The stream to a peer breaks. The peer may lose its spool too.
    PeerBreaks { peer: usize, forgets: bool },
    /// A peer that was silent is given up.
    PeerTimeout,
}

/// An append and what it waits for.
struct Run {
    fsm: AppendFsm,
    output: Output,
    messages: VecDeque<ClientMessage>,
    ticket: Option<Key>,
    /// Why its proposal was not scattered.
    refused: Option<PipelineError>,
    /// Its bytes, each of which is its number.
    content: Vec<u8>,
    commits: usize,
    end: Option<Result<AppendResponse, AppendError>>,
}

/// A replica on another broker.
struct Peer {
    spool: Spool,
    requests: VecDeque<ReplicateRequest>,
    is_broken: bool,
}

struct Simulation {
    now: Now,
    members: usize,
    revision: i64,
    is_consistent: bool,
    is_ready: bool,
    slot: Option<Box<Held>>,
    pipeline: Option<Pipeline>,
    acknowledged: i64,
    /// Pipelines that were begun.
    pipelines: usize,
    gathered: BTreeMap<Key, Gathered>,
    /// Fragments that were closed and are not published yet.
    completed: Vec<Proposal>,
    /// Proposals that the disk has to make durable.
    disk: VecDeque<Ticket>,
    /// Files of the primary by the begin of their fragment.
    files: BTreeMap<i64, Vec<u8>>,
    peers: Vec<Peer>,
    runs: Vec<Run>,
    /// Bytes that readers may have seen.
    published: BTreeMap<i64, u8>,
}

const CHUNKS: [usize; 2] = [3, 2];

impl Simulation {
    fn new(members: usize, appends: usize) -> Self {
        let now = start();
        let runs = (0..appends).map(|at| {
            let byte = u8::try_from(at).unwrap() + 1;
            let chunks = CHUNKS.map(|length| vec![byte; length]);
            let content = chunks.concat();
            let messages = chunks.map(|chunk| ClientMessage::Content(chunk.into()));
            let end = [ClientMessage::CommitIntent, ClientMessage::End];
            let request = AppendRequest {
                journal: "a/journal".into(),
                // The last one closes the fragment first.
                flush: at + 1 == appends,
                ..AppendRequest::default()
            };
            let mut fsm = AppendFsm::new(request, Limits::default());
            let output = fsm.step(now, Input::Start);
            let messages = messages.into_iter().chain(end).collect();
            Run {
                fsm,
                output,
                messages,
                ticket: None,
                refused: None,
                content,
                commits: 0,
                end: None,
            }
        });
        Self {
            now,
            members,
            revision: 5,
            is_consistent: false,
            is_ready: true,
            slot: Some(Held::new(Spool::new("a/journal"))),
            pipeline: None,
            acknowledged: 0,
            pipelines: 0,
            gathered: BTreeMap::new(),
            completed: Vec::new(),
            disk: VecDeque::new(),
            files: BTreeMap::new(),
            peers: Vec::new(),
            runs: runs.collect(),
            published: BTreeMap::new(),
        }
        .with_peers()
    }

    fn with_peers(mut self) -> Self {
        self.peers = (1..self.members)
            .map(|_| Peer {
                spool: Spool::new("a/journal"),
                requests: VecDeque::new(),
                is_broken: false,
            })
            .collect();
        self
    }

    fn resolution(&self) -> Box<Resolution> {
        let mut resolution = resolution(self.members, self.revision);
        if !self.is_consistent {
            resolution.stored_routes[0] = Route::unrouted();
        }
        Box::new(resolution)
    }

    fn facts(&self) -> StoreFacts {
        let mut facts = ready(0, self.acknowledged);
        facts.index.is_refreshed = self.is_ready;
        facts
    }

    /// All that may happen next. The first is what usually does.
    fn events(&self) -> Vec<Event> {
        let mut usual = Vec::new();
        let mut unusual = Vec::new();
        for (at, run) in self.runs.iter().enumerate() {
            let (expected, others) = self.inputs(run);
            usual.extend(expected.map(|input| Event::Input(at, input)));
            unusual.extend(others.into_iter().map(|input| Event::Input(at, input)));
        }
        for (at, peer) in self.peers.iter().enumerate() {
            if !peer.requests.is_empty() && !peer.is_broken {
                usual.push(Event::Peer(at));
            }
            if self.pipeline.is_some() && !peer.is_broken {
                for forgets in [false, true] {
                    unusual.push(Event::PeerBreaks { peer: at, forgets });
                }
            }
        }
        if !self.disk.is_empty() {
            usual.push(Event::Disk(Ok(())));
            unusual.push(Event::Disk(Err(LocalFailure::NoSpace)));
        }
        if self
            .pipeline
            .as_ref()
            .is_some_and(|pipeline| pipeline.next_timeout().is_some())
        {
            unusual.push(Event::PeerTimeout);
        }
        usual.extend(unusual);
        usual
    }

    /// What an append is usually told, if it can be now, and what else it may be told.
    fn inputs(&self, run: &Run) -> (Option<Input>, Vec<Input>) {
        let interrupts = || vec![Input::TimedOut, Input::Cancelled];
        let invalidated = || vec![Input::TimedOut, Input::Cancelled, Input::Invalidated];
        let failed = || PipelineError::Local(LocalFailure::NoSpace);
        let gathered = || match (&run.refused, run.ticket) {
            (Some(error), _) => Some(Err(error.clone())),
            (None, Some(ticket)) => self.gathered.get(&ticket).cloned(),
            (None, None) => None,
        };
        match &run.output {
            Output::Resolve { .. } => {
                let others = vec![
                    Input::Cancelled,
                    Input::TimedOut,
                    Input::Resolved(Err(ResolveError::Stopped)),
                ];
                (Some(Input::Resolved(Ok(self.resolution()))), others)
            }
            Output::AcquirePipeline { .. } => {
                let acquired = self.slot.clone().map(|held| {
                    let pipeline = self.pipeline.as_ref();
                    Input::Acquired(Box::new(Acquired {
                        held,
                        synchronised: pipeline.and_then(Pipeline::synchronised_route).cloned(),
                        acknowledged: self.acknowledged,
                    }))
                });
                (acquired, invalidated())
            }
            Output::StartPipeline { .. } => {
                let former = match &self.pipeline {
                    Some(pipeline) => pipeline.closed(),
                    None => Some(Closed {
                        acknowledged: self.acknowledged,
                        is_local_lost: false,
                    }),
                };
                (
                    former.map(|former| Input::Started(Ok(former))),
                    invalidated(),
                )
            }
            Output::Cut(_) => (Some(Input::Cut), vec![]),
            Output::Sync { .. } => (gathered().map(Input::Synced), interrupts()),
            Output::UpdateAssignments { .. } | Output::UpdateSuspend { .. } => {
                let done = Updated::Done {
                    revision: self.revision + 1,
                };
                let mut others = interrupts();
                others.push(Input::Updated(Ok(Updated::Lost)));
                others.push(Input::Updated(Err(HostFailure("no leader".into()))));
                (Some(Input::Updated(Ok(done))), others)
            }
            Output::InspectStore => {
                let mut loading = self.facts();
                loading.index.is_refreshed = false;
                (
                    Some(Input::Store(self.facts())),
                    vec![Input::Store(loading)],
                )
            }
            Output::AwaitStore { .. } => (Some(Input::Store(self.facts())), invalidated()),
            Output::Propose { .. } => (Some(Input::Proposed(Ok(()))), vec![]),
            Output::ReadMessage { .. } => {
                let mut others = invalidated();
                others.push(Input::Message(ClientMessage::End));
                others.push(Input::Message(ClientMessage::NotContent));
                let next = run.messages.front().cloned();
                (next.map(Input::Message), others)
            }
            Output::Delay { .. } => (Some(Input::TimedOut), vec![Input::Cancelled]),
            Output::Forward { .. } => (
                Some(Input::Forwarded(Ok(()))),
                vec![Input::Forwarded(Err(failed()))],
            ),
            Output::Release { .. } => (Some(Input::Released), vec![]),
            Output::AwaitAcks { .. } => {
                let result = gathered().map(|result| Input::Acknowledged(result.map(drop)));
                (result, interrupts())
            }
            Output::Proxy { .. } | Output::Done(_) => (None, vec![]),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Input(at, input) => self.input(at, input),
            Event::Disk(result) => {
                let ticket = self.disk.pop_front().unwrap();
                self.pipeline().handle_durable(ticket, result);
            }
            Event::Peer(at) => self.peer(at),
            Event::PeerBreaks { peer, forgets } => {
                let broken = &mut self.peers[peer];
                broken.is_broken = true;
                broken.requests.clear();
                broken.spool.roll_back();
                if forgets {
                    broken.spool = Spool::new("a/journal");
                }
                self.pipeline()
                    .handle_peer_failure(peer, PeerFailure::Broken);
            }
            Event::PeerTimeout => {
                let at = self.pipeline().next_timeout().unwrap();
                self.now.instant = self.now.instant.max(at);
                let now = self.now.instant;
                self.pipeline().handle_timeout(now);
                // Its stream is over now.
                for peer in &mut self.peers {
                    peer.requests.clear();
                    peer.spool.roll_back();
                }
            }
        }
        self.drain();
    }

    fn pipeline(&mut self) -> &mut Pipeline {
        self.pipeline.as_mut().unwrap()
    }

    fn drain(&mut self) {
        while let Some(output) = self.pipeline.as_mut().and_then(Pipeline::poll_output) {
            match output {
                pipeline::Output::Send { peer, request } => {
                    self.peers[peer].requests.push_back(*request);
                }
                pipeline::Output::CloseSend { .. } => {}
                pipeline::Output::Gathered(gathered) => {
                    if gathered.result == Ok(SyncOutcome::Agreed) {
                        let is_late = self.disk.contains(&gathered.ticket);
                        assert!(!is_late, "what is acknowledged is durable");
                        self.publish(&gathered.proposal);
                    }
                    self.gathered
                        .insert((self.pipelines, gathered.ticket), gathered.result);
                }
            }
        }
        if let Some(pipeline) = &self.pipeline {
            self.acknowledged = self.acknowledged.max(pipeline.acknowledged());
        }
        let (sure, unsure) = mem::take(&mut self.completed)
            .into_iter()
            .partition(|completed| completed.fragment.end <= self.acknowledged);
        self.completed = unsure;
        let sure: Vec<Proposal> = sure;
        for completed in &sure {
            self.publish(completed);
        }
    }

    /// Shows a fragment to readers: it must be whole on the disk, and never differ from what
    /// they have seen.
    fn publish(&mut self, proposal: &Proposal) {
        let fragment = &proposal.fragment;
        let length = usize::try_from(fragment.content_length()).unwrap();
        let empty = Vec::new();
        let file = self.files.get(&fragment.begin).unwrap_or(&empty);
        assert!(file.len() >= length, "a published fragment is on the disk");
        let content = &file[..length];
        if length > 0 {
            let sum = spool::sum_of(&Sha1::new_with_prefix(content));
            assert_eq!(sum, fragment.sum, "a published fragment has its sum");
        }
        for (offset, &byte) in (fragment.begin..).zip(content) {
            let seen = *self.published.entry(offset).or_insert(byte);
            assert_eq!(seen, byte, "what was shown at {offset} does not change");
        }
    }

    fn input(&mut self, at: usize, input: Input) {
        let output = self.runs[at].output.clone();
        let input = self.perform(at, output, input);
        let run = &mut self.runs[at];
        run.output = run.fsm.step(self.now, input);
        if let Output::Sync { rolled, .. } | Output::Propose { rolled, .. } = &run.output {
            let completed = rolled.iter().filter_map(|rolled| rolled.completed.clone());
            self.completed.extend(completed.map(|completed| Proposal {
                fragment: completed.fragment,
                registers: completed.registers,
            }));
        }
        let output = run.output.clone();
        if let Output::StartPipeline { .. } = &output
            && let Some(pipeline) = &mut self.pipeline
        {
            pipeline.handle_close();
        }
        if let Output::Sync { proposal, .. } = output {
            let now = self.now.instant;
            let result = self.pipeline().handle_sync(now, proposal);
            self.scattered(at, result);
        } else if let Output::Done(result) = output {
            self.runs[at].end = Some(*result);
        } else {
            assert!(
                !matches!(output, Output::Proxy { .. }),
                "this is the primary"
            );
        }
    }

    fn scattered(&mut self, at: usize, result: Result<Ticket, PipelineError>) {
        match result {
            Ok(ticket) => {
                self.disk.push_back(ticket);
                self.runs[at].ticket = Some((self.pipelines, ticket));
                self.runs[at].refused = None;
            }
            Err(error) => {
                self.runs[at].ticket = None;
                self.runs[at].refused = Some(error);
            }
        }
    }

    /// Does what an append asked for, as far as its answer needs it, and returns the answer.
    fn perform(&mut self, at: usize, output: Output, input: Input) -> Input {
        match (output, &input) {
            (output, Input::TimedOut) => {
                let until = world::until(&output).unwrap();
                self.now.instant = self.now.instant.max(until);
            }
            (Output::Resolve { min_revision, .. }, Input::Resolved(Ok(_))) => {
                self.revision = self.revision.max(min_revision);
                return Input::Resolved(Ok(self.resolution()));
            }
            (Output::AcquirePipeline { .. }, Input::Acquired(_)) => self.slot = None,
            (Output::StartPipeline { header, .. }, Input::Started(Ok(former))) => {
                let timeout = PEER_TIMEOUT_DEFAULT;
                self.pipeline = Some(Pipeline::new(*header, former.acknowledged, timeout));
                self.pipelines += 1;
                self.disk.clear();
                for peer in &mut self.peers {
                    peer.is_broken = false;
                    peer.requests.clear();
                    peer.spool.roll_back();
                }
            }
            (Output::Cut(cut), Input::Cut) => {
                let begin = cut.fragment.begin;
                let length = usize::try_from(cut.fragment.content_length()).unwrap();
                self.files.retain(|other, _| *other <= begin);
                self.completed
                    .retain(|completed| completed.fragment.end <= cut.fragment.end);
                self.files.entry(begin).or_default().truncate(length);
            }
            (Output::UpdateAssignments { .. }, Input::Updated(Ok(updated))) => {
                self.revision += 1;
                self.is_consistent |= matches!(updated, Updated::Done { .. });
            }
            (
                Output::Propose {
                    proposal, purpose, ..
                },
                Input::Proposed(_),
            ) => {
                return Input::Proposed(self.propose(at, proposal, purpose));
            }
            (Output::ReadMessage { .. }, Input::Message(_)) => {
                self.runs[at].messages.pop_front();
            }
            (
                Output::Forward {
                    content,
                    delta,
                    fragment_begin,
                    position,
                },
                Input::Forwarded(Ok(())),
            ) => {
                let file = self.files.entry(fragment_begin).or_default();
                let position = usize::try_from(position).unwrap();
                assert!(position <= file.len(), "content leaves no hole");
                file.truncate(position);
                file.extend(&content);
                return Input::Forwarded(self.pipeline().handle_content(content, delta));
            }
            (
                Output::Release {
                    held,
                    keep_pipeline,
                },
                Input::Released,
            ) => {
                assert!(self.slot.is_none(), "one append holds the pipeline");
                assert_eq!(held.spool.delta(), 0, "nothing is pending");
                self.slot = Some(held);
                if let Some(pipeline) = self.pipeline.as_mut().filter(|_| !keep_pipeline) {
                    pipeline.handle_close();
                }
            }
            _ => {}
        }
        input
    }

    fn propose(
        &mut self,
        at: usize,
        proposal: Proposal,
        purpose: Purpose,
    ) -> Result<(), PipelineError> {
        let now = self.now.instant;
        if purpose == Purpose::Roll {
            return self.pipeline().handle_roll(&proposal);
        }
        self.runs[at].commits += usize::from(purpose == Purpose::Commit);
        let ticket = self.pipeline().handle_settle(now, proposal)?;
        if purpose == Purpose::RollBack {
            self.pipeline().handle_durable(ticket, Ok(()));
        } else {
            self.disk.push_back(ticket);
        }
        self.runs[at].ticket = Some((self.pipelines, ticket));
        Ok(())
    }

    /// A peer takes a message, as the rules for replicas are.
    fn peer(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        let request = peer.requests.pop_front().unwrap();
        let Some(proposal) = &request.proposal else {
            peer.spool
                .append(request.content_delta, &request.content)
                .unwrap();
            return;
        };
        let registers = request.registers.clone().unwrap_or_default();
        let applied = peer.spool.apply(proposal, &registers, self.now.wall);
        let is_ok = applied.outcome != Outcome::Mismatch;
        if request.acknowledge {
            let reply = ReplicateResponse {
                status: if is_ok {
                    Status::Ok
                } else {
                    Status::ProposalMismatch
                }
                .into(),
                header: None,
                fragment: (!is_ok).then(|| peer.spool.fragment().clone()),
                registers: (!is_ok).then(|| peer.spool.registers().clone()),
            };
            self.pipeline().handle_reply(at, reply);
        } else {
            assert!(is_ok, "a replica that agreed takes a roll");
        }
    }

    /// Checks what must hold at the end.
    fn check(&self) {
        assert!(self.slot.is_some(), "the spool is back");
        let mut places: Vec<(i64, i64)> = Vec::new();
        for run in &self.runs {
            let end = run.end.as_ref().expect("every append ends");
            assert!(run.commits <= 1, "an append is committed once");
            let byte = run.content[0];
            let seen = self
                .published
                .values()
                .filter(|seen| **seen == byte)
                .count();
            match end {
                Ok(response) if response.status() == Status::Ok => {
                    let commit = response.commit.as_ref().unwrap();
                    let content: Vec<u8> = (commit.begin..commit.end)
                        .map(|offset| self.published[&offset])
                        .collect();
                    assert_eq!(
                        content, run.content,
                        "an acknowledged append is there, whole"
                    );
                    assert_eq!(commit.sum, spool::sum_of(&Sha1::new_with_prefix(&content)));
                    places.push((commit.begin, commit.end));
                }
                Ok(_) => assert_eq!(seen, 0, "an append that was refused is not there"),
                Err(error) if error.is_certain() => {
                    assert_eq!(
                        seen, 0,
                        "an append that failed for certain is not there: {error}"
                    );
                }
                Err(_) => {}
            }
            assert!(
                seen == 0 || seen == run.content.len(),
                "an append is whole or not there"
            );
        }
        places.sort_unstable();
        assert!(
            places.is_sorted_by(|a, b| a.1 <= b.0),
            "appends do not overlap: {places:?}"
        );
        if self.members == 1 && self.runs.iter().all(|run| matches!(&run.end, Some(Ok(_)))) {
            let offsets: Vec<i64> = self.published.keys().copied().collect();
            let all: Vec<i64> = (0..i64::try_from(offsets.len()).unwrap()).collect();
            assert_eq!(offsets, all, "appends are contiguous");
        }
        // What was shown is on the disk still, unless a peer was ahead.
        for (&offset, &byte) in &self.published {
            let (begin, file) = self.files.range(..=offset).next_back().unwrap();
            let at = usize::try_from(offset - begin).unwrap();
            assert_eq!(
                file.get(at),
                Some(&byte),
                "what was shown at {offset} stays"
            );
        }
    }
}

fn print(history: &[Event]) {
    for event in history {
        println!("{event:?}");
    }
}

/// Runs appends, where `choose` picks one of so many events at each step.
/// Returns how many of them succeeded.
fn simulate(members: usize, appends: usize, mut choose: impl FnMut(usize) -> usize) -> usize {
    let mut simulation = Simulation::new(members, appends);
    let mut history = Vec::new();
    for step in 0.. {
        let events = simulation.events();
        if events.is_empty() || simulation.runs.iter().all(|run| run.end.is_some()) {
            let result = catch_unwind(AssertUnwindSafe(|| simulation.check()));
            if let Err(panic) = result {
                print(&history);
                resume_unwind(panic);
            }
            let is_ok = |run: &&Run| matches!(&run.end, Some(Ok(r)) if r.status() == Status::Ok);
            return simulation.runs.iter().filter(is_ok).count();
        }
        assert!(step < 2000, "it goes on for ever: {history:#?}");
        let event = events[choose(events.len()) % events.len()].clone();
        history.push(event.clone());
        let result = catch_unwind(AssertUnwindSafe(|| simulation.happen(event)));
        if let Err(panic) = result {
            print(&history);
            resume_unwind(panic);
        }
    }
    unreachable!("the loop returns")
}

#[test]
fn appends_that_nothing_disturbs_all_succeed() {
    for members in 1..=3 {
        assert_eq!(simulate(members, 3, |_| 0), 3);
    }
}

/// Tries every surprise at every step, and then a second one after it.
#[test]
fn any_two_surprises_leave_appends_whole_and_acknowledged_ones_there() {
    for (members, appends) in [(1, 2), (2, 2), (3, 1)] {
        let mut first = (0, 1);
        loop {
            let mut was_reached = false;
            let mut had_choice = false;
            let mut second = None::<(usize, usize)>;
            loop {
                let (mut step, mut reached, mut choices) = (0, false, 0);
                simulate(members, appends, |count| {
                    let here = step;
                    step += 1;
                    if here == first.0 {
                        was_reached = true;
                        had_choice |= first.1 < count;
                        return if first.1 < count { first.1 } else { 0 };
                    }
                    match second {
                        Some((at, choice)) if at == here => {
                            reached = true;
                            choices = count;
                            choice.min(count - 1)
                        }
                        _ => 0,
                    }
                });
                if !was_reached || !had_choice {
                    break;
                }
                second = match second {
                    None => Some((first.0 + 1, 1)),
                    Some(_) if !reached => break,
                    Some((at, choice)) if choice + 1 < choices => Some((at, choice + 1)),
                    Some((at, _)) => Some((at + 1, 1)),
                };
            }
            first = match (was_reached, had_choice) {
                (false, _) => break,
                (true, true) => (first.0, first.1 + 1),
                (true, false) => (first.0 + 1, 1),
            };
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn appends_survive_any_order_of_events(
        members in 1..4usize,
        appends in 1..4usize,
        choices in prop::collection::vec(prop_oneof![2 => Just(0usize), 1 => 0..40usize], 0..120),
    ) {
        let mut choices = choices.into_iter();
        simulate(members, appends, |_| choices.next().unwrap_or(0));
    }
}
