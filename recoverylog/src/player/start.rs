//! Finds where a playback starts, and what it has to read.

use std::{collections::BTreeMap, sync::Arc};

use gazette_protocol::labels;
use gazette_recoverylog_fsm::{Event, Fsm, FsmHints, Mode, OpReader, Timestamp};

use super::{
    error::{HintsFault, Missing, Nearest, NeededBy, RecoverError},
    options::{HintsChoice, Point},
    plan::{self, Leg},
    recovered::HintsUse,
};
use crate::{
    Source,
    hints::{HintsHomeError, HintsPoint, list_hints, newest_hints},
    journals::mode_of_content_type,
    source::{LogReader, Piece, Survey, gaps},
};

/// Where a playback starts.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) hints: FsmHints,
    pub(crate) hints_use: HintsUse,
    /// Time of the last append that the hints tell of.
    pub(crate) time: Option<Timestamp>,
    /// Mode of the log, as its label says it.
    pub(crate) mode: Option<Mode>,
    pub(crate) surveys: BTreeMap<Arc<str>, Survey>,
    pub(crate) legs: Vec<Leg>,
    /// Where the log is left: its end, or the point.
    pub(crate) limit: i64,
    /// The same, and stays so if a part of that is not applied.
    pub(crate) head: i64,
    pub(crate) is_head_exact: bool,
    pub(crate) is_head: bool,
    /// Where the hinted segments end.
    last_hinted: Option<i64>,
}

/// Looks at a log, chooses hints, and plans what is read.
pub(crate) async fn find(
    source: &Source,
    log: &str,
    point: Point,
    choice: &HintsChoice,
) -> Result<Start, RecoverError> {
    let mode = check_content_type(source, log).await?;
    let survey = source.survey(log).await?;
    let head = survey.head;
    let limit = match point {
        Point::Head | Point::Time(_) => head,
        Point::Offset(offset) if offset > head => {
            return Err(RecoverError::BehindHead {
                log: log.to_owned(),
                offset,
                head,
                is_store: source.is_store(),
            });
        }
        Point::Offset(offset) => offset,
    };
    let mut chosen = choose(source, log, point, choice).await?;
    if source.is_store() && chosen.offset > head {
        // Hints may be stored sooner than what they tell of. Older ones do.
        chosen = choose(source, log, Point::Offset(head), choice).await?;
    }
    let mut tries = 1;
    loop {
        let hinted_to = chosen.offset;
        let start = plan_with(source, log, chosen, mode, &survey, limit).await?;
        let last = start.last_hinted;
        let Some(missing) = start.missing(log, last) else {
            return Ok(start);
        };
        // Others may have published hints of a state from before something was pruned.
        if missing.needed_by == NeededBy::Hints
            && matches!(choice, HintsChoice::Newest)
            && hinted_to > 0
            && tries < TRIES_MAX
        {
            tries += 1;
            let older = choose(source, log, Point::Offset(hinted_to - 1), choice).await?;
            if older.offset > 0 {
                tracing::warn!(
                    log,
                    offset = hinted_to,
                    "hints need what is gone; older ones are tried"
                );
                chosen = older;
                continue;
            }
        }
        let nearest = nearest(source, log, limit, hinted_to, &missing, &start).await?;
        return Err(RecoverError::Missing(Box::new(Missing {
            nearest,
            ..missing
        })));
    }
}

