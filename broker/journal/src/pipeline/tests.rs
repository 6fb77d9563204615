use std::collections::BTreeSet;

use gazette_protocol::{Sha1Sum, Status, header};
use proptest::prelude::*;

use super::*;

fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "results are relative to it")]
    Instant::now()
}

fn id(at: usize) -> process_spec::Id {
    process_spec::Id::new("zone", format!("member-{at}"))
}

/// The header of a route of some members; the first is the primary.
fn header_of(members: usize, revision: i64) -> Header {
    Header {
        process_id: id(0),
        route: Route {
            members: (0..members).map(id).collect(),
            primary: 0,
            endpoints: Vec::new(),
        },
        etcd: header::Etcd {
            cluster_id: 7,
            member_id: 8,
            revision,
            raft_term: 10,
        },
    }
}

fn pipeline(members: usize) -> Pipeline {
    Pipeline::new(header_of(members, 9), 0, PEER_TIMEOUT_DEFAULT)
}

fn fragment(begin: i64, end: i64) -> Fragment {
    let sum = Sha1Sum {
        part1: end.unsigned_abs(),
        ..Sha1Sum::default()
    };
    Fragment {
        journal: "a/journal".into(),
        begin,
        end,
        sum,
        ..Fragment::default()
    }
}

fn proposal(end: i64) -> Proposal {
    Proposal {
        fragment: fragment(0, end),
        registers: LabelSet::default(),
    }
}

fn ok() -> ReplicateResponse {
    ReplicateResponse::default()
}

fn mismatch(begin: i64, end: i64) -> ReplicateResponse {
    ReplicateResponse {
        status: Status::ProposalMismatch.into(),
        fragment: Some(fragment(begin, end)),
        registers: Some(LabelSet::from_pairs([("end", end.to_string())])),
        ..ReplicateResponse::default()
    }
}

fn wrong_route(members: usize, revision: i64) -> ReplicateResponse {
    ReplicateResponse {
        status: Status::WrongRoute.into(),
        header: Some(header_of(members, revision)),
        ..ReplicateResponse::default()
    }
}

fn outputs(pipeline: &mut Pipeline) -> Vec<Output> {
    std::iter::from_fn(|| pipeline.poll_output()).collect()
}

/// Only the ends of rounds, as ticket and whether all agreed.
fn gathered(pipeline: &mut Pipeline) -> Vec<(u64, bool)> {
    let ends = outputs(pipeline)
        .into_iter()
        .filter_map(|output| match output {
            Output::Gathered(Gathered { ticket, result, .. }) => {
                Some((ticket.0, result == Ok(SyncOutcome::Agreed)))
            }
            Output::Send { .. } | Output::CloseSend { .. } => None,
        });
    ends.collect()
}

#[test]
fn without_peers_the_local_replica_alone_decides() {
    let (mut pipeline, now) = (pipeline(1), start());
    let first = pipeline.handle_sync(now, proposal(0)).unwrap();
    assert_eq!(pipeline.synchronised_route(), None);
    pipeline.handle_durable(first, Ok(()));
    assert_eq!(gathered(&mut pipeline), [(0, true)]);
    assert_eq!(pipeline.synchronised_route(), Some(&header_of(1, 9).route));

    pipeline
        .handle_content(Bytes::from_static(b"abc"), 0)
        .unwrap();
    let commit = pipeline.handle_settle(now, proposal(3)).unwrap();
    assert_eq!(
        outputs(&mut pipeline),
        [],
        "nothing is sent, and nothing is certain"
    );
    assert_eq!(pipeline.acknowledged(), 0);
    pipeline.handle_durable(commit, Ok(()));
    assert_eq!(gathered(&mut pipeline), [(1, true)]);
    assert_eq!(pipeline.acknowledged(), 3);
    assert_eq!(pipeline.next_timeout(), None);
}

