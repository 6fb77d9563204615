//! Keeps a log small: what is old and live is recorded again, at a limited rate, and what nothing needs any more is
//! removed from its store, if that was asked for.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use gazette_client::Client;
use gazette_recoverylog::{
    fsm::{
        Mode,
        clean::{CleanPolicy, Repeat},
    },
    prune::{PruneOptions, Pruned, prune, stores},
    recorder::{Hold, Recorder, RecoveryEstimate},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    Options, Recording,
    log::{RecorderLog, is_final},
    prepare::blocking,
};
use crate::recorded::RecordedFs;

/// How a log is kept small.
#[derive(Debug, Clone)]
pub struct Bounded {
    /// Bytes a second that are recorded again at most, unless the log grows faster than that. Zero for not at all.
    pub clean_rate: u64,
    /// Fragments that nothing needs are removed.
    pub prunes: bool,
    /// Folder below which `file` stores are, if this process cannot tell by itself.
    pub store_root: Option<PathBuf>,
}

impl Default for Bounded {
    fn default() -> Self {
        Self {
            clean_rate: CLEAN_RATE,
            prunes: false,
            store_root: None,
        }
    }
}

/// Records again what is old.
#[derive(Debug, Clone)]
pub(super) struct Cleaner {
    recorder: Recorder,
    fs: RecordedFs<RecorderLog>,
    rate: u64,
    max_pending: u64,
    stop: CancellationToken,
}

impl Cleaner {
    pub(super) fn new(
        recorder: &Recorder,
        fs: &RecordedFs<RecorderLog>,
        options: &Options,
        stop: CancellationToken,
    ) -> Self {
        Self {
            recorder: recorder.clone(),
            fs: fs.clone(),
            rate: options.bounded.clean_rate,
            max_pending: options.max_pending,
            stop,
        }
    }

    /// Works until it is stopped, or the log takes nothing more.
    pub(super) async fn run(self) {
        if self.rate == 0 || self.recorder.mode() == Mode::Compat {
            return;
        }
        let policy = CleanPolicy::default();
        let (mut looked_at, mut was_busy) = (self.recorder.acked().offset, true);
        // How often nothing of what was chosen could be recorded.
        let mut stuck = 0;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(ROUND) => {}
            }
            let status = self.recorder.status();
            if is_final(&status.state) {
                return;
            }
            let grown = status.acked.offset.abs_diff(looked_at);
            if !was_busy && grown < LOOK_BYTES {
                continue;
            }
            // Whoever writes comes first, as long as the log can bear it.
            let is_loaded = status.pending_bytes > self.max_pending / 2;
            if is_loaded && self.recorder.debt(&policy) < URGENT_BYTES {
                continue;
            }
            looked_at = status.acked.offset;
            let by_time = self.rate / ROUNDS_PER_SECOND;
            let budget = by_time.max(grown.saturating_mul(2)).min(BUDGET_MAX);
            // What cannot be recorded again now must not keep the rest from it.
            let repeated = self.round(policy, budget << (3 * stuck)).await;
            was_busy = repeated > 0;
            stuck = if was_busy {
                0
            } else {
                (stuck + 1).min(STUCK_MAX)
            };
        }
    }

    /// Records something again, and waits until the log has it. Returns how many bytes.
    async fn round(&self, policy: CleanPolicy, budget: u64) -> u64 {
        let this = self.clone();
        let repeated =
            blocking(move || Ok::<_, std::convert::Infallible>(this.repeat(&policy, budget)));
        let Ok(repeated) = repeated.await;
        // Until then the choice would be the same. Whether it fails is for others to tell.
        if repeated > 0 {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                _flushed = self.recorder.flush() => {}
            }
        }
        repeated
    }

    fn repeat(&self, policy: &CleanPolicy, budget: u64) -> u64 {
        let mut buffer = Vec::new();
        let mut repeated = 0;
        for repeat in self.recorder.choose_repeats(policy, budget) {
            if self.stop.is_cancelled() {
                return repeated;
            }
            let Some(reservation) = self.reserve(&repeat) else {
                return repeated;
            };
            if let Repeat::Content {
                fnode,
                offset,
                length,
            } = repeat
            {
                let Some(path) = self.recorder.path(fnode) else {
                    continue;
                };
                buffer.resize(usize::try_from(length).unwrap_or(0), 0);
                let record = |data: &[u8]| self.recorder.repeat(reservation, &repeat, data);
                let done = self
                    .fs
                    .repeat_content(&path, fnode, offset, &mut buffer, record);
                match done {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) => {
                        tracing::warn!(log = self.recorder.log(), err = %error, "read what is to be recorded again");
                        continue;
                    }
                }
            } else {
                self.recorder.repeat(reservation, &repeat, &[]);
            }
            repeated += repeat.bytes();
        }
        repeated
    }

    /// Waits for room as programs do, but not for ever.
    fn reserve(&self, repeat: &Repeat) -> Option<gazette_recoverylog::recorder::Reservation> {
        let begun = Instant::now();
        loop {
            match self.recorder.reserve_repeat(repeat) {
                Ok(reservation) => return Some(reservation),
                Err(Hold::Full) if begun.elapsed() < ROOM_PATIENCE && !self.stop.is_cancelled() => {
                    std::thread::sleep(ROOM_RETRY);
                }
                Err(_) => return None,
            }
        }
    }

    /// Records again until the log spans hardly more than what is live. Tells what came of it.
    pub(super) async fn compact(&self) -> Value {
        let before = self.recorder.estimate();
        let most = before.live_bytes.saturating_mul(2) + COMPACT_SLACK_BYTES;
        let mut repeated = 0;
        while repeated < most && !self.stop.is_cancelled() {
            let count = self.round(COMPACT, BUDGET_MAX).await;
            if count == 0 {
                break;
            }
            repeated += count;
        }
        let after = self.recorder.estimate();
        json!({
            "log": self.recorder.log(),
            "live_bytes": after.live_bytes,
            "recorded_again_bytes": repeated,
            "span_bytes_before": before.span_bytes,
            "span_bytes": after.span_bytes,
            "needed_from": after.horizon,
        })
    }
}

