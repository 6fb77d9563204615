//! Drives a playback: reads what is planned, plays it, and lets the tree appear.

use std::sync::Arc;

use gazette_recoverylog_fsm::{Author, Mode};
use tokio::runtime::Handle;

use super::{
    drive::Drive,
    error::RecoverError,
    options::{Point, RecoverOptions},
    playback::Playback,
    reached::Skipped,
    recovered::{Recovered, Report},
    start::{self, Start},
};
use crate::{
    Source,
    image::{BuildOptions, Image},
};

/// Plays one log towards a directory.
#[derive(Debug)]
pub struct Player {
    pub(super) source: Source,
    pub(super) options: RecoverOptions,
    pub(super) start: Start,
    pub(super) playback: Option<Playback>,
    /// A group at the end of the log of which the last ops are not there.
    cut_group: Option<Skipped>,
    bytes: u64,
}

impl Player {
    /// Looks at the log, chooses hints, and claims the target.
    pub async fn begin(source: &Source, options: RecoverOptions) -> Result<Self, RecoverError> {
        let start = start::find(source, &options.log, options.point, &options.hints).await?;
        let (to, log) = (options.to.clone(), options.log.clone());
        let claim = tokio::task::spawn_blocking(move || Image::begin(&to, &log));
        let image = claim.await.map_err(|_| thread(&options.log))??;
        let mut player = Self {
            source: source.clone(),
            start,
            playback: None,
            cut_group: None,
            bytes: 0,
            options,
        };
        player.playback = Some(player.playback(image)?);
        Ok(player)
    }

    fn playback(&self, image: Image) -> Result<Playback, RecoverError> {
        let start = &self.start;
        let playback = Playback::new(&start.hints, start.mode, Some(image));
        let mut playback = playback.map_err(|cause| RecoverError::Hints {
            log: self.options.log.clone(),
            cause: Box::new(cause),
        })?;
        let until = match self.options.point {
            Point::Time(time) => Some(time),
            Point::Head | Point::Offset(_) => None,
        };
        playback.set_limit(start.limit, start.is_head, until);
        playback.progress.time = start.time;
        Ok(playback)
    }

    /// Plays up to the point.
    pub async fn play(&mut self) -> Result<(), RecoverError> {
        loop {
            let Some(playback) = self.playback.take() else {
                return Err(thread(&self.options.log));
            };
            let playback = self.play_legs(playback).await?;
            let Some(group) = playback.progress.open_group else {
                playback.check_end(self.options.takes_cut_seed)?;
                self.check_time(&playback)?;
                self.playback = Some(playback);
                return Ok(());
            };
            // Part of a group was applied, which cannot be taken back: it is played again up to there.
            if self.start.is_head {
                self.cut_group = Some(Skipped {
                    log: self.options.log.clone(),
                    begin: group,
                    end: self.start.limit,
                    is_tail: true,
                });
            }
            self.start.limit = group;
            self.start.is_head = false;
            for leg in &mut self.start.legs {
                if *leg.log == *self.options.log {
                    leg.end = leg.end.min(group);
                }
            }
            self.start.legs.retain(|leg| leg.begin < leg.end);
            let Some(mut image) = playback.image else {
                return Err(thread(&self.options.log));
            };
            let restart = tokio::task::spawn_blocking(move || image.restart().map(|()| image));
            let image = restart.await.map_err(|_| thread(&self.options.log))??;
            self.playback = Some(self.playback(image)?);
        }
    }

    /// A point in time must not be before all that the log tells the time of.
    fn check_time(&self, playback: &Playback) -> Result<(), RecoverError> {
        let log = || self.options.log.clone();
        if !matches!(self.options.point, Point::Time(_)) {
            return Ok(());
        }
        match (playback.progress.time, playback.first_later) {
            (Some(_), _) => Ok(()),
            (None, Some(first)) => Err(RecoverError::BeforeFirst { log: log(), first }),
            (None, None) => Err(RecoverError::NoTimes { log: log() }),
        }
    }

    /// Plays all that is planned, on a thread that may block.
    async fn play_legs(&mut self, playback: Playback) -> Result<Playback, RecoverError> {
        let mut drive = Drive::new(
            &self.source,
            &self.start.surveys,
            &self.start.legs,
            playback,
        );
        drive.parallel = self.options.parallel;
        // All content of such logs has a CRC, and all frames are in the chain.
        let modes = [self.start.mode, self.start.hints.mode];
        drive.has_sums = modes.contains(&Some(Mode::Native));
        drive.cancel = self.options.cancel.clone();
        drive.tell.clone_from(&self.options.progress);
        let handle = Handle::current();
        let driven = tokio::task::spawn_blocking(move || drive.run(&handle));
        let (playback, bytes) = driven.await.map_err(|_| thread(&self.options.log))??;
        self.bytes += bytes;
        Ok(playback)
    }

    /// Builds the tree of what was played, and lets it appear at the target.
    pub async fn finish(mut self) -> Result<Recovered, RecoverError> {
        let log = self.options.log.clone();
        let playback = self.playback.take().ok_or_else(|| thread(&log))?;
        let options = BuildOptions {
            restore_owner: self.options.restore_owner,
            sync: self.options.sync,
        };
        let build = tokio::task::spawn_blocking(move || playback.build(options));
        let (playback, built) = build.await.map_err(|_| thread(&log))??;
        let mut reached = playback.progress;
        reached.skipped.extend(self.cut_group);
        Ok(Recovered {
            log: Arc::from(log),
            mode: playback
                .fsm
                .mode()
                .or(self.start.mode)
                .or_else(|| (reached.ops > 0).then(|| playback.tree.mode())),
            path: built.path,
            fsm: playback.fsm,
            tree: playback.tree,
            write_head: self.start.head,
            offset: reached.offset,
            last_author: reached.author.and_then(Author::new),
            time: reached.time,
            report: Report {
                ops: reached.ops,
                dead_ops: reached.dead_ops,
                bytes: self.bytes,
                files: built.files,
                hints: self.start.hints_use,
                skipped: reached.skipped,
                unpersisted_from: self.source.is_store().then_some(self.start.limit),
                is_head_uncertain: !self.start.is_head_exact && !self.source.is_store(),
                is_seed_cut: reached.seed.is_some(),
                not_restored: built.not_restored,
                not_restored_count: built.not_restored_count,
            },
        })
    }
}

fn thread(log: &str) -> RecoverError {
    RecoverError::Thread {
        log: log.to_owned(),
    }
}
