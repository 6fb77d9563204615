//! How the backing files come to be what the log says.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use gazette_client::Client;
use gazette_recoverylog::{
    Source,
    fsm::{Checkpoint, CheckpointError, Fsm, Liveness, Mode, Tree},
    player::{self, RecoverError, RecoverOptions, Recovered},
};
use rustix::process::geteuid;
use thiserror::Error;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::{
    Found, Options, Origin, Progress, RecordingError, compare, keep,
    prepare::{Tell, blocking},
    restart::{self, Doubt},
};
use crate::work_dir::{Ground, Phase, State, WorkDir};

/// Backing files that are what the log says.
pub(super) struct Files {
    pub(super) fsm: Fsm,
    pub(super) tree: Tree,
    /// What of the log is live, if that is known.
    pub(super) liveness: Option<Liveness>,
    pub(super) write_head: i64,
    /// A tree was being taken over, and not all of it was.
    pub(super) is_seed_cut: bool,
    pub(super) found: Found,
    /// Where the files of before are, if they were set aside.
    pub(super) aside: Option<PathBuf>,
    /// The recorders of what the files have and the checkpoint, which is of them, has not. `None` if
    /// it is not of them.
    pub(super) authors: Option<Vec<u32>>,
}

/// Takes the backing files as the last daemon left them, if it ended in order and they are as they
/// were then. That the log is, too, shows when it is taken over.
pub(super) async fn kept(work: &WorkDir, state: &State, mode: Mode) -> Option<Files> {
    if state.phase != Phase::Clean || mode != Mode::Native {
        return None;
    }
    let image = work.read_image();
    let (tree, offset) = (work.tree(), state.offset);
    let kept = blocking(move || {
        let image = image.map_err(|cause| keep::KeepError::Io {
            path: tree.clone(),
            cause,
        })?;
        keep::keep(&image, offset, &tree)
    });
    match kept.await {
        Ok(kept) => Some(Files {
            fsm: kept.fsm,
            tree: kept.tree,
            liveness: kept.liveness,
            write_head: offset,
            is_seed_cut: false,
            found: Found::kept(),
            aside: None,
            authors: None,
        }),
        Err(error) => {
            tracing::info!(err = %error, "the backing files are not kept; reading the log");
            None
        }
    }
}

/// Takes the backing files of a daemon that was killed, if they are what the log says: then only what
/// follows upon the last checkpoint is read.
pub(super) async fn followed(
    client: &Client,
    work: &WorkDir,
    state: &State,
    mode: Mode,
    cancel: &CancellationToken,
) -> Result<Option<Files>, RecordingError> {
    if state.phase != Phase::Recording || mode != Mode::Native {
        return Ok(None);
    }
    match try_follow(client, work, state, cancel).await {
        Ok(files) => Ok(Some(files)),
        Err(NotFollowed::Recover(RecoverError::Cancelled { log, .. })) => {
            Err(RecordingError::Cancelled { log })
        }
        Err(reason) => {
            tracing::info!(reason = %reason, "the backing files are not taken as they are; reading the log");
            Ok(None)
        }
    }
}

