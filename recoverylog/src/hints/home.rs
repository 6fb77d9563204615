//! Publishes hints, and finds them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use gazette_client::{AppendError, Client};
use gazette_protocol::{AppendRequest, LabelSelector, Status};
use gazette_recoverylog_fsm::{Author, Timestamp};

use super::{HintsScanner, PublishedHints, RecordError, Scanned};
use crate::{
    Source, SourceError,
    claim::{author_value, owned_by, ownership, registers_of},
    journals::hints_journal,
    recorder::Register,
    source::{LogReader, Piece},
};

/// Up to where hints may tell of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintsPoint {
    /// As far as there are any.
    Head,
    /// Not beyond this offset.
    Offset(i64),
    /// Not beyond this moment, as the log tells the time.
    Time(Timestamp),
}

impl HintsPoint {
    /// Whether hints tell of nothing beyond the point.
    pub fn admits(self, offset: i64, time: Timestamp) -> bool {
        match self {
            Self::Head => true,
            Self::Offset(limit) => offset <= limit,
            Self::Time(limit) => time <= limit,
        }
    }
}

/// What hints are hints of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HintsSummary {
    /// Who published them.
    pub author: Author,
    /// Offset of the log that they reach to.
    pub offset: i64,
    /// The last op that they tell of.
    pub seq_no: i64,
    /// When they were noted.
    pub time: Timestamp,
}

/// Why hints could not be published or found.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HintsHomeError {
    /// Another owner has the log.
    #[error(
        "publish hints of {log}: another owner has the log{}; next: stop this owner, and recover",
        named(*author)
    )]
    Fenced {
        /// The log.
        log: String,
        /// Who, if the register says it.
        author: Option<Author>,
    },
    /// The broker failed.
    #[error("publish hints: {0}")]
    Append(#[from] AppendError),
    /// The hints cannot be written.
    #[error("publish hints of {log}: {cause}; next: record fewer files in one log")]
    Encode {
        /// The log.
        log: String,
        /// What is wrong with them.
        cause: RecordError,
    },
    /// The journal of the hints could not be read.
    #[error("find hints: {0}")]
    Source(#[from] SourceError),
    /// There are hints, but none can be read.
    #[error(
        "find hints in {journal}: the record at {offset}: {cause}; next: restore the journal's \
         fragments, or recover without hints if the log was never pruned"
    )]
    Damaged {
        /// The journal of the hints.
        journal: String,
        /// Where the last record that cannot be read is in it.
        offset: i64,
        /// What is wrong.
        cause: RecordError,
    },
}

fn named(author: Option<Author>) -> String {
    author.map_or(String::new(), |author| format!(", author {}", author.get()))
}

/// Where hints of one log are kept.
#[async_trait]
pub trait HintsHome: fmt::Debug + Send + Sync + 'static {
    /// Publishes hints. It is refused if their author no longer owns the log.
    async fn publish(&self, hints: &PublishedHints) -> Result<(), HintsHomeError>;

    /// Returns the newest hints up to a point.
    async fn newest(&self, point: HintsPoint) -> Result<Option<PublishedHints>, HintsHomeError>;

    /// Returns what hints there are, in the order in which they were published.
    async fn list(&self) -> Result<Vec<HintsSummary>, HintsHomeError>;
}

/// The journal beside a log that holds its hints.
#[derive(Debug)]
pub struct JournalHints {
    client: Client,
    log: Arc<str>,
    journal: String,
    /// Whether its author register was set by us.
    claimed: AtomicBool,
}

/// How often another owner's claim may come between.
const CLAIMS_MAX: u32 = 4;

impl JournalHints {
    /// Returns the hints of a log.
    pub fn new(client: Client, log: &str) -> Self {
        Self {
            client,
            log: log.into(),
            journal: hints_journal(log),
            claimed: AtomicBool::new(false),
        }
    }

