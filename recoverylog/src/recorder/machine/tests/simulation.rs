//! A log with the broker's rules, another owner, lost answers and late appends, against the machine.

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Record(u64),
    Barrier,
    Pass(u64),
    /// The RPC under way is answered as it should be.
    Answer,
    /// Its answer is lost, after it was done or without that.
    Lose {
        done: bool,
    },
    /// It is refused.
    Refuse {
        no_space: bool,
    },
    /// It is not answered, and done later, if the broker still may.
    Delay,
    /// What was delayed comes to the broker.
    Late,
    /// Another owner claims the log.
    Claim,
    /// Somebody appends without asking for anything.
    Junk,
    /// The brokers lose the register.
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..80_u64).prop_map(Step::Record),
        5 => Just(Step::Barrier),
        4 => (0..700_u64).prop_map(Step::Pass),
        12 => Just(Step::Answer),
        3 => any::<bool>().prop_map(|done| Step::Lose { done }),
        2 => any::<bool>().prop_map(|no_space| Step::Refuse { no_space }),
        2 => Just(Step::Delay),
        2 => Just(Step::Late),
    ]
}

fn hostile() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => step(),
        1 => Just(Step::Claim),
        1 => Just(Step::Junk),
        1 => Just(Step::Forget),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    author: u32,
    begin: i64,
    end: i64,
    last_seq_no: i64,
}

/// An append on its way.
#[derive(Debug, Clone)]
struct Append {
    offset: i64,
    check: Check,
    bytes: i64,
    last_seq_no: i64,
}

enum Call {
    Append(Append),
    Probe(i64),
    Look(u64),
    ReadBack(i64),
}

struct World {
    machine: Machine,
    now: Now,
    /// Batches of the shell: bytes and the last op.
    batches: VecDeque<(i64, i64)>,
    sent: Option<(i64, i64)>,
    call: Option<Call>,
    delayed: Vec<Append>,
    log: Vec<Entry>,
    register: Option<u32>,
    /// Whether somebody else wrote to the log.
    is_foreign: bool,
    seq_no: i64,
    /// Barriers that wait: the op, and whether somebody else had written before.
    barriers: BTreeMap<BarrierId, (i64, bool)>,
    answered: Vec<(BarrierId, Result<(), Fault>)>,
    marks: u32,
    checks: bool,
    /// Whether the broker is the only one.
    is_alone: bool,
}

impl World {
    fn new(limits: Limits) -> Self {
        let mut world = Self {
            machine: Machine::new(author(ME), limits, NOTHING, ms(0)),
            now: ms(0),
            batches: VecDeque::new(),
            sent: None,
            call: None,
            delayed: Vec::new(),
            log: Vec::new(),
            register: None,
            is_foreign: false,
            seq_no: 0,
            barriers: BTreeMap::new(),
            answered: Vec::new(),
            marks: 0,
            checks: true,
            is_alone: true,
        };
        world.record(10);
        world
    }

    fn head(&self) -> i64 {
        self.log.last().map_or(0, |entry| entry.end)
    }

    fn record(&mut self, bytes: u64) {
        self.seq_no += 1;
        let length = i64::try_from(bytes).unwrap();
        if self.machine.begins_batch() {
            self.batches.push_back((0, 0));
        }
        let batch = self.batches.back_mut().unwrap();
        batch.0 += length;
        batch.1 = self.seq_no;
        self.machine.handle_recorded(self.now, self.seq_no, bytes);
        self.perform();
    }

