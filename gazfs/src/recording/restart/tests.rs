use proptest::prelude::*;

use super::*;

/// A directory with its log, and a daemon that is killed at any moment.
struct World {
    /// Authors and, of changes, their numbers.
    log: Vec<(u32, Option<u32>)>,
    /// What was recorded and is not in the log.
    pending: Vec<Option<u32>>,
    /// The changes that the files have.
    files: Vec<u32>,
    /// A change of the files that is not recorded yet.
    applied: Option<u32>,
    state: State,
    pulse: LastPulse,
    /// Ops of the log that the checkpoint has.
    checkpoint: Option<usize>,
    is_fenced: bool,
    next: u32,
    fault: Option<Fault>,
    followed: u32,
}

/// What somebody may forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Begin,
    Recorded,
    Authors,
    Checkpoint,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The daemon changes a file, which takes two of these.
    Change,
    /// The log takes the oldest op that waits.
    Land,
    /// A checkpoint is due.
    Checkpoint,
    /// Somebody takes the log over, and records or does not.
    Elsewhere { changes: bool },
    /// The daemon is killed, and another one starts.
    Kill { boots: bool },
    /// The daemon is killed, and the next one too before it serves.
    KillTwice,
}

fn ground() -> Ground {
    Ground {
        boot: "one".to_owned(),
        device: 1,
        root: 2,
        authors: Vec::new(),
    }
}

