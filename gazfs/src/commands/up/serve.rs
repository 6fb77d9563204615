//! Journals and a recorded directory, served by one process until it ends.

use std::{path::PathBuf, time::Duration};

use gazette_process::ExitStatus;
use gazette_recoverylog::recorder::Room;
use rustix::fs::statvfs;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::super::{
    embedded::Broker,
    record::report,
    say_error,
    serve::{Ended, end, failed_appends, flush_for, journals_status, report_appends},
};
use crate::{
    journals::JournalFs,
    mount::{
        Asked, Control, FlushOutcome, MountError, MountOptions, Mounted, Question, UmountOutcome,
    },
    recording::{Recording, until},
};

/// All that is served.
#[derive(Debug)]
pub(in crate::commands) struct House {
    pub(super) fs: JournalFs,
    pub(super) journals: Mounted,
    pub(super) recording: Recording,
    pub(super) data: Mounted,
    pub(super) control: Control,
    /// How the recorded directory is mounted.
    pub(super) how: MountOptions,
    /// A folder on the disk that the log is on.
    pub(super) log_disk: PathBuf,
}

impl House {
    /// Serves until one of the mounts ends, somebody asks for it, or the broker fails for good.
    /// Then waits until all that was written is acknowledged.
    pub(super) async fn serve(mut self, broker: &Broker, shutdown: &CancellationToken) -> Ended {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        let mut lost = Some(Box::pin(self.recording.lost()));
        let asked = loop {
            tokio::select! {
                biased;
                () = self.journals.ended() => break None,
                () = self.data.ended() => break None,
                () = shutdown.cancelled() => break None,
                () = broker.failed() => break None,
                () = until(&mut lost) => {
                    lost = None;
                    self.recording.tell_loss().await;
                }
                _ = look.tick() => self.look_for_room(),
                mut asked = self.control.asked() => match asked.question() {
                    Question::Umount => if self.unmount().await {
                        break Some(asked);
                    } else {
                        asked.answer(UmountOutcome::Busy);
                    },
                    Question::Status => {
                        let mut status = self.recording.status(&self.data);
                        status["journals"] = journals_status(&self.fs, &self.journals);
                        asked.answer(status);
                    }
                    Question::Flush => self.flush_for(asked),
                    Question::Compact => self.recording.compact_for(asked),
                },
            }
        };
        self.end(asked).await
    }

    /// Answers when all appends, and all that was recorded so far, are acknowledged.
    fn flush_for(&self, asked: Asked) {
        let (send, recorded) = oneshot::channel();
        self.recording.on_flushed(move |outcome| {
            // Appends may have failed meanwhile.
            drop(send.send(outcome));
        });
        flush_for(asked, &self.fs, async {
            let cut = |_| FlushOutcome::Failed {
                message: "the recorder ended".to_owned(),
                is_fenced: false,
            };
            recorded.await.unwrap_or_else(cut)
        });
    }

    /// Unmounts both, unless one of them is in use.
    async fn unmount(&mut self) -> bool {
        if !unmounted(&self.data).await {
            return false;
        }
        if unmounted(&self.journals).await {
            return true;
        }
        match self.recording.mount(self.how) {
            Ok(data) => {
                self.data = data;
                false
            }
            Err(error) => {
                say_error(&format!("error: {error}"));
                true
            }
        }
    }

    async fn end(self, asked: Option<Asked>) -> Ended {
        self.fs.refuse_appends();
        let failed = self.fs.drain().await;
        end(&self.journals).await;
        self.recording.unmount(&self.data).await;
        drop((self.data, self.journals));
        let recorded = self.recording.end().await;
        let appends = report_appends(failed);
        let recorded_status = report(&recorded);
        let status = if appends == ExitStatus::Done {
            recorded_status
        } else {
            appends
        };
        let asked = asked.map(|mut asked| {
            let mut outcome = recorded.outcome();
            if outcome == UmountOutcome::Done && failed > 0 {
                outcome = UmountOutcome::Failed {
                    message: failed_appends(failed),
                };
            }
            asked.answer(outcome);
            asked
        });
        Ended::new(status, asked)
    }

    fn look_for_room(&self) {
        let Ok(found) = statvfs(&self.log_disk) else {
            return;
        };
        let total = found.f_blocks.saturating_mul(found.f_frsize);
        let available = found.f_bavail.saturating_mul(found.f_frsize);
        self.recording.set_room(Room {
            total,
            available,
            reserve: RESERVE_BYTES.min(total / 20),
        });
    }
}

async fn unmounted(mounted: &Mounted) -> bool {
    match mounted.unmount().await {
        Ok(()) => true,
        Err(error) => {
            if !matches!(error, MountError::Busy { .. }) {
                say_error(&format!("error: {error}"));
            }
            false
        }
    }
}

/// How often the disk of the log is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// What growing files leave on the disk of the log, for those that become smaller.
const RESERVE_BYTES: u64 = 128 << 20;
