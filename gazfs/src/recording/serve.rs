//! What a recording does until it ends, and its end.

use std::{fs::File, time::Duration};

use gazette_process::ExitStatus;
use gazette_recoverylog::{
    Source,
    fsm::Mark,
    history::{HistoryFilter, Moment, history},
    recorder::{self, Acked, Fault, Fence},
};
use rustix::fs::syncfs;
use tokio_util::sync::CancellationToken;

use super::{Recording, keep, prepare::blocking};
use crate::{
    mount::{Asked, Control, FlushOutcome, MountError, Mounted, Question, UmountOutcome},
    work_dir::{Phase, State},
};

/// How a recording ended. Whoever asked for it by `gazfs umount` waits until this is dropped.
#[derive(Debug)]
pub struct Ended {
    /// As the caller of the program sees it.
    pub status: ExitStatus,
    /// What went wrong.
    pub error: Option<String>,
    /// Something could not be restored when it began.
    pub is_restored_in_part: bool,
    _asked: Option<Asked>,
}

impl Ended {
    /// What whoever unmounted is told.
    pub(crate) fn outcome(&self) -> UmountOutcome {
        let message = self.error.clone().unwrap_or_default();
        match self.status {
            ExitStatus::Done => UmountOutcome::Done,
            ExitStatus::Fenced => UmountOutcome::Fenced { message },
            ExitStatus::Failed
            | ExitStatus::Usage
            | ExitStatus::Degraded
            | ExitStatus::TryLater => UmountOutcome::Failed { message },
        }
    }
}

impl Recording {
    /// Serves a mount until it is unmounted, or `stop` asks for the end. Then waits until the log
    /// has all, in bounded time. A log that is not ours any more does not end it: programs get
    /// errors, and whoever asks is told why.
    pub async fn serve(
        mut self,
        mounted: Mounted,
        control: &Control,
        stop: &CancellationToken,
    ) -> Ended {
        let mut lost = Some(Box::pin(self.lost()));
        let asked = loop {
            tokio::select! {
                biased;
                () = mounted.ended() => break None,
                () = stop.cancelled() => {
                    self.unmount(&mounted).await;
                    break None;
                }
                () = until(&mut lost) => {
                    lost = None;
                    self.tell_loss().await;
                }
                mut asked = control.asked() => match asked.question() {
                    Question::Umount => match mounted.unmount().await {
                        Ok(()) => break Some(asked),
                        Err(error) => {
                            if !matches!(error, MountError::Busy { .. }) {
                                tracing::warn!("{error}");
                            }
                            asked.answer(UmountOutcome::Busy);
                        }
                    },
                    Question::Status => asked.answer(self.status(&mounted)),
                    Question::Flush => self.on_flushed(move |outcome| asked.answer(outcome)),
                    Question::Compact => self.compact_for(asked),
                },
            }
        };
        drop(mounted);
        self.end_for(asked).await
    }

    /// Ends it without a mount.
    pub async fn end(self) -> Ended {
        self.end_for(None).await
    }

    /// Says who took the log over, as far as he left his name in it.
    pub(crate) async fn tell_loss(&mut self) {
        let point = self.options.point.display().to_string();
        if let recorder::State::Fenced(fence) = self.recorder.status().state {
            let found = successor(&self.source, self.recorder.log(), fence);
            let found = tokio::time::timeout(SUCCESSOR_PATIENCE, found).await;
            self.successor = found.ok().flatten();
        }
        let successor = self.successor.as_deref().unwrap_or("unknown");
        tracing::error!(
            point,
            successor,
            "every change fails from now on; end it with gazfs umount"
        );
    }

    /// Calls back when the log has all that was done so far.
    pub(crate) fn on_flushed(&self, done: impl FnOnce(FlushOutcome) + Send + 'static) {
        self.recorder.barrier(move |flushed| {
            done(match flushed {
                Ok(()) => FlushOutcome::Done,
                Err(fault) => FlushOutcome::Failed {
                    is_fenced: matches!(fault, Fault::Fenced(_)),
                    message: fault.to_string(),
                },
            });
        });
    }

    /// Answers when the log spans hardly more than what is live.
    pub(crate) fn compact_for(&self, mut asked: Asked) {
        let cleaner = self.cleaner.clone();
        self.tasks.spawn("compact", async move {
            asked.answer(cleaner.compact().await);
            Ok(())
        });
    }

