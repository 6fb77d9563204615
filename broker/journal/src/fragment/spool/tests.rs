use std::time::{Duration, UNIX_EPOCH};

use gazette_protocol::{ReplicateRequest, ReplicateResponse, Status};
use proptest::prelude::*;

use super::*;
use crate::golden;

const NOW: SystemTime = UNIX_EPOCH;

/// A spool of one fragment with this content, all of it acknowledged.
fn spool_with(content: &[u8]) -> Spool {
    let mut spool = Spool::new("a/journal");
    commit(&mut spool, content);
    spool.acknowledge(spool.end());
    spool
}

fn commit(spool: &mut Spool, content: &[u8]) -> Fragment {
    spool.append(spool.delta(), content).unwrap();
    let next = spool.next();
    let registers = spool.registers().clone();
    let applied = spool.apply(&next, &registers, NOW);
    assert!(matches!(applied.outcome, Outcome::Committed { .. }));
    next
}

fn empty_at(offset: i64) -> Fragment {
    let (begin, end) = (offset, offset);
    let journal = "a/journal".to_owned();
    Fragment {
        journal,
        begin,
        end,
        compression_codec: 1,
        ..Fragment::default()
    }
}

fn roll(spool: &mut Spool, offset: i64) -> Rolled {
    let registers = spool.registers().clone();
    spool
        .apply(&empty_at(offset), &registers, NOW)
        .rolled
        .unwrap()
}

#[test]
fn proposals_and_content_have_the_recorded_effects() {
    let golden = golden::load("state/spool.json");
    let scenarios = golden::entries(&golden["scenarios"]);
    assert_eq!(scenarios.len(), 20);
    for scenario in scenarios {
        let name = golden::text(scenario, "name");
        let mut spool = Spool::new(golden::text(scenario, "journal"));
        for step in golden::entries(&scenario["steps"]) {
            let context = format!("{name}: {}", golden::text(step, "step"));
            let request: ReplicateRequest = golden::message(&step["request"]);
            let before = spool.clone();
            let mut events = Vec::new();
            let mut error = false;
            let mut response = ReplicateResponse::default();

            if let Some(proposal) = &request.proposal {
                let registers = request.registers.clone().unwrap_or_default();
                let applied = spool.apply(proposal, &registers, NOW);
                let completed = applied.rolled.and_then(|rolled| rolled.completed);
                events.extend(completed.map(|completed| ("complete", completed.fragment)));
                match applied.outcome {
                    Outcome::Committed { bytes } => {
                        assert_eq!(bytes, before.delta(), "{context}");
                        events.push(("commit", spool.fragment().clone()));
                    }
                    Outcome::RolledBack { .. } => assert_eq!(spool.delta(), 0, "{context}"),
                    Outcome::Mismatch => {
                        response.set_status(Status::ProposalMismatch);
                        response.fragment = Some(spool.fragment().clone());
                        response.registers = Some(spool.registers().clone());
                    }
                }
            } else {
                error = spool
                    .append(request.content_delta, &request.content)
                    .is_err();
            }

            assert_eq!(error, !step["error"].is_null(), "{context}");
            assert_eq!(response, golden::message(&step["response"]), "{context}");
            assert_eq!(
                *spool.fragment(),
                golden::message(&step["spool_after"]),
                "{context}"
            );
            assert_eq!(
                spool.next(),
                golden::message(&step["next_after"]),
                "{context}"
            );
            assert_eq!(
                *spool.registers(),
                golden::message(&step["registers_after"]),
                "{context}"
            );
            let expected: Vec<(&str, Fragment)> = golden::entries(&step["observer"])
                .iter()
                .map(|event| {
                    (
                        golden::text(event, "event"),
                        golden::message(&event["fragment"]),
                    )
                })
                .collect();
            assert_eq!(events, expected, "{context}");
        }
    }
}

#[test]
fn content_goes_after_what_the_file_has() {
    let mut spool = spool_with(b"abc");
    assert_eq!(spool.append(0, b"de"), Ok(3));
    assert_eq!(spool.append(2, b"f"), Ok(5));
    spool.roll_back();
    assert_eq!(spool.append(0, b"xyz"), Ok(3));
    roll(&mut spool, 3);
    assert_eq!(spool.append(0, b"0"), Ok(0), "a roll begins a new file");
}

#[test]
fn content_cannot_end_beyond_the_greatest_offset() {
    let mut spool = Spool::new("a/journal");
    roll(&mut spool, i64::MAX - 2);
    assert_eq!(spool.append(0, b"ab"), Ok(0));
    assert_eq!(
        spool.append(2, b"c"),
        Err(SpoolError::OffsetOverflow {
            end: i64::MAX - 2,
            delta: 2,
            length: 1
        })
    );
    assert_eq!(spool.next().end, i64::MAX);
}

