//! How a recording is, for people and programs.

use gazette_recoverylog::recorder::State;
use serde_json::{Value, json};

use super::{FsyncWaits, Recording, bounded};
use crate::mount::Mounted;

impl Recording {
    /// Tells how it is, mounted as it is.
    pub(crate) fn status(&self, mounted: &Mounted) -> Value {
        let status = self.recorder.status();
        let estimate = self.recorder.estimate();
        let (state, detail) = match &status.state {
            State::Recording => ("recording", None),
            State::Stalled { error, .. } => ("stalled", Some(error.to_string())),
            State::Fenced(fence) => {
                let successor = self.successor.as_deref();
                let who = successor
                    .map(|who| format!(": it is {who}"))
                    .unwrap_or_default();
                ("fenced", Some(format!("fenced, {fence}{who}")))
            }
            State::Failed(fault) => ("failed", Some(fault.to_string())),
        };
        let last_error = detail
            .clone()
            .or_else(|| status.last_error.as_deref().map(ToOwned::to_owned));
        let asides = self.work.asides();
        json!({
            "kind": "recorded",
            "mountpoint": self.options.point.to_string_lossy(),
            "state": state,
            "detail": detail,
            "log": &*status.log,
            "owner": format!("author {}, process {} on {}", status.author.get(), std::process::id(),
                rustix::system::uname().nodename().to_string_lossy()),
            "author": status.author.get(),
            "pid": std::process::id(),
            "lag_bytes": status.pending_bytes,
            "lag_seconds": status.oldest_pending.unwrap_or_default().as_secs_f64(),
            "acked_offset": status.acked.offset,
            "hints_offset": status.hints_offset,
            "live_bytes": estimate.live_bytes,
            "log_bytes_needed": estimate.span_bytes,
            "log_needed_from": estimate.horizon,
            "recovery_bytes": estimate.read_bytes,
            "recovery_seconds": bounded::seconds(&estimate, self.found.rate),
            "work": self.work.path().to_string_lossy(),
            "fsync": match self.options.fsync {
                FsyncWaits::ForLog => "log",
                FsyncWaits::ForNothing => "enqueue",
            },
            "transport": mounted.transport().way.to_string(),
            "unrecorded": asides.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            // Always there, so that whoever asks need not know whether there was one.
            "last_error": last_error.unwrap_or_else(|| "none".to_owned()),
        })
    }
}