/// Why the files of a daemon that was killed are not taken as they are.
#[derive(Debug, Error)]
enum NotFollowed {
    #[error(transparent)]
    Doubt(#[from] Doubt),
    #[error("look at the backing files and the checkpoint: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Recover(#[from] RecoverError),
}

async fn try_follow(
    client: &Client,
    work: &WorkDir,
    state: &State,
    cancel: &CancellationToken,
) -> Result<Files, NotFollowed> {
    let now = Ground::look(&work.tree())?;
    let (ground, pulse) = restart::is_whole(state, &now, work.last_pulse())?;
    let checkpoint = work.read_checkpoint()?;
    let decoded = blocking(move || Checkpoint::decode(&checkpoint.into()));
    let checkpoint = decoded.await?;
    let base = checkpoint.fsm.next_seq_no() - 1;
    let source = Source::Broker(client.clone());
    let followed = player::follow(&source, &state.log, checkpoint, cancel).await?;
    let (behind, is_uncertain) = (&followed.authors, followed.is_uncertain);
    restart::is_logged(ground, pulse, base, behind, is_uncertain)?;
    Ok(Files {
        write_head: followed.checkpoint.offset,
        fsm: followed.checkpoint.fsm,
        tree: followed.checkpoint.tree,
        liveness: followed.checkpoint.liveness,
        is_seed_cut: false,
        found: Found::kept(),
        aside: None,
        authors: Some(ground.authors.clone()),
    })
}

/// Rebuilds the backing files from the log. Those of before are set aside if they differ from it
/// and `may_hold_more`.
pub(super) async fn rebuilt(
    client: &Client,
    options: &Options,
    mode: Mode,
    work: &WorkDir,
    may_hold_more: bool,
    cancel: &CancellationToken,
    tell: &Tell,
) -> Result<Files, RecordingError> {
    let restore = work.restore();
    remove(&restore).await?;
    let told = Arc::clone(tell);
    let is_root = geteuid().is_root();
    let recover = RecoverOptions {
        restore_owner: is_root,
        // It is in the log.
        sync: false,
        cancel: cancel.clone(),
        takes_cut_seed: options.seed.is_some(),
        progress: Some(Arc::new(move |progress: player::Progress| {
            told(Progress::Recovering {
                done: progress.bytes,
                total: progress.total_bytes,
            });
        })),
        ..RecoverOptions::new(&options.log, &restore)
    };
    let source = Source::Broker(client.clone());
    let begun = Instant::now();
    let recovered = match player::recover(&source, recover).await {
        Ok(recovered) => recovered,
        Err(RecoverError::Cancelled { log, .. }) => return Err(RecordingError::Cancelled { log }),
        Err(error) => return Err(error.into()),
    };
    let notes = notes(&recovered);
    let (bytes, millis) = (recovered.report.bytes, begun.elapsed().as_millis().max(1));
    let rate = u64::try_from(u128::from(bytes) * 1000 / millis).ok();
    let rate = rate.filter(|_| bytes >= RATED_BYTES);
    let aside = swap(work, may_hold_more).await?;
    let (origin, tree) = if recovered.report.ops == 0 {
        fresh_root(&work.tree())?;
        (Origin::Fresh, Tree::new(mode))
    } else {
        (Origin::Recovered, recovered.tree)
    };
    Ok(Files {
        fsm: recovered.fsm,
        tree,
        liveness: recovered.liveness,
        write_head: recovered.write_head,
        is_seed_cut: recovered.report.is_seed_cut,
        found: Found {
            origin,
            not_restored: recovered.report.not_restored_count,
            notes,
            rate,
        },
        aside,
        authors: None,
    })
}

/// Of less, most of the time goes elsewhere.
const RATED_BYTES: u64 = 16 << 20;

fn notes(recovered: &Recovered) -> Vec<String> {
    let report = &recovered.report;
    let mut notes = Vec::new();
    if let Some(torn) = report.torn_tail() {
        notes.push(format!(
            "the log's end, from offset {} on, was torn when its recorder died, and is left out",
            torn.begin
        ));
    }
    if report.not_restored_count > 0 {
        notes.push(format!(
            "{} owners, devices or attributes could not be restored without privilege",
            report.not_restored_count
        ));
    }
    notes
}

/// Puts the rebuilt tree into the place of the one of before. Returns where that was set aside.
async fn swap(work: &WorkDir, may_hold_more: bool) -> Result<Option<PathBuf>, RecordingError> {
    let (tree, restore) = (work.tree(), work.restore());
    let is_there = tree.symlink_metadata().is_ok();
    let aside = if is_there && may_hold_more && differs(&tree, &restore).await? {
        Some(work.set_aside(OffsetDateTime::now_utc())?)
    } else {
        remove(&tree).await?;
        None
    };
    fs::rename(&restore, &tree)
        .map_err(|cause| RecordingError::io("move to its place", restore, cause))?;
    Ok(aside)
}

async fn differs(tree: &Path, restored: &Path) -> Result<bool, RecordingError> {
    let (old, new) = (tree.to_owned(), restored.to_owned());
    let compared = blocking(move || compare::first_difference(&old, &new)).await;
    let difference = compared.map_err(|cause| RecordingError::io("compare", tree, cause))?;
    if let Some(path) = &difference {
        tracing::warn!(path = %path.display(), "differs from the log");
    }
    Ok(difference.is_some())
}

/// The root directory of a new log: that of the user, and readable.
fn fresh_root(tree: &Path) -> Result<(), RecordingError> {
    let make = || {
        fs::remove_dir(tree)?;
        DirBuilder::new().mode(0o755).create(tree)?;
        // Whatever the umask is.
        fs::set_permissions(tree, PermissionsExt::from_mode(0o755))
    };
    make().map_err(|cause| RecordingError::io("make", tree, cause))
}

/// Removes a folder, if it is there.
async fn remove(path: &Path) -> Result<(), RecordingError> {
    let gone = path.to_owned();
    let removed = blocking(move || match fs::remove_dir_all(&gone) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    });
    removed
        .await
        .map_err(|cause| RecordingError::io("remove", path, cause))
}
