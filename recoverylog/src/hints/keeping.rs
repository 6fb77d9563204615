//! What must stay in a log, as its journal of hints says it, and how somebody has it kept.

use std::collections::BTreeMap;

use bytes::Bytes;
use gazette_client::{AppendError, Client};
use gazette_protocol::AppendRequest;
use gazette_recoverylog_fsm::{FsmHints, Timestamp, prune::Keep};

use super::{
    HintsHomeError, Note, NoteBody, Pin, PublishedHints, RecordError, Scanned,
    home::{Scan, survey},
};
use crate::{
    Source, SourceError,
    journals::{find_log, hints_journal},
    recorder::wall_clock,
    source::gaps,
};

/// What a journal of hints says.
#[derive(Debug, Clone, Default)]
pub struct Keeping {
    /// The hints, in the order in which they were published, and where their records lie in the journal.
    pub hints: Vec<((i64, i64), PublishedHints)>,
    /// The pins that are not over, and where their records lie.
    pub pins: Vec<((i64, i64), Pin)>,
    /// Where the records lie that ended a pin whose record is still there, by its name. Without them it would be kept
    /// for again.
    pub ends: BTreeMap<String, (i64, i64)>,
    /// What pruners said that they would remove.
    pub prunes: Vec<PruneNote>,
    /// The first record that cannot be read, if there is one: nobody knows what it asks for.
    pub damaged: Option<(i64, RecordError)>,
}

/// What a pruner said that he would remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneNote {
    /// Where his record begins in the journal of hints.
    pub begin: i64,
    /// When he said it, by his clock.
    pub time: Timestamp,
    /// Ranges of the log.
    pub ranges: Vec<(i64, i64)>,
}

impl Keeping {
    /// Takes the next record of the journal. `now` are seconds since 1970.
    fn add(&mut self, scanned: Scanned, now: i64) {
        match scanned {
            Scanned::Record { begin, end, hints } => self.hints.push(((begin, end), hints)),
            Scanned::Note { begin, end, note } => match note.body {
                NoteBody::Pin(pin) => {
                    if pin.until.is_none_or(|until| until > now) {
                        self.pins.retain(|(_, before)| before.name != pin.name);
                        self.ends.remove(&pin.name);
                        self.pins.push(((begin, end), pin));
                    } else {
                        self.end(&pin.name, (begin, end));
                    }
                }
                NoteBody::Release { name } => self.end(&name, (begin, end)),
                NoteBody::Prune { ranges } => self.prunes.push(PruneNote {
                    begin,
                    time: note.time,
                    ranges,
                }),
            },
            Scanned::Damaged { offset, error } => {
                self.damaged.get_or_insert((offset, error));
            }
        }
    }

    /// The pin of a name is over by the record at `range`.
    fn end(&mut self, name: &str, range: (i64, i64)) {
        let before = self.pins.len();
        self.pins.retain(|(_, pin)| pin.name != name);
        if self.pins.len() < before || self.ends.contains_key(name) {
            self.ends.insert(name.to_owned(), range);
        }
    }

    /// Returns a range that a pruner said he would remove and that overlaps with another one. He counts only if his
    /// record lies before `before`.
    pub fn pruned(&self, range: (i64, i64), before: i64) -> Option<(i64, i64)> {
        let prunes = self.prunes.iter().filter(|note| note.begin < before);
        let mut ranges = prunes.flat_map(|note| &note.ranges);
        ranges
            .find(|(begin, end)| *begin < range.1 && range.0 < *end)
            .copied()
    }
}

/// Reads all of a journal of hints that is there.
pub async fn keeping(source: &Source, log: &str) -> Result<Keeping, HintsHomeError> {
    let mut keeping = Keeping::default();
    let Some(survey) = survey(source, &hints_journal(log)).await? else {
        return Ok(keeping);
    };
    let now = wall_clock().seconds;
    let mut scan = Scan::new(source, &survey, 0);
    while let Some(scanned) = scan.next().await? {
        keeping.add(scanned, now);
    }
    Ok(keeping)
}