impl Recording {
    /// Begins to keep the log small, until the end.
    pub(super) fn keep_bounded(&self, client: &Client) {
        let cleaner = self.cleaner.clone();
        self.tasks.spawn("clean", async move {
            cleaner.run().await;
            Ok(())
        });
        let bounded = &self.options.bounded;
        if bounded.prunes {
            let pruning = prune_always(
                client.clone(),
                self.recorder.clone(),
                bounded.store_root.clone(),
                self.tasks.token(),
            );
            self.tasks.spawn("prune", async move {
                pruning.await;
                Ok(())
            });
        }
    }
}

/// Removes what is not needed from time to time, until it is stopped.
async fn prune_always(
    client: Client,
    recorder: Recorder,
    store_root: Option<PathBuf>,
    stop: CancellationToken,
) {
    let stores = stores(&client, store_root);
    let mut pruned_at = None;
    let mut is_told = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PRUNE_ROUND) => {}
        }
        let status = recorder.status();
        if is_final(&status.state) {
            return;
        }
        // Only then something has become needless.
        if status.hints_offset.is_none() || status.hints_offset == pruned_at {
            continue;
        }
        let pruning = prune(&client, &stores, recorder.log(), PruneOptions::default());
        let pruned = tokio::select! {
            biased;
            // What is not removed now goes another time.
            () = stop.cancelled() => return,
            pruned = pruning => pruned,
        };
        match pruned {
            Ok(pruned) => {
                pruned_at = status.hints_offset;
                is_told = false;
                tell(recorder.log(), &pruned);
            }
            Err(error) if is_told => tracing::debug!(err = %error, "the log is not pruned"),
            Err(error) => {
                is_told = true;
                tracing::warn!(err = %error, "the log is not pruned; it is tried again");
            }
        }
    }
}

fn tell(log: &str, pruned: &Pruned) {
    let removed = pruned.fragments.iter().filter(|of| of.is_removed);
    let (count, bytes) = removed.fold((0, 0), |(count, bytes), of| {
        (
            count + 1,
            bytes + of.fragment.end.abs_diff(of.fragment.begin),
        )
    });
    if count > 0 {
        tracing::info!(log, fragments = count, bytes, "pruned");
    }
}

/// How long a recovery would take, by how fast the last one was.
pub(super) fn seconds(estimate: &RecoveryEstimate, rate: Option<u64>) -> f64 {
    let rate = rate.unwrap_or(ASSUMED_RATE).max(1);
    let millis = estimate.read_bytes.saturating_mul(1000) / rate;
    Duration::from_millis(millis).as_secs_f64()
}

/// What is needed of the log hardly spans more than what is live.
const COMPACT: CleanPolicy = CleanPolicy {
    span_percent: 110,
    floor_bytes: 4 << 20,
    leaves_other_logs: true,
};
/// What changes meanwhile, and chunks that are not whole.
const COMPACT_SLACK_BYTES: u64 = 64 << 20;

const ROUND: Duration = Duration::from_millis(250);
const ROUNDS_PER_SECOND: u64 = 4;
const PRUNE_ROUND: Duration = Duration::from_secs(1);
/// As the help says.
pub(crate) const CLEAN_RATE: u64 = 16 << 20;
/// Bytes of log before it is looked at again.
const LOOK_BYTES: u64 = 1 << 20;
/// Bytes that are recorded again before the log is asked whether it has them.
const BUDGET_MAX: u64 = 32 << 20;
/// Bytes by which a log spans too much before programs have to share its room.
const URGENT_BYTES: u64 = 16 << 20;
/// With 2^12 times the budget all of a log is chosen.
const STUCK_MAX: u32 = 4;
const ROOM_PATIENCE: Duration = Duration::from_secs(5);
const ROOM_RETRY: Duration = Duration::from_millis(5);
/// Where nothing was recovered yet: that of a plain disk.
const ASSUMED_RATE: u64 = 100_000_000;
