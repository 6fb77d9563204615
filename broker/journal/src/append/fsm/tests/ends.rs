//! Transcripts of the ends that are no response.

use gazette_protocol::journal_spec::suspend::Level;

use super::{world::*, *};
use crate::{append::Update, pipeline::PeerFailure, resolve::ResolveError};

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
