//! The time that a decision is made at.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Both readings of time that a decision may need, taken by the caller at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time, of deadlines and rates.
    pub instant: Instant,
    /// Wall time, of flush intervals and ages of stored fragments. It may step.
    pub wall: SystemTime,
}

impl Now {
    /// The wall time in whole seconds since the Unix epoch, negative before it.
    pub fn unix(&self) -> i64 {
        unix_seconds(self.wall)
    }

    /// The moment `duration` from now.
    pub(crate) fn after(&self, duration: Duration) -> Instant {
        self.instant + duration
    }
}

/// Whole seconds since the Unix epoch, rounded down.
pub(crate) fn unix_seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => {
            let before = before.duration();
            let whole = before.as_secs() + u64::from(before.subsec_nanos() > 0);
            i64::try_from(whole).map_or(i64::MIN, i64::wrapping_neg)
        }
    }
}
