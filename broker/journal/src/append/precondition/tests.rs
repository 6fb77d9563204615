use std::time::{Duration, Instant, UNIX_EPOCH};

use gazette_protocol::{Fragment, LabelSelector, LabelSet, append_request::Suspend, journal_spec};

use super::*;

fn now() -> Now {
    #[expect(clippy::disallowed_methods, reason = "no result depends on it")]
    let instant = Instant::now();
    Now {
        instant,
        wall: UNIX_EPOCH + Duration::from_secs(1_000_000),
    }
}

/// A spool at [10, 20), with a register, all acknowledged.
fn spool() -> Spool {
    let mut spool = Spool::new("a/journal");
    let registers = LabelSet::from_pairs([("author", "me")]);
    let empty = Fragment {
        journal: "a/journal".into(),
        begin: 10,
        end: 10,
        ..Fragment::default()
    };
    spool.apply(&empty, &registers, now().wall);
    spool.append(0, b"0123456789").unwrap();
    let next = spool.next();
    spool.apply(&next, &registers, now().wall);
    spool.acknowledge(20);
    spool
}

fn spec(flags: journal_spec::Flag, suspend: Option<journal_spec::Suspend>) -> JournalSpec {
    JournalSpec {
        flags: flags as u32,
        suspend,
        ..JournalSpec::default()
    }
}

fn index(begin: i64, end: i64) -> Summary {
    Summary {
        begin,
        end,
        last_mod_time: 0,
        is_refreshed: true,
    }
}

/// A request that every check but the named ones would end otherwise.
#[derive(Clone)]
struct Case {
    request: AppendRequest,
    spec: JournalSpec,
    index: Summary,
}

impl Case {
    fn plain() -> Self {
        let request = AppendRequest::default();
        Self {
            request,
            spec: spec(journal_spec::Flag::ORdwr, None),
            index: index(0, 20),
        }
    }
    fn check(&self) -> Verdict {
        check(&self.request, &self.spec, &spool(), self.index, now())
    }
    fn wrong_registers(mut self) -> Self {
        self.request.check_registers = Some(LabelSelector::parse("author=you").unwrap());
        self
    }
    fn suspended(mut self, level: Level, offset: i64) -> Self {
        self.spec.suspend = Some(journal_spec::Suspend {
            level: level.into(),
            offset,
        });
        self
    }
    fn index_end(mut self, end: i64) -> Self {
        self.index.end = end;
        self
    }
    fn offset(mut self, offset: i64) -> Self {
        self.request.offset = offset;
        self
    }
    fn control(mut self, control: Suspend) -> Self {
        self.request.suspend = control.into();
        self
    }
    fn read_only(mut self) -> Self {
        self.spec.flags = journal_spec::Flag::ORdonly as u32;
        self
    }
}

const GO: Verdict = Verdict::Stream { roll_to: None };

#[test]
fn a_plain_append_streams() {
    assert_eq!(Case::plain().check(), GO);
    assert_eq!(Case::plain().offset(20).check(), GO);
}

#[test]
fn the_checks_come_in_their_order() {
    let respond = Verdict::Respond;
    let all = Case::plain()
        .wrong_registers()
        .suspended(Level::Partial, 30)
        .index_end(40)
        .offset(35)
        .control(Suspend::NoResume);
    assert_eq!(all.check(), respond(Status::RegisterMismatch));

    let mut case = all;
    case.request.check_registers = None;
    assert_eq!(case.check(), Verdict::Resync { roll_to: 30 });

    let case = case.suspended(Level::Partial, 20);
    assert_eq!(
        case.clone().offset(0).check(),
        respond(Status::IndexHasGreaterOffset)
    );
    assert_eq!(case.check(), respond(Status::WrongAppendOffset));
    assert_eq!(
        case.clone().offset(40).check(),
        Verdict::Resync { roll_to: 40 }
    );
    assert_eq!(
        case.clone().index_end(20).offset(20).check(),
        respond(Status::Suspended)
    );

    let resume = case.index_end(20).offset(20).control(Suspend::Resume);
    assert_eq!(resume.check(), Verdict::Suspend(Level::None));
}

#[test]
fn registers_that_match_pass() {
    let mut case = Case::plain();
    case.request.check_registers = Some(LabelSelector::parse("author=me").unwrap());
    assert_eq!(case.check(), GO);
}

#[test]
fn a_read_only_journal_may_be_behind_its_index() {
    assert_eq!(Case::plain().index_end(40).read_only().check(), GO);
    let with_offset = Case::plain().index_end(40).read_only().offset(20).check();
    assert_eq!(with_offset, Verdict::Respond(Status::WrongAppendOffset));
}

#[test]
fn a_spool_with_content_is_rolled_before_the_journal_is_suspended() {
    let case = Case::plain().control(Suspend::Now);
    assert_eq!(case.check(), Verdict::Resync { roll_to: 20 });

    let mut rolled = spool();
    let empty = Fragment {
        journal: "a/journal".into(),
        begin: 20,
        end: 20,
        ..Fragment::default()
    };
    let registers = rolled.registers().clone();
    rolled.apply(&empty, &registers, now().wall);
    let verdict = |spool: &Spool| check(&case.request, &case.spec, spool, case.index, now());
    rolled.acknowledge(20);
    assert_eq!(verdict(&rolled), Verdict::Suspend(Level::Partial));
}

#[test]
fn the_first_fragment_of_a_journal_is_closed_by_the_next_append() {
    let case = Case {
        index: index(10, 20),
        ..Case::plain()
    };
    assert_eq!(case.check(), Verdict::Stream { roll_to: Some(20) });
}

#[test]
fn an_append_may_ask_for_the_fragment_to_be_closed() {
    let mut case = Case::plain();
    case.request.flush = true;
    assert_eq!(case.check(), Verdict::Stream { roll_to: Some(20) });
}