/// Why something could not be had kept.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// It is gone.
    #[error(
        "keep {name} in {log}: the log from {begin} to {end} is needed for it, and is being pruned; next: choose \
         a later point"
    )]
    Gone {
        /// Whose it would have been.
        name: String,
        /// The log.
        log: String,
        /// First byte of the first range that goes.
        begin: i64,
        /// Behind its last byte.
        end: i64,
    },
    /// The log has no journal for it.
    #[error(
        "keep {name} in {log}: the log does not exist; next: check the name and the broker's address"
    )]
    NoLog {
        /// Whose it would have been.
        name: String,
        /// The log.
        log: String,
    },
    /// The record cannot be written.
    #[error("keep {name} in {log}: {cause}; next: choose a shorter name")]
    Encode {
        /// Whose it would have been.
        name: String,
        /// The log.
        log: String,
        /// Why not.
        cause: RecordError,
    },
    /// The journals of the log could not be asked for.
    #[error("keep a part of a log: {0}")]
    Journals(#[from] crate::journals::JournalsError),
    /// The broker failed.
    #[error("keep a part of a log: {0}")]
    Append(#[from] AppendError),
    /// The journal of the hints could not be read.
    #[error("keep a part of a log: {0}")]
    Hints(#[from] HintsHomeError),
    /// It could not be found out whether it is there.
    #[error("keep a part of a log: {0}")]
    Source(#[from] SourceError),
}

/// Has something kept in a log, and makes sure that it is there. A pin of the same name is over.
pub async fn pin(client: &Client, log: &str, pin: Pin) -> Result<(), PinError> {
    let name = pin.name.clone();
    if find_log(client, log).await?.is_none() {
        let log = log.to_owned();
        return Err(PinError::NoLog { name, log });
    }
    let needed = needed(log, &pin.hints, (pin.from, pin.to));
    let (_, end) = append_note(client, log, NoteBody::Pin(pin)).await?;
    // A pruner whose record came first did not see the pin. One whose record is gone by now has done his work.
    let source = Source::Broker(client.clone());
    let keeping = keeping(&source, log).await?;
    let survey = source.survey(log).await?;
    let gone = needed.into_iter().find_map(|range| {
        let missing = gaps(&survey, range.0, range.1.min(survey.head));
        let missing = missing.first().map(|gap| (gap.begin, gap.end));
        keeping.pruned(range, end).or(missing)
    });
    let Some((begin, end)) = gone else {
        return Ok(());
    };
    let release = NoteBody::Release { name: name.clone() };
    append_note(client, log, release).await?;
    let log = log.to_owned();
    Err(PinError::Gone {
        name,
        log,
        begin,
        end,
    })
}

/// Ranges of a log that a recovery by hints of it reads, and from where they end up to an offset.
pub(crate) fn needed(log: &str, hints: &FsmHints, reads: (i64, i64)) -> Vec<(i64, i64)> {
    Keep::point((), log, hints, reads).ranges
}

/// Appends a note to the journal of a log's hints. Returns where it lies there.
pub async fn append_note(
    client: &Client,
    log: &str,
    body: NoteBody,
) -> Result<(i64, i64), PinError> {
    let time = wall_clock();
    let name = match &body {
        NoteBody::Pin(pin) => pin.name.clone(),
        NoteBody::Release { name } => name.clone(),
        NoteBody::Prune { .. } => String::new(),
    };
    let record = Note { time, body }.encode();
    let record: Bytes = record.map_err(|cause| PinError::Encode {
        name,
        log: log.to_owned(),
        cause,
    })?;
    let request = AppendRequest {
        journal: hints_journal(log),
        ..AppendRequest::default()
    };
    let mut attempts = 1;
    loop {
        match client.append(request.clone(), record.clone()).await {
            Ok(response) => {
                let commit = response.commit.unwrap_or_default();
                return Ok((commit.begin, commit.end));
            }
            // Twice says the same as once.
            Err(error) if error.is_ambiguous() && attempts < ATTEMPTS_MAX => attempts += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// How often a note is appended whose answer is lost.
const ATTEMPTS_MAX: u32 = 4;

#[cfg(test)]
mod tests;
