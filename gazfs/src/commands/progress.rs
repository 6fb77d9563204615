//! How far a recovery is, for a person who waits for it.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::bytes::format_bytes;

/// One line on a terminal that changes; nothing elsewhere.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    started: Instant,
    is_terminal: bool,
    shown: Arc<Mutex<Option<Instant>>>,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            is_terminal: io::stderr().is_terminal(),
            shown: Arc::default(),
        }
    }

    /// Shows how far it is, if it did not a moment ago.
    pub(super) fn show(&self, what: &str, done: u64, total: Option<u64>) {
        let now = Instant::now();
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = shown.is_none_or(|shown| now - shown >= INTERVAL);
        if self.is_terminal && is_due {
            *shown = Some(now);
            let line = describe(done, total, now - self.started);
            drop(write!(io::stderr().lock(), "\r\x1b[K{what}: {line}"));
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.take().is_some() {
            drop(write!(io::stderr().lock(), "\r\x1b[K"));
        }
    }
}

/// `1.5 GiB of 3.0 GiB, 512 MiB/s, 3 s left`
fn describe(done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let mut line = format_bytes(done);
    if let Some(total) = total {
        line = format!("{line} of {}", format_bytes(total));
    }
    if seconds < 0.5 || done == 0 {
        return line;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "three digits are shown, and neither is negative"
    )]
    let (rate, left) = {
        let rate = done as f64 / seconds;
        let left = total.map(|total| (total.saturating_sub(done) as f64 / rate).ceil() as u64);
        (rate as u64, left)
    };
    line = format!("{line}, {}/s", format_bytes(rate));
    if let Some(left) = left {
        line = format!("{line}, {left} s left");
    }
    line
}

const INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_rate_and_the_time_that_is_left_are_shown() {
        let line = describe(1 << 30, Some(3 << 30), Duration::from_secs(2));
        assert_eq!(line, "1.0 GiB of 3.0 GiB, 512 MiB/s, 4 s left");
        let early = describe(0, Some(10), Duration::ZERO);
        assert_eq!(early, "0 B of 10 B");
    }
}
