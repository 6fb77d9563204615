//! How a recording is, for people and programs.

use gazette_recoverylog::{fsm::LiveNode, recorder::State};
use serde_json::{Value, json};

use super::{FsyncWaits, Recording};

impl Recording {
    /// Tells how it is.
    pub(crate) fn status(&self) -> Value {
        let status = self.recorder.status();
        let successor = self.neighbours.successor();
        let (state, detail) = match &status.state {
            _ if self.handed_to.is_some() => {
                let who = self
                    .handed_to
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                (
                    "fenced",
                    Some(format!("fenced, the log was handed over to {who}")),
                )
            }
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
            "owner": match successor.or(self.handed_to.as_ref()).filter(|_| state == "fenced") {
                Some(who) => who.to_string(),
                None => format!("{} (author {})", self.neighbours.who, status.author.get()),
            },
            "standbys": self.neighbours.board.standbys(self.neighbours.now())
                .map(|standby| standby.who.to_string()).collect::<Vec<_>>(),
            "author": status.author.get(),
            "pid": std::process::id(),
            "lag_bytes": status.pending_bytes,
            "lag_seconds": status.oldest_pending.unwrap_or_default().as_secs_f64(),
            "acked_offset": status.acked.offset,
            "hints_offset": status.hints_offset,
            "recovery_bytes": self.recovery_bytes(),
            "work": self.work.path().to_string_lossy(),
            "fsync": match self.options.fsync {
                FsyncWaits::ForLog => "log",
                FsyncWaits::ForNothing => "enqueue",
            },
            "transport": "classic",
            "unrecorded": asides.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            // Always there, so that whoever asks need not know whether there was one.
            "last_error": last_error.unwrap_or_else(|| "none".to_owned()),
        })
    }

    /// What a recovery would read now: the parts of the log that live files need, and what comes
    /// after them.
    fn recovery_bytes(&self) -> u64 {
        let end = self.recorder.acked().offset;
        let mut ranges: Vec<(i64, i64)> = self.recorder.with_fsm(|fsm| {
            let segments = fsm.live_nodes().values().flat_map(LiveNode::segments);
            segments
                .map(|segment| (segment.first_offset, segment.last_offset))
                .collect()
        });
        ranges.sort_unstable();
        let (mut bytes, mut reached) = (0, 0);
        for (begin, past) in ranges {
            let begin = begin.max(reached);
            bytes += (past - begin).max(0);
            reached = reached.max(past);
        }
        (bytes + (end - reached).max(0)).unsigned_abs()
    }
}
