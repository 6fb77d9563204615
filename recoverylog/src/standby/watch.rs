//! Decides when a standby takes a log over by itself. No I/O and no clock.
//!
//! Time counts as silence of the owner only between two answers that both said that the log ends where the copy
//! does. While the broker does not answer, or the copy is behind, no time counts; so a standby that is cut
//! off, or that was stopped itself, does not take over for that. The claim then asks for the end of the log that
//! was seen too, and an owner who has recorded meanwhile keeps it.

use std::time::Duration;

/// A moment: how long after some moment that the caller chose.
pub type Now = Duration;

/// What a standby knows of its owner's silence.
#[derive(Debug, Clone)]
pub struct Watch {
    takeover_after: Option<Duration>,
    /// Longest time between two answers that counts.
    counts_max: Duration,
    silent: Duration,
    confirmed_at: Option<Now>,
    /// When somebody else was found to be quicker, or the owner to be at work, nothing is tried before.
    not_before: Now,
}

impl Watch {
    /// Begins to watch. Answers are asked for each `interval`; without `takeover_after` nothing is ever due.
    pub fn new(takeover_after: Option<Duration>, interval: Duration) -> Self {
        Self {
            takeover_after,
            counts_max: interval * 2,
            silent: Duration::ZERO,
            confirmed_at: None,
            not_before: Now::ZERO,
        }
    }

    /// Notes a sign of the owner's life: an op or a mark of his, or a word.
    pub fn handle_sign(&mut self) {
        self.silent = Duration::ZERO;
        self.confirmed_at = None;
    }

    /// Notes that the broker said where the log ends, and how far the copy is.
    pub fn handle_answered(&mut self, now: Now, head: i64, copied: i64) {
        if head != copied {
            self.confirmed_at = None;
            return;
        }
        if let Some(before) = self.confirmed_at {
            let since = now.saturating_sub(before);
            // A longer pause was our own.
            if since <= self.counts_max {
                self.silent += since;
            }
        }
        self.confirmed_at = Some(now);
    }

    /// Notes that the broker did not answer.
    pub fn handle_unanswered(&mut self) {
        self.confirmed_at = None;
    }

    /// Notes that a claim did not succeed: the owner is there, or is another one now.
    pub fn handle_refused(&mut self, now: Now) {
        self.handle_sign();
        self.not_before = now + self.counts_max;
    }

    /// How long the owner was silent.
    pub fn silent(&self) -> Duration {
        self.silent
    }

    /// Whether the log is to be claimed.
    pub fn is_due(&self, now: Now) -> bool {
        now >= self.not_before
            && self.confirmed_at == Some(now)
            && self
                .takeover_after
                .is_some_and(|after| self.silent >= after)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EACH: Duration = Duration::from_millis(250);
    const AFTER: Duration = Duration::from_secs(2);

    fn after(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_silent_owner_loses_the_log_after_the_time_and_not_before() {
        let mut watch = Watch::new(Some(AFTER), EACH);
        for step in 0..=8 {
            let now = EACH * step;
            watch.handle_answered(now, 10, 10);
            assert_eq!(watch.is_due(now), step == 8, "{step}");
        }
        assert!(!Watch::new(None, EACH).is_due(Now::from_hours(9)));
    }

    #[test]
    fn a_sign_of_life_begins_the_time_anew() {
        let mut watch = Watch::new(Some(AFTER), EACH);
        for step in 0..100 {
            if step % 8 == 7 {
                watch.handle_sign();
            }
            watch.handle_answered(EACH * step, 10, 10);
            assert!(!watch.is_due(EACH * step), "{step}");
        }
    }

    #[test]
    fn a_standby_that_is_cut_off_stopped_or_behind_does_not_take_over() {
        let mut watch = Watch::new(Some(AFTER), EACH);
        for step in 0..100_u32 {
            let now = EACH * step;
            match step % 3 {
                0 => watch.handle_unanswered(),
                1 => watch.handle_answered(now, 10, 10),
                _ => watch.handle_answered(now, 11, 10),
            }
            assert!(!watch.is_due(now));
        }
        let mut watch = Watch::new(Some(AFTER), EACH);
        watch.handle_answered(EACH, 10, 10);
        // It was stopped for an hour.
        watch.handle_answered(Now::from_hours(1), 10, 10);
        assert!(!watch.is_due(Now::from_hours(1)));
        assert_eq!(watch.silent(), Duration::ZERO);
    }

    #[test]
    fn after_a_refused_claim_the_whole_time_passes_again() {
        let mut watch = Watch::new(Some(AFTER), EACH);
        let mut due = Vec::new();
        for step in 0..40 {
            watch.handle_answered(EACH * step, 10, 10);
            if watch.is_due(EACH * step) {
                due.push(step);
                watch.handle_refused(EACH * step);
            }
        }
        assert_eq!(due, [8, 17, 26, 35]);
    }

    proptest! {
        /// Whatever happens, what is due was preceded by that much time in which each answer was at the head, and
        /// none was a sign of life.
        #[test]
        fn silence_is_only_what_was_seen(
            events in prop::collection::vec((0_u64..2_000, 0_u8..5), 1..200),
        ) {
            let mut watch = Watch::new(Some(AFTER), EACH);
            let mut now = Now::ZERO;
            let mut seen = Duration::ZERO;
            let mut last = None;
            for (wait, event) in events {
                now += after(wait);
                match event {
                    0 => { watch.handle_sign(); seen = Duration::ZERO; last = None; }
                    1 => { watch.handle_unanswered(); last = None; }
                    2 => { watch.handle_answered(now, 2, 1); last = None; }
                    _ => {
                        watch.handle_answered(now, 1, 1);
                        if let Some(last) = last
                            && now - last <= EACH * 2
                        {
                            seen += now - last;
                        }
                        last = Some(now);
                    }
                }
                prop_assert_eq!(watch.silent(), seen);
                prop_assert_eq!(watch.is_due(now), last == Some(now) && seen >= AFTER);
            }
        }
    }
}
