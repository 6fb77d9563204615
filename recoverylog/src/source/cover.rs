//! Which stretch supplies which part of a wanted range. Pure.

use super::{Stretch, Survey};

/// A part of a range, and what supplies it.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) begin: i64,
    pub(crate) end: i64,
    pub(crate) supply: Supply,
}

/// What supplies a part.
#[derive(Debug, Clone)]
pub(crate) enum Supply {
    /// This stretch.
    Stretch(Box<Stretch>),
    /// Nothing: it is gone.
    Nothing,
}

/// A range that nothing supplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) begin: i64,
    pub(crate) end: i64,
}

/// Cuts a range into parts, each supplied by the stretch that reaches furthest.
pub(crate) fn parts(survey: &Survey, begin: i64, end: i64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut at = begin;
    let mut next = 0;
    let mut best: Option<&Stretch> = None;
    while at < end {
        while let Some(stretch) = survey.fragments.get(next)
            && stretch.fragment.begin <= at
        {
            if best.is_none_or(|best| stretch.fragment.end > best.fragment.end) {
                best = Some(stretch);
            }
            next += 1;
        }
        match best {
            Some(stretch) if stretch.fragment.end > at => {
                let to = stretch.fragment.end.min(end);
                parts.push(Part {
                    begin: at,
                    end: to,
                    supply: Supply::Stretch(Box::new(stretch.clone())),
                });
                at = to;
            }
            _ => {
                let to = survey
                    .fragments
                    .get(next)
                    .map_or(end, |stretch| stretch.fragment.begin.min(end));
                parts.push(Part {
                    begin: at,
                    end: to,
                    supply: Supply::Nothing,
                });
                at = to;
            }
        }
    }
    parts
}

/// Returns what is missing of a range.
pub(crate) fn gaps(survey: &Survey, begin: i64, end: i64) -> Vec<Gap> {
    parts(survey, begin, end)
        .into_iter()
        .filter(|part| matches!(part.supply, Supply::Nothing))
        .map(|part| Gap {
            begin: part.begin,
            end: part.end,
        })
        .collect()
}

#[cfg(test)]
mod tests;
