//! A standby, from the look at its log until it owns it: what `gazfs standby` does while it waits.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use gazette_client::Client;
use gazette_recoverylog::{
    Claimed, Source,
    fsm::{Author, Mode},
    hints::{HintsPoint, newest_hints, publish_verified},
    notices::{Board, Notice, Noticed, Notices, PRESENT_EVERY, Told, Who},
    owner_of,
    player::{self, RecoverOptions},
    standby::{From, Standby, StandbyError, Watch},
};
use rustix::process::geteuid;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Found, Options, Origin, Progress, Recording, RecordingError,
    files::{Files, notes, rebuilt, remove, swap},
    neighbours::{heard, since_epoch_ms, who},
    prepare::{Tell, begin, draw_author, log_mode_in_time, take_over},
};
use crate::{
    mount::{
        Asked, Control, FlushOutcome, MountError, MountOptions, Mounted, Question, UmountOutcome,
        check, mount_copied,
    },
    work_dir::{Phase, State, WorkDir},
};

/// How a standby waits.
#[derive(Debug, Clone, Copy)]
pub struct StandbyOptions {
    /// After how much silence of the owner it takes over by itself.
    pub takeover_after: Option<Duration>,
    /// Shows the copy while it waits.
    pub shows_copy: Option<MountOptions>,
}

/// A standby that has all of its log.
#[derive(Debug)]
pub struct Waiting {
    client: Client,
    options: Options,
    how: StandbyOptions,
    mode: Mode,
    work: WorkDir,
    standby: Standby,
    mounted: Option<Mounted>,
    notices: Notices,
    told: Option<Told>,
    who: Who,
    board: Board,
    watch: Watch,
    base: Instant,
    /// The hand-off to us that is under way, and its owner.
    handoff: Option<(String, u32)>,
    last_error: Option<String>,
    hinted_at: Instant,
}

/// What became of a standby that waited.
#[derive(Debug)]
pub enum Outcome {
    /// It owns the log now, with all that was recorded.
    Promoted {
        /// The directory.
        recording: Box<Recording>,
        /// The hand-off that asked for it.
        handoff: Option<String>,
        /// Why, for people.
        why: String,
    },
    /// It was asked to end, by whom is told when this is dropped.
    Ended(Option<Asked>),
    /// The copy cannot be kept up to date any more: a new one is to be made.
    Anew(String),
}

/// Why it takes over.
struct Promotion {
    from: From,
    handoff: Option<String>,
    why: String,
}

