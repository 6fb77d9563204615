//! When hints are published. They tell only of ops that the log has.

use std::time::Duration;

use super::{Machine, Now, Output, Phase};

/// What is known about hints.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// The live size, if it is known.
    pub(super) live_bytes: Option<u64>,
    /// Offset up to which published hints tell of the log.
    pub(super) offset: Option<i64>,
    /// When they were published.
    pub(super) at: Now,
    /// The offset of those that are being published.
    pub(super) publishing: Option<i64>,
    /// When to try again after a failure.
    pub(super) retry_at: Option<Now>,
    /// Whether the last ones, at the end, were published or were given up.
    pub(super) is_final: bool,
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
        let is_due = match hints.offset {
            None => true,
            Some(offset) => {
                let news = self.acked.offset.saturating_sub(offset);
                news.max(0).cast_unsigned() >= self.hints_every_bytes()
            }
        };
        let at = if is_due || (is_ending && self.batches.is_empty()) {
            Now::ZERO
        } else {
            hints.at + self.limits.hints_every
        };
        let retry_at = hints.retry_at.filter(|_| !is_ending);
        Some(at.max(retry_at.unwrap_or(Now::ZERO)))
    }

    /// Notes how large what is live is.
    pub(crate) fn handle_live_bytes(&mut self, bytes: u64) {
        self.hints.live_bytes = Some(bytes);
    }

    /// What a recovery reads besides what is live is mostly what came after the hints.
    fn hints_every_bytes(&self) -> u64 {
        let most = self.limits.hints_every_bytes;
        match self.hints.live_bytes {
            Some(live) => (live / 4).max(self.limits.hints_at_least_bytes).min(most),
            None => most,
        }
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
