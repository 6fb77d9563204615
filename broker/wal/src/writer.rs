//! The thread that writes the log.
//!
//! One round takes what waits, gives it a place in the segment at the head, writes it, syncs, and
//! answers whoever waits for it: one sync for all journals. What comes meanwhile is the next round.
//! No lock is held while it writes.
//!
//! A segment that is full is followed by a free one. Where there are less than two free ones, the
//! oldest is made free: the spools whose bytes only it has are synced by helpers, copies of states
//! whose newest record is in it are written at the head, and a `Trim` record says that the log
//! begins after it. Appends leave one free segment to the copies, so that these always have room,
//! and to the next start. A log whose states take more than half of it grows.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    error::LogError,
    format::{Kind, SegmentHeader, payload::Frame, record_bytes},
    ledger::Ledger,
    metrics,
    pool::Job,
    shared::{Entry, Event, Intake, Shared, Waiter},
    spool::SpoolFile,
};

mod batch;
mod fill;
mod segments;

use batch::Batch;
use segments::Slot;
pub(crate) use segments::{Segments, parse_file_name as parse_segment_name};

/// Bytes in one round, at most: what a disk writes in some ten milliseconds.
const ROUND_MAX_BYTES: usize = 4 << 20;

/// Bytes of copies in one round: appends of the round wait for them.
const COPIES_MAX_BYTES: usize = 256 << 10;

/// Spools that one helper syncs one after the other.
const SPOOLS_PER_JOB: usize = 16;

/// The log is idle when nothing comes for this long.
const IDLE: Duration = Duration::from_secs(1);

/// The record of a trim, with room to spare.
const TRIM_BYTES: usize = record_bytes(32);

/// Writes the log.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    ledger: Ledger<SpoolFile>,
    segments: Segments,
    head: Head,
    batch: Batch,
    intake: Intake,
    /// Entries that have no place yet.
    backlog: VecDeque<Entry>,
    recycling: Option<Recycling>,
    /// A helper makes a segment.
    making: bool,
    /// When a segment could not be made, for the last time.
    make_failed: Option<Instant>,
    /// Something was written that no later record shows to be synced.
    unmarked: bool,
    /// A free segment is needed even if there are enough.
    starved: bool,
}

/// The segment that is written.
#[derive(Debug)]
struct Head {
    header: SegmentHeader,
    slot: Slot,
    /// Where the next record goes; 0 if the header is not written.
    position: usize,
}

/// The oldest segment is being made free.
#[derive(Debug)]
struct Recycling {
    through: u64,
    /// Spools that were handed to helpers, and the number of helpers that are not done.
    spools: Vec<(u64, u64)>,
    jobs: usize,
}

/// What a round wrote, to be answered when it is synced.
#[derive(Debug, Default)]
struct Written {
    waiters: Vec<Waiter>,
    unlinks: Vec<(Vec<SpoolFile>, Waiter)>,
    trimmed: Option<u64>,
}

/// What to do after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is more to write.
    Again,
    /// Wait for something, this long at most.
    Wait(Duration),
    /// The log is closed and all is answered.
    End,
}

impl Writer {
    /// A writer that begins a run in a free segment. `header` is that of its first segment.
    pub(crate) fn new(
        shared: Arc<Shared>,
        ledger: Ledger<SpoolFile>,
        mut segments: Segments,
        header: SegmentHeader,
    ) -> io::Result<Self> {
        let slot = segments.take_free()?;
        segments.add_live(header.generation);
        Ok(Self {
            shared,
            ledger,
            segments,
            batch: Batch::new(header.segment_bytes),
            head: Head {
                header,
                slot,
                position: 0,
            },
            intake: Intake::default(),
            backlog: VecDeque::new(),
            recycling: None,
            making: false,
            make_failed: None,
            unmarked: false,
            starved: false,
        })
    }