    /// Unmounts also if somebody uses the mount, as the process ends now.
    pub(crate) async fn unmount(&self, mounted: &Mounted) {
        let unmounted = match mounted.unmount().await {
            Err(MountError::Busy { point }) => {
                tracing::warn!(
                    point = %point.display(),
                    "in use; open files there do not work any more"
                );
                mounted.detach().await
            }
            unmounted => unmounted,
        };
        if let Err(error) = unmounted {
            tracing::warn!("{error}");
        }
    }

    /// Waits until the log has all, in bounded time, and tells whoever asked for the end.
    pub(crate) async fn end_for(mut self, mut asked: Option<Asked>) -> Ended {
        self.tasks.cancel();
        if let Err(error) = self.tasks.clone().join(TASKS_PATIENCE).await {
            tracing::warn!(err = %error, "the log was not kept small to the end");
        }
        if let Some(checkpoints) = self.checkpoints.take() {
            checkpoints.end().await;
        }
        let stopped = self.recorder.clone().stop().await;
        let (status, error) = match &stopped {
            Ok(acked) => {
                if let Err(error) = self.leave(*acked).await {
                    // The log has all; the next start reads it.
                    tracing::warn!(work = %self.work.path().display(), err = %error, "leave the backing files to the next start");
                }
                (ExitStatus::Done, None)
            }
            Err(fault @ Fault::Fenced(_)) => (ExitStatus::Fenced, Some(fault.to_string())),
            Err(fault) => (
                ExitStatus::Failed,
                Some(format!(
                    "{fault}; what the log never got is in {}, and is set aside at the next start",
                    self.work.tree().display()
                )),
            ),
        };
        let ended = Ended {
            status,
            error,
            is_restored_in_part: self.found.not_restored > 0,
            _asked: None,
        };
        if let Some(asked) = &mut asked {
            asked.answer(ended.outcome());
        }
        Ended {
            _asked: asked,
            ..ended
        }
    }

    /// Leaves the backing files to the next start: they are what the log says.
    async fn leave(&self, acked: Acked) -> Result<(), String> {
        let (tree, recorder) = (self.work.tree(), self.recorder.clone());
        let image = blocking(move || {
            let root = File::open(&tree).map_err(|error| error.to_string())?;
            syncfs(&root).map_err(|error| error.to_string())?;
            Ok::<_, String>(
                recorder.with_log(|fsm, liveness| keep::image(fsm, liveness, acked.offset, &tree)),
            )
        });
        match image.await? {
            Ok(image) => self
                .work
                .write_image(&image)
                .map_err(|error| error.to_string())?,
            Err(error) => {
                tracing::info!(err = %error, "no image is left; the next start reads the log");
            }
        }
        let state = State {
            log: self.options.log.clone(),
            author: self.recorder.author().get(),
            offset: acked.offset,
            phase: Phase::Clean,
            ground: None,
        };
        self.work
            .write_state(&state)
            .map_err(|error| error.to_string())
    }
}

/// Reads in the log what a successor says of himself.
async fn successor(source: &Source, log: &str, fence: Fence) -> Option<String> {
    let author = fence.author?.get();
    let filter = HistoryFilter {
        from: Some(Moment::Offset(fence.offset)),
        ..HistoryFilter::default()
    };
    loop {
        // He may be about to say it.
        let mut history = history(source, log, filter.clone()).await.ok()?;
        while let Some(Ok(entry)) = history.next().await {
            if let Some(Mark::Text(text)) = entry.event.mark()
                && entry.author == author
            {
                return Some(String::from_utf8_lossy(text).into_owned());
            }
        }
        tokio::time::sleep(SUCCESSOR_RETRY).await;
    }
}

/// How long the name of a successor is looked for. Nobody is answered meanwhile.
const SUCCESSOR_PATIENCE: Duration = Duration::from_secs(2);
/// How long what goes on beside a recording may take to end.
const TASKS_PATIENCE: Duration = Duration::from_secs(2);
const SUCCESSOR_RETRY: Duration = Duration::from_millis(200);

/// Waits for what is still to come, once.
pub(crate) async fn until<F: Future<Output = ()> + Unpin>(future: &mut Option<F>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