#[test]
fn the_first_commit_of_a_fragment_sets_its_time() {
    let mut spool = Spool::new("a/journal");
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    for seconds in [5, 9] {
        spool.append(0, b"x").unwrap();
        let next = spool.next();
        spool.apply(&next, &LabelSet::default(), at(seconds));
    }
    assert_eq!(spool.first_append_time(), Some(at(5)));
    let completed = roll(&mut spool, 2).completed.unwrap();
    assert_eq!(completed.first_append_time, Some(at(5)));
    assert_eq!(spool.first_append_time(), None);
}

#[test]
fn what_is_not_acknowledged_is_cut() {
    let mut spool = spool_with(b"sure");
    let kept = spool.clone();
    commit(&mut spool, b"may");
    commit(&mut spool, b"be");
    spool.append(0, b"pending").unwrap();

    let cut = spool.cut().unwrap();
    assert_eq!(cut.fragment, *kept.fragment());
    assert_eq!(cut.dropped_end, 9);
    assert_eq!(spool, kept);
    commit(&mut spool, b"!");
    let mut expected = spool_with(b"sure");
    assert_eq!(
        *spool.fragment(),
        commit(&mut expected, b"!"),
        "the hash is restored too"
    );
}

#[test]
fn an_acknowledgement_covers_whole_commits_only() {
    let mut spool = spool_with(b"sure");
    commit(&mut spool, b"one");
    commit(&mut spool, b"two");
    spool.acknowledge(8);
    assert_eq!(spool.acknowledged_end(), 7);
    spool.acknowledge(2);
    assert_eq!(spool.acknowledged_end(), 7, "it never goes back");
    spool.cut();
    assert_eq!(spool.end(), 7);
    spool.acknowledge(7);
    assert!(spool.cut().is_none(), "nothing is left to cut");
}

#[test]
fn a_cut_leaves_an_acknowledged_fragment_closed() {
    for offset in [4, 100] {
        let mut spool = spool_with(b"sure");
        assert!(roll(&mut spool, offset).completed.is_some());
        commit(&mut spool, b"maybe");
        let cut = spool.cut().unwrap();
        assert_eq!(cut.fragment, empty_at(4));
        assert!(spool.is_acknowledged());
        commit(&mut spool, b"!");
        assert_eq!((spool.begin(), spool.end()), (4, 5));
    }
}

#[test]
fn a_cut_opens_a_fragment_that_was_closed_with_its_tail() {
    let mut spool = spool_with(b"sure");
    commit(&mut spool, b"maybe");
    let completed = roll(&mut spool, 9).completed.unwrap();
    assert_eq!(completed.fragment.end, 9);
    commit(&mut spool, b"more");
    assert_eq!(
        spool.cut().unwrap().fragment,
        *spool_with(b"sure").fragment()
    );
}

#[test]
fn a_spool_is_rebuilt_from_its_record_and_its_content() {
    let mut spool = spool_with(b"one two");
    let registers = LabelSet::from_pairs([("author", "me")]);
    spool.append(0, b" three").unwrap();
    let next = spool.next();
    spool.apply(&next, &registers, NOW);
    spool.acknowledge(next.end);

    let mut rebuild = Rebuild::new(next, registers, Some(NOW));
    rebuild.feed(b"one two ");
    rebuild.feed(b"three");
    let mut rebuilt = rebuild.finish().unwrap();
    assert_eq!(rebuilt, spool);
    assert_eq!(commit(&mut rebuilt, b"."), commit(&mut spool, b"."));
}

#[test]
fn a_rebuild_refuses_other_content_and_names_the_spool() {
    let fragment = spool_with(b"content").fragment().clone();
    let rebuild = |content: &[u8]| {
        let mut rebuild = Rebuild::new(fragment.clone(), LabelSet::default(), None);
        rebuild.feed(content);
        rebuild.finish().unwrap_err().to_string()
    };
    assert!(rebuild(b"Content").starts_with("spool of a/journal at [0x0, 0x7) has sum "));
    assert_eq!(
        rebuild(b"conten"),
        "spool of a/journal at [0x0, 0x7) has 6 bytes of content"
    );
    assert_eq!(
        rebuild(b"contents"),
        "spool of a/journal at [0x0, 0x7) has 8 bytes of content"
    );
}

