//! Random histories of some journals, and what must be there after a crash.

use std::collections::VecDeque;

use gazette_protocol::Sha1Sum;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::disk::Crash;

/// Spools are rolled at this length, and dropped when there are more than this many.
const SPOOL_MAX_BYTES: usize = 30_000;
const SPOOLS_MAX: usize = 4;

/// What the log should have of a journal.
#[derive(Clone, Debug, PartialEq)]
struct State {
    end: i64,
    registers: Arc<LabelSet>,
    /// Oldest first.
    spools: Vec<SpoolState>,
}

#[derive(Clone, Debug, PartialEq)]
struct SpoolState {
    begin: i64,
    content: Arc<Vec<u8>>,
    registers: Arc<LabelSet>,
    first_append: Option<SystemTime>,
    complete: bool,
}

/// A journal in use.
struct Track {
    name: String,
    revision: i64,
    journal: JournalLog,
    /// Files of the last state's spools.
    files: Vec<SpoolFile>,
    /// A file for the next spool, if it was written to already.
    next_file: Option<SpoolFile>,
    /// The last acknowledged state, and those after entries that wait. `None` is a journal that
    /// is not in the log.
    states: VecDeque<Option<State>>,
    acks: VecDeque<Ack>,
    /// Something was taken back, and is not to be written over before the acknowledgement.
    frozen: bool,
    gone: bool,
}

/// Some journals, a log under them, and a disk under it.
pub(super) struct World {
    pub(super) disk: SimDisk,
    options: Options,
    planted: Planted,
    rng: StdRng,
    manual: Option<Manual>,
    tracks: Vec<Track>,
    next_revision: i64,
    pub(super) acknowledged: usize,
    /// The log broke.
    refused: bool,
}

impl World {
    pub(super) fn new(seed: u64, options: Options, planted: Planted) -> Self {
        Self {
            disk: SimDisk::new(),
            options,
            planted,
            rng: StdRng::seed_from_u64(seed),
            manual: None,
            tracks: Vec::new(),
            next_revision: 1,
            acknowledged: 0,
            refused: false,
        }
    }

    /// Opens the log and compares, unless the disk fails. Returns whether it did not.
    pub(super) fn open_or_fail(&mut self) -> Result<bool, String> {
        self.open_and(true)?;
        Ok(self.manual.is_some())
    }

    /// Opens the log and compares. What does not fit is an error; a crash meanwhile is not.
    pub(super) fn open(&mut self) -> Result<(), String> {
        self.open_and(false)
    }

    fn open_and(&mut self, may_fail: bool) -> Result<(), String> {
        let (manual, recovered) = match Manual::open(&self.options, &self.disk, self.planted) {
            Ok(opened) => opened,
            Err(OpenError::Io(_)) if self.disk.is_crashed() || may_fail => return Ok(()),
            Err(err) => return Err(err.to_string()),
        };
        if self.disk.is_crashed() {
            return Ok(());
        }
        let mut kept = Vec::new();
        for found in recovered {
            let track = self
                .tracks
                .iter()
                .position(|track| {
                    track.name == found.name && track.revision == found.create_revision
                })
                .ok_or_else(|| format!("{} was never there", found.name))?;
            let mut track = self.tracks.swap_remove(track);
            let state = state_of(&found)?;
            if !track.states.contains(&Some(state.clone())) {
                return Err(format!(
                    "{} has {state:?}, not one of {:?}",
                    track.name, track.states
                ));
            }
            track.states = VecDeque::from([Some(state)]);
            track.acks.clear();
            track.journal = found.journal;
            track.files = found.spools.into_iter().map(|spool| spool.file).collect();
            track.next_file = None;
            track.frozen = false;
            track.gone = false;
            kept.push(track);
        }
        for missing in &self.tracks {
            if !missing.states.contains(&None) {
                return Err(format!("{} is lost, {:?}", missing.name, missing.states));
            }
        }
        self.tracks = kept;
        self.manual = Some(manual);
        Ok(())
    }

    /// Ends the process and the handles, and starts another one.
    pub(super) fn crash(&mut self, crash: Crash) {
        self.disk = self.disk.restart(crash);
        self.refused = false;
        self.manual = None;
    }

