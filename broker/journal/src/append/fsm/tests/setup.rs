//! Transcripts of the set-up: resolution, pipeline, route, replicas, stores, preconditions.

use gazette_protocol::{
    LabelSelector, LabelSet, append_request::Suspend, journal_spec::suspend::Level,
};

use super::{super::setup::SYNC_ATTEMPTS_MAX, world::*, *};
use crate::{
    append::HostFailure,
    fragment::spool::Outcome,
    pipeline::{Closed, SyncOutcome},
};

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
    for _ in 0..SYNC_ATTEMPTS_MAX {
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
