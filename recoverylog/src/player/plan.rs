//! Which ranges of which logs a playback reads. Pure.

use std::{collections::BTreeMap, sync::Arc};

use gazette_recoverylog_fsm::Fsm;

/// A range of a log that is read, `[begin, end)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leg {
    /// The log.
    pub(crate) log: Arc<str>,
    pub(crate) begin: i64,
    pub(crate) end: i64,
    /// All of it is needed. Otherwise hints name ops of which it is only known that they are somewhere in it.
    pub(crate) is_needed: bool,
}

/// Hints name something behind the end of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BeyondEnd {
    pub(crate) log: Arc<str>,
    pub(crate) offset: i64,
    pub(crate) end: i64,
}

/// Returns what is to be read to play the hints of `fsm`, and what follows upon them up to the end of each log
/// as `ends` has it. Logs without an end there are not read.
pub(crate) fn legs(fsm: &Fsm, ends: &BTreeMap<Arc<str>, i64>) -> Result<Vec<Leg>, BeyondEnd> {
    let end_of = |log: &Arc<str>| ends.get(log).copied().unwrap_or(0);
    let mut legs: Vec<Leg> = Vec::new();
    let mut tail = (Arc::clone(fsm.log()), 0, true);
    for segment in fsm.hinted_segments().iter() {
        let (log, end) = (&segment.log, end_of(&segment.log));
        let beyond = |offset| BeyondEnd {
            log: Arc::clone(log),
            offset,
            end,
        };
        if segment.first_offset >= end {
            return Err(beyond(segment.first_offset));
        }
        if segment.last_offset > end {
            return Err(beyond(segment.last_offset));
        }
        let previous = legs.last_mut().filter(|leg| leg.log == *log);
        let begin = previous.as_ref().map_or(segment.first_offset, |leg| {
            segment.first_offset.max(leg.end)
        });
        if segment.last_offset == 0 {
            // So are the ends of all that follow, which are in the same log.
            tail = (Arc::clone(log), begin, false);
            break;
        }
        match previous {
            Some(leg) if leg.end >= begin => leg.end = leg.end.max(segment.last_offset),
            _ => legs.push(Leg {
                log: Arc::clone(log),
                begin,
                end: segment.last_offset,
                is_needed: true,
            }),
        }
        tail = (Arc::clone(log), segment.last_offset, true);
    }
    let (log, begin, is_needed) = tail;
    let end = end_of(&log);
    match legs.last_mut() {
        Some(leg) if leg.log == log && leg.end == begin && leg.is_needed == is_needed => {
            leg.end = end;
        }
        _ if begin < end => legs.push(Leg {
            log,
            begin,
            end,
            is_needed,
        }),
        _ => {}
    }
    Ok(legs)
}

#[cfg(test)]
mod tests;