    /// Does some steps, until the process crashes.
    pub(super) fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if self.disk.is_crashed() || self.manual.is_none() {
                return;
            }
            self.step();
            self.collect();
        }
    }

    /// Lets all entries be acknowledged.
    pub(super) fn settle(&mut self) {
        if let Some(manual) = &mut self.manual {
            manual.settle();
        }
        self.collect();
    }

    /// Whether the log broke.
    pub(super) fn is_broken(&self) -> bool {
        self.manual
            .as_ref()
            .is_some_and(|manual| manual.log.failed().borrow().is_some())
    }

    /// Whether nobody waits.
    pub(super) fn is_settled(&self) -> bool {
        self.tracks.iter().all(|track| track.acks.is_empty())
    }

    /// Lets the writer find that nothing comes.
    pub(super) fn idle(&mut self) {
        if let Some(manual) = &mut self.manual {
            manual.idle_round();
            manual.close_idle();
        }
    }

    fn collect(&mut self) {
        for track in &mut self.tracks {
            while let Some(ack) = track.acks.front_mut() {
                match ack.0.try_recv() {
                    Ok(Ok(())) => {
                        assert!(!self.refused, "a broken log acknowledges nothing");
                        track.acks.pop_front();
                        track.states.pop_front();
                        self.acknowledged += 1;
                    }
                    // It stays possible that it is there.
                    Ok(Err(_)) | Err(_) => break,
                }
            }
            track.frozen &= !track.acks.is_empty();
        }
        // Only the steps after this one: what was acknowledged before it broke may be found late.
        self.refused |= self.is_broken();
        self.tracks
            .retain(|track| !(track.gone && track.acks.is_empty()));
    }

    fn step(&mut self) {
        let manual = self.manual.as_mut().unwrap();
        match self.rng.random_range(0..100) {
            0..30 => drop(manual.round()),
            30..50 => drop(manual.job()),
            50 => drop(manual.idle_round()),
            51 => manual.close_idle(),
            _ => self.act(),
        }
    }

    fn act(&mut self) {
        if self.tracks.len() < 3 {
            self.create();
        }
        let index = self.rng.random_range(0..self.tracks.len());
        let track = &mut self.tracks[index];
        if track.frozen || track.gone {
            return;
        }
        let last = track.last();
        let length = last.spools.last().map_or(0, |spool| spool.content.len());
        match self.rng.random_range(0..100) {
            _ if length > SPOOL_MAX_BYTES && track.is_growing() => track.roll(&mut self.rng),
            _ if last.spools.len() > SPOOLS_MAX => track.drop_oldest(),
            0..50 => {
                let most = if self.rng.random_bool(0.2) {
                    16_000
                } else {
                    1000
                };
                let length = self.rng.random_range(1..=most);
                track.append(&mut self.rng, length, true);
            }
            50..62 => {
                let length = self.rng.random_range(1..20_000);
                track.append(&mut self.rng, length, false);
            }
            62..70 => track.garbage(&mut self.rng),
            70..75 => track.append(&mut self.rng, 0, true),
            75..80 => track.take_back(&mut self.rng),
            80..90 => track.roll(&mut self.rng),
            90..98 => track.drop_oldest(),
            _ => track.forget(),
        }
    }

    fn create(&mut self) {
        let revision = self.next_revision;
        self.next_revision += 1;
        let name = format!("some/journal-{}", revision % 5);
        let journal = self
            .manual
            .as_ref()
            .unwrap()
            .log
            .open_journal(&name, revision);
        self.tracks.push(Track {
            name,
            revision,
            journal,
            files: Vec::new(),
            next_file: None,
            states: VecDeque::from([None]),
            acks: VecDeque::new(),
            frozen: false,
            gone: false,
        });
    }
}

impl Track {
    fn last(&self) -> State {
        let last = self.states.back().cloned().flatten();
        last.unwrap_or_else(|| State {
            end: 0,
            registers: Arc::default(),
            spools: Vec::new(),
        })
    }

    fn is_growing(&self) -> bool {
        self.last()
            .spools
            .last()
            .is_some_and(|spool| !spool.complete)
    }

    /// The file to which the next append goes, and where in it.
    fn file(&mut self) -> (SpoolFile, u64) {
        let last = self.last();
        if let Some(spool) = last.spools.last().filter(|spool| !spool.complete) {
            let file = self.files.last().unwrap().clone();
            return (file, last.end.abs_diff(spool.begin));
        }
        let file = self
            .next_file
            .take()
            .filter(|file| file.begin() == last.end);
        let file = file.unwrap_or_else(|| self.journal.create_spool(last.end));
        self.next_file = Some(file.clone());
        (file, 0)
    }

    fn append(&mut self, rng: &mut StdRng, length: usize, inline: bool) {
        let mut state = self.last();
        let growing = self.is_growing();
        let (file, at) = self.file();
        let mut content = vec![0; length];
        rng.fill(&mut content[..]);
        if file.write_at(at, &content).is_err() {
            return;
        }
        let append_begin = state.end;
        state.end += i64::try_from(length).unwrap();
        state.registers = registers(rng);
        if !growing && length > 0 {
            state.spools.push(SpoolState {
                begin: append_begin,
                content: Arc::default(),
                registers: Arc::default(),
                first_append: Some(time(rng)),
                complete: false,
            });
            self.files.push(self.next_file.take().unwrap());
        }
        if let Some(spool) = state.spools.last_mut().filter(|spool| !spool.complete) {
            Arc::make_mut(&mut spool.content).extend_from_slice(&content);
        }
        let content = if inline {
            let (left, right) = content.split_at(length / 3);
            Content::Inline(vec![left.to_vec().into(), right.to_vec().into()])
        } else {
            Content::InSpool
        };
        self.commit(state, file, append_begin, content);
    }