impl Waiting {
    /// Makes a copy of all that the log has, and follows it from then on.
    pub async fn start(
        client: &Client,
        options: Options,
        how: StandbyOptions,
        cancel: &CancellationToken,
        progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<Self, RecordingError> {
        let tell: Tell = Arc::new(progress);
        check(&options.point, Some(&options.work))?;
        let work = WorkDir::open(&options.work)?;
        let point = check(&options.point, Some(work.path()))?;
        let options = Options { point, ..options };
        let mode = log_mode_in_time(client, &options).await?;
        clear(client, &options, mode, &work, cancel, &tell).await?;
        let told = Arc::clone(&tell);
        let recover = RecoverOptions {
            restore_owner: geteuid().is_root(),
            sync: false,
            cancel: cancel.clone(),
            progress: Some(Arc::new(move |progress: player::Progress| {
                told(Progress::Recovering {
                    done: progress.bytes,
                    total: progress.total_bytes,
                });
            })),
            ..RecoverOptions::new(&options.log, work.restore())
        };
        let standby = Standby::start(client, recover).await?;
        let mounted = match how.shows_copy {
            None => None,
            Some(how) => Some(mount_copied(
                standby.copied(),
                &options.point,
                work.path(),
                how,
            )?),
        };
        let notices = Notices::new(client.clone(), &options.log);
        let told = notices.hear().await?;
        let waiting = Self {
            client: client.clone(),
            mode,
            work,
            standby,
            mounted,
            notices,
            told: Some(told),
            who: who(&options),
            board: Board::default(),
            watch: Watch::new(how.takeover_after, LOOK_EVERY),
            base: Instant::now(),
            handoff: None,
            last_error: None,
            hinted_at: Instant::now(),
            options,
            how,
        };
        waiting.say_present().await;
        Ok(waiting)
    }

    /// Waits until it owns the log, or is asked to end.
    pub async fn wait(
        mut self,
        control: &Control,
        stop: &CancellationToken,
    ) -> Result<Outcome, RecordingError> {
        let mut present = interval(PRESENT_EVERY);
        let mut look = interval(LOOK_EVERY);
        for timer in [&mut present, &mut look] {
            timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut followed = self.standby.watch();
        let mut ops = followed.borrow().ops;
        loop {
            let promotion = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(self.end(None).await),
                noticed = heard(&mut self.told) => self.handle(&noticed).await?,
                changed = followed.changed() => {
                    let state = followed.borrow_and_update().clone();
                    if let Some(cause) = state.ended {
                        return Ok(self.give_up(cause.to_string()).await);
                    }
                    if changed.is_err() {
                        return Ok(self.give_up("the copy has ended".to_owned()).await);
                    }
                    if state.ops != ops {
                        ops = state.ops;
                        self.watch.handle_sign();
                    }
                    None
                }
                mut asked = control.asked() => match asked.question() {
                    Question::Status => {
                        asked.answer(self.status());
                        None
                    }
                    Question::Flush => {
                        asked.answer(FlushOutcome::Done);
                        None
                    }
                    Question::Umount => {
                        if self.is_in_use().await {
                            asked.answer(UmountOutcome::Busy);
                            None
                        } else {
                            return Ok(self.end(Some(asked)).await);
                        }
                    }
                },
                () = unmounted(self.mounted.as_ref()) => return Ok(self.end(None).await),
                _ = look.tick() => self.look().await,
                _ = present.tick() => {
                    self.say_present().await;
                    self.publish_hints().await;
                    None
                }
            };
            let Some(promotion) = promotion else { continue };
            let author = draw_author();
            match self.standby.claim(author, promotion.from).await {
                Ok(Claimed::Ours { end }) => return self.promote(promotion, author, end).await,
                Ok(Claimed::Theirs { owner }) => {
                    let owner =
                        owner.map_or_else(String::new, |owner| format!(" ({})", owner.get()));
                    tracing::info!("somebody else{owner} took the log over");
                    self.watch.handle_refused(self.base.elapsed());
                    self.handoff = None;
                }
                Ok(Claimed::Moved) => {
                    tracing::info!("the owner is at work after all");
                    self.watch.handle_refused(self.base.elapsed());
                }
                Err(error) => {
                    tracing::warn!(err = %error, "the log was not taken over; it is tried again");
                    self.last_error = Some(error.to_string());
                    self.watch.handle_refused(self.base.elapsed());
                }
            }
        }
    }

    /// Hears what others say.
    async fn handle(&mut self, noticed: &Noticed) -> Result<Option<Promotion>, RecordingError> {
        let Noticed { notice, is_old } = noticed;
        self.board.apply(self.base.elapsed(), notice);
        if *is_old {
            return Ok(None);
        }
        let promotion = match notice {
            Notice::Owner { .. } => {
                self.watch.handle_sign();
                None
            }
            Notice::Stopping {
                handoff,
                to,
                author,
            } => {
                self.watch.handle_sign();
                self.handoff = (*to == self.who.id).then(|| (handoff.clone(), *author));
                None
            }
            Notice::CalledOff { handoff, .. } => {
                if self
                    .handoff
                    .as_ref()
                    .is_some_and(|(ours, _)| ours == handoff)
                {
                    self.handoff = None;
                }
                None
            }
            Notice::Ended {
                author,
                handoff: Some(handoff),
                ..
            } => {
                let is_ours = self.handoff.as_ref();
                let is_ours = is_ours.is_some_and(|ours| *ours == (handoff.clone(), *author));
                is_ours.then(|| Promotion {
                    from: From::Owner(Author::new(*author)),
                    handoff: Some(handoff.clone()),
                    why: "the owner handed the log over".to_owned(),
                })
            }
            Notice::Handoff {
                handoff,
                to,
                force: true,
            } => {
                let is_for_us = match to {
                    Some(to) => [&self.who.id, &self.who.host].contains(&to),
                    None => true,
                };
                if is_for_us {
                    let owner = owner_of(&self.client, &self.options.log).await;
                    let (owner, _) = owner.map_err(|cause| StandbyError::Claim {
                        log: self.options.log.clone(),
                        cause: Box::new(cause),
                    })?;
                    Some(Promotion {
                        from: From::Owner(owner),
                        handoff: Some(handoff.clone()),
                        why: "it was asked for, whatever the owner does".to_owned(),
                    })
                } else {
                    None
                }
            }
            Notice::Ended { .. }
            | Notice::Standby { .. }
            | Notice::Gone { .. }
            | Notice::Ask { .. }
            | Notice::Handoff { .. }
            | Notice::Serving { .. } => None,
        };
        Ok(promotion)
    }

    /// Looks where the log ends, and whether its owner is silent for too long.
    async fn look(&mut self) -> Option<Promotion> {
        let head = timeout(LOOK_WITHIN, self.client.read_head(&self.options.log)).await;
        let copied = self.standby.watch().borrow().offset;
        let now = self.base.elapsed();
        match head {
            Ok(Ok(head)) => {
                self.watch.handle_answered(now, head.write_head, copied);
                self.last_error = None;
            }
            Ok(Err(error)) => {
                self.watch.handle_unanswered();
                self.last_error = Some(error.to_string());
            }
            Err(_) => {
                self.watch.handle_unanswered();
                self.last_error = Some("the broker does not answer".to_owned());
            }
        }
        self.watch.is_due(now).then(|| Promotion {
            from: From::Silent { seen_end: copied },
            handoff: None,
            why: format!(
                "the owner was silent for {:.1} s while the broker answered",
                self.watch.silent().as_secs_f32()
            ),
        })
    }

    async fn say_present(&self) {
        let after = self.how.takeover_after;
        let present = Notice::Standby {
            who: self.who.clone(),
            offset: self.standby.watch().borrow().offset,
            takeover_after_ms: after
                .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        };
        if let Ok(Err(error)) = timeout(LOOK_WITHIN, self.notices.say(&present)).await {
            tracing::debug!(err = %error, "nobody is told that a standby is here");
        }
    }

    /// Publishes hints of what was verified, where the owner's are old.
    async fn publish_hints(&mut self) {
        if self.hinted_at.elapsed() < HINTS_EVERY {
            return;
        }
        self.hinted_at = Instant::now();
        let Some(hints) = self.standby.hints() else {
            return;
        };
        let log = &self.options.log;
        let source = Source::Broker(self.client.clone());
        let newest = timeout(LOOK_WITHIN, newest_hints(&source, log, HintsPoint::Head)).await;
        let Ok(Ok(newest)) = newest else { return };
        let known = newest.map_or(0, |newest| newest.offset);
        if hints.offset - known < HINTS_BYTES {
            return;
        }
        let published = timeout(PUBLISH_WITHIN, publish_verified(&self.client, log, &hints));
        if let Ok(Err(error)) = published.await {
            tracing::debug!(err = %error, "hints of the standby are not published");
        }
    }

    fn status(&self) -> Value {
        let followed = self.standby.watch().borrow().clone();
        let owner = self.board.last_owner();
        json!({
            "kind": "standby",
            "mountpoint": self.options.point.to_string_lossy(),
            "state": "standing by",
            "log": self.options.log,
            "id": self.who.id,
            "owner": owner.map_or_else(|| "unknown".to_owned(), |owner| {
                format!("{} (author {})", owner.who, owner.author)
            }),
            "pid": std::process::id(),
            "offset": followed.offset,
            "shows_copy": self.mounted.is_some(),
            "takeover_after_seconds": self.how.takeover_after.map(|after| after.as_secs_f64()),
            "silent_seconds": self.watch.silent().as_secs_f64(),
            "work": self.work.path().to_string_lossy(),
            "last_error": self.last_error.as_deref().unwrap_or("none"),
        })
    }

    /// What a person is told when it waits.
    pub fn announcement(&self, broker: &str) -> String {
        let point = self.options.point.display();
        let log = &self.options.log;
        let id = &self.who.id;
        let when = match self.how.takeover_after {
            Some(after) => format!(
                "by itself when the owner is silent for {}, or by: gazfs handoff --log {log} --to {id}",
                humantime::format_duration(after)
            ),
            None => format!("by: gazfs handoff --log {log} --to {id}"),
        };
        let shown = if self.mounted.is_some() {
            "the copy can be read there meanwhile"
        } else {
            "nothing is mounted there before"
        };
        format!(
            "standing by as {id} for {log} of {broker}; it is to be mounted at {point}\n\
             takes over {when}\n{shown}\n"
        )
    }

    async fn is_in_use(&self) -> bool {
        match &self.mounted {
            None => false,
            Some(mounted) => matches!(mounted.unmount().await, Err(MountError::Busy { .. })),
        }
    }

    /// Takes the copy's mount away, also if somebody looks at it.
    async fn unmount(&mut self) {
        let Some(mounted) = self.mounted.take() else {
            return;
        };
        let unmounted = match mounted.unmount().await {
            Err(MountError::Busy { .. }) => mounted.detach().await,
            unmounted => unmounted,
        };
        if let Err(error) = unmounted {
            tracing::warn!("{error}");
        }
    }

    async fn leave(mut self) {
        self.unmount().await;
        let gone = Notice::Gone {
            id: self.who.id.clone(),
        };
        // It is believed to be here for some seconds otherwise.
        let _told = timeout(LOOK_WITHIN, self.notices.say(&gone)).await;
        self.standby.stop().await;
    }

    async fn end(self, asked: Option<Asked>) -> Outcome {
        self.leave().await;
        let asked = asked.map(|mut asked| {
            asked.answer(UmountOutcome::Done);
            asked
        });
        Outcome::Ended(asked)
    }

    async fn give_up(self, cause: String) -> Outcome {
        self.leave().await;
        Outcome::Anew(cause)
    }

    /// Lets the copy become the directory, and begins to record in the log, which is ours up to `end`.
    async fn promote(
        mut self,
        promotion: Promotion,
        author: Author,
        end: i64,
    ) -> Result<Outcome, RecordingError> {
        let begun = since_epoch_ms();
        tracing::warn!(log = %self.options.log, author = author.get(), why = promotion.why, "took the log over");
        self.unmount().await;
        let Self {
            client,
            options,
            mode,
            work,
            standby,
            ..
        } = self;
        let promoted = match standby.finish(end, FINISH_WITHIN).await {
            Ok(recovered) => {
                let _nothing = swap(&work, false).await?;
                let files = Files {
                    write_head: recovered.write_head,
                    is_seed_cut: false,
                    found: Found {
                        origin: Origin::Recovered,
                        not_restored: recovered.report.not_restored_count,
                        notes: notes(&recovered),
                    },
                    aside: None,
                    fsm: recovered.fsm,
                    tree: recovered.tree,
                };
                let taken = take_over(&client, &options, (mode, author), &work, &files).await;
                match taken {
                    Ok(recorder) => {
                        Ok(begin(&client, options.clone(), work, recorder, files.found).await?)
                    }
                    Err(error) => Err((error, work)),
                }
            }
            Err(error) => Err((error.into(), work)),
        };
        let mut recording = match promoted {
            Ok(recording) => recording,
            Err((error, work)) => {
                // The log is ours; only the copy is not what it should be.
                tracing::warn!(err = %error, "the directory is rebuilt from the log");
                drop(work);
                let options = Options {
                    takes_over: true,
                    ..options
                };
                Recording::start(&client, options, &CancellationToken::new(), |_| {}).await?
            }
        };
        recording.found.notes.push(format!(
            "{}; the directory was there {} ms after the log was taken over",
            promotion.why,
            since_epoch_ms().saturating_sub(begun)
        ));
        recording.sign();
        Ok(Outcome::Promoted {
            recording: Box::new(recording),
            handoff: promotion.handoff,
            why: promotion.why,
        })
    }
}

async fn unmounted(mounted: Option<&Mounted>) {
    match mounted {
        Some(mounted) => mounted.ended().await,
        None => std::future::pending().await,
    }
}

/// Removes backing files of before. What they hold that the log never got is set aside first.
async fn clear(
    client: &Client,
    options: &Options,
    mode: Mode,
    work: &WorkDir,
    cancel: &CancellationToken,
    tell: &Tell,
) -> Result<(), RecordingError> {
    let tree: PathBuf = work.tree();
    if tree.symlink_metadata().is_err() {
        return Ok(());
    }
    let state = work.read_state(&options.log)?;
    let is_clean = state.is_some_and(|state| state.phase == Phase::Clean);
    if !is_clean {
        let files = rebuilt(client, options, mode, work, true, cancel, tell).await?;
        if let Some(aside) = files.aside {
            tracing::warn!(
                aside = %aside.display(),
                "the backing files of before differ from the log, and may hold what it never got"
            );
        }
    }
    remove(&tree).await?;
    work.write_state(&State {
        log: options.log.clone(),
        author: 0,
        offset: 0,
        phase: Phase::Clean,
    })?;
    Ok(())
}

/// How often the end of the log is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long an answer may take to be one.
const LOOK_WITHIN: Duration = Duration::from_secs(1);
/// How long the copy may take to come to the end of a log that is ours; otherwise it is recovered.
const FINISH_WITHIN: Duration = Duration::from_secs(30);
/// How often a standby looks whether hints of its own are of use.
const HINTS_EVERY: Duration = Duration::from_mins(5);
/// How long its hints may take to be published; nothing is decided meanwhile.
const PUBLISH_WITHIN: Duration = Duration::from_secs(5);
/// How far behind the owner's hints are then.
const HINTS_BYTES: i64 = 128 << 20;