    fn perform(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Send { offset, check } => {
                    let (bytes, last_seq_no) = self.batches[0];
                    self.sent = Some((bytes, last_seq_no));
                    self.forget_look();
                    assert!(self.call.is_none(), "one RPC at a time");
                    self.call = Some(Call::Append(Append {
                        offset,
                        check,
                        bytes,
                        last_seq_no,
                    }));
                }
                Output::Probe { offset } => {
                    self.forget_look();
                    assert!(self.call.is_none(), "one RPC at a time");
                    self.call = Some(Call::Probe(offset));
                }
                Output::Look { number } => {
                    self.forget_look();
                    assert!(self.call.is_none(), "one RPC at a time");
                    self.call = Some(Call::Look(number));
                }
                Output::ReadBack { offset } => {
                    assert!(self.call.is_none(), "one RPC at a time");
                    self.call = Some(Call::ReadBack(offset));
                }
                Output::Release { .. } => {
                    self.batches.pop_front().unwrap();
                    self.sent = None;
                }
                Output::Answer { barrier, result } => self.answer(barrier, result),
                Output::Mark | Output::IdleMark => self.marks += 1,
                Output::PublishHints => {
                    assert!(self.machine.acked().seq_no <= self.landed_seq_no());
                    self.machine.handle_hints_published(self.now, true);
                }
                Output::Report(_) | Output::Ended(_) => {}
            }
        }
        // The register is lost only once at a time.
        if std::mem::take(&mut self.marks) > 0 {
            self.record(12);
        }
    }

    fn forget_look(&mut self) {
        self.call = self
            .call
            .take()
            .filter(|call| !matches!(call, Call::Look(_)));
    }

    /// The last op of ours that the log has.
    fn landed_seq_no(&self) -> i64 {
        let mine = self.log.iter().filter(|entry| entry.author == ME);
        mine.map(|entry| entry.last_seq_no).max().unwrap_or(0)
    }

    fn answer(&mut self, barrier: BarrierId, result: Result<(), Fault>) {
        let (seq_no, was_foreign) = self.barriers.remove(&barrier).expect("answered once");
        if result.is_ok() {
            assert!(
                seq_no <= self.landed_seq_no(),
                "acknowledged without the log"
            );
            assert!(!was_foreign, "acknowledged after somebody else took over");
            assert!(
                !matches!(
                    self.machine.state(self.now),
                    State::Fenced(_) | State::Failed(_)
                ),
                "acknowledged after a fence"
            );
        }
        self.answered.push((barrier, result));
    }

    fn register(&self) -> Register {
        self.register
            .map_or(Register::Empty, |number| Register::Author(author(number)))
    }

    /// What the broker does with an append.
    fn append(&mut self, append: &Append) -> Outcome {
        let admits = match (append.check, self.register) {
            (_, None) | (Check::Own | Check::Reassert, Some(ME)) => true,
            (Check::Claim | Check::Own | Check::Reassert, Some(_)) => false,
        };
        if self.checks && !admits {
            return Outcome::Mismatch {
                register: self.register(),
            };
        }
        if self.checks && append.offset != 0 && append.offset != self.head() {
            return Outcome::WrongOffset;
        }
        let begin = self.head();
        let end = begin + append.bytes;
        if append.bytes > 0 {
            self.log.push(Entry {
                author: ME,
                begin,
                end,
                last_seq_no: append.last_seq_no,
            });
            if append.check != Check::Own {
                self.register = Some(ME);
            }
        }
        // A liar about checks lies about all of it.
        let (begin, end, register) = if self.checks {
            (begin, end, self.register())
        } else {
            (
                append.offset,
                append.offset + append.bytes,
                Register::Author(author(ME)),
            )
        };
        Outcome::Landed {
            begin,
            end,
            register,
        }
    }

    fn read(&self, offset: i64) -> Found {
        let head = self.head();
        if head < offset {
            return Found::Shorter { head };
        }
        if head == offset {
            return Found::Nothing;
        }
        let there = self.log.iter().find(|entry| entry.begin == offset);
        match (there, self.sent) {
            (Some(entry), Some((bytes, seq_no)))
                if entry.author == ME
                    && entry.end - entry.begin == bytes
                    && entry.last_seq_no == seq_no =>
            {
                Found::Own { end: entry.end }
            }
            (Some(entry), _) => Found::Other {
                author: Author::new(entry.author),
            },
            (None, _) => Found::Other { author: None },
        }
    }

    fn probe(offset: i64) -> Append {
        Append {
            offset,
            check: Check::Own,
            bytes: 0,
            last_seq_no: 0,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Record(bytes) => {
                if self.machine.reserve(self.now, *bytes, false).is_ok() {
                    self.machine.release(*bytes);
                    self.record(*bytes);
                }
            }
            Step::Barrier => {
                let id = self.machine.handle_barrier(self.now);
                self.barriers.insert(id, (self.seq_no, self.is_foreign));
            }
            Step::Pass(time) => {
                self.now += ms(*time);
                self.machine.handle_timeout(self.now);
            }
            Step::Answer | Step::Lose { .. } | Step::Refuse { .. } | Step::Delay => {
                if let Some(call) = self.call.take() {
                    self.end_call(call, step);
                }
            }
            Step::Late => {
                // Offset zero cannot be asserted: the claim of an empty log has its register only.
                let is_bare = |append: &Append| append.offset == 0 && self.register.is_none();
                if let Some(append) = self.delayed.pop().filter(|append| !is_bare(append)) {
                    self.append(&append);
                }
            }
            Step::Claim => self.write(OTHER, Some(OTHER)),
            Step::Junk => self.write(0, self.register),
            Step::Forget => self.register = None,
        }
        self.perform();
    }

    fn write(&mut self, number: u32, register: Option<u32>) {
        // Before the first claim anybody may, and the claim's own start looks for that.
        if self.log.is_empty() {
            return;
        }
        let begin = self.head();
        self.log.push(Entry {
            author: number,
            begin,
            end: begin + 7,
            last_seq_no: 0,
        });
        self.register = register;
        self.is_foreign = true;
    }

    fn end_call(&mut self, call: Call, step: &Step) {
        let error = "lost".into();
        let append = match call {
            Call::ReadBack(offset) => {
                let found = if matches!(step, Step::Answer) {
                    self.read(offset)
                } else {
                    Found::Failed { error }
                };
                self.machine.handle_found(self.now, found);
                return;
            }
            Call::Look(number) => {
                let is_answered = matches!(step, Step::Answer);
                let head = self.head();
                let is_exact = self.is_alone;
                let seen = is_answered.then_some(Seen { head, is_exact });
                self.machine
                    .handle_looked(self.now, number, seen.ok_or(error));
                return;
            }
            Call::Probe(offset) => Self::probe(offset),
            Call::Append(append) => append,
        };
        let outcome = match step {
            Step::Lose { done } => {
                if *done {
                    self.append(&append);
                }
                Outcome::Unknown { error }
            }
            Step::Refuse { no_space } => Outcome::NotDone {
                no_space: *no_space,
                error,
            },
            Step::Delay => {
                self.delayed.push(append);
                Outcome::Unknown { error }
            }
            Step::Record(_)
            | Step::Barrier
            | Step::Pass(_)
            | Step::Answer
            | Step::Late
            | Step::Claim
            | Step::Junk
            | Step::Forget => self.append(&append),
        };
        self.machine.handle_outcome(self.now, outcome);
    }

    /// Lets everything go well until there is nothing left to do.
    fn heal(&mut self) {
        for _ in 0..200 {
            self.step(&Step::Answer);
            if let Some(at) = self.machine.next_timeout() {
                self.now = self.now.max(at.min(self.now + ms(1000)));
                self.step(&Step::Pass(0));
            }
        }
        self.step(&Step::Answer);
    }
}

