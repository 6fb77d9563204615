//! What a recording does until it ends, and its end.

use std::{fs::File, time::Duration};

use gazette_process::ExitStatus;
use gazette_recoverylog::{
    Source,
    fsm::Mark,
    history::{HistoryFilter, Moment, history},
    notices::{Notice, Who},
    recorder::{self, Acked, Fault, Fence},
};
use rustix::fs::syncfs;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{Recording, keep, neighbours::Request, prepare::blocking};
use crate::{
    mount::{Asked, Control, FlushOutcome, MountError, Mounted, Question, UmountOutcome},
    work_dir::{Phase, State},
};

/// Whoever is asked by this stops the program, and says whether it has ended.
pub type Drain = mpsc::Sender<oneshot::Sender<Result<(), String>>>;

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
    ///
    /// When the log is to be handed over, whoever listens to `drain` stops the program first.
    pub async fn serve(
        mut self,
        mounted: Mounted,
        control: &Control,
        stop: &CancellationToken,
        drain: Option<&Drain>,
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
                request = self.neighbours.next(&self.recorder) => {
                    self.hand_over(request, drain).await;
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
                    Question::Status => asked.answer(self.status()),
                    Question::Flush => self.on_flushed(move |outcome| asked.answer(outcome)),
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
        if let Some(who) = &self.handed_to {
            tracing::warn!(point, successor = %who, "handed over; every change fails from now on");
            return;
        }
        if let recorder::State::Fenced(fence) = self.recorder.status().state {
            let found = successor(&self.source, self.recorder.log(), fence);
            let found = timeout(SUCCESSOR_PATIENCE, found).await;
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
    pub(crate) async fn end_for(self, mut asked: Option<Asked>) -> Ended {
        let stopped = self.recorder.clone().stop().await;
        let (status, error) = match &stopped {
            Ok(acked) => {
                self.tell_end(acked.offset).await;
                if let Err(error) = self.leave(*acked).await {
                    // The log has all; the next start reads it.
                    tracing::warn!(work = %self.work.path().display(), err = %error, "leave the backing files to the next start");
                }
                match &self.handed_to {
                    None => (ExitStatus::Done, None),
                    Some(who) => (
                        ExitStatus::Fenced,
                        Some(format!("the log was handed over to {who}")),
                    ),
                }
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

    /// Tells others that the log has all, and that nobody need be waited for.
    async fn tell_end(&self, offset: i64) {
        if self.handed_to.is_some() {
            // They know.
            return;
        }
        let ended = Notice::Ended {
            author: self.recorder.author().get(),
            offset,
            handoff: None,
        };
        if let Err(error) = self.neighbours.notices.say(&ended).await {
            tracing::debug!(err = %error, "others are not told of the end");
        }
    }

    /// Hands the log over to a standby, or says why not.
    async fn hand_over(&mut self, request: Request, drain: Option<&Drain>) {
        let Request { handoff, to } = request;
        let chosen = self.try_hand_over(&handoff, to.as_deref(), drain).await;
        match chosen {
            Ok(who) => self.handed_to = Some(who),
            Err(cause) => {
                tracing::warn!(handoff, cause, "the hand-off is called off");
                self.neighbours.say(Notice::CalledOff { handoff, cause });
            }
        }
    }

    async fn try_hand_over(
        &mut self,
        handoff: &str,
        to: Option<&str>,
        drain: Option<&Drain>,
    ) -> Result<Who, String> {
        let now = self.neighbours.now();
        let chosen = self.neighbours.board.choose(now, to);
        let who = chosen.map_err(|none| none.cause())?.who.clone();
        // Nothing is stopped for a log that takes nothing.
        match timeout(FLUSH_WITHIN, self.recorder.flush()).await {
            Ok(Ok(_)) => {}
            Ok(Err(fault)) => return Err(fault.to_string()),
            Err(_) => {
                let within = FLUSH_WITHIN.as_secs();
                return Err(format!(
                    "the log did not take what is pending within {within} s"
                ));
            }
        }
        let author = self.recorder.author().get();
        let stopping = Notice::Stopping {
            handoff: handoff.to_owned(),
            to: who.id.clone(),
            author,
        };
        let notices = self.neighbours.notices.clone();
        notices
            .say(&stopping)
            .await
            .map_err(|error| error.to_string())?;
        if let Some(drain) = drain {
            let (tell, told) = oneshot::channel();
            if drain.send(tell).await.is_ok() {
                told.await.unwrap_or(Ok(()))?;
            }
        }
        let acked = self
            .recorder
            .release()
            .await
            .map_err(|fault| fault.to_string())?;
        let ended = Notice::Ended {
            author,
            offset: acked.offset,
            handoff: Some(handoff.to_owned()),
        };
        // It is done, whoever hears of it.
        if let Err(error) = notices.say(&ended).await {
            tracing::warn!(err = %error, "the standby is not told that the log is released");
        }
        Ok(who)
    }

    /// Tells others that this owner serves, after a standby took over.
    pub(crate) fn tell_serving(&self, handoff: Option<String>) {
        let neighbours = &self.neighbours;
        neighbours.say(Notice::Serving {
            handoff,
            who: neighbours.who.clone(),
            author: self.recorder.author().get(),
        });
    }

    /// Leaves the backing files to the next start: they are what the log says.
    async fn leave(&self, acked: Acked) -> Result<(), String> {
        let (tree, recorder) = (self.work.tree(), self.recorder.clone());
        let image = blocking(move || {
            let root = File::open(&tree).map_err(|error| error.to_string())?;
            syncfs(&root).map_err(|error| error.to_string())?;
            Ok::<_, String>(recorder.with_fsm(|fsm| keep::image(fsm, acked.offset, &tree)))
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

/// How long the log may take for what is pending before a hand-off.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// How long the name of a successor is looked for. Nobody is answered meanwhile.
const SUCCESSOR_PATIENCE: Duration = Duration::from_secs(2);
const SUCCESSOR_RETRY: Duration = Duration::from_millis(200);

/// Waits for what is still to come, once.
pub(crate) async fn until<F: Future<Output = ()> + Unpin>(future: &mut Option<F>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
