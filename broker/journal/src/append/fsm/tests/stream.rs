//! Transcripts of the content: commit protocol, registers, rolls, rates.

use gazette_protocol::{LabelSet, append_request::Suspend};

use super::{world::*, *};

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
