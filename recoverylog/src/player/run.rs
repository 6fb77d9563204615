//! Drives a playback: reads what is planned, plays it, and lets the tree appear.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gazette_recoverylog_fsm::Author;
use tokio::{runtime::Handle, time::Instant};

use super::{
    error::{Missing, Nearest, NeededBy, RecoverError},
    options::{Point, Progress, RecoverOptions},
    plan::Leg,
    playback::{Next, Playback},
    recovered::{Recovered, Report},
    start::{self, Start},
};
use crate::{
    Source, SourceError,
    image::{BuildOptions, Image},
    source::{LogReader, Piece, Survey},
};

/// Plays one log towards a directory.
#[derive(Debug)]
pub struct Player {
    source: Source,
    options: RecoverOptions,
    start: Start,
    playback: Option<Playback>,
    bytes: u64,
}

impl Player {
    /// Looks at the log, chooses hints, and claims the target.
    pub async fn begin(source: &Source, options: RecoverOptions) -> Result<Self, RecoverError> {
        let start = start::find(source, &options.log, options.point, &options.hints).await?;
        let (to, log) = (options.to.clone(), options.log.clone());
        let claim = tokio::task::spawn_blocking(move || Image::begin(&to, &log));
        let image = claim.await.map_err(|_| thread(&options.log))??;
        let mut player = Self {
            source: source.clone(),
            start,
            playback: None,
            bytes: 0,
            options,
        };
        player.playback = Some(player.playback(image)?);
        Ok(player)
    }

    fn playback(&self, image: Image) -> Result<Playback, RecoverError> {
        let start = &self.start;
        let playback = Playback::new(&start.hints, start.mode, Some(image));
        let mut playback = playback.map_err(|cause| RecoverError::Hints {
            log: self.options.log.clone(),
            cause,
        })?;
        let until = match self.options.point {
            Point::Time(time) => Some(time),
            Point::Head | Point::Offset(_) => None,
        };
        playback.set_limit(start.limit, start.is_head, until);
        playback.progress.time = start.time;
        Ok(playback)
    }

    /// Plays up to the point.
    pub async fn play(&mut self) -> Result<(), RecoverError> {
        loop {
            let Some(playback) = self.playback.take() else {
                return Err(thread(&self.options.log));
            };
            let playback = self.play_legs(playback).await?;
            let Some(group) = playback.progress.open_group else {
                playback.check_end(self.options.takes_cut_seed)?;
                self.check_time(&playback)?;
                self.playback = Some(playback);
                return Ok(());
            };
            // Part of a group was applied, which cannot be taken back: it is played again up to there.
            self.start.limit = group;
            self.start.is_head = false;
            for leg in &mut self.start.legs {
                if *leg.log == *self.options.log {
                    leg.end = leg.end.min(group);
                }
            }
            self.start.legs.retain(|leg| leg.begin < leg.end);
            let Some(mut image) = playback.image else {
                return Err(thread(&self.options.log));
            };
            let restart = tokio::task::spawn_blocking(move || image.restart().map(|()| image));
            let image = restart.await.map_err(|_| thread(&self.options.log))??;
            self.playback = Some(self.playback(image)?);
        }
    }

    /// A point in time must not be before all that the log tells the time of.
    fn check_time(&self, playback: &Playback) -> Result<(), RecoverError> {
        let log = || self.options.log.clone();
        if !matches!(self.options.point, Point::Time(_)) {
            return Ok(());
        }
        match (playback.progress.time, playback.first_later) {
            (Some(_), _) => Ok(()),
            (None, Some(first)) => Err(RecoverError::BeforeFirst { log: log(), first }),
            (None, None) => Err(RecoverError::NoTimes { log: log() }),
        }
    }

    /// Plays all that is planned, on a thread that may block.
    async fn play_legs(&mut self, playback: Playback) -> Result<Playback, RecoverError> {
        let total_bytes = self
            .start
            .legs
            .iter()
            .map(|leg| length(leg.begin, leg.end))
            .sum();
        let drive = Drive {
            source: self.source.clone(),
            options: self.options.clone(),
            surveys: self.start.surveys.clone(),
            legs: self.start.legs.clone(),
            playback,
            progress: Progress {
                total_bytes,
                ..Progress::default()
            },
            told: Instant::now(),
            told_bytes: 0,
        };
        let handle = Handle::current();
        let driven = tokio::task::spawn_blocking(move || drive.run(&handle));
        let (playback, bytes) = driven.await.map_err(|_| thread(&self.options.log))??;
        self.bytes += bytes;
        Ok(playback)
    }

    /// Builds the tree of what was played, and lets it appear at the target.
    pub async fn finish(mut self) -> Result<Recovered, RecoverError> {
        let log = self.options.log.clone();
        let playback = self.playback.take().ok_or_else(|| thread(&log))?;
        let options = BuildOptions {
            restore_owner: self.options.restore_owner,
            sync: self.options.sync,
        };
        let build = tokio::task::spawn_blocking(move || playback.build(options));
        let (playback, built) = build.await.map_err(|_| thread(&log))??;
        let reached = playback.progress;
        Ok(Recovered {
            log: Arc::from(log),
            mode: playback
                .fsm
                .mode()
                .or(self.start.mode)
                .or((reached.ops > 0).then_some(playback.tree.mode())),
            path: built.path,
            fsm: playback.fsm,
            tree: playback.tree,
            write_head: self.start.limit,
            offset: reached.offset,
            last_author: reached.author.and_then(Author::new),
            time: reached.time,
            report: Report {
                ops: reached.ops,
                dead_ops: reached.dead_ops,
                bytes: self.bytes,
                files: built.files,
                hints: self.start.hints_use,
                skipped: reached.skipped,
                unpersisted_from: self.source.is_store().then_some(self.start.limit),
                is_head_uncertain: !self.start.is_head_exact && !self.source.is_store(),
                is_seed_cut: reached.seed.is_some(),
                not_restored: built.not_restored,
                not_restored_count: built.not_restored_count,
            },
        })
    }
}

