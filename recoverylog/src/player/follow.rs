//! Goes on from a checkpoint to the end of a log, without any content.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use gazette_recoverylog_fsm::{Body, Checkpoint, FsmHints, Mode};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{Drive, Playback, RecoverError, Standing, plan::Leg};
use crate::Source;

/// What follows upon a checkpoint in a log.
#[derive(Debug)]
pub struct Followed {
    /// The state at the end.
    pub checkpoint: Checkpoint,
    /// What each author did.
    pub authors: BTreeMap<u32, Followup>,
    /// The end may be elsewhere, or is not that of an op: it was told by a broker that may be behind, it was torn,
    /// or it is within a group of ops. Or there are ops that do not follow upon the checkpoint.
    pub is_uncertain: bool,
}

/// What an author did behind a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followup {
    /// Sequence number of the last of his ops that count.
    pub last_seq_no: i64,
    /// Some of them are about files.
    pub has_changes: bool,
}

/// Reads what follows upon a checkpoint, up to the end of the log. No file is looked at.
pub async fn follow(
    source: &Source,
    log: &str,
    checkpoint: Checkpoint,
    cancel: &CancellationToken,
) -> Result<Followed, RecoverError> {
    let survey = source.survey(log).await?;
    let (begin, end) = (checkpoint.offset, survey.head);
    let is_exact = survey.is_head_exact;
    if begin > end {
        return Err(RecoverError::BehindHead {
            log: log.to_owned(),
            offset: begin,
            head: end,
            is_store: source.is_store(),
        });
    }
    let thread = || RecoverError::Thread {
        log: log.to_owned(),
    };
    let hints = FsmHints::of_log(log);
    let playback = Playback::new(&hints, Some(Mode::Native), None);
    let mut playback = playback.map_err(|cause| RecoverError::Hints {
        log: log.to_owned(),
        cause: Box::new(cause),
    })?;
    playback.go_on(checkpoint);
    playback.set_limit(end, true, None);
    playback.keep_met();
    let log: Arc<str> = log.into();
    let leg = Leg {
        log: Arc::clone(&log),
        begin,
        end,
        is_needed: true,
    };
    let legs: Vec<Leg> = (begin < end).then_some(leg).into_iter().collect();
    let mut drive = Drive::new(source, &BTreeMap::from([(log, survey)]), &legs, playback);
    drive.has_sums = true;
    drive.cancel = cancel.clone();
    let authors = Arc::new(Mutex::new(BTreeMap::new()));
    let met = Arc::clone(&authors);
    drive.watch = Some(Box::new(move |playback| {
        count(
            playback,
            &mut met.lock().unwrap_or_else(PoisonError::into_inner),
        );
        true
    }));
    let handle = Handle::current();
    let driven = tokio::task::spawn_blocking(move || drive.run(&handle));
    let (mut playback, _) = driven.await.map_err(|_| thread())??;
    playback.check_end(false)?;
    let mut authors = authors.lock().unwrap_or_else(PoisonError::into_inner);
    count(&mut playback, &mut authors);
    let reached = &playback.progress;
    // Another log may have come into the place of this one.
    let is_foreign = begin < end && authors.is_empty() || reached.dead_ops > 0;
    Ok(Followed {
        is_uncertain: !is_exact
            || is_foreign
            || !reached.skipped.is_empty()
            || reached.open_group.is_some(),
        authors: std::mem::take(&mut *authors),
        checkpoint: Checkpoint {
            offset: end,
            fsm: playback.fsm,
            tree: playback.tree,
            liveness: playback.liveness,
        },
    })
}

fn count(playback: &mut Playback, authors: &mut BTreeMap<u32, Followup>) {
    for met in playback.take_met() {
        let op = &met.decoded.op;
        if met.standing == Standing::Dead {
            continue;
        }
        let followup = authors.entry(op.author).or_insert(Followup {
            last_seq_no: 0,
            has_changes: false,
        });
        followup.last_seq_no = followup.last_seq_no.max(op.seq_no);
        followup.has_changes |= !matches!(op.body, Body::NoOp { .. });
    }
}
