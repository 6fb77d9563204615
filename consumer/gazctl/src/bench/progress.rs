//! What is going on, on standard error.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{
    load::{Counters, Window},
    report::{MIB, per_second},
};
use crate::output;

/// Shows progress until it is dropped: a bar to a person, a line each second to a log.
pub(super) async fn show(
    operation: &'static str,
    window: Window,
    counters: Arc<Counters>,
) -> Infallible {
    let begun = Instant::now();
    let bar = output::is_watched().then(|| bar(window.end - begun));
    let period = if bar.is_some() {
        BAR_INTERVAL
    } else {
        LINE_INTERVAL
    };
    let mut ticks = interval_at(begun + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The rate that is shown is that of the last second or so.
    let mut before = (begun, 0, 0);
    let mut line = "warming up".to_owned();
    loop {
        let now = ticks.tick().await;
        let operations = counters.operations.load(Ordering::Relaxed);
        let bytes = counters.bytes.load(Ordering::Relaxed);
        let errors = counters.errors.load(Ordering::Relaxed);
        let elapsed = now.saturating_duration_since(before.0.max(window.begin));
        // A rate over less time would be noise.
        if elapsed >= RATE_MIN {
            let seconds = elapsed.as_secs_f64();
            let rate = per_second(operations - before.1, seconds);
            let mib = per_second(bytes - before.2, seconds) / MIB;
            line = format!("{rate:.0} {operation}s/s  {mib:.1} MiB/s  {errors} errors");
        }
        if now - before.0 >= LINE_INTERVAL {
            before = (now, operations, bytes);
        }
        let elapsed = now - begun;
        match &bar {
            Some(bar) => {
                bar.set_position(millis(elapsed));
                bar.set_message(line.clone());
            }
            None => output::complain(&format!("{:>4.0} s  {line}", elapsed.as_secs_f64())),
        }
    }
}

fn bar(length: Duration) -> ProgressBar {
    let target = ProgressDrawTarget::stderr();
    // Also if it is not waited for until it is full.
    let bar = ProgressBar::with_draw_target(Some(millis(length)), target)
        .with_finish(ProgressFinish::AndClear);
    match ProgressStyle::with_template("[{bar:30}] {percent:>3} %  {msg}") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Shortest time whose rate is shown.
const RATE_MIN: Duration = Duration::from_millis(500);
const BAR_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(1);
