//! Clients that work in a closed loop, and what is counted of it.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::anyhow;
use hdrhistogram::Histogram;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

/// One client's repeated request.
pub(super) trait Operation: Send + 'static {
    /// Does it once, and returns the bytes that it moved.
    fn run(&mut self) -> impl Future<Output = anyhow::Result<u64>> + Send;
}

/// When the measured time begins and ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) begin: Instant,
    pub(super) end: Instant,
}

/// What all clients together did in the measured time, readable while they work.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) operations: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) errors: AtomicU64,
    first_error: Mutex<Option<String>>,
}

/// What was measured.
#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    /// How long was measured; less than planned if it was ended early.
    pub(super) elapsed: Duration,
    /// Microseconds of each operation.
    pub(super) latency: Histogram<u64>,
}

impl Counters {
    fn failed(&self, error: &anyhow::Error) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(err = %format!("{error:#}"), "a request failed");
        let mut first = self
            .first_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            *first = Some(format!("{error:#}"));
        }
    }
}

/// Lets every client repeat its operation until the window ends, or `stop` is cancelled.
pub(super) async fn run<O: Operation>(
    clients: Vec<O>,
    window: Window,
    counters: Arc<Counters>,
    stop: &CancellationToken,
) -> anyhow::Result<Measurement> {
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(work(client, window, Arc::clone(&counters), stop.clone()));
    }
    let mut latency = histogram()?;
    while let Some(joined) = tasks.join_next().await {
        latency.add(joined??)?;
    }
    let elapsed = Instant::now()
        .min(window.end)
        .saturating_duration_since(window.begin);
    let first_error = counters
        .first_error
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    Ok(Measurement {
        operations: counters.operations.load(Ordering::Relaxed),
        bytes: counters.bytes.load(Ordering::Relaxed),
        errors: counters.errors.load(Ordering::Relaxed),
        first_error,
        elapsed,
        latency,
    })
}

async fn work<O: Operation>(
    mut client: O,
    window: Window,
    counters: Arc<Counters>,
    stop: CancellationToken,
) -> anyhow::Result<Histogram<u64>> {
    let mut latency = histogram()?;
    loop {
        let begun = Instant::now();
        if begun >= window.end || stop.is_cancelled() {
            return Ok(latency);
        }
        let outcome = tokio::select! {
            biased;
            outcome = client.run() => outcome,
            // It is not counted, but a broker that does not answer must not hold us up.
            () = tokio::time::sleep_until(window.end + OVERTIME_MAX) => return Ok(latency),
            () = stop.cancelled() => return Ok(latency),
        };
        let ended = Instant::now();
        let counted = ended >= window.begin && ended < window.end;
        match outcome {
            Ok(bytes) if counted => {
                counters.operations.fetch_add(1, Ordering::Relaxed);
                counters.bytes.fetch_add(bytes, Ordering::Relaxed);
                latency.saturating_record(micros(ended - begun));
            }
            Ok(_) => {}
            Err(error) => {
                // Also one of the warm-up says that something is wrong.
                counters.failed(&error);
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros())
        .unwrap_or(u64::MAX)
        .max(1)
}

/// Three digits from a microsecond to ten minutes.
fn histogram() -> anyhow::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 600_000_000, 3).map_err(|error| anyhow!("histogram: {error}"))
}

/// How long a client waits after a failure: what failed will not be better at once.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// How long a request may go on after the end.
const OVERTIME_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