#[test]
fn a_roll_back_acknowledges_no_commit_before_it() {
    let (mut pipeline, now) = (pipeline(1), start());
    let commit = pipeline.handle_settle(now, proposal(3)).unwrap();
    let roll_back = pipeline.handle_settle(now, proposal(3)).unwrap();
    pipeline.handle_durable(roll_back, Ok(()));
    assert_eq!(gathered(&mut pipeline), []);
    assert_eq!(pipeline.acknowledged(), 0);
    pipeline.handle_durable(commit, Ok(()));
    assert_eq!(gathered(&mut pipeline), [(0, true), (1, true)]);
}

#[test]
fn the_first_message_to_a_peer_introduces_the_primary() {
    let (mut pipeline, now) = (pipeline(3), start());
    assert_eq!(
        pipeline.peers().cloned().collect::<Vec<_>>(),
        [id(1), id(2)]
    );
    pipeline.handle_sync(now, proposal(5)).unwrap();
    let expected = [1, 2].map(|member| Output::Send {
        peer: member - 1,
        request: Box::new(ReplicateRequest {
            header: Some(Header {
                process_id: id(member),
                ..header_of(3, 9)
            }),
            deprecated_journal: "a/journal".into(),
            proposal: Some(fragment(0, 5)),
            registers: Some(LabelSet::default()),
            acknowledge: true,
            ..ReplicateRequest::default()
        }),
    });
    assert_eq!(outputs(&mut pipeline), expected);

    pipeline
        .handle_content(Bytes::from_static(b"x"), 7)
        .unwrap();
    let content = Bytes::from_static(b"x");
    let message = ReplicateRequest {
        content,
        content_delta: 7,
        ..ReplicateRequest::default()
    };
    let expected = [0, 1].map(|peer| Output::Send {
        peer,
        request: Box::new(message.clone()),
    });
    assert_eq!(outputs(&mut pipeline), expected);

    pipeline.handle_roll(&proposal(9)).unwrap();
    let Output::Send { request, .. } = &outputs(&mut pipeline)[0] else {
        panic!("a roll is sent");
    };
    assert!(request.header.is_none() && !request.acknowledge);
    assert_eq!(request.proposal, Some(fragment(0, 9)));
}

#[test]
fn rounds_are_gathered_in_order_from_all_replicas() {
    let (mut pipeline, now) = (pipeline(3), start());
    let tickets = [3, 6].map(|end| pipeline.handle_settle(now, proposal(end)).unwrap());
    pipeline.handle_reply(0, ok());
    pipeline.handle_reply(0, ok());
    for ticket in tickets {
        pipeline.handle_durable(ticket, Ok(()));
    }
    assert_eq!(gathered(&mut pipeline), []);
    pipeline.handle_reply(1, ok());
    assert_eq!(gathered(&mut pipeline), [(0, true)]);
    assert_eq!(pipeline.acknowledged(), 3);
    pipeline.handle_reply(1, ok());
    assert_eq!(gathered(&mut pipeline), [(1, true)]);
    assert_eq!(pipeline.acknowledged(), 6);
}

/// How the answers of two peers to a proposal of [0, 5) at revision 9 end.
fn sync(first: ReplicateResponse, second: ReplicateResponse) -> Result<SyncOutcome, PipelineError> {
    let (mut pipeline, now) = (pipeline(3), start());
    let ticket = pipeline.handle_sync(now, proposal(5)).unwrap();
    pipeline.handle_durable(ticket, Ok(()));
    pipeline.handle_reply(0, first);
    pipeline.handle_reply(1, second);
    let ends = outputs(&mut pipeline)
        .into_iter()
        .find_map(|output| match output {
            Output::Gathered(gathered) => Some(gathered.result),
            Output::Send { .. } | Output::CloseSend { .. } => None,
        });
    ends.unwrap()
}

