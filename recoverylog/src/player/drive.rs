//! Reads what is planned, and feeds a playback.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{runtime::Handle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    error::{Missing, Nearest, NeededBy, RecoverError},
    options::{Progress, Tell},
    plan::Leg,
    playback::{Next, Playback},
};
use crate::{
    Source, SourceError,
    source::{LogReader, Piece, Survey},
};

/// A playback with what it is fed from.
pub(crate) struct Drive {
    source: Source,
    /// How many stretches are read at once.
    pub(crate) parallel: usize,
    /// Ends it.
    pub(crate) cancel: CancellationToken,
    /// Told how far it is.
    pub(crate) tell: Option<Tell>,
    surveys: BTreeMap<Arc<str>, Survey>,
    legs: Vec<Leg>,
    playback: Playback,
    /// The ops have sums of their own, so that those of fragments are not needed.
    pub(crate) has_sums: bool,
    /// Called after each piece with the playback; it ends the drive by `false`.
    pub(crate) watch: Option<Watch>,
    progress: Progress,
    told: Instant,
    told_bytes: u64,
}

/// Looks at a playback after each piece.
pub(crate) type Watch = Box<dyn FnMut(&mut Playback) -> bool + Send>;

/// How a run of legs ended.
enum Ran {
    Through,
    Rewind { leg: usize, offset: i64 },
    Stopped,
}

impl Drive {
    /// Plays `legs`.
    pub(crate) fn new(
        source: &Source,
        surveys: &BTreeMap<Arc<str>, Survey>,
        legs: &[Leg],
        playback: Playback,
    ) -> Self {
        let lengths = legs.iter().map(|leg| length(leg.begin, leg.end));
        Self {
            source: source.clone(),
            parallel: 1,
            cancel: CancellationToken::new(),
            tell: None,
            has_sums: false,
            surveys: surveys.clone(),
            playback,
            watch: None,
            progress: Progress {
                total_bytes: lengths.sum(),
                ..Progress::default()
            },
            legs: legs.to_vec(),
            told: Instant::now(),
            told_bytes: 0,
        }
    }

    /// Runs on a thread that may block, and returns the playback with the bytes that it was fed.
    pub(crate) fn run(mut self, handle: &Handle) -> Result<(Playback, u64), RecoverError> {
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
        let mut reader = LogReader::new(&self.source, survey, ranges, self.parallel);
        if self.has_sums {
            reader = reader.without_sums();
        }
        if from.is_some() {
            self.playback.rewind(first);
        } else {
            self.playback.seek(&log, first)?;
        }
        let cancel = self.cancel.clone();
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
                None => match self.playback.end() {
                    Next::Stop | Next::Feed => Next::Stop,
                    rewind @ Next::Rewind(_) => rewind,
                },
            };
            if let Some(watch) = &mut self.watch
                && !watch(&mut self.playback)
            {
                return Ok(Ran::Stopped);
            }
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
        let Some(told) = &self.tell else {
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

fn length(begin: i64, end: i64) -> u64 {
    u64::try_from(end.saturating_sub(begin)).unwrap_or(0)
}

/// Often enough for people.
const TELL_EVERY: Duration = Duration::from_millis(200);
