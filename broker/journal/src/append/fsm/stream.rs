//! The content of an append: the commit protocol, and its roll-back.

use std::time::Instant;

use bytes::Bytes;
use gazette_protocol::{AppendResponse, Fragment, Status, append_request};
use sha1::{Digest, Sha1};

use super::{
    super::flow_control::{Charge, max_rate},
    AppendError, AppendFsm, ClientMessage, CommitScope, Input, Next, Output, Purpose, State, Turn,
    response,
    setup::spec_of,
};
use crate::{
    Now,
    fragment::spool::{self, Outcome},
    pipeline::{PipelineError, Proposal},
    registers,
    resolve::Resolution,
    roll,
};

/// An append that streams.
#[derive(Debug)]
pub(super) struct Stream {
    turn: Turn,
    resolution: Box<Resolution>,
    /// Offset of its first byte.
    begin: i64,
    /// Of its own bytes.
    hash: Sha1,
    /// Whether peers were sent anything that the end must settle.
    is_begun: bool,
    /// Whether the commit was announced.
    is_announced: bool,
    total_chunks: i64,
    delayed_chunks: i64,
    heard: Instant,
}

impl Stream {
    pub(super) fn into_turn(self) -> Turn {
        self.turn
    }
}

impl AppendFsm {
    pub(super) fn begin_stream(
        &mut self,
        now: Now,
        mut turn: Turn,
        resolution: Box<Resolution>,
        roll_to: Option<i64>,
    ) -> Output {
        let spec = spec_of(&resolution);
        let rate = max_rate(spec.max_append_rate, self.limits.max_append_rate);
        turn.held
            .flow
            .begin(now.instant, self.limits.min_append_rate, rate);

        let spool = &mut turn.held.spool;
        let fragment = roll::maybe_roll(spool, roll_to, &spec.fragment, now);
        let is_rolled = fragment != *spool.fragment();
        let registers = spool.registers().clone();
        let applied = is_rolled.then(|| spool.apply(&fragment, &registers, now.wall));

        let stream = Box::new(Stream {
            begin: spool.end(),
            turn,
            resolution,
            hash: Sha1::new(),
            is_begun: is_rolled,
            is_announced: false,
            total_chunks: 0,
            delayed_chunks: 0,
            heard: now.instant,
        });
        let Some(applied) = applied else {
            return self.read(stream);
        };
        self.state = State::Rolling(stream);
        Output::Propose {
            proposal: Proposal {
                fragment,
                registers,
            },
            purpose: Purpose::Roll,
            rolled: applied.rolled,
        }
    }

    pub(super) fn step_stream(&mut self, now: Now, state: State, input: Input) -> Output {
        match (state, input) {
            (State::Rolling(stream), Input::Proposed(Ok(())))
            | (State::Forwarding(stream), Input::Forwarded(Ok(()))) => self.read(stream),
            (State::Rolling(stream), Input::Proposed(Err(error)))
            | (State::Forwarding(stream), Input::Forwarded(Err(error))) => {
                self.roll_back(stream, Err(before_commit(error)))
            }
            (State::Reading(stream), Input::Message(message)) => self.message(now, stream, message),
            (State::Reading(mut stream), Input::Invalidated) => {
                stream.turn.held.flow.lift_max();
                self.read(stream)
            }
            (State::Delaying(mut stream, content), Input::Invalidated) => {
                stream.turn.held.flow.lift_max();
                self.delay_over(now, stream, content)
            }
            (State::Committing(stream), Input::Proposed(result)) => self.proposed(stream, result),
            (State::RollingBack(stream, result), Input::Proposed(proposed)) => {
                self.release(stream.turn, proposed.is_ok(), Next::Done(result))
            }
            (state, input) => unreachable!("{input:?} is not an input of {state:?}"),
        }
    }

    fn read(&mut self, stream: Box<Stream>) -> Output {
        let idle = stream.heard + self.limits.idle;
        let until = stream
            .turn
            .held
            .flow
            .starves_at()
            .map_or(idle, |at| at.min(idle));
        self.state = State::Reading(stream);
        Output::ReadMessage { until }
    }

    fn message(&mut self, now: Now, mut stream: Box<Stream>, message: ClientMessage) -> Output {
        stream.heard = now.instant;
        match message {
            ClientMessage::End if stream.is_announced => self.commit(now, stream),
            ClientMessage::End => self.roll_back(stream, Err(AppendError::UnexpectedEnd)),
            ClientMessage::Content(_) | ClientMessage::CommitIntent | ClientMessage::NotContent
                if stream.is_announced =>
            {
                self.roll_back(stream, Err(AppendError::ExpectedEnd))
            }
            ClientMessage::NotContent => self.roll_back(stream, Err(AppendError::ExpectedContent)),
            ClientMessage::CommitIntent => {
                stream.is_announced = true;
                stream.total_chunks += 1;
                self.read(stream)
            }
            ClientMessage::Content(_) if !self.may_have_content(&stream.resolution) => {
                let response = response(&stream.resolution, Status::NotAllowed);
                self.roll_back(stream, Ok(response))
            }
            ClientMessage::Content(content) => self.content(now, stream, content),
        }
    }