fn run(steps: &[Step], limits: Limits, is_alone: bool) -> World {
    let mut world = World::new(limits);
    world.is_alone = is_alone;
    for step in steps {
        world.step(step);
    }
    world.heal();
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn an_owner_alone_gets_every_op_into_the_log_once_and_in_order(
        steps in proptest::collection::vec(step(), 0..120),
        is_alone in any::<bool>(),
    ) {
        let world = run(&steps, limits(), is_alone);
        prop_assert!(world.barriers.is_empty(), "unanswered: {:?}", world.barriers);
        prop_assert!(world.answered.iter().all(|(_, result)| result.is_ok()));
        prop_assert_eq!(world.landed_seq_no(), world.seq_no);
        let mut last = 0;
        for entry in &world.log {
            prop_assert!(entry.last_seq_no > last, "twice, or out of order: {:?}", world.log);
            last = entry.last_seq_no;
        }
        prop_assert_eq!(world.machine.pending_bytes(), 0);
        prop_assert_eq!(world.machine.acked().offset, world.head());
        prop_assert_eq!(world.machine.state(world.now), State::Recording);
    }

    #[test]
    fn another_owner_ends_it_and_no_barrier_lies(
        steps in proptest::collection::vec(hostile(), 0..160),
        is_alone in any::<bool>(),
    ) {
        // What is asserted of each answer is in `World::answer`.
        let world = run(&steps, limits(), is_alone);
        prop_assert!(world.barriers.is_empty(), "unanswered: {:?}", world.barriers);
        let first = world.log.iter().position(|entry| entry.author != ME);
        if let Some(first) = first {
            let state = world.machine.state(world.now);
            prop_assert!(matches!(state, State::Fenced(_)), "{:?}", state);
            // Nothing of ours comes after it.
            let mine = world.log[first..].iter().find(|entry| entry.author == ME);
            prop_assert_eq!(mine, None);
        }
    }

    #[test]
    fn every_barrier_ends_in_its_time(
        steps in proptest::collection::vec(hostile(), 0..160),
    ) {
        let limits = Limits { fail_after: Some(ms(900)), ..limits() };
        let mut world = World::new(limits);
        for step in &steps {
            world.step(step);
        }
        world.step(&Step::Pass(900));
        prop_assert!(world.barriers.is_empty(), "unanswered: {:?}", world.barriers);
    }
}

#[test]
#[should_panic(expected = "acknowledged after somebody else took over")]
fn skipped_checks_are_found() {
    let mut world = World::new(limits());
    world.step(&Step::Answer);
    world.step(&Step::Claim);
    world.checks = false;
    world.step(&Step::Record(10));
    world.step(&Step::Barrier);
    world.heal();
}