    /// Writes copies of all states and the record that establishes the run. Makes segments itself
    /// where it needs some.
    pub(crate) fn establish(&mut self) -> Result<(), LogError> {
        let run = self.head.header.run;
        let live_bytes = self.ledger.live_bytes();
        loop {
            self.begin_batch();
            let through = run - 1;
            let room = self.batch.room().saturating_sub(TRIM_BYTES);
            let generation = self.head.header.generation;
            let (frames, all) = self
                .ledger
                .copy_states(through, generation, room, ROUND_MAX_BYTES);
            let some = !frames.is_empty();
            for frame in frames {
                self.batch.push(frame);
            }
            // Not together with the copies: whoever finds it knows that these were synced.
            if all && !some {
                self.push_trim(run);
            }
            if self.batch.is_empty() {
                self.segments.make_room(live_bytes).map_err(|(path, err)| {
                    self.shared.fail("make segment", path, err);
                    self.shared.failure()
                })?;
                self.rotate(1);
                continue;
            }
            self.flush(Written::default());
            if self.shared.is_broken() {
                return Err(self.shared.failure());
            }
            if all && !some {
                return Ok(());
            }
        }
    }

    /// Writes until the log is closed.
    pub(crate) fn run(mut self) {
        let mut wait = Duration::ZERO;
        loop {
            match self.round(wait) {
                Next::Again => wait = Duration::ZERO,
                Next::Wait(at_most) => wait = at_most,
                Next::End => break,
            }
        }
        self.shared.pool.close();
    }

    /// Waits for something to do, and does it.
    pub(crate) fn round(&mut self, wait: Duration) -> Next {
        let mut intake = std::mem::take(&mut self.intake);
        self.shared.take(&mut intake, wait);
        let idle = intake.entries.is_empty() && intake.events.is_empty();
        self.backlog.extend(intake.entries.drain(..));
        for event in intake.events.drain(..) {
            self.handle(event);
        }
        self.intake = intake;
        if self.shared.is_broken() {
            return self.give_up();
        }
        let finished = self.shared.is_finished() && self.backlog.is_empty();
        if self.unmarked && (finished || idle && !wait.is_zero()) {
            self.mark();
        }
        if finished {
            return Next::End;
        }
        self.make_failed = self.make_failed.filter(|at| at.elapsed() < IDLE);
        self.make_segment();
        self.begin_recycling();

        self.begin_batch();
        let mut written = Written::default();
        self.fill_copies(&mut written);
        self.fill_entries(&mut written);
        if !self.batch.is_empty() {
            self.flush(written);
            return if self.shared.is_broken() {
                self.give_up()
            } else {
                self.after_flush()
            };
        }
        let copying = self
            .recycling
            .as_ref()
            .is_some_and(|recycling| recycling.jobs == 0);
        if copying && self.rotate(1) || !self.backlog.is_empty() && self.rotate(2) {
            return Next::Again;
        }
        self.starved = copying;
        self.make_segment();
        Next::Wait(IDLE)
    }

    fn after_flush(&self) -> Next {
        let copying = self
            .recycling
            .as_ref()
            .is_some_and(|recycling| recycling.jobs == 0);
        if copying || !self.backlog.is_empty() {
            Next::Again
        } else {
            Next::Wait(IDLE)
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::SpoolsSynced => {
                if let Some(recycling) = &mut self.recycling {
                    recycling.jobs -= 1;
                    if recycling.jobs == 0 {
                        let spools = std::mem::take(&mut recycling.spools);
                        self.ledger.synced(&spools);
                    }
                }
            }
            Event::SegmentMade(path, made) => {
                self.making = false;
                match made.and_then(|()| self.segments.add(path.clone())) {
                    Ok(()) => self.starved = false,
                    Err(err) => {
                        // The log goes on in the segments that it has.
                        let path = path.display();
                        tracing::warn!(%path, %err, "no room for another segment of the log");
                        self.make_failed = Some(Instant::now());
                    }
                }
            }
        }
    }

    /// Has another segment made, if there should be more.
    fn make_segment(&mut self) {
        let few = self.segments.free() < 2 && self.segments.count() < self.segments.target();
        if (few || self.starved) && !self.making && self.make_failed.is_none() {
            self.making = true;
            let (path, length) = self.segments.next();
            self.shared
                .pool
                .background(Job::MakeSegment { path, length });
        }
    }