    fn commit(&mut self, mut state: State, spool: SpoolFile, append_begin: i64, content: Content) {
        let was_growing = self.is_growing();
        let mut first_append = None;
        let mut sum = Sha1Sum::default();
        if let Some(spool) = state.spools.last_mut().filter(|spool| !spool.complete) {
            spool.registers = Arc::clone(&state.registers);
            // Only the first one counts.
            first_append = spool.first_append.filter(|_| !was_growing);
            sum = sum_of(&spool.content);
        }
        let fragment = Fragment {
            journal: self.name.clone(),
            begin: spool.begin(),
            end: state.end,
            sum,
            compression_codec: 2,
            ..Fragment::default()
        };
        let registers = Arc::clone(&state.registers);
        let commit = Commit {
            spool,
            fragment,
            append_begin,
            registers,
            first_append,
            content,
        };
        self.acks.push_back(self.journal.commit(commit));
        self.states.push_back(Some(state));
    }

    /// An append that is given up.
    fn garbage(&mut self, rng: &mut StdRng) {
        let (file, at) = self.file();
        let mut content = vec![0; rng.random_range(1..3000)];
        rng.fill(&mut content[..]);
        drop(file.write_at(at, &content));
    }

    fn take_back(&mut self, rng: &mut StdRng) {
        if !self.is_growing() {
            return;
        }
        let mut state = self.last();
        let spool = state.spools.last_mut().unwrap();
        let keep = rng.random_range(0..=spool.content.len());
        Arc::make_mut(&mut spool.content).truncate(keep);
        state.end = spool.begin + i64::try_from(keep).unwrap();
        let file = self.files.last().unwrap().clone();
        let append_begin = state.end;
        if keep == 0 {
            state.spools.pop();
            self.files.pop();
        }
        self.commit(state, file, append_begin, Content::Inline(Vec::new()));
        self.frozen = true;
    }

    fn roll(&mut self, rng: &mut StdRng) {
        let mut state = self.last();
        let completed = self
            .is_growing()
            .then(|| self.files.last().unwrap().clone());
        if let Some(spool) = state.spools.last_mut() {
            spool.complete = true;
        }
        if rng.random_bool(0.2) {
            state.end += 1000;
        }
        state.registers = registers(rng);
        let (next_begin, registers) = (state.end, Arc::clone(&state.registers));
        self.acks.push_back(self.journal.roll(Roll {
            completed,
            next_begin,
            registers,
        }));
        self.states.push_back(Some(state));
    }

    fn drop_oldest(&mut self) {
        let mut state = self.last();
        if state.spools.first().is_none_or(|spool| !spool.complete) {
            return;
        }
        state.spools.remove(0);
        let file = self.files.remove(0);
        self.acks.push_back(self.journal.drop_spool(&file));
        self.states.push_back(Some(state));
    }

    fn forget(&mut self) {
        self.acks.push_back(self.journal.forget());
        self.states.push_back(None);
        self.files.clear();
        self.gone = true;
    }
}

fn registers(rng: &mut StdRng) -> Arc<LabelSet> {
    let label = |name: &str, value: u32| gazette_protocol::Label {
        name: name.to_owned(),
        value: value.to_string(),
        ..gazette_protocol::Label::default()
    };
    let labels = vec![
        label("author", rng.random()),
        label("counter", rng.random()),
    ];
    Arc::new(LabelSet { labels })
}

fn time(rng: &mut StdRng) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(rng.random_range(0..u64::MAX / 4))
}

fn sum_of(content: &[u8]) -> Sha1Sum {
    Sha1Sum {
        part1: crc32c::crc32c(content).into(),
        ..Sha1Sum::default()
    }
}

/// What was found of a journal.
fn state_of(found: &RecoveredJournal) -> Result<State, String> {
    let mut spools = Vec::new();
    for spool in &found.spools {
        let Fragment {
            begin, end, sum, ..
        } = spool.fragment;
        let mut content = vec![0; usize::try_from(end - begin).unwrap()];
        let read = spool
            .file
            .read_at(0, &mut content)
            .map_err(|err| err.to_string())?;
        if read < content.len() || sum_of(&content) != sum {
            return Err(format!(
                "{} has a spool at {begin} with other content",
                found.name
            ));
        }
        assert_eq!(spool.fragment.journal, found.name);
        spools.push(SpoolState {
            begin,
            content: Arc::new(content),
            registers: Arc::clone(&spool.registers),
            first_append: spool.first_append,
            complete: spool.complete,
        });
    }
    Ok(State {
        end: found.end,
        registers: Arc::clone(&found.registers),
        spools,
    })
}
