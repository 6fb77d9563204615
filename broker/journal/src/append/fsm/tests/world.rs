//! A world that answers what an append asks for, and keeps a transcript.

use std::collections::VecDeque;

use gazette_protocol::{Fragment, LabelSet, journal_spec::suspend::Level};

use super::*;
use crate::pipeline::{Closed, Proposal, SyncOutcome};

/// Answers what an append asks for: what a test has queued, or else what usually happens.
pub(super) struct World {
    pub(super) now: Now,
    pub(super) members: usize,
    pub(super) revision: i64,
    pub(super) held: Option<Box<Held>>,
    pub(super) synchronised: Option<Route>,
    pub(super) index: (i64, i64),
    pub(super) queued: VecDeque<(&'static str, Input)>,
    pub(super) messages: VecDeque<ClientMessage>,
    pub(super) lines: Vec<String>,
}

impl World {
    /// A journal of one replica that is ready, with bytes [0, 10) in its store and a spool of
    /// [10, 20).
    pub(super) fn new() -> Self {
        let mut spool = Spool::new("a/journal");
        let empty = Fragment {
            begin: 10,
            end: 10,
            compression_codec: 1,
            ..spool.fragment().clone()
        };
        let registers = LabelSet::from_pairs([("author", "me")]);
        spool.apply(&empty, &registers, start().wall);
        spool.append(0, b"0123456789").unwrap();
        let next = spool.next();
        spool.apply(&next, &registers, start().wall);
        spool.acknowledge(20);
        Self {
            now: start(),
            members: 1,
            revision: 5,
            held: Some(Held::new(spool)),
            synchronised: Some(route(1)),
            index: (0, 20),
            queued: VecDeque::new(),
            messages: VecDeque::new(),
            lines: Vec::new(),
        }
    }

    /// One of these members, to which no pipeline exists yet.
    pub(super) fn of(members: usize) -> Self {
        Self {
            members,
            synchronised: None,
            ..Self::new()
        }
    }

    /// The next output of this name is answered so.
    pub(super) fn on(mut self, output: &'static str, input: Input) -> Self {
        self.queued.push_back((output, input));
        self
    }

    pub(super) fn on_resolve(self, change: impl FnOnce(&mut Resolution)) -> Self {
        let queued = self
            .queued
            .iter()
            .filter(|(name, _)| *name == "resolve")
            .count();
        let revision = self.revision + i64::try_from(queued).unwrap();
        let mut resolution = resolution(self.members, revision);
        change(&mut resolution);
        self.on("resolve", Input::Resolved(Ok(Box::new(resolution))))
    }

