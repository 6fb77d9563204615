//! Checkpoints of a log while it is recorded, so that a daemon that is killed is followed fast.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gazette_process::TaskGroup;
use gazette_recoverylog::recorder::Recorder;
use tokio_util::sync::CancellationToken;

use super::prepare::blocking;
use crate::work_dir::WorkDir;

/// Writes checkpoints until it is ended or dropped.
#[derive(Debug)]
pub(super) struct Checkpoints {
    tasks: Option<TaskGroup>,
}

/// When checkpoints are due. Pure.
#[derive(Debug, Default)]
struct Pace {
    /// Offset, moment and duration of the last one.
    last: Option<(i64, Duration, Duration)>,
}

impl Pace {
    fn is_due(&self, now: Duration, offset: i64) -> bool {
        let Some((at, when, took)) = self.last else {
            return true;
        };
        let since = now.saturating_sub(when);
        let grown = offset.saturating_sub(at);
        // A large one must not become the main work.
        let is_spared = since >= took.saturating_mul(REST);
        is_spared && (grown >= GROWN_BYTES || grown > 0 && since >= GROWN_FOR)
    }
}

impl Checkpoints {
    pub(super) fn start(recorder: Recorder, work: Arc<WorkDir>) -> Self {
        let tasks = TaskGroup::new(&CancellationToken::new());
        let stop = tasks.token();
        tasks.spawn("checkpoints", async move {
            run(recorder, work, stop).await;
            Ok(())
        });
        Self { tasks: Some(tasks) }
    }

    /// Ends it. Nothing is written from then on.
    pub(super) async fn end(mut self) {
        if let Some(tasks) = self.tasks.take() {
            tasks.cancel();
            if let Err(error) = tasks.join(PATIENCE).await {
                tracing::warn!(err = %error, "end the checkpoints");
            }
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        if let Some(tasks) = &self.tasks {
            tasks.cancel();
        }
    }
}

async fn run(recorder: Recorder, work: Arc<WorkDir>, stop: CancellationToken) {
    let begun = Instant::now();
    let mut pace = Pace::default();
    loop {
        let pause = tokio::time::sleep(LOOK_INTERVAL);
        if stop.run_until_cancelled(pause).await.is_none() {
            return;
        }
        let now = begun.elapsed();
        if !pace.is_due(now, recorder.acked().offset) {
            continue;
        }
        let (recorder, work) = (recorder.clone(), Arc::clone(&work));
        match blocking(move || write(&recorder, &work)).await {
            Ok(Some(offset)) => {
                pace.last = Some((offset, now, begun.elapsed().saturating_sub(now)));
            }
            // The log is behind; at some moment it is not.
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(err = %error, "no checkpoint is written; if this process is killed, the next one reads the log");
                return;
            }
        }
    }
}

/// Writes one if the log has all that was recorded. Returns its offset.
fn write(recorder: &Recorder, work: &WorkDir) -> Result<Option<i64>, String> {
    let Some(checkpoint) = recorder.checkpoint() else {
        return Ok(None);
    };
    let bytes = checkpoint.encode().map_err(|error| error.to_string())?;
    let offset = checkpoint.offset;
    drop(checkpoint);
    work.write_checkpoint(&bytes)
        .map_err(|error| error.to_string())?;
    Ok(Some(offset))
}

const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A start reads about so much of the log besides the checkpoint.
const GROWN_BYTES: i64 = 64 << 20;
const GROWN_FOR: Duration = Duration::from_mins(1);
/// One that is being written is waited for, as the next daemon would find it.
const PATIENCE: Duration = Duration::from_mins(2);
/// How many times as long as one took there is none.
const REST: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_follow_the_log_and_large_ones_are_rare() {
        let second = Duration::from_secs;
        let mut pace = Pace::default();
        assert!(pace.is_due(second(0), 0), "the first");
        pace.last = Some((100, second(10), second(1)));
        for (now, offset, is_due) in [
            (11, 100, false),
            (3600, 100, false),
            (11, 100 + GROWN_BYTES, false),
            (60, 100 + GROWN_BYTES, true),
            (60, 101, false),
            (70, 101, true),
        ] {
            assert_eq!(pace.is_due(second(now), offset), is_due, "{now} {offset}");
        }
    }
}