    /// Begins to make the oldest segment free, if it is time.
    fn begin_recycling(&mut self) {
        let Some(through) = self.segments.oldest_of_several() else {
            return;
        };
        if self.recycling.is_some() || self.segments.free() >= 2 || self.making {
            return;
        }
        let spools = self.ledger.begin_sync(through);
        let files: Vec<SpoolFile> = spools
            .iter()
            .filter_map(|(j, s)| self.ledger.spool(*j, *s).cloned())
            .collect();
        let jobs = files.chunks(SPOOLS_PER_JOB);
        self.recycling = Some(Recycling {
            through,
            spools,
            jobs: jobs.len(),
        });
        for chunk in jobs {
            self.shared.pool.background(Job::SyncSpools(chunk.to_vec()));
        }
    }

    fn begin_batch(&mut self) {
        let synced = self.head.header.synced;
        self.batch
            .begin(&self.head.header, self.head.position, synced);
    }

    /// Writes the batch, syncs it, and answers. Where it fails, the log is broken.
    fn flush(&mut self, written: Written) {
        let started = Instant::now();
        let file = &self.head.slot.file;
        let path = || self.head.slot.path.clone();
        if let Err(err) = self.batch.write(&**file) {
            self.shared.fail("write", path(), err);
        } else if self.head.header.synced
            && let Err(err) = file.sync_data()
        {
            self.shared.fail("sync", path(), err);
        }
        self.head.position = self.batch.end();
        self.unmarked = true;
        let Written {
            waiters,
            unlinks,
            trimmed,
        } = written;
        if self.shared.is_broken() {
            let unlinks = unlinks.into_iter().map(|(_, waiter)| waiter);
            let failure = Err(self.shared.failure());
            return self
                .shared
                .answer(waiters.into_iter().chain(unlinks), &failure);
        }
        let took = started.elapsed();
        metrics::round(waiters.len() + unlinks.len(), self.batch.bytes(), took);
        self.shared.answer(waiters, &Ok(()));
        for (spools, waiter) in unlinks {
            self.shared.pool.background(Job::Unlink(spools, waiter));
        }
        if let Some(through) = trimmed {
            self.segments.free_through(through);
            self.segments.set_live_bytes(self.ledger.live_bytes());
            self.recycling = None;
        }
    }

    /// Writes a record that shows that all before it was synced.
    fn mark(&mut self) {
        self.begin_batch();
        if self.head.header.synced && self.batch.room() >= record_bytes(0) {
            self.batch
                .push(Frame::new(Kind::Mark, Vec::new(), Vec::new()));
            self.flush(Written::default());
        }
        self.unmarked = false;
    }

    /// Goes on in another segment, if at least so many are free.
    fn rotate(&mut self, free: usize) -> bool {
        if self.segments.free() < free {
            return false;
        }
        let Ok(slot) = self.segments.take_free() else {
            return false;
        };
        let old = &self.head.header;
        let header = SegmentHeader {
            generation: old.generation + 1,
            first_lsn: old.end_lsn(),
            previous_end: old.lsn(self.head.position),
            ..*old
        };
        let full = std::mem::replace(
            &mut self.head,
            Head {
                header,
                slot,
                position: 0,
            },
        );
        self.segments.retire(full.slot);
        self.segments.add_live(header.generation);
        true
    }

    /// Answers everybody that the log is broken.
    fn give_up(&mut self) -> Next {
        let failure = Err(self.shared.failure());
        let waiters: Vec<Waiter> = self.backlog.drain(..).map(|entry| entry.waiter).collect();
        self.shared.answer(waiters, &failure);
        if self.shared.is_finished() {
            Next::End
        } else {
            Next::Wait(IDLE)
        }
    }

    /// Takes over the segments of the run before, which are not needed any more, and makes some
    /// until there are enough.
    pub(crate) fn adopt(
        &mut self,
        old: Vec<PathBuf>,
        at_least: usize,
    ) -> Result<(), (PathBuf, io::Error)> {
        self.segments.adopt(old);
        while self.segments.count() < at_least {
            self.segments.make()?;
        }
        Ok(())
    }
}
