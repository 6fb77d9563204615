//! Removes fragments of a log that nothing needs any more.
//!
//! What is needed is what the newest hints need of which all is there, and some before them, and what pins ask for; all
//! of that lies in the journal of hints, and so does what a pruner is about to remove, so that whoever pins something
//! meanwhile learns of it. Whatever is not known to be needless stays: nothing goes by one reading of a list.

mod error;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use gazette_client::Client;
use gazette_protocol::{Fragment, FragmentsRequest, ReadRequest};
use gazette_recoverylog_fsm::{
    Mode,
    prune::{self, Keep, StoredRange, Verdict, agreed, judge},
};
use gazette_stores::{Store, StoreConfig, Stores};

pub use error::PruneError;

use crate::{
    Source,
    hints::{Keeping, NoteBody, PublishedHints, append_note, keeping, needed},
    journals::{find_log, hints_journal},
    recorder::wall_clock,
};

/// How a log is pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneOptions {
    /// How many sets of hints before the newest must stay usable.
    pub older_hints: usize,
    /// Only says what would go.
    pub is_dry_run: bool,
    /// No process of Gazette will play a log of mode `compat`: what those would need is not known here.
    pub is_ours_alone: bool,
    /// A fault, only to see tests fail.
    #[cfg(any(test, feature = "test-util"))]
    pub planted: Option<PrunePlanted>,
}

/// A fault that a pruner can be planted with, to see that tests find it.
#[cfg(any(test, feature = "test-util"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrunePlanted {
    /// It overlooks pins.
    NoPins,
}

impl Default for PruneOptions {
    fn default() -> Self {
        Self::new(1, false, false)
    }
}

impl PruneOptions {
    /// Returns options: how many sets of hints before the newest stay usable, whether nothing is removed, and whether no
    /// process of Gazette will play the log.
    pub fn new(older_hints: usize, is_dry_run: bool, is_ours_alone: bool) -> Self {
        Self {
            older_hints,
            is_dry_run,
            is_ours_alone,
            #[cfg(any(test, feature = "test-util"))]
            planted: None,
        }
    }
}

/// What was found, and what went.
#[derive(Debug, Clone, Default)]
pub struct Pruned {
    /// The fragments, in order: of the log, then of its hints.
    pub fragments: Vec<PrunedFragment>,
}

/// A fragment, and what became of it.
#[derive(Debug, Clone)]
pub struct PrunedFragment {
    /// As the brokers list it.
    pub fragment: Fragment,
    /// What is needed of it.
    pub verdict: Verdict<Arc<str>>,
    /// It was removed from its store.
    pub is_removed: bool,
}

impl Pruned {
    /// Returns how many bytes of journals stay, and how many went, or would go.
    pub fn bytes(&self) -> (u64, u64) {
        let fragments = self.fragments.iter();
        prune::bytes(fragments.map(|of| (of.fragment.begin, of.fragment.end, &of.verdict)))
    }
}

/// Returns the stores that a process can remove fragments from: those that it can reach as `client` can, and `file`
/// stores below `root`, if that is given.
pub fn stores(client: &Client, root: Option<PathBuf>) -> Stores {
    Stores::new(StoreConfig {
        file_root: root.or_else(|| client.options().file_root.clone()),
        ..StoreConfig::default()
    })
}

/// Removes what nothing needs of a log and of the journal of its hints.
pub async fn prune(
    client: &Client,
    stores: &Stores,
    log: &str,
    options: PruneOptions,
) -> Result<Pruned, PruneError> {
    match find_log(client, log).await? {
        None => {
            let log = log.to_owned();
            return Err(PruneError::NoLog { log });
        }
        Some(Mode::Compat) if !options.is_ours_alone => {
            let log = log.to_owned();
            return Err(PruneError::Compat { log });
        }
        Some(Mode::Compat | Mode::Native) => {}
    }
    let first = Reading::make(client, log, options).await?;
    let going = first.going();
    if options.is_dry_run || going.is_empty() {
        return Ok(Pruned {
            fragments: first.judged(&[]),
        });
    }
    // Who pins something from here on sees what goes.
    let ranges = going
        .iter()
        .filter(|(journal, _)| *journal == log)
        .map(|(_, range)| (range.begin, range.end))
        .collect();
    append_note(client, log, NoteBody::Prune { ranges }).await?;
    let second = Reading::make(client, log, options).await?;
    let agreed: Vec<(String, StoredRange)> = first
        .journals
        .iter()
        .zip(&second.journals)
        .flat_map(|(one, other)| {
            let ranges = agreed(
                (&one.ranges, &one.verdicts),
                (&other.ranges, &other.verdicts),
            );
            let name = one.name.clone();
            ranges.into_iter().map(move |range| (name.clone(), range))
        })
        .collect();
    let mut removed = Vec::new();
    for journal in &second.journals {
        for (range, fragment) in journal.ranges.iter().zip(&journal.fragments) {
            if !agreed.contains(&(journal.name.clone(), *range)) {
                continue;
            }
            let path = fragment.content_path();
            let store = stores.get(&fragment.backing_store);
            store.remove(&path).await?;
            tracing::debug!(journal = %journal.name, begin = range.begin, end = range.end, "pruned");
            removed.push((journal.name.clone(), range.begin, range.end));
        }
    }
    for journal in [log, &hints_journal(log)] {
        let of_journal = removed.iter().filter(|(name, ..)| name == journal);
        if let Some((_, begin, _)) = of_journal.max_by_key(|(_, begin, _)| begin) {
            let asked = show_gone(client, journal, *begin);
            let _told = tokio::time::timeout(SHOW_WITHIN, asked).await;
        }
    }
    Ok(Pruned {
        fragments: second.judged(&removed),
    })
}