/// A playback with what it is fed from.
struct Drive {
    source: Source,
    options: RecoverOptions,
    surveys: BTreeMap<Arc<str>, Survey>,
    legs: Vec<Leg>,
    playback: Playback,
    progress: Progress,
    told: Instant,
    told_bytes: u64,
}

/// How a run of legs ended.
enum Ran {
    Through,
    Rewind { leg: usize, offset: i64 },
    Stopped,
}

impl Drive {
    fn run(mut self, handle: &Handle) -> Result<(Playback, u64), RecoverError> {
        let (mut first, mut from) = (0, None);
        while first < self.legs.len() {
            let log = Arc::clone(&self.legs[first].log);
            let count = self.legs[first..]
                .iter()
                .take_while(|leg| leg.log == log)
                .count();
            match self.run_log(handle, first..first + count, from.take())? {
                Ran::Through => first += count,
                Ran::Rewind { leg, offset } => {
                    first = leg;
                    from = Some(offset);
                }
                Ran::Stopped => break,
            }
        }
        self.tell(true);
        Ok((self.playback, self.progress.bytes))
    }

    /// Reads legs of one log, the first of them from an offset within it on.
    fn run_log(
        &mut self,
        handle: &Handle,
        legs: std::ops::Range<usize>,
        from: Option<i64>,
    ) -> Result<Ran, RecoverError> {
        let log = Arc::clone(&self.legs[legs.start].log);
        let Some(survey) = self.surveys.get(&log) else {
            let journal = log.to_string();
            return Err(SourceError::NoJournal { journal }.into());
        };
        let ranges: Vec<_> = self.legs[legs.clone()]
            .iter()
            .enumerate()
            .map(|(index, leg)| match from {
                Some(from) if index == 0 => (from.max(leg.begin), leg.end),
                _ => (leg.begin, leg.end),
            })
            .collect();
        let first = ranges.first().map_or(0, |range| range.0);
        let mut reader = LogReader::new(&self.source, survey, ranges, self.options.parallel);
        if from.is_some() {
            self.playback.rewind(first);
        } else {
            self.playback.seek(&log, first)?;
        }
        let cancel = self.options.cancel.clone();
        let mut leg = legs.start;
        loop {
            let piece = handle.block_on(async {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => None,
                    piece = reader.next() => Some(piece),
                }
            });
            let Some(piece) = piece else {
                return Err(RecoverError::Cancelled {
                    log: log.to_string(),
                    offset: self.playback.feed_offset(),
                });
            };
            let next = match piece? {
                Some(Piece::Content { offset, bytes }) => {
                    while leg + 1 < legs.end && offset >= self.legs[leg].end {
                        leg += 1;
                    }
                    if offset != self.playback.feed_offset() {
                        self.playback.seek(&log, offset)?;
                    }
                    self.progress.bytes += bytes.len() as u64;
                    self.tell(false);
                    self.playback.feed(bytes)?
                }
                Some(Piece::Gap { begin, end }) => {
                    self.gap(&log, begin, end)?;
                    Next::Feed
                }
                None if legs.end < self.legs.len() => return Ok(Ran::Through),
                None => match self.playback.end()? {
                    Next::Stop | Next::Feed => return Ok(Ran::Through),
                    rewind @ Next::Rewind(_) => rewind,
                },
            };
            match next {
                Next::Feed => {}
                Next::Stop => return Ok(Ran::Stopped),
                Next::Rewind(offset) => return Ok(Ran::Rewind { leg, offset }),
            }
        }
    }

    fn gap(&mut self, log: &Arc<str>, begin: i64, end: i64) -> Result<(), RecoverError> {
        if self.playback.may_miss() {
            return self.playback.seek(log, end);
        }
        Err(RecoverError::Missing(Box::new(Missing {
            log: log.to_string(),
            begin,
            end,
            needed_by: if self.playback.is_hinted() {
                NeededBy::Hints
            } else {
                NeededBy::Following
            },
            nearest: Nearest {
                before: (self.playback.progress.offset > 0)
                    .then_some(self.playback.progress.offset),
                after: None,
            },
        })))
    }

    /// Tells how far it is, if that is due.
    fn tell(&mut self, is_end: bool) {
        let Some(told) = &self.options.progress else {
            return;
        };
        let since = self.told.elapsed();
        if since < TELL_EVERY && !is_end {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let bytes = (self.progress.bytes - self.told_bytes) as f64;
        if since >= TELL_EVERY {
            self.progress.bytes_per_second = bytes / since.as_secs_f64();
            self.told = Instant::now();
            self.told_bytes = self.progress.bytes;
        }
        self.progress.files = self.playback.fsm.live_nodes().len() as u64;
        told(self.progress);
    }
}

fn thread(log: &str) -> RecoverError {
    RecoverError::Thread {
        log: log.to_owned(),
    }
}

fn length(begin: i64, end: i64) -> u64 {
    u64::try_from(end.saturating_sub(begin)).unwrap_or(0)
}

/// Often enough for people.
const TELL_EVERY: Duration = Duration::from_millis(200);
