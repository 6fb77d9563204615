//! When hints are published. They tell only of ops that the log has.

use std::time::Duration;

use super::{Machine, Now, Output, Phase};

/// What is known about hints.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// Offset up to which published hints tell of the log.
    pub(super) offset: Option<i64>,
    /// Offset up to which the log has nothing but idle marks behind that.
    pub(super) quiet: Option<i64>,
    /// Whether what is recorded next is an idle mark.
    pub(super) is_marked: bool,
    /// When they were published.
    pub(super) at: Now,
    /// The offset of those that are being published.
    pub(super) publishing: Option<i64>,
    /// When to try again after a failure.
    pub(super) retry_at: Option<Now>,
    /// Whether the last ones, at the end, were published or were given up.
    pub(super) is_final: bool,
}

impl Hints {
    /// Notes that an idle mark landed: hints that were told of everything before it need not be told again.
    pub(super) fn pass_mark(&mut self, begin: i64, end: i64) {
        if [self.offset, self.quiet].contains(&Some(begin)) {
            self.quiet = Some(end);
        }
    }
}

/// How long hints that could not be published wait.
const BACKOFF: Duration = Duration::from_secs(5);

impl Machine {
    /// Notes that hints were published, or could not be.
    pub(crate) fn handle_hints_published(&mut self, now: Now, is_done: bool) {
        let Some(offset) = self.hints.publishing.take() else {
            return;
        };
        if is_done {
            self.hints.offset = Some(offset);
            self.hints.at = now;
            self.hints.retry_at = None;
        } else {
            self.hints.retry_at = Some(now + BACKOFF);
        }
        // At the end there is one try only.
        self.hints.is_final = self.stop_by.is_some() && (!is_done || offset == self.acked.offset);
        self.advance(now);
    }

    /// Offset that the last published hints are good for.
    pub(crate) fn hints_offset(&self) -> Option<i64> {
        self.hints.offset
    }

    /// When hints are to be published, if nothing else happens.
    pub(super) fn hints_at(&self) -> Option<Now> {
        let hints = &self.hints;
        let is_up = matches!(
            self.phase,
            Phase::Idle | Phase::Busy(_) | Phase::Waiting { .. }
        );
        if !is_up
            || !self.is_claimed()
            || hints.publishing.is_some()
            || hints.is_final
            || hints.offset == Some(self.acked.offset)
        {
            return None;
        }
        let is_ending = self.stop_by.is_some();
        let news = self.acked.offset.saturating_sub(hints.offset.unwrap_or(0));
        let news = news.max(0).cast_unsigned();
        let is_quiet = hints.quiet == Some(self.acked.offset);
        if is_quiet && !is_ending && news < self.limits.hints_every_bytes {
            return None;
        }
        let is_due = match hints.offset {
            None => true,
            Some(_) => news >= self.limits.hints_every_bytes,
        };
        let at = if is_due || (is_ending && self.batches.is_empty()) {
            Now::ZERO
        } else {
            hints.at + self.limits.hints_every
        };
        let retry_at = hints.retry_at.filter(|_| !is_ending);
        Some(at.max(retry_at.unwrap_or(Now::ZERO)))
    }

    pub(super) fn advance_hints(&mut self, now: Now) {
        if self.hints_at().is_some_and(|at| now >= at) {
            self.hints.publishing = Some(self.acked.offset);
            self.outputs.push_back(Output::PublishHints);
        }
    }

    /// Whether there is nothing left to be told by hints before the end.
    pub(super) fn is_told(&self) -> bool {
        let is_known = !self.is_claimed() || self.hints.offset == Some(self.acked.offset);
        self.hints.publishing.is_none() && (self.hints.is_final || is_known)
    }
}
