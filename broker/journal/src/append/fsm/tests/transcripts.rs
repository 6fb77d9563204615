use std::collections::VecDeque;

use gazette_protocol::{
    Fragment, LabelSelector, LabelSet, append_request::Suspend, journal_spec::suspend::Level,
};

use super::*;
use crate::{
    append::{HostFailure, Update},
    fragment::spool::Outcome,
    pipeline::{Closed, PeerFailure, Proposal, SyncOutcome},
    resolve::ResolveError,
};

/// Answers what an append asks for: what a test has queued, or else what usually happens.
struct World {
    now: Now,
    members: usize,
    revision: i64,
    held: Option<Box<Held>>,
    synchronised: Option<Route>,
    index: (i64, i64),
    queued: VecDeque<(&'static str, Input)>,
    messages: VecDeque<ClientMessage>,
    lines: Vec<String>,
}

impl World {
    /// A journal of one replica that is ready, with bytes [0, 10) in its store and a spool of
    /// [10, 20).
    fn new() -> Self {
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
    fn of(members: usize) -> Self {
        Self {
            members,
            synchronised: None,
            ..Self::new()
        }
    }

    /// The next output of this name is answered so.
    fn on(mut self, output: &'static str, input: Input) -> Self {
        self.queued.push_back((output, input));
        self
    }

    fn on_resolve(self, change: impl FnOnce(&mut Resolution)) -> Self {
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

    fn says(mut self, chunks: &[&'static str]) -> Self {
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

    fn usual(&mut self, output: Output) -> Option<Input> {
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
    fn run(mut self, request: AppendRequest) -> Vec<String> {
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

fn describe(output: &Output, now: Now) -> String {
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

fn span(proposal: &Proposal, is_rolled: bool) -> String {
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

fn with(change: impl FnOnce(&mut AppendRequest)) -> AppendRequest {
    let mut request = AppendRequest {
        journal: "a/journal".into(),
        ..AppendRequest::default()
    };
    change(&mut request);
    request
}

fn plain() -> AppendRequest {
    with(|_| {})
}

/// The lines after the one that begins so.
fn after(lines: &[String], begin: &str) -> Vec<String> {
    let at = lines.iter().position(|line| line.starts_with(begin));
    lines[at.unwrap_or_else(|| panic!("{begin} in {lines:#?}")) + 1..].to_vec()
}

fn last(lines: &[String]) -> &str {
    lines.last().unwrap()
}

const SET_UP: [&str; 3] = ["resolve at 0, 30s", "acquire, 60s", "inspect"];

#[test]
fn an_append_goes_from_its_request_to_its_response() {
    let lines = World::new().says(&["abc", "de", ".", "end"]).run(plain());
    assert_eq!(lines[..3], SET_UP);
    assert_eq!(
        lines[3..],
        [
            "read, 1s",
            "forward b\"abc\" delta 0, file 10 at 10",
            "read, 1s",
            "forward b\"de\" delta 3, file 10 at 13",
            "read, 1s",
            "read, 1s",
            "propose Commit [10, 25) author=me",
            "release at 25, keep",
            "acks, 60s",
            "done: OK [20, 25) chunks 3 author=me",
        ]
    );
}

#[test]
fn an_append_of_nothing_is_a_barrier() {
    let lines = World::new().says(&[".", "end"]).run(plain());
    assert_eq!(
        lines[3..],
        [
            "read, 1s",
            "read, 1s",
            "propose Commit [10, 20) author=me",
            "release at 20, keep",
            "acks, 60s",
            "done: OK [20, 20) chunks 1 author=me",
        ]
    );
}

#[test]
fn every_deviation_from_the_commit_protocol_rolls_back() {
    let end = |messages: &[&'static str]| {
        let lines = World::new().says(messages).run(plain());
        lines[lines.len() - 3..].to_vec()
    };
    let rolled_back = |error: &str| {
        let error = format!("done: error: {error}; nothing was appended");
        [
            "propose RollBack [10, 20) author=me",
            "release at 20, keep",
            &error,
        ]
        .map(String::from)
    };
    let unexpected = "the stream ended before an empty chunk announced the commit";
    let expected_end = "expected the end of the stream after the empty chunk";
    let expected_content = "expected a chunk of content";
    assert_eq!(end(&["abc", "end"]), rolled_back(unexpected));
    assert_eq!(end(&["abc", ".", "de"]), rolled_back(expected_end));
    assert_eq!(end(&["abc", ".", "."]), rolled_back(expected_end));
    assert_eq!(end(&["abc", ".", "?"]), rolled_back(expected_end));
    assert_eq!(end(&["abc", "?"]), rolled_back(expected_content));
    // Where nothing was forwarded, there is nothing that peers must drop.
    assert_eq!(end(&["end"])[1..], rolled_back(unexpected)[1..]);
    assert_eq!(end(&["?"])[0], "read, 1s");
}

#[test]
fn a_client_that_goes_away_is_rolled_back_but_not_after_its_commit() {
    let world = World::new()
        .says(&["abc"])
        .on("read", Input::Message(content("abc")));
    let lines = world.on("read", Input::Cancelled).run(plain());
    assert_eq!(
        lines[lines.len() - 3..],
        [
            "propose RollBack [10, 20) author=me",
            "release at 20, keep",
            "done: error: the client went away before it committed",
        ]
    );
    let world = World::new().says(&["abc", ".", "end"]);
    let lines = world.on("acks", Input::Cancelled).run(plain());
    assert_eq!(
        lines[lines.len() - 3..lines.len() - 1],
        ["acks, 60s", "acks, 60s"]
    );
    assert_eq!(last(&lines), "done: OK [20, 23) chunks 2 author=me");
}

fn content(text: &'static str) -> ClientMessage {
    ClientMessage::Content(Bytes::from_static(text.as_bytes()))
}

#[test]
fn registers_change_by_subtraction_and_then_union_and_only_with_content() {
    let request = with(|request| {
        request.subtract_registers = Some(LabelSet::from_pairs([("author", "me")]));
        request.union_registers = Some(LabelSet::from_pairs([("author", "you"), ("epoch", "2")]));
    });
    let lines = World::new().says(&["abc", ".", "end"]).run(request.clone());
    assert_eq!(
        after(&lines, "forward")[2..],
        [
            "propose Commit [10, 23) author=you,epoch=2",
            "release at 23, keep",
            "acks, 60s",
            "done: OK [20, 23) chunks 2 author=you epoch=2",
        ]
    );
    let lines = World::new().says(&[".", "end"]).run(request);
    assert_eq!(
        last(&lines),
        "done: error: a change of registers needs content; nothing was appended"
    );
}

#[test]
fn a_register_mismatch_tells_the_registers() {
    let request = with(|request| {
        request.check_registers = Some(LabelSelector::parse("author=you").unwrap());
    });
    let lines = World::new().run(request);
    assert_eq!(
        lines[3..],
        ["release at 20, keep", "done: REGISTER_MISMATCH author=me"]
    );
}

#[test]
fn an_offset_must_be_the_greatest_known_and_the_spool_jumps_there() {
    let at = |offset, index_end| {
        let mut world = World::new().says(&["abc", ".", "end"]);
        world.index.1 = index_end;
        let lines = world.run(with(|request| request.offset = offset));
        lines[3..].to_vec()
    };
    assert_eq!(last(&at(20, 20)), "done: OK [20, 23) chunks 2 author=me");
    assert_eq!(last(&at(21, 20)), "done: WRONG_APPEND_OFFSET");
    assert_eq!(last(&at(0, 50)), "done: INDEX_HAS_GREATER_OFFSET");
    assert_eq!(last(&at(20, 50)), "done: WRONG_APPEND_OFFSET");
    let lines = at(50, 50);
    assert_eq!(
        lines[..2],
        ["sync [50, 50) author=me rolled, 30s", "inspect"]
    );
    assert_eq!(last(&lines), "done: OK [50, 53) chunks 2 author=me");
}

#[test]
fn content_is_not_allowed_where_the_journal_or_the_control_forbids_it() {
    let world = || {
        World::new().says(&["abc"]).on_resolve(|resolution| {
            let spec = resolution.spec.as_mut().unwrap();
            spec.flags = journal_spec::Flag::ORdonly as u32;
        })
    };
    let lines = world().run(plain());
    assert_eq!(
        lines[3..],
        ["read, 1s", "release at 20, keep", "done: NOT_ALLOWED"]
    );

    let mut barrier = world();
    barrier.messages.clear();
    let lines = barrier.says(&[".", "end"]).run(plain());
    assert_eq!(
        last(&lines),
        "done: OK [20, 20) chunks 1 author=me",
        "a barrier is allowed"
    );

    let keep = with(|request| request.suspend = Suspend::Keep.into());
    assert_eq!(
        last(&World::new().says(&["abc"]).run(keep)),
        "done: NOT_ALLOWED"
    );
}

#[test]
fn a_roll_is_proposed_without_acknowledgement_before_the_content() {
    let flush = with(|request| request.flush = true);
    let lines = World::new().says(&["abc", ".", "end"]).run(flush.clone());
    assert_eq!(
        lines[3..],
        [
            "propose Roll [20, 20) author=me rolled",
            "read, 1s",
            "forward b\"abc\" delta 0, file 20 at 0",
            "read, 1s",
            "read, 1s",
            "propose Commit [20, 23) author=me",
            "release at 23, keep",
            "acks, 60s",
            "done: OK [20, 23) chunks 2 author=me",
        ]
    );
    // A roll-back drops the content, but not the roll.
    let lines = World::new().says(&["end"]).run(flush);
    assert_eq!(
        lines[5..7],
        ["propose RollBack [20, 20) author=me", "release at 20, keep"]
    );
}

#[test]
fn a_new_pipeline_is_synchronised_first() {
    let lines = World::of(3).says(&[".", "end"]).run(plain());
    assert_eq!(
        lines[..5],
        [
            "resolve at 0, 30s",
            "acquire, 60s",
            "start, 30s",
            "sync [10, 20) author=me, 30s",
            "inspect",
        ]
    );
}

#[test]
fn replicas_that_are_ahead_are_followed_with_their_registers() {
    let ahead = SyncOutcome::RollTo {
        offset: 90,
        registers: Some(LabelSet::from_pairs([("author", "you")])),
    };
    let joined = SyncOutcome::RollTo {
        offset: 90,
        registers: None,
    };
    let world = World::of(3)
        .on("sync", Input::Synced(Ok(ahead)))
        .on("sync", Input::Synced(Ok(joined)))
        .says(&["x", ".", "end"]);
    let lines = world.run(plain());
    assert_eq!(
        after(&lines, "start")[..4],
        [
            "sync [10, 20) author=me, 30s",
            "sync [90, 90) author=you rolled, 30s",
            "sync [90, 90) author=you rolled, 30s",
            "inspect",
        ]
    );
    assert_eq!(last(&lines), "done: OK [90, 91) chunks 2 author=you");
}

#[test]
fn replicas_that_never_agree_end_the_append() {
    let mut world = World::of(2);
    for _ in 0..setup::SYNC_ATTEMPTS_MAX {
        let joined = SyncOutcome::RollTo {
            offset: 20,
            registers: None,
        };
        world = world.on("sync", Input::Synced(Ok(joined)));
    }
    let lines = world.run(plain());
    assert_eq!(
        lines[lines.len() - 2..],
        [
            "release at 20, close",
            "done: error: replication: replicas do not agree after 8 proposals; \
             nothing was appended",
        ]
    );
}

#[test]
fn a_newer_route_is_resolved_at_its_revision_without_the_pipeline() {
    let newer = Input::Synced(Ok(SyncOutcome::NewerRoute { revision: 77 }));
    let lines = World::of(2)
        .on("sync", newer)
        .says(&[".", "end"])
        .run(plain());
    assert_eq!(
        after(&lines, "sync")[..4],
        [
            "release at 20, close",
            "resolve at 77, 30s",
            "acquire, 60s",
            "start, 30s"
        ]
    );
    assert_eq!(last(&lines), "done: OK [20, 20) chunks 1 author=me");
}

#[test]
fn what_the_disk_lost_is_cut_before_replicas_synchronise() {
    let mut world = World::of(1);
    let spool = &mut world.held.as_mut().unwrap().spool;
    spool.append(0, b"lost").unwrap();
    let next = spool.next();
    let registers = spool.registers().clone();
    let applied = spool.apply(&next, &registers, start().wall);
    assert_eq!(applied.outcome, Outcome::Committed { bytes: 4 });
    let lost = Closed {
        acknowledged: 20,
        is_local_lost: true,
    };
    let world = world
        .on("start", Input::Started(Ok(lost)))
        .says(&["abc", ".", "end"]);
    let lines = world.run(plain());
    let expected = ["cut to 20 from 24", "sync [10, 20) author=me, 30s"];
    assert_eq!(after(&lines, "start")[..2], expected);
    assert_eq!(last(&lines), "done: OK [20, 23) chunks 2 author=me");
}

#[test]
fn assignments_are_made_consistent_and_lost_races_look_again_later() {
    let stale = |resolution: &mut Resolution| resolution.stored_routes[0] = Route::unrouted();
    let world = World::new()
        .on_resolve(stale)
        .on_resolve(stale)
        .on("assign", Input::Updated(Ok(Updated::Lost)))
        .on("assign", Input::Updated(Ok(Updated::Done { revision: 9 })))
        .says(&[".", "end"]);
    let lines = world.run(plain());
    assert_eq!(
        lines[2..7],
        [
            "assign, 15s",
            "resolve at 6, 30s",
            "assign, 15s",
            "resolve at 9, 30s",
            "inspect"
        ]
    );
    assert_eq!(last(&lines), "done: OK [20, 20) chunks 1 author=me");

    let failure = Input::Updated(Err(HostFailure("no leader".into())));
    let lines = World::new()
        .on_resolve(stale)
        .on("assign", failure)
        .run(plain());
    let expected = "done: error: write the route into assignments: no leader";
    assert_eq!(last(&lines), expected);
}

#[test]
fn replicas_are_counted_before_an_append_is_passed_on() {
    let elsewhere = |resolution: &mut Resolution| {
        resolution.is_local = false;
        resolution.header.process_id = process_spec::Id::new("zone", "other");
    };
    let lines = World::of(2).on_resolve(elsewhere).run(plain());
    assert_eq!(lines, ["resolve at 0, 30s", "proxy to other"]);

    let few = World::of(2).on_resolve(|resolution| {
        elsewhere(resolution);
        resolution.desired_replication = 3;
    });
    assert_eq!(
        few.run(plain()),
        ["resolve at 0, 30s", "done: INSUFFICIENT_JOURNAL_BROKERS"]
    );

    let many = World::of(2)
        .on_resolve(|resolution| {
            elsewhere(resolution);
            resolution.desired_replication = 1;
        })
        .on_resolve(elsewhere);
    let lines = many.run(plain());
    assert_eq!(
        lines,
        ["resolve at 0, 30s", "resolve at 6, 30s", "proxy to other"]
    );

    // The primary counts them too, after it wrote the route; and it holds nothing meanwhile.
    let many = World::new().on_resolve(|resolution| resolution.desired_replication = 0);
    let lines = many.says(&[".", "end"]).run(plain());
    assert_eq!(
        lines[2..5],
        ["release at 20, keep", "resolve at 6, 30s", "acquire, 60s"]
    );
}

#[test]
fn a_primary_that_moved_away_gives_the_pipeline_up() {
    let stale = |resolution: &mut Resolution| resolution.stored_routes[0] = Route::unrouted();
    let world = World::new().on_resolve(stale).on_resolve(|resolution| {
        resolution.is_local = false;
        resolution.header.process_id = process_spec::Id::new("zone", "other");
    });
    let lines = world.run(plain());
    assert_eq!(
        after(&lines, "assign"),
        [
            "resolve at 6, 30s",
            "release at 20, close",
            "proxy to other"
        ]
    );
}

#[test]
fn an_append_to_a_store_that_is_not_ready_holds_nothing() {
    let mut loading = ready(0, 0);
    loading.index.is_refreshed = false;
    let unhealthy = StoreFacts {
        health: Health::Unhealthy("no route".into()),
        ..ready(0, 20)
    };
    let unusable = StoreFacts {
        health: Health::Unusable("no key".into()),
        ..ready(0, 20)
    };

    let world = World::new()
        .on("inspect", Input::Store(loading.clone()))
        .on("store", Input::Store(unhealthy.clone()))
        .says(&[".", "end"]);
    let lines = world.run(plain());
    assert_eq!(
        lines[3..7],
        [
            "release at 20, keep",
            "store, 30s",
            "store, 30s",
            "acquire, 60s"
        ]
    );
    assert_eq!(last(&lines), "done: OK [20, 20) chunks 1 author=me");

    let ends = |first: &StoreFacts, second: Input| {
        let world = World::new()
            .on("inspect", Input::Store(first.clone()))
            .on("store", second);
        world.run(plain()).last().unwrap().clone()
    };
    assert_eq!(
        ends(&loading, Input::TimedOut),
        "done: error: gave up waiting for the first listing of the journal's stores after 30s; \
         next: look whether the journal's stores can be listed, and try again"
    );
    let expected = "done: FRAGMENT_STORE_UNHEALTHY no route";
    assert_eq!(ends(&unhealthy, Input::TimedOut), expected);
    let expected = "done: FRAGMENT_STORE_UNHEALTHY no key";
    assert_eq!(ends(&loading, Input::Store(unusable)), expected);

    let invalidated = World::new()
        .on("inspect", Input::Store(loading))
        .on("store", Input::Invalidated)
        .says(&[".", "end"]);
    let lines = invalidated.run(plain());
    assert_eq!(after(&lines, "store")[0], "resolve at 5, 30s");
}

#[test]
fn a_journal_without_stores_has_no_store_to_be_healthy() {
    let unknown = StoreFacts {
        health: Health::Unknown,
        ..ready(0, 20)
    };
    let world = World::new()
        .on_resolve(|resolution| resolution.spec.as_mut().unwrap().fragment.stores.clear())
        .on("inspect", Input::Store(unknown))
        .says(&[".", "end"]);
    assert_eq!(
        last(&world.run(plain())),
        "done: OK [20, 20) chunks 1 author=me"
    );
}

fn suspended(resolution: &mut Resolution, level: Level, offset: i64) {
    let suspend = journal_spec::Suspend {
        level: level.into(),
        offset,
    };
    resolution.spec.as_mut().unwrap().suspend = Some(suspend);
}

#[test]
fn any_broker_resumes_a_journal_that_is_fully_suspended() {
    let full = |resolution: &mut Resolution| {
        suspended(resolution, Level::Full, 44);
        resolution.status = Status::Suspended;
        resolution.is_local = false;
    };
    let no_primary = |resolution: &mut Resolution| {
        resolution.status = Status::NoJournalPrimaryBroker;
        resolution.is_local = false;
    };
    let lines = World::new()
        .on_resolve(full)
        .on_resolve(no_primary)
        .run(plain());
    assert_eq!(
        lines,
        [
            "resolve at 0, 30s",
            "suspend NONE at 44, 15s",
            "resolve at 6, 30s",
            "done: NO_JOURNAL_PRIMARY_BROKER",
        ]
    );
    let pulse = with(|request| request.suspend = Suspend::NoResume.into());
    let lines = World::new().on_resolve(full).run(pulse);
    assert_eq!(lines, ["resolve at 0, 30s", "done: SUSPENDED"]);
}

#[test]
fn a_journal_that_is_partly_suspended_is_resumed_at_its_end() {
    let world = World::new()
        .on_resolve(|resolution| suspended(resolution, Level::Partial, 20))
        .on_resolve(|resolution| {
            suspended(resolution, Level::None, 20);
            resolution.desired_replication = 3;
        });
    let lines = world.run(plain());
    assert_eq!(
        lines[3..],
        [
            "suspend NONE at 20, 15s",
            "resolve at 6, 30s",
            "release at 20, keep",
            "done: INSUFFICIENT_JOURNAL_BROKERS",
        ]
    );
}

#[test]
fn a_suspension_rolls_the_spool_and_is_answered_as_suspended() {
    let world = World::new().on_resolve(|_| {}).on_resolve(|resolution| {
        suspended(resolution, Level::Partial, 20);
    });
    let lines = world.run(with(|request| request.suspend = Suspend::Now.into()));
    assert_eq!(
        lines[3..],
        [
            "sync [20, 20) author=me rolled, 30s",
            "inspect",
            "suspend PARTIAL at 20, 15s",
            "resolve at 6, 30s",
            "inspect",
            "release at 20, keep",
            "done: SUSPENDED",
        ]
    );
}

#[test]
fn the_offset_of_a_suspension_is_a_floor() {
    let floor = |resolution: &mut Resolution| suspended(resolution, Level::None, 64);
    let world = World::new().on_resolve(floor).says(&["x", ".", "end"]);
    let lines = world.run(plain());
    assert_eq!(lines[3], "sync [64, 64) author=me rolled, 30s");
    assert_eq!(last(&lines), "done: OK [64, 65) chunks 2 author=me");
}

#[test]
fn an_invalidated_route_is_resolved_anew_and_what_is_held_is_carried_along() {
    let world = World::of(2)
        .on("acquire", Input::Invalidated)
        .on("start", Input::Invalidated)
        .says(&[".", "end"]);
    let lines = world.run(plain());
    assert_eq!(
        lines[..7],
        [
            "resolve at 0, 30s",
            "acquire, 60s",
            "resolve at 5, 30s",
            "acquire, 60s",
            "start, 30s",
            "resolve at 5, 30s",
            "start, 30s",
        ]
    );
}

#[test]
fn a_request_that_was_passed_on_waits_for_the_revision_of_its_broker() {
    let request = with(|request| {
        request.header = Some(resolution(1, 12).header);
        request.min_etcd_revision = 3;
    });
    let lines = World::new().says(&[".", "end"]).run(request);
    assert_eq!(lines[0], "resolve at 12, 30s");
}

#[test]
fn every_wait_ends_with_what_it_was_for() {
    let timed_out = |members, output| {
        let world = World::of(members).on(output, Input::TimedOut);
        let lines = world.says(&["x", ".", "end"]).run(plain());
        lines[lines.len() - 2..].join(" / ")
    };
    insta::assert_snapshot!(
        ["resolve", "acquire", "start", "sync", "acks"]
            .map(|o| timed_out(2, o))
            .join("\n")
    );
}

#[test]
fn set_up_as_a_whole_ends() {
    let mut world = World::new();
    for _ in 0..5 {
        world = world.on_resolve(|resolution| resolution.desired_replication = 0);
    }
    // Each of them takes a while.
    let mut fsm = AppendFsm::new(plain(), Limits::default());
    let mut output = fsm.step(world.now, Input::Start);
    for _ in 0..100 {
        world.now.instant += Duration::from_secs(25);
        if let Output::Done(result) = &output {
            let expected = "gave up waiting for surplus replicas to leave after 150s";
            assert!(
                result
                    .as_ref()
                    .as_ref()
                    .unwrap_err()
                    .to_string()
                    .starts_with(expected)
            );
            return;
        }
        let input = if let Output::Resolve { .. } = output {
            world.queued.pop_front().map(|(_, input)| input)
        } else {
            world.usual(output)
        };
        output = fsm.step(world.now, input.expect("it asks no more often"));
    }
    panic!("it goes on for ever");
}

#[test]
fn a_client_must_send() {
    let lines = World::new().says(&["abc"]).run(plain());
    assert_eq!(
        last(&lines),
        "done: error: the client did not sustain 65536 bytes per second; nothing was appended; \
         next: have the content ready before the append begins"
    );
    let limits = Limits {
        min_append_rate: 0,
        ..Limits::default()
    };
    let mut world = World::new();
    let mut fsm = AppendFsm::new(plain(), limits);
    let mut output = fsm.step(world.now, Input::Start);
    while let Some(input) = world.usual(output.clone()) {
        output = fsm.step(world.now, input);
    }
    let expected = "done: error: the client sent nothing for 60s; nothing was appended";
    assert_eq!(describe(&output, world.now), expected);
}

#[test]
fn a_maximum_rate_delays_chunks_until_the_route_changes() {
    let limited = |resolution: &mut Resolution| {
        resolution.spec.as_mut().unwrap().max_append_rate = 2;
    };
    let world = || {
        World::new()
            .on_resolve(limited)
            .says(&["abc", "defghi", ".", "end"])
    };
    let lines = world().run(plain());
    assert_eq!(
        lines[3..9],
        [
            "read, 1s",
            "delay, 500ms",
            "forward b\"abc\" delta 0, file 10 at 10",
            "read, 1s",
            "delay, 3s",
            "forward b\"defghi\" delta 3, file 10 at 13",
        ]
    );
    assert_eq!(
        last(&lines),
        "done: OK [20, 29) chunks 3 delayed 2 author=me"
    );

    let lines = world().on("delay", Input::Invalidated).run(plain());
    assert_eq!(
        last(&lines),
        "done: OK [20, 29) chunks 3 delayed 1 author=me"
    );
    let lines = world().on("delay", Input::Cancelled).run(plain());
    assert_eq!(
        last(&lines),
        "done: error: the client went away before it committed"
    );
}

#[test]
fn failures_say_whether_the_append_may_have_taken_effect() {
    let broken = || PipelineError::Peer {
        peer: process_spec::Id::new("zone", "member-1"),
        failure: PeerFailure::Broken,
    };
    let full = || PipelineError::Local(LocalFailure::NoSpace);
    let outcome = |members, output, input| {
        let world = World::of(members).on(output, input);
        let lines = world.says(&["x", ".", "end"]).run(plain());
        after(&lines, output).join(" / ")
    };
    let before = [
        ("sync", Input::Synced(Err(broken()))),
        ("forward", Input::Forwarded(Err(broken()))),
        ("forward", Input::Forwarded(Err(full()))),
        ("start", Input::Started(Err(broken()))),
    ];
    let before = before.map(|(output, input)| outcome(2, output, input));
    let after = [
        outcome(2, "acks", Input::Acknowledged(Err(broken()))),
        outcome(2, "acks", Input::Acknowledged(Err(full()))),
        outcome(1, "acks", Input::Acknowledged(Err(full()))),
        outcome(1, "propose", Input::Proposed(Err(full()))),
        outcome(2, "propose", Input::Proposed(Err(broken()))),
    ];
    let all: Vec<_> = before.into_iter().chain(after).collect();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_resolution_that_fails_ends_the_append() {
    let world = World::new().on("resolve", Input::Resolved(Err(ResolveError::Stopped)));
    let expected = "done: error: resolve: this broker is stopping and serves its replicas no \
                    longer; next: try again";
    assert_eq!(last(&world.run(plain())), expected);
}

#[test]
fn offsets_end() {
    let floor = |resolution: &mut Resolution| suspended(resolution, Level::None, i64::MAX - 2);
    let world = World::new().on_resolve(floor).says(&["ab", "c"]);
    assert_eq!(
        last(&world.run(plain())),
        "done: error: the content would end beyond the greatest offset; nothing was appended"
    );
}

#[test]
fn an_append_that_is_abandoned_gives_back_what_it_held() {
    let mut world = World::new().says(&["abc"]);
    let mut fsm = AppendFsm::new(plain(), Limits::default());
    let mut output = fsm.step(world.now, Input::Start);
    while !matches!(output, Output::Forward { .. }) {
        let input = world.usual(output).unwrap();
        output = fsm.step(world.now, input);
    }
    let held = fsm.abandon().unwrap();
    assert_eq!((held.spool.end(), held.spool.delta()), (20, 0));
    assert!(fsm.is_finished());
    assert!(fsm.abandon().is_none());
}

#[test]
fn the_coordination_store_is_named_by_what_was_asked_of_it() {
    assert_eq!(
        Update::Suspend.to_string(),
        "write the suspension into the spec"
    );
}