/// Plans a playback with hints.
async fn plan_with(
    source: &Source,
    log: &str,
    chosen: Chosen,
    mode: Option<Mode>,
    survey: &Survey,
    limit: i64,
) -> Result<Start, RecoverError> {
    let Chosen {
        hints,
        hints_use,
        offset: _,
        time,
    } = chosen;
    let (head, is_head_exact) = (survey.head, survey.is_head_exact);
    let mode = match mode.or(hints.mode) {
        Some(mode) => Some(mode),
        None => first_mode(source, survey).await,
    };
    let mut surveys = BTreeMap::from([(Arc::from(log), survey.clone())]);
    let fsm = Fsm::new(&hints).map_err(|cause| fault(log, cause.into()))?;
    for segment in fsm.hinted_segments().iter() {
        if !surveys.contains_key(&segment.log) {
            let survey = source.survey(&segment.log).await?;
            surveys.insert(Arc::clone(&segment.log), survey);
        }
    }
    let ends = surveys.iter().map(|(name, survey)| {
        let end = if **name == *log { limit } else { survey.head };
        (Arc::clone(name), end)
    });
    let legs = plan::legs(&fsm, &ends.collect()).map_err(|beyond| {
        fault(
            log,
            HintsFault::BeyondEnd {
                log: beyond.log.to_string(),
                offset: beyond.offset,
                end: beyond.end,
            },
        )
    })?;
    Ok(Start {
        last_hinted: fsm.hinted_segments().last().map(|last| last.last_offset),
        hints,
        hints_use,
        time,
        mode,
        surveys,
        legs,
        limit,
        head: limit,
        is_head_exact,
        is_head: limit == head,
    })
}

impl Start {
    /// Returns the first range that is needed and gone. `hinted_to` is where the hinted segments end.
    fn missing(&self, log: &str, hinted_to: Option<i64>) -> Option<Missing> {
        for leg in self.legs.iter().filter(|leg| leg.is_needed) {
            let Some(survey) = self.surveys.get(&leg.log) else {
                continue;
            };
            let Some(gap) = gaps(survey, leg.begin, leg.end).first().copied() else {
                continue;
            };
            let needed_by = match hinted_to {
                None => NeededBy::Beginning,
                Some(end) if *leg.log == *log && gap.begin >= end => NeededBy::Following,
                Some(_) => NeededBy::Hints,
            };
            return Some(Missing {
                log: leg.log.to_string(),
                begin: gap.begin,
                end: gap.end,
                needed_by,
                nearest: Nearest::default(),
            });
        }
        None
    }
}

/// Hints to start with.
struct Chosen {
    hints: FsmHints,
    hints_use: HintsUse,
    /// Up to where they tell of the log.
    offset: i64,
    /// Up to when.
    time: Option<Timestamp>,
}

impl Chosen {
    fn new(hints: FsmHints, hints_use: HintsUse) -> Self {
        Self {
            hints,
            hints_use,
            offset: 0,
            time: None,
        }
    }
}

/// Chooses hints.
async fn choose(
    source: &Source,
    log: &str,
    point: Point,
    choice: &HintsChoice,
) -> Result<Chosen, RecoverError> {
    let none = || FsmHints::of_log(log);
    let wanted = match point {
        Point::Head => HintsPoint::Head,
        Point::Offset(offset) => HintsPoint::Offset(offset),
        Point::Time(time) => HintsPoint::Time(time),
    };
    match choice {
        HintsChoice::Never => Ok(Chosen::new(none(), HintsUse::NotAsked)),
        HintsChoice::These(hints) => Ok(Chosen::new((**hints).clone(), HintsUse::Given)),
        HintsChoice::Newest => match newest_hints(source, log, wanted).await {
            Ok(Some(found)) => Ok(Chosen {
                hints: found.hints,
                hints_use: HintsUse::Of(found.offset),
                offset: found.offset,
                time: Some(found.time),
            }),
            Ok(None) => Ok(Chosen::new(none(), HintsUse::None)),
            Err(HintsHomeError::Source(error)) => Err(error.into()),
            Err(error) => Err(fault(log, HintsFault::Undecodable(error.to_string()))),
        },
    }
}