    fn may_have_content(&self, resolution: &Resolution) -> bool {
        use append_request::Suspend as Control;
        let is_control = match self.request.suspend() {
            Control::Resume | Control::NoResume => false,
            Control::IfFlushed | Control::Now | Control::Keep => true,
        };
        !is_control && spec_of(resolution).may_write()
    }

    fn content(&mut self, now: Now, mut stream: Box<Stream>, content: Bytes) -> Output {
        stream.total_chunks += 1;
        match stream.turn.held.flow.charge(now.instant, content.len()) {
            Charge::Pass => self.forward(stream, content),
            Charge::Hold(until) => {
                stream.delayed_chunks += 1;
                self.state = State::Delaying(stream, content);
                Output::Delay { until }
            }
        }
    }

    pub(super) fn delay_over(
        &mut self,
        now: Now,
        mut stream: Box<Stream>,
        content: Bytes,
    ) -> Output {
        stream.heard = now.instant;
        match stream.turn.held.flow.resume(now.instant) {
            Charge::Pass => self.forward(stream, content),
            Charge::Hold(until) => {
                self.state = State::Delaying(stream, content);
                Output::Delay { until }
            }
        }
    }

    fn forward(&mut self, mut stream: Box<Stream>, content: Bytes) -> Output {
        let spool = &mut stream.turn.held.spool;
        let (delta, fragment_begin) = (spool.delta(), spool.begin());
        let Ok(position) = spool.append(delta, &content) else {
            return self.roll_back(stream, Err(AppendError::OffsetOverflow));
        };
        stream.hash.update(&content);
        stream.is_begun = true;
        self.state = State::Forwarding(stream);
        Output::Forward {
            content,
            delta,
            fragment_begin,
            position,
        }
    }

    fn commit(&mut self, now: Now, mut stream: Box<Stream>) -> Output {
        let subtract = self.request.subtract_registers.as_ref();
        let union = self.request.union_registers.as_ref();
        let spool = &mut stream.turn.held.spool;
        let registers = match spool.delta() {
            0 if registers::is_changed_by(subtract, union) => {
                return self.roll_back(stream, Err(AppendError::RegistersWithoutContent));
            }
            0 => spool.registers().clone(),
            _ => registers::update(spool.registers(), subtract, union),
        };
        let fragment = spool.next();
        let applied = spool.apply(&fragment, &registers, now.wall);
        assert_ne!(
            applied.outcome,
            Outcome::Mismatch,
            "a spool agrees with what it is next"
        );
        self.state = State::Committing(stream);
        let proposal = Proposal {
            fragment,
            registers,
        };
        Output::Propose {
            proposal,
            purpose: Purpose::Commit,
            rolled: applied.rolled,
        }
    }

    fn proposed(&mut self, stream: Box<Stream>, result: Result<(), PipelineError>) -> Output {
        let scope = match stream.resolution.header.route.members.len() {
            0 | 1 => CommitScope::Local,
            _ => CommitScope::Replicated,
        };
        if let Err(error) = result {
            let result = Err(scope.error(error));
            return self.release(stream.turn, false, Next::Done(Box::new(result)));
        }
        let Stream {
            turn,
            resolution,
            begin,
            hash,
            total_chunks,
            delayed_chunks,
            ..
        } = *stream;
        let fragment = turn.spool().fragment();
        let commit = Fragment {
            journal: fragment.journal.clone(),
            begin,
            end: fragment.end,
            sum: spool::sum_of(&hash),
            compression_codec: fragment.compression_codec,
            ..Fragment::default()
        };
        let response = AppendResponse {
            commit: Some(commit),
            registers: Some(turn.spool().registers().clone()),
            total_chunks,
            delayed_chunks,
            ..response(&resolution, Status::Ok)
        };
        self.release(turn, true, Next::AwaitAcks(Box::new(response), scope))
    }

    pub(super) fn roll_back(
        &mut self,
        mut stream: Box<Stream>,
        result: Result<AppendResponse, AppendError>,
    ) -> Output {
        let spool = &mut stream.turn.held.spool;
        spool.roll_back();
        let result = Box::new(result);
        if !stream.is_begun {
            return self.release(stream.turn, true, Next::Done(result));
        }
        let proposal = Proposal {
            fragment: spool.fragment().clone(),
            registers: spool.registers().clone(),
        };
        self.state = State::RollingBack(stream, result);
        Output::Propose {
            proposal,
            purpose: Purpose::RollBack,
            rolled: None,
        }
    }

    /// Ends an append whose client sent nothing for too long.
    pub(super) fn starve(&mut self, now: Now, stream: Box<Stream>) -> Output {
        let is_starved = stream
            .turn
            .held
            .flow
            .starves_at()
            .is_some_and(|at| at <= now.instant);
        let waited = now.instant.saturating_duration_since(stream.heard);
        if is_starved {
            let min_rate = self.limits.min_append_rate;
            return self.roll_back(stream, Err(AppendError::TooSlow { min_rate }));
        }
        if waited >= self.limits.idle {
            return self.roll_back(stream, Err(AppendError::Idle { waited }));
        }
        self.read(stream)
    }
}

/// What a failure of the pipeline means before the commit was sent.
fn before_commit(error: PipelineError) -> AppendError {
    if let PipelineError::Local(failure) = error {
        return AppendError::Local(failure);
    }
    AppendError::Replication(error)
}