impl World {
    fn new(fault: Option<Fault>) -> Self {
        let state = State {
            log: "a/log".to_owned(),
            author: 0,
            offset: 0,
            phase: Phase::Recording,
            ground: Some(ground()),
        };
        let pulse = LastPulse {
            author: 0,
            begun: 0,
            recorded: 0,
        };
        let mut world = Self {
            log: Vec::new(),
            pending: Vec::new(),
            files: Vec::new(),
            applied: None,
            state,
            pulse,
            checkpoint: None,
            is_fenced: false,
            next: 1,
            fault,
            followed: 0,
        };
        world.start(&ground(), true);
        world
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn seq_no(count: usize) -> i64 {
        i64::try_from(count).expect("it is small")
    }

    /// What a daemon does at its start. Says whether the files are right then.
    fn start(&mut self, now: &Ground, serves: bool) -> bool {
        let verdict = self.judge(now);
        let changes: Vec<u32> = self.log.iter().filter_map(|(_, change)| *change).collect();
        let is_right = verdict.is_none() || self.files == changes;
        let author = self.number();
        let mut ground = now.clone();
        ground.authors.push(author);
        if let Some(before) = verdict {
            self.followed += 1;
            if self.fault != Some(Fault::Authors) {
                ground.authors.extend(before);
            }
        } else {
            self.files = changes;
            if self.fault != Some(Fault::Checkpoint) {
                self.checkpoint = None;
            }
        }
        self.state.ground = Some(ground);
        self.pending.clear();
        self.applied = None;
        self.is_fenced = false;
        self.log.push((author, None));
        if serves {
            self.pulse = LastPulse {
                author,
                begun: 0,
                recorded: 0,
            };
        }
        is_right
    }

    /// Returns the recorders of before if the files are taken as they are.
    fn judge(&self, now: &Ground) -> Option<Vec<u32>> {
        let (ground, pulse) = is_whole(&self.state, now, Some(self.pulse)).ok()?;
        let base = self.checkpoint?;
        let mut behind = BTreeMap::new();
        for (index, (author, change)) in self.log.iter().enumerate().skip(base) {
            let followup = behind.entry(*author).or_insert(Followup {
                last_seq_no: 0,
                has_changes: false,
            });
            followup.last_seq_no = Self::seq_no(index + 1);
            followup.has_changes |= change.is_some();
        }
        is_logged(ground, pulse, Self::seq_no(base), &behind, false).ok()?;
        Some(ground.authors.clone())
    }

    fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Change => self.change(),
            Step::Land => {
                if !self.is_fenced && !self.pending.is_empty() {
                    let change = self.pending.remove(0);
                    self.log.push((self.pulse.author, change));
                }
            }
            Step::Checkpoint => {
                // The log of a fenced recorder is that up to the fence; it does not look further.
                if self.pending.is_empty() && !self.is_fenced {
                    self.checkpoint = Some(self.log.len());
                }
            }
            Step::Elsewhere { changes } => {
                let author = self.number();
                self.log.push((author, None));
                if changes {
                    self.log.push((author, Some(author)));
                }
                self.is_fenced = true;
            }
            Step::Kill { boots } => {
                let mut now = ground();
                if boots {
                    // Nothing of it was synced.
                    self.files.clear();
                    now.boot = self.next.to_string();
                    let right = self.start(&now, true);
                    // The rest is as if the machine had not been started anew.
                    if let Some(ground) = &mut self.state.ground {
                        "one".clone_into(&mut ground.boot);
                    }
                    return right;
                }
                return self.start(&now, true);
            }
            Step::KillTwice => return self.start(&ground(), false) && self.start(&ground(), true),
        }
        true
    }

    fn change(&mut self) {
        if let Some(change) = self.applied.take() {
            self.pending.push(Some(change));
            if self.fault != Some(Fault::Recorded) {
                self.pulse.recorded = Self::seq_no(self.log.len() + self.pending.len());
            }
            self.pulse.begun = 0;
        } else {
            let change = self.number();
            if self.fault != Some(Fault::Begin) {
                self.pulse.begun = 1;
            }
            self.files.push(change);
            self.applied = Some(change);
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => Just(Step::Change),
        5 => Just(Step::Land),
        3 => Just(Step::Checkpoint),
        1 => any::<bool>().prop_map(|changes| Step::Elsewhere { changes }),
        3 => proptest::bool::weighted(0.2).prop_map(|boots| Step::Kill { boots }),
        1 => Just(Step::KillTwice),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn files_that_are_taken_as_they_are_are_what_the_log_says(steps in steps()) {
        let mut world = World::new(None);
        for step in steps {
            prop_assert!(world.step(step), "{step:?}");
        }
    }
}

#[test]
fn what_somebody_forgets_is_found() {
    use Step::{Change, Checkpoint, Elsewhere, Kill, KillTwice, Land};
    let kill = Kill { boots: false };
    let elsewhere = Elsewhere { changes: true };
    let cases: [(Fault, &[Step]); 3] = [
        (Fault::Begin, &[Checkpoint, Change, kill]),
        (Fault::Recorded, &[Checkpoint, Change, Change, kill]),
        (
            Fault::Checkpoint,
            &[Checkpoint, Change, Change, elsewhere, kill, kill],
        ),
    ];
    for (fault, steps) in cases {
        let run = |fault| {
            let mut world = World::new(fault);
            steps.iter().all(|step| world.step(*step))
        };
        assert!(run(None), "{fault:?} is not there");
        let is_found = !run(Some(fault));
        // A checkpoint that stays is refused for its authors, too.
        assert_eq!(is_found, fault != Fault::Checkpoint, "{fault:?}");
    }
    // The next daemon would read the whole log, for nothing.
    let follow = |fault| {
        let mut world = World::new(fault);
        for step in [Checkpoint, Change, Change, Land, kill, KillTwice] {
            assert!(world.step(step));
        }
        world.followed
    };
    assert_eq!(follow(None), 3);
    assert!(follow(Some(Fault::Authors)) < 3);
}

#[test]
fn each_doubt_has_its_reason() {
    let mut ground = ground();
    ground.authors.push(7);
    let state = State {
        log: "a/log".to_owned(),
        author: 7,
        offset: 0,
        phase: Phase::Recording,
        ground: Some(ground.clone()),
    };
    let pulse = LastPulse {
        author: 7,
        begun: 0,
        recorded: 5,
    };
    let whole = |state: &State, now: &Ground, pulse| is_whole(state, now, pulse).map(|_| ());
    assert_eq!(whole(&state, &ground, Some(pulse)), Ok(()));
    let seeding = State {
        phase: Phase::Seeding,
        ..state.clone()
    };
    let old = State {
        ground: None,
        ..state.clone()
    };
    for none in [&seeding, &old] {
        assert_eq!(whole(none, &ground, Some(pulse)), Err(Doubt::NotRecorded));
    }
    let booted = Ground {
        boot: "two".to_owned(),
        ..ground.clone()
    };
    assert_eq!(whole(&state, &booted, Some(pulse)), Err(Doubt::Booted));
    let other = Ground {
        root: 3,
        ..ground.clone()
    };
    assert_eq!(whole(&state, &other, Some(pulse)), Err(Doubt::OtherTree));
    let foreign = LastPulse { author: 8, ..pulse };
    for none in [None, Some(foreign)] {
        assert_eq!(whole(&state, &ground, none), Err(Doubt::NoPulse));
    }
    let begun = LastPulse { begun: 2, ..pulse };
    assert_eq!(whole(&state, &ground, Some(begun)), Err(Doubt::Begun(2)));

    let followup = |last_seq_no, has_changes| Followup {
        last_seq_no,
        has_changes,
    };
    let logged = |base, behind: &[(u32, Followup)], is_uncertain| {
        let behind = behind.iter().copied().collect();
        is_logged(&ground, pulse, base, &behind, is_uncertain)
    };
    assert_eq!(logged(5, &[], false), Ok(()));
    assert_eq!(logged(4, &[(7, followup(5, true))], false), Ok(()));
    assert_eq!(logged(5, &[(8, followup(9, false))], false), Ok(()));
    assert_eq!(logged(5, &[], true), Err(Doubt::Uncertain));
    let elsewhere = logged(5, &[(8, followup(6, true))], false);
    assert_eq!(elsewhere, Err(Doubt::Elsewhere(8)));
    let unlogged = Doubt::Unlogged {
        recorded: 5,
        logged: 4,
    };
    assert_eq!(logged(4, &[], false), Err(unlogged));
    // Numbers that another one used are not those of its own ops.
    assert_eq!(logged(4, &[(8, followup(9, false))], false), Err(unlogged));
}