    async fn append(
        &self,
        check: LabelSelector,
        author: Author,
        record: Bytes,
    ) -> Result<(), AppendError> {
        let request = AppendRequest {
            journal: self.journal.clone(),
            check_registers: Some(check),
            union_registers: Some(registers_of(author)),
            ..AppendRequest::default()
        };
        self.client.append(request, record).await.map(drop)
    }

    /// Takes the journal over, together with the first record of ours.
    ///
    /// The order counts: whose it is is read *before* it is made sure that the log is ours. A later owner
    /// of the log takes this journal over after that too, so either our claim comes first, or it fails as
    /// the register is no longer what was read.
    async fn claim(&self, author: Author, record: &Bytes) -> Result<(), HintsHomeError> {
        let mut last = None;
        for _ in 0..CLAIMS_MAX {
            let before = ownership(&self.client, &self.journal).await?;
            self.check_log(author).await?;
            let check = owned_by(before.value.as_deref());
            match self.append(check, author, record.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if error.status() == Some(Status::RegisterMismatch) => {
                    last = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        last.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Makes sure that the log is ours.
    async fn check_log(&self, author: Author) -> Result<(), HintsHomeError> {
        let request = AppendRequest {
            journal: self.log.to_string(),
            check_registers: Some(owned_by(Some(&author_value(author)))),
            ..AppendRequest::default()
        };
        match self.client.append(request, Bytes::new()).await {
            Ok(_) => Ok(()),
            Err(error) if error.status() == Some(Status::RegisterMismatch) => {
                let register = crate::claim::register_of(error.registers());
                Err(HintsHomeError::Fenced {
                    log: self.log.to_string(),
                    author: match register {
                        Register::Author(author) => Some(author),
                        Register::Empty | Register::Unknown => None,
                    },
                })
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[async_trait]
impl HintsHome for JournalHints {
    async fn publish(&self, hints: &PublishedHints) -> Result<(), HintsHomeError> {
        let record = match hints.encode() {
            Ok(record) => record,
            Err(cause) => {
                let log = self.log.to_string();
                return Err(HintsHomeError::Encode { log, cause });
            }
        };
        if self.claimed.load(Ordering::Acquire) {
            let own = owned_by(Some(&author_value(hints.author)));
            match self.append(own, hints.author, record.clone()).await {
                Ok(()) => return Ok(()),
                // Perhaps by one who claimed the log before us, and was late here.
                Err(error) if error.status() == Some(Status::RegisterMismatch) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.claim(hints.author, &record).await?;
        self.claimed.store(true, Ordering::Release);
        Ok(())
    }

    async fn newest(&self, point: HintsPoint) -> Result<Option<PublishedHints>, HintsHomeError> {
        newest_hints(&Source::Broker(self.client.clone()), &self.log, point).await
    }

    async fn list(&self) -> Result<Vec<HintsSummary>, HintsHomeError> {
        list_hints(&Source::Broker(self.client.clone()), &self.log).await
    }
}

/// Publishes hints of what was read in the log and verified there, by one who need not own it.
///
/// Nothing is asked of the author register, and none is needed: what is in the log never changes, so hints of it are
/// good for ever. What an owner publishes he may have recorded without the log having it, if he is one no more.
/// The register of the journal stays as it is.
pub async fn publish_verified(
    client: &Client,
    log: &str,
    hints: &PublishedHints,
) -> Result<(), HintsHomeError> {
    let record = hints.encode().map_err(|cause| HintsHomeError::Encode {
        log: log.to_owned(),
        cause,
    })?;
    let request = AppendRequest {
        journal: hints_journal(log),
        ..AppendRequest::default()
    };
    client.append(request, record).await?;
    Ok(())
}

/// Bytes at the end of the journal in which the newest hints are looked for first.
const FIRST_WINDOW: i64 = 1 << 20;
/// How much larger the next window is.
const WINDOW_GROWTH: i64 = 8;
/// Fragments that are read at once.
const PARALLEL: usize = 2;

/// Returns the newest hints of a log up to a point, wherever it is read from. No journal of hints is as
/// good as an empty one.
pub async fn newest_hints(
    source: &Source,
    log: &str,
    point: HintsPoint,
) -> Result<Option<PublishedHints>, HintsHomeError> {
    let journal = hints_journal(log);
    let Some(survey) = survey(source, &journal).await? else {
        return Ok(None);
    };
    let first = survey.fragments.first();
    let first = first.map_or(survey.head, |stretch| stretch.fragment.begin);
    let mut window = FIRST_WINDOW;
    loop {
        let begin = survey.head.saturating_sub(window).max(first);
        let mut newest: Option<PublishedHints> = None;
        let mut damaged = None;
        let mut scan = Scan::new(source, &survey, begin);
        while let Some(scanned) = scan.next().await? {
            match scanned {
                Scanned::Record(hints) => {
                    let is_newer = newest
                        .as_ref()
                        .is_none_or(|newest| hints.offset >= newest.offset);
                    if is_newer && point.admits(hints.offset, hints.time) {
                        newest = Some(hints);
                    }
                }
                Scanned::Damaged { offset, error } => damaged = Some((offset, error)),
            }
        }
        match (newest, damaged) {
            (Some(newest), damaged) => {
                if let Some((offset, error)) = damaged {
                    tracing::warn!(journal, offset, err = %error, "hints cannot be read; older or newer ones are used");
                }
                return Ok(Some(newest));
            }
            (None, Some((offset, cause))) if begin <= first => {
                return Err(HintsHomeError::Damaged {
                    journal,
                    offset,
                    cause,
                });
            }
            (None, None) if begin <= first => return Ok(None),
            (None, _) => window = window.saturating_mul(WINDOW_GROWTH),
        }
    }
}

/// Returns what hints of a log there are.
pub async fn list_hints(source: &Source, log: &str) -> Result<Vec<HintsSummary>, HintsHomeError> {
    let Some(survey) = survey(source, &hints_journal(log)).await? else {
        return Ok(Vec::new());
    };
    let mut summaries = Vec::new();
    let mut scan = Scan::new(source, &survey, 0);
    while let Some(scanned) = scan.next().await? {
        if let Scanned::Record(hints) = scanned {
            summaries.push(HintsSummary {
                author: hints.author,
                offset: hints.offset,
                seq_no: hints.seq_no,
                time: hints.time,
            });
        }
    }
    Ok(summaries)
}

async fn survey(
    source: &Source,
    journal: &str,
) -> Result<Option<crate::source::Survey>, SourceError> {
    match source.survey(journal).await {
        Ok(survey) => Ok(Some(survey)),
        Err(SourceError::NoJournal { .. } | SourceError::NothingStored { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A scan of the journal, from an offset to its end.
struct Scan {
    reader: LogReader,
    scanner: HintsScanner,
    ended: bool,
}

impl Scan {
    fn new(source: &Source, survey: &crate::source::Survey, begin: i64) -> Self {
        Self {
            reader: LogReader::new(source, survey, [(begin, survey.head)], PARALLEL),
            scanner: HintsScanner::new(begin),
            ended: false,
        }
    }

    async fn next(&mut self) -> Result<Option<Scanned>, SourceError> {
        loop {
            if let Some(scanned) = self.scanner.next_record() {
                return Ok(Some(scanned));
            }
            if self.ended {
                let Some(offset) = self.scanner.unfinished() else {
                    return Ok(None);
                };
                self.scanner.skip_unfinished();
                let error = RecordError::Cut;
                return Ok(Some(Scanned::Damaged { offset, error }));
            }
            match self.reader.next().await? {
                Some(Piece::Content { offset, bytes }) => self.scanner.feed(offset, &bytes),
                Some(Piece::Gap { .. }) => {}
                None => self.ended = true,
            }
        }
    }
}

#[cfg(test)]
mod tests;