/// Has a broker find out that a fragment is gone, so that it lists its stores again soon.
async fn show_gone(client: &Client, journal: &str, offset: i64) {
    let request = ReadRequest {
        journal: journal.to_owned(),
        offset,
        end_offset: offset.saturating_add(1),
        ..ReadRequest::default()
    };
    // What it answers does not matter.
    let _gone = client.reader(request).next().await;
}

const SHOW_WITHIN: Duration = Duration::from_secs(5);

/// One reading of all lists.
#[derive(Debug, Clone)]
struct Reading {
    /// The log, and the journal of its hints.
    journals: Vec<Judged>,
}

#[derive(Debug, Clone)]
struct Judged {
    name: String,
    fragments: Vec<Fragment>,
    ranges: Vec<StoredRange>,
    verdicts: Vec<Verdict<Arc<str>>>,
}

impl Reading {
    async fn make(client: &Client, log: &str, options: PruneOptions) -> Result<Self, PruneError> {
        // What must stay first: what is published later needs no more of what is there now.
        let keeping = keeping(&Source::Broker(client.clone()), log).await?;
        if let Some((offset, cause)) = keeping.damaged {
            return Err(PruneError::Damaged {
                journal: hints_journal(log),
                offset,
                cause,
            });
        }
        let of_log = fragments(client, log).await?;
        let (keeps, records) = keeps(log, &keeping, &of_log, options);
        let name = hints_journal(log);
        let of_hints = fragments(client, &name).await?;
        Ok(Self {
            journals: vec![
                Judged::new(log.to_owned(), of_log, &keeps),
                Judged::new(name, of_hints, &records),
            ],
        })
    }

    fn going(&self) -> Vec<(&str, StoredRange)> {
        let mut going = Vec::new();
        for journal in &self.journals {
            for (range, verdict) in journal.ranges.iter().zip(&journal.verdicts) {
                if *verdict == Verdict::Goes {
                    going.push((journal.name.as_str(), *range));
                }
            }
        }
        going
    }

    fn judged(self, removed: &[(String, i64, i64)]) -> Vec<PrunedFragment> {
        let journals = self.journals.into_iter();
        journals
            .flat_map(|journal| {
                let name = journal.name;
                let pairs = journal.fragments.into_iter().zip(journal.verdicts);
                pairs.map(move |(fragment, verdict)| {
                    let key = (name.clone(), fragment.begin, fragment.end);
                    PrunedFragment {
                        is_removed: removed.contains(&key),
                        fragment,
                        verdict,
                    }
                })
            })
            .collect()
    }
}

impl Judged {
    fn new(name: String, fragments: Vec<Fragment>, keeps: &[Keep<Arc<str>>]) -> Self {
        let ranges: Vec<StoredRange> = fragments
            .iter()
            .map(|fragment| StoredRange {
                begin: fragment.begin,
                end: fragment.end,
                is_persisted: fragment.mod_time != 0 && !fragment.backing_store.is_empty(),
            })
            .collect();
        Self {
            verdicts: judge(&ranges, keeps),
            name,
            fragments,
            ranges,
        }
    }
}

type Keeps = Vec<Keep<Arc<str>>>;