#[test]
fn an_empty_spool_is_rebuilt_with_its_registers() {
    let registers = LabelSet::from_pairs([("author", "me")]);
    let rebuilt = Rebuild::new(empty_at(7), registers.clone(), None)
        .finish()
        .unwrap();
    assert_eq!((rebuilt.end(), rebuilt.registers()), (7, &registers));
}

/// Something that happens to a spool.
#[derive(Debug, Clone)]
enum Step {
    Append(Vec<u8>),
    Commit,
    RollBack,
    Roll(i64),
    Acknowledge(u8),
    Cut,
}

/// The same as a spool, with all of its content and nothing clever.
#[derive(Debug, Clone, Default)]
struct Naive {
    fragments: Vec<(i64, Vec<u8>)>,
    pending: Vec<u8>,
}

impl Naive {
    fn begin(&self) -> i64 {
        self.fragments.last().unwrap().0
    }
    fn content(&mut self) -> &mut Vec<u8> {
        &mut self.fragments.last_mut().unwrap().1
    }
    fn end(&self) -> i64 {
        let (begin, content) = self.fragments.last().unwrap();
        begin + i64::try_from(content.len()).unwrap()
    }
    fn fragment(&self, pending: &[u8]) -> Fragment {
        let (begin, content) = self.fragments.last().unwrap();
        let content = [content.as_slice(), pending].concat();
        let sum = match content.len() {
            0 => Sha1Sum::default(),
            _ => Sha1Sum::from_digest(Sha1::digest(&content).into()),
        };
        let end = begin + i64::try_from(content.len()).unwrap();
        Fragment {
            end,
            sum,
            ..empty_at(*begin)
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 1..5).prop_map(Step::Append),
        4 => Just(Step::Commit),
        1 => Just(Step::RollBack),
        2 => (0..3i64).prop_map(Step::Roll),
        2 => (0..4u8).prop_map(Step::Acknowledge),
        1 => Just(Step::Cut),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #[test]
    fn a_spool_does_what_a_naive_one_does(steps in steps()) {
        let mut spool = Spool::new("a/journal");
        let mut naive = Naive { fragments: vec![(0, vec![])], pending: vec![] };
        // States after each commit and roll that is not acknowledged, after the certain one.
        let mut history = vec![naive.clone()];
        for step in steps {
            match step {
                Step::Append(content) => {
                    let position = spool.append(spool.delta(), &content).unwrap();
                    let expected = naive.content().len() + naive.pending.len();
                    prop_assert_eq!(position, expected as u64);
                    naive.pending.extend(content);
                }
                Step::Commit if !naive.pending.is_empty() => {
                    let next = spool.next();
                    spool.apply(&next, &LabelSet::default(), NOW);
                    let pending = mem::take(&mut naive.pending);
                    naive.content().extend(pending);
                    history.push(naive.clone());
                }
                Step::Commit | Step::RollBack => {
                    let present = spool.fragment().clone();
                    if present.content_length() > 0 {
                        spool.apply(&present, &LabelSet::default(), NOW);
                    } else {
                        spool.roll_back();
                    }
                    naive.pending.clear();
                }
                Step::Roll(ahead) => {
                    let offset = naive.end() + ahead;
                    let ahead_of_pending = offset > spool.next().end || ahead == 0;
                    let applied = spool.apply(&empty_at(offset), &LabelSet::default(), NOW);
                    prop_assert_eq!(applied.rolled.is_some(), ahead_of_pending);
                    if let Some(rolled) = applied.rolled {
                        prop_assert_eq!(rolled.completed.is_some(), !naive.content().is_empty());
                        naive.pending.clear();
                        naive.fragments.push((offset, vec![]));
                        history.push(naive.clone());
                    }
                }
                Step::Acknowledge(count) => {
                    let at = usize::from(count).min(history.len() - 1);
                    let end = history[at].end();
                    spool.acknowledge(end);
                    let certain = history.iter().rposition(|state| state.end() <= end).unwrap();
                    history.drain(..certain);
                }
                Step::Cut => {
                    let cut = spool.cut();
                    prop_assert_eq!(cut.is_some(), history.len() > 1);
                    naive = history[0].clone();
                    if history.len() > 1 && history[1].begin() != naive.begin()
                        || history.len() > 1 && history[1].fragments.len() > naive.fragments.len()
                    {
                        naive.fragments.push((naive.end(), vec![]));
                    }
                    naive.pending.clear();
                    history = vec![naive.clone()];
                }
            }
            prop_assert_eq!(spool.fragment(), &naive.fragment(&[]));
            prop_assert_eq!(spool.next(), naive.fragment(&naive.pending));
            prop_assert_eq!(spool.acknowledged_end(), history[0].end());
        }
    }
}