#[test]
fn the_answers_to_a_synchronisation_say_how_replicas_can_agree() {
    let roll = |offset: i64, adopts: bool| {
        let registers = LabelSet::from_pairs([("end", offset.to_string())]);
        Ok(SyncOutcome::RollTo {
            offset,
            registers: adopts.then_some(registers),
        })
    };
    let newer = |revision| Ok(SyncOutcome::NewerRoute { revision });
    let refused = |at, status| {
        Err(PipelineError::Refused {
            peer: id(at),
            status,
        })
    };

    assert_eq!(sync(ok(), ok()), Ok(SyncOutcome::Agreed));
    // The greatest offset wins, with its registers.
    assert_eq!(sync(mismatch(0, 9), ok()), roll(9, true));
    assert_eq!(sync(mismatch(0, 9), mismatch(7, 12)), roll(12, true));
    assert_eq!(sync(mismatch(7, 12), mismatch(0, 9)), roll(12, true));
    // One that just joined holds nothing; one that is ahead counts for more.
    assert_eq!(sync(ok(), mismatch(5, 5)), roll(5, false));
    assert_eq!(sync(mismatch(5, 5), mismatch(6, 6)), roll(6, true));
    assert_eq!(sync(mismatch(6, 6), mismatch(5, 5)), roll(6, true));
    // Other mismatches have no remedy.
    assert_eq!(
        sync(ok(), mismatch(2, 5)),
        refused(2, Status::ProposalMismatch)
    );
    assert_eq!(
        sync(mismatch(0, 4), ok()),
        refused(1, Status::ProposalMismatch)
    );
    // A route counts if it is another one, and later.
    assert_eq!(sync(wrong_route(2, 10), ok()), newer(10));
    assert_eq!(sync(wrong_route(2, 10), wrong_route(2, 11)), newer(11));
    assert_eq!(
        sync(wrong_route(3, 10), ok()),
        refused(1, Status::WrongRoute)
    );
    assert_eq!(
        sync(wrong_route(2, 9), ok()),
        refused(1, Status::WrongRoute)
    );
    // A roll counts for more than a route.
    assert_eq!(sync(wrong_route(2, 10), mismatch(0, 9)), roll(9, true));
    // Anything else is an error, whatever the others say.
    let not_found = ReplicateResponse {
        status: Status::JournalNotFound.into(),
        ..ReplicateResponse::default()
    };
    assert_eq!(
        sync(mismatch(0, 9), not_found),
        refused(2, Status::JournalNotFound)
    );
}

#[test]
fn a_peer_that_is_late_breaks_the_pipeline() {
    let (mut pipeline, now) = (pipeline(3), start());
    let first = pipeline.handle_settle(now, proposal(3)).unwrap();
    let later = now + Duration::from_secs(1);
    let second = pipeline.handle_settle(later, proposal(6)).unwrap();
    pipeline.handle_durable(second, Ok(()));
    pipeline.handle_durable(first, Ok(()));
    pipeline.handle_reply(0, ok());
    pipeline.handle_reply(0, ok());
    outputs(&mut pipeline);

    let deadline = now + PEER_TIMEOUT_DEFAULT;
    assert_eq!(pipeline.next_timeout(), Some(deadline));
    pipeline.handle_timeout(deadline.checked_sub(Duration::from_millis(1)).unwrap());
    assert_eq!(outputs(&mut pipeline), []);
    pipeline.handle_timeout(deadline);
    let error = PipelineError::Peer {
        peer: id(2),
        failure: PeerFailure::TimedOut,
    };
    let end = |ticket, end| {
        let result = Err(error.clone());
        Output::Gathered(Gathered {
            ticket,
            proposal: proposal(end),
            result,
        })
    };
    let close = Output::CloseSend { peer: 0 };
    assert_eq!(
        outputs(&mut pipeline),
        [close, end(first, 3), end(second, 6)]
    );
    assert_eq!(pipeline.handle_settle(deadline, proposal(9)), Err(error));
    assert_eq!(pipeline.synchronised_route(), None);
    assert_eq!(
        pipeline.closed(),
        Some(Closed {
            acknowledged: 0,
            is_local_lost: false
        })
    );
}