    pub(super) fn says(mut self, chunks: &[&'static str]) -> Self {
        for chunk in chunks {
            self.messages.push_back(match *chunk {
                "." => ClientMessage::CommitIntent,
                "?" => ClientMessage::NotContent,
                "end" => ClientMessage::End,
                content => ClientMessage::Content(Bytes::from_static(content.as_bytes())),
            });
        }
        self
    }

    pub(super) fn usual(&mut self, output: Output) -> Option<Input> {
        Some(match output {
            Output::Resolve { min_revision, .. } => {
                self.revision = self.revision.max(min_revision);
                Input::Resolved(Ok(Box::new(resolution(self.members, self.revision))))
            }
            Output::AcquirePipeline { .. } => Input::Acquired(Box::new(Acquired {
                held: self.held.take().expect("the append released what it held"),
                synchronised: self.synchronised.clone(),
                acknowledged: 20,
            })),
            Output::StartPipeline { .. } => Input::Started(Ok(Closed {
                acknowledged: 20,
                is_local_lost: false,
            })),
            Output::Cut(_) => Input::Cut,
            Output::Sync { .. } => Input::Synced(Ok(SyncOutcome::Agreed)),
            Output::UpdateAssignments { .. } | Output::UpdateSuspend { .. } => {
                Input::Updated(Ok(Updated::Done {
                    revision: self.revision + 1,
                }))
            }
            Output::InspectStore | Output::AwaitStore { .. } => {
                Input::Store(ready(self.index.0, self.index.1))
            }
            Output::Propose { .. } => Input::Proposed(Ok(())),
            Output::ReadMessage { until } => {
                let Some(message) = self.messages.pop_front() else {
                    self.now.instant = until;
                    return Some(Input::TimedOut);
                };
                Input::Message(message)
            }
            Output::Delay { until } => {
                self.now.instant = until;
                Input::TimedOut
            }
            Output::Forward { .. } => Input::Forwarded(Ok(())),
            Output::Release { held, .. } => {
                self.held = Some(held);
                Input::Released
            }
            Output::AwaitAcks { .. } => Input::Acknowledged(Ok(())),
            Output::Proxy { .. } | Output::Done(_) => return None,
        })
    }

    /// Runs an append to its end, and returns what it asked for.
    pub(super) fn run(mut self, request: AppendRequest) -> Vec<String> {
        let mut fsm = AppendFsm::new(request, Limits::default());
        let mut input = Input::Start;
        loop {
            let output = fsm.step(self.now, input);
            self.lines.push(describe(&output, self.now));
            let name = self
                .lines
                .last()
                .unwrap()
                .split([' ', ':', ','])
                .next()
                .unwrap()
                .to_owned();
            let at = self.queued.iter().position(|(output, _)| *output == name);
            let queued = at
                .and_then(|at| self.queued.remove(at))
                .map(|(_, input)| input);
            if let (Some(Input::TimedOut), Some(until)) = (&queued, until(&output)) {
                self.now.instant = until;
            }
            if let (Some(Input::Resolved(Ok(resolution))), Output::Resolve { .. }) =
                (&queued, &output)
            {
                self.revision = resolution.revision();
            }
            match queued.or_else(|| self.usual(output)) {
                Some(next) => input = next,
                None => break,
            }
        }
        assert!(fsm.is_finished());
        assert!(self.held.is_some(), "what was held is back");
        let queued: Vec<_> = self.queued.iter().map(|(name, _)| name).collect();
        assert!(
            queued.is_empty(),
            "nothing asked for {queued:?} in {:#?}",
            self.lines
        );
        self.lines
    }
}

pub(super) fn until(output: &Output) -> Option<Instant> {
    match output {
        Output::Resolve { until, .. }
        | Output::AcquirePipeline { until }
        | Output::StartPipeline { until, .. }
        | Output::Sync { until, .. }
        | Output::UpdateAssignments { until, .. }
        | Output::UpdateSuspend { until, .. }
        | Output::AwaitStore { until }
        | Output::ReadMessage { until }
        | Output::Delay { until }
        | Output::AwaitAcks { until } => Some(*until),
        Output::Cut(_)
        | Output::InspectStore
        | Output::Propose { .. }
        | Output::Forward { .. }
        | Output::Release { .. }
        | Output::Proxy { .. }
        | Output::Done(_) => None,
    }
}

pub(super) fn describe(output: &Output, now: Now) -> String {
    let wait = |until: &Instant| format!("{:?}", until.saturating_duration_since(now.instant));
    match output {
        Output::Resolve {
            min_revision,
            until,
        } => {
            format!("resolve at {min_revision}, {}", wait(until))
        }
        Output::AcquirePipeline { until } => format!("acquire, {}", wait(until)),
        Output::StartPipeline { until, .. } => format!("start, {}", wait(until)),
        Output::Cut(cut) => format!("cut to {} from {}", cut.fragment.end, cut.dropped_end),
        Output::Sync {
            proposal,
            rolled,
            until,
        } => {
            format!("sync {}, {}", span(proposal, rolled.is_some()), wait(until))
        }
        Output::UpdateAssignments { until, .. } => format!("assign, {}", wait(until)),
        Output::UpdateSuspend { suspend, until } => {
            let level = suspend.level().as_str_name();
            format!("suspend {level} at {}, {}", suspend.offset, wait(until))
        }
        Output::InspectStore => "inspect".into(),
        Output::AwaitStore { until } => format!("store, {}", wait(until)),
        Output::Propose {
            proposal,
            purpose,
            rolled,
        } => {
            format!("propose {purpose:?} {}", span(proposal, rolled.is_some()))
        }
        Output::ReadMessage { until } => format!("read, {}", wait(until)),
        Output::Delay { until } => format!("delay, {}", wait(until)),
        Output::Forward {
            content,
            delta,
            fragment_begin,
            position,
        } => {
            format!("forward {content:?} delta {delta}, file {fragment_begin} at {position}")
        }
        Output::Release {
            held,
            keep_pipeline,
        } => {
            let pipeline = if *keep_pipeline { "keep" } else { "close" };
            format!("release at {}, {pipeline}", held.spool.end())
        }
        Output::AwaitAcks { until } => format!("acks, {}", wait(until)),
        Output::Proxy { header } => format!("proxy to {}", header.process_id.suffix),
        Output::Done(result) => match &**result {
            Ok(response) => {
                let status = response.status().as_str_name();
                let commit = response.commit.as_ref().map_or_else(String::new, |commit| {
                    format!(
                        " [{}, {}) chunks {}",
                        commit.begin, commit.end, response.total_chunks
                    )
                });
                let delayed = match response.delayed_chunks {
                    0 => String::new(),
                    count => format!(" delayed {count}"),
                };
                let registers = response.registers.as_ref().map_or_else(String::new, |set| {
                    let registers = set
                        .labels
                        .iter()
                        .map(|l| format!(" {}={}", l.name, l.value));
                    registers.collect()
                });
                let health = &response.store_health_error;
                format!("done: {status}{commit}{delayed}{registers} {health}")
                    .trim()
                    .to_owned()
            }
            Err(error) => format!("done: error: {error}"),
        },
    }
}

pub(super) fn span(proposal: &Proposal, is_rolled: bool) -> String {
    let Proposal {
        fragment,
        registers,
    } = proposal;
    let names: Vec<_> = registers
        .labels
        .iter()
        .map(|l| format!("{}={}", l.name, l.value))
        .collect();
    let rolled = if is_rolled { " rolled" } else { "" };
    format!(
        "[{}, {}) {}{rolled}",
        fragment.begin,
        fragment.end,
        names.join(",")
    )
}

pub(super) fn with(change: impl FnOnce(&mut AppendRequest)) -> AppendRequest {
    let mut request = AppendRequest {
        journal: "a/journal".into(),
        ..AppendRequest::default()
    };
    change(&mut request);
    request
}

pub(super) fn plain() -> AppendRequest {
    with(|_| {})
}

/// The lines after the one that begins so.
pub(super) fn after(lines: &[String], begin: &str) -> Vec<String> {
    let at = lines.iter().position(|line| line.starts_with(begin));
    lines[at.unwrap_or_else(|| panic!("{begin} in {lines:#?}")) + 1..].to_vec()
}

pub(super) fn last(lines: &[String]) -> &str {
    lines.last().unwrap()
}

pub(super) const SET_UP: [&str; 3] = ["resolve at 0, 30s", "acquire, 60s", "inspect"];

pub(super) fn content(text: &'static str) -> ClientMessage {
    ClientMessage::Content(Bytes::from_static(text.as_bytes()))
}

pub(super) fn suspended(resolution: &mut Resolution, level: Level, offset: i64) {
    let suspend = journal_spec::Suspend {
        level: level.into(),
        offset,
    };
    resolution.spec.as_mut().unwrap().suspend = Some(suspend);
}