/// Finds the points nearest to `limit` that can be had, given what is missing from there.
async fn nearest(
    source: &Source,
    log: &str,
    limit: i64,
    hinted_to: i64,
    missing: &Missing,
    start: &Start,
) -> Result<Nearest, RecoverError> {
    let Some(survey) = start.surveys.get(log) else {
        return Ok(Nearest::default());
    };
    let mut nearest = Nearest::default();
    // From a point that can be had, up to the next gap.
    let reach = |from: i64| {
        gaps(survey, from, limit)
            .first()
            .map_or(limit, |gap| gap.begin)
    };
    if missing.log == log && missing.needed_by == NeededBy::Following && hinted_to > 0 {
        nearest.before = Some(missing.begin);
    }
    if reach(0) > 0 {
        nearest.before = nearest.before.max(Some(reach(0)));
    }
    for summary in list_hints(source, log).await.unwrap_or_default() {
        let of = HintsPoint::Offset(summary.offset);
        let is_after = summary.offset > limit;
        if is_after && nearest.after.is_some_and(|after| after <= summary.offset) {
            continue;
        }
        let Ok(Some(found)) = newest_hints(source, log, of).await else {
            continue;
        };
        if !is_whole(log, &found.hints, survey, found.offset) {
            continue;
        }
        if is_after {
            nearest.after = Some(summary.offset);
        } else {
            nearest.before = nearest.before.max(Some(reach(summary.offset)));
        }
    }
    Ok(nearest)
}

/// Finds the oldest hints of which all is there, and where they reach to. From there on a log can be looked at
/// although its beginning is gone.
pub(crate) async fn first_hints(
    source: &Source,
    log: &str,
) -> Result<Option<(FsmHints, i64)>, RecoverError> {
    let survey = source.survey(log).await?;
    let mut offsets: Vec<i64> = match list_hints(source, log).await {
        Ok(summaries) => summaries.iter().map(|summary| summary.offset).collect(),
        Err(_) => Vec::new(),
    };
    offsets.sort_unstable();
    offsets.dedup();
    for offset in offsets {
        if let Ok(Some(found)) = newest_hints(source, log, HintsPoint::Offset(offset)).await
            && is_whole(log, &found.hints, &survey, found.offset)
            && gaps(&survey, found.offset, survey.head).is_empty()
        {
            return Ok(Some((found.hints, found.offset)));
        }
    }
    Ok(None)
}

/// Whether all that hints name is there.
fn is_whole(log: &str, hints: &FsmHints, survey: &Survey, offset: i64) -> bool {
    let Ok(fsm) = Fsm::new(hints) else {
        return false;
    };
    let ends = BTreeMap::from([(Arc::from(log), offset)]);
    plan::legs(&fsm, &ends).is_ok_and(|legs| {
        legs.iter()
            .all(|leg| *leg.log == *log && gaps(survey, leg.begin, leg.end).is_empty())
    })
}

/// Returns the mode that the first op of a log says. What cannot be read here will be an error later.
async fn first_mode(source: &Source, survey: &Survey) -> Option<Mode> {
    let mut log = LogReader::new(source, survey, [(0, survey.head.min(FIRST_BYTES))], 1);
    let mut ops = OpReader::new(0);
    while let Ok(Some(Piece::Content { bytes, .. })) = log.next().await {
        ops.feed(bytes);
        if let Event::Op(first) = ops.next_event() {
            return first.op.mode;
        }
    }
    None
}

/// Checks that a journal is a recovery log, and returns the mode that its label says.
async fn check_content_type(source: &Source, log: &str) -> Result<Option<Mode>, RecoverError> {
    let Some(labels) = source.labels(log).await? else {
        return Ok(None);
    };
    let found = labels
        .labels
        .iter()
        .find(|label| label.name == labels::CONTENT_TYPE)
        .map_or("", |label| label.value.as_str());
    mode_of_content_type(found)
        .map(Some)
        .ok_or_else(|| RecoverError::ContentType {
            log: log.to_owned(),
            found: found.to_owned(),
        })
}

fn fault(log: &str, cause: HintsFault) -> RecoverError {
    RecoverError::Hints {
        log: log.to_owned(),
        cause: Box::new(cause),
    }
}

/// How many sets of hints are tried.
const TRIES_MAX: u32 = 8;

/// Enough for the first op of a log.
const FIRST_BYTES: i64 = 4096;