/// What must stay of a log, and what of the journal of its hints.
fn keeps(
    log: &str,
    keeping: &Keeping,
    fragments: &[Fragment],
    options: PruneOptions,
) -> (Keeps, Keeps) {
    let (mut keeps, mut records) = (Vec::new(), Vec::new());
    let mut newest: Vec<&((i64, i64), PublishedHints)> = keeping.hints.iter().collect();
    newest.sort_by_key(|((begin, _), hints)| (hints.offset, *begin));
    let mut usable = 0;
    for ((begin, end), hints) in newest.into_iter().rev() {
        if usable > options.older_hints {
            break;
        }
        let is_whole = is_whole(log, keeping, fragments, hints);
        let what: Arc<str> = match (is_whole, usable) {
            (false, _) => {
                tracing::warn!(
                    log,
                    offset = hints.offset,
                    "hints need what is pruned, and are left out"
                );
                continue;
            }
            (true, 0) => "the newest hints".into(),
            (true, _) => format!("the hints of offset {}", hints.offset).into(),
        };
        usable += 1;
        keeps.push(Keep::hints(Arc::clone(&what), log, &hints.hints));
        // They may be of the end of hinted ops, or of what came after.
        keeps.push(Keep::from(Arc::clone(&what), hints.offset));
        records.push(record(what, *begin, *end));
    }
    #[cfg(any(test, feature = "test-util"))]
    if options.planted == Some(PrunePlanted::NoPins) {
        records.push(tail(keeping));
        return (keeps, records);
    }
    for ((begin, end), pin) in &keeping.pins {
        let what: Arc<str> = pin.name.as_str().into();
        let reads = (pin.from, pin.to);
        keeps.push(Keep::point(Arc::clone(&what), log, &pin.hints, reads));
        records.push(record(Arc::clone(&what), *begin, *end));
        // A recovery to there looks for the hints that the pin is by.
        let of_pin = keeping.hints.iter();
        let of_pin = of_pin.filter(|(_, hints)| hints.offset == pin.from);
        records.extend(of_pin.map(|((begin, end), _)| record(Arc::clone(&what), *begin, *end)));
    }
    for (name, (begin, end)) in &keeping.ends {
        records.push(record(format!("the end of {name}").into(), *begin, *end));
    }
    records.push(tail(keeping));
    (keeps, records)
}

fn record(what: Arc<str>, begin: i64, end: i64) -> Keep<Arc<str>> {
    Keep {
        what,
        ranges: vec![(begin, end)],
        tail: None,
    }
}

/// What comes to the journal of hints from now on, and notes of what lists of brokers may tell of still.
fn tail(keeping: &Keeping) -> Keep<Arc<str>> {
    let hints = keeping.hints.last().map_or(0, |((begin, _), _)| *begin);
    let since = wall_clock().seconds.saturating_sub(NOTES_SECONDS);
    let mut prunes = keeping.prunes.iter();
    let prune = prunes.find(|note| note.time.seconds >= since);
    Keep::from(
        "what is published".into(),
        prune.map_or(hints, |note| note.begin.min(hints)),
    )
}

/// How long a list of fragments may be behind.
const NOTES_SECONDS: i64 = 3600;

/// Whether all that hints need of a log is there, as far as one list says it. Nothing of it must be about to go.
fn is_whole(
    log: &str,
    keeping: &Keeping,
    fragments: &[Fragment],
    published: &PublishedHints,
) -> bool {
    // What no fragment holds yet is at the brokers.
    let listed_to = fragments.iter().map(|fragment| fragment.end).max();
    let mut ends: BTreeMap<i64, i64> = BTreeMap::new();
    for fragment in fragments {
        let end = ends.entry(fragment.begin).or_default();
        *end = fragment.end.max(*end);
    }
    let needed = needed(log, &published.hints, (published.offset, published.offset));
    needed.into_iter().all(|(begin, end)| {
        let end = end.min(listed_to.unwrap_or(begin).max(begin));
        let mut at = begin;
        for (first, last) in ends.range(..end) {
            if *first <= at {
                at = at.max(*last);
            }
        }
        at >= end && keeping.pruned((begin, end), i64::MAX).is_none()
    })
}

async fn fragments(client: &Client, journal: &str) -> Result<Vec<Fragment>, PruneError> {
    let request = FragmentsRequest {
        journal: journal.to_owned(),
        ..FragmentsRequest::default()
    };
    let listed = client.list_all_fragments(request).await?;
    let mut fragments: Vec<Fragment> = listed.into_iter().map(|listed| listed.spec).collect();
    fragments.sort_by_key(|fragment| (fragment.begin, fragment.end));
    Ok(fragments)
}

#[cfg(test)]
mod tests;