#[test]
fn rounds_that_a_broken_peer_answered_may_still_be_gathered() {
    let (mut pipeline, now) = (pipeline(3), start());
    let first = pipeline.handle_settle(now, proposal(3)).unwrap();
    pipeline.handle_settle(now, proposal(6)).unwrap();
    pipeline.handle_reply(0, ok());
    pipeline.handle_peer_failure(0, PeerFailure::Broken);
    assert!(pipeline.handle_settle(now, proposal(9)).is_err());
    pipeline.handle_reply(1, ok());
    assert_eq!(pipeline.closed(), None, "rounds are on their way");
    pipeline.handle_durable(first, Ok(()));
    assert_eq!(gathered(&mut pipeline), [(0, true)]);
    pipeline.handle_reply(1, ok());
    pipeline.handle_durable(Ticket(1), Ok(()));
    assert_eq!(gathered(&mut pipeline), [(1, false)]);
    assert_eq!(
        pipeline.closed(),
        Some(Closed {
            acknowledged: 3,
            is_local_lost: false
        })
    );
}

#[test]
fn a_disk_that_fails_loses_all_later_rounds() {
    let (mut pipeline, now) = (pipeline(2), start());
    let tickets = [3, 6, 9].map(|end| pipeline.handle_settle(now, proposal(end)).unwrap());
    for _ in tickets {
        pipeline.handle_reply(0, ok());
    }
    pipeline.handle_durable(tickets[0], Ok(()));
    pipeline.handle_durable(tickets[1], Err(LocalFailure::NoSpace));
    assert_eq!(gathered(&mut pipeline), [(0, true), (1, false), (2, false)]);
    let error = pipeline.handle_content(Bytes::new(), 0).unwrap_err();
    assert_eq!(error, PipelineError::Local(LocalFailure::NoSpace));
    assert_eq!(
        pipeline.closed(),
        Some(Closed {
            acknowledged: 3,
            is_local_lost: true
        })
    );
    pipeline.handle_durable(tickets[2], Ok(()));
    assert_eq!(outputs(&mut pipeline), [], "a late success does not count");
}

#[test]
fn a_commit_that_a_peer_refuses_fails_it_and_all_later_ones() {
    let (mut pipeline, now) = (pipeline(2), start());
    let tickets = [3, 6].map(|end| pipeline.handle_settle(now, proposal(end)).unwrap());
    for ticket in tickets {
        pipeline.handle_durable(ticket, Ok(()));
    }
    pipeline.handle_reply(0, mismatch(0, 3));
    pipeline.handle_reply(0, ok());
    assert_eq!(gathered(&mut pipeline), [(0, false), (1, false)]);
    assert_eq!(pipeline.acknowledged(), 0);
}

#[test]
fn answers_that_nothing_asked_for_break_the_pipeline() {
    let unknown = ReplicateResponse {
        status: 99,
        ..ReplicateResponse::default()
    };
    let bare = ReplicateResponse {
        status: Status::ProposalMismatch.into(),
        ..ReplicateResponse::default()
    };
    for (asked, reply) in [(false, ok()), (true, unknown), (true, bare)] {
        let (mut pipeline, now) = (pipeline(2), start());
        if asked {
            pipeline.handle_sync(now, proposal(5)).unwrap();
        }
        pipeline.handle_reply(0, reply);
        let failure = PeerFailure::Unexpected;
        let error = Err(PipelineError::Peer {
            peer: id(1),
            failure,
        });
        assert_eq!(pipeline.handle_settle(now, proposal(6)), error);
    }
}

#[test]
fn a_close_lets_rounds_end_and_expects_the_streams_to() {
    let (mut pipeline, now) = (pipeline(2), start());
    let ticket = pipeline.handle_settle(now, proposal(3)).unwrap();
    outputs(&mut pipeline);
    pipeline.handle_close();
    pipeline.handle_close();
    assert_eq!(outputs(&mut pipeline), [Output::CloseSend { peer: 0 }]);
    assert_eq!(
        pipeline.handle_settle(now, proposal(6)),
        Err(PipelineError::Closed)
    );
    assert_eq!(pipeline.closed(), None);
    pipeline.handle_durable(ticket, Ok(()));
    pipeline.handle_reply(0, ok());
    pipeline.handle_peer_failure(0, PeerFailure::Ended);
    assert_eq!(gathered(&mut pipeline), [(0, true)]);
    assert_eq!(
        pipeline.closed(),
        Some(Closed {
            acknowledged: 3,
            is_local_lost: false
        })
    );
}

/// Something that happens to a pipeline.
#[derive(Debug, Clone)]
enum Step {
    Settle,
    Reply(usize, bool),
    Durable(u64, bool),
    Fail(usize),
    Advance(u64),
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rarely_false = prop::bool::weighted(0.97);
    let step = prop_oneof![
        6 => Just(Step::Settle),
        12 => (0..2usize, rarely_false).prop_map(|(peer, ok)| Step::Reply(peer, ok)),
        6 => (0..4u64, prop::bool::weighted(0.97)).prop_map(|(back, ok)| Step::Durable(back, ok)),
        1 => (0..2usize).prop_map(Step::Fail),
        2 => (0..8u64).prop_map(Step::Advance),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn every_round_ends_once_in_order_and_only_with_all_replicas(
        members in 1..4usize,
        steps in steps(),
    ) {
        let mut pipeline = pipeline(members);
        let mut now = start();
        let mut scattered = 0u64;
        let mut durable = BTreeSet::new();
        let mut replied = vec![0u64; members - 1];
        let mut ends: Vec<(u64, bool)> = Vec::new();
        // The end is forced: streams close, and then time passes.
        let end = [Step::Close, Step::Durable(0, false), Step::Advance(60)];
        for step in steps.into_iter().chain(end) {
            match step {
                Step::Settle => {
                    let proposal = proposal(i64::try_from(scattered).unwrap() + 1);
                    if let Ok(ticket) = pipeline.handle_settle(now, proposal) {
                        prop_assert_eq!(ticket.0, scattered);
                        scattered += 1;
                    }
                }
                Step::Reply(peer, is_ok) => {
                    if let Some(replied) = replied.get_mut(peer).filter(|count| **count < scattered)
                    {
                        *replied += 1;
                        pipeline.handle_reply(peer, if is_ok { ok() } else { mismatch(0, 0) });
                    }
                }
                Step::Durable(back, is_ok) => {
                    let at = scattered.saturating_sub(1 + back);
                    if is_ok && at < scattered {
                        durable.insert(at);
                        pipeline.handle_durable(Ticket(at), Ok(()));
                    } else if !is_ok {
                        // Whatever is not durable never will be.
                        let first = (0..scattered).find(|at| !durable.contains(at));
                        for ticket in first.into_iter().map(Ticket) {
                            pipeline.handle_durable(ticket, Err(LocalFailure::Disk));
                        }
                    }
                }
                Step::Fail(peer) => pipeline.handle_peer_failure(peer, PeerFailure::Broken),
                Step::Advance(seconds) => {
                    now += Duration::from_secs(seconds);
                    pipeline.handle_timeout(now);
                    prop_assert!(pipeline.next_timeout().is_none_or(|at| at > now));
                }
                Step::Close => pipeline.handle_close(),
            }
            for (ticket, agreed) in gathered(&mut pipeline) {
                prop_assert_eq!(ticket, u64::try_from(ends.len()).unwrap(), "in order, once");
                if agreed {
                    prop_assert!(ends.last().is_none_or(|last| last.1), "none after a failure");
                    prop_assert!(durable.contains(&ticket));
                    prop_assert!(replied.iter().all(|count| ticket < *count));
                }
                ends.push((ticket, agreed));
            }
            let agreed = ends.iter().filter(|end| end.1).count();
            prop_assert_eq!(pipeline.acknowledged(), i64::try_from(agreed).unwrap());
        }
        prop_assert_eq!(ends.len(), usize::try_from(scattered).unwrap(), "every round ends");
        prop_assert!(pipeline.closed().is_some());
    }
}
