//! The start: backing files as the log says, and the log taken over.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use gazette_client::Client;
use gazette_recoverylog::{
    Source,
    fsm::{Author, Inode, Kind, Mark, Mode, Timestamp},
    journals::{find_log, make_log},
    notices::make_notices,
    recorder::{Recorder, RecorderError, RecorderOptions, Start},
};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::{
    Found, Options, Origin, Progress, Recording, RecordingError,
    files::{Files, kept, rebuilt},
    log::{RecorderLog, is_final},
    neighbours::{Neighbours, ask_owner},
    seed,
};
use crate::{
    mount::check,
    recorded::RecordedFs,
    work_dir::{Phase, State, WorkDir},
};

pub(super) type Tell = Arc<dyn Fn(Progress) + Send + Sync>;

pub(super) async fn start(
    client: &Client,
    options: Options,
    cancel: &CancellationToken,
    tell: Tell,
) -> Result<Recording, RecordingError> {
    // Before anything is made, as most mistakes show here.
    check(&options.point, Some(&options.work))?;
    let work = WorkDir::open(&options.work)?;
    let point = check(&options.point, Some(work.path()))?;
    let seed = options
        .seed
        .as_deref()
        .map(|from| seed_place(from, &point, work.path()))
        .transpose()?;
    let options = Options {
        point,
        seed,
        ..options
    };
    let cancelled = || RecordingError::Cancelled {
        log: options.log.clone(),
    };
    let mode = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(cancelled()),
        mode = log_mode_in_time(client, &options) => mode?,
    };
    // Before it is read, as that may take long.
    let taken = match ask_owner(client, &options).await {
        Err(error @ RecordingError::Owned { .. }) => {
            keep_aside(&work, &options.log)?;
            return Err(error);
        }
        taken => taken?,
    };
    // As the last daemon left it: a try that fails leaves another one.
    let state = work.read_state(&options.log)?;
    let (mut tries, mut aside) = (0, None);
    let (recorder, files) = loop {
        let kept = match &state {
            Some(state) if tries == 0 => kept(&work, state, mode).await,
            _ => None,
        };
        let mut files = if let Some(files) = kept {
            files
        } else {
            // What a try has rebuilt is in the log.
            let may_hold_more = tries == 0
                && state
                    .as_ref()
                    .is_none_or(|state| state.phase == Phase::Recording);
            rebuilt(client, &options, mode, &work, may_hold_more, cancel, &tell).await?
        };
        aside = aside.or_else(|| files.aside.take());
        let started = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(cancelled()),
            started = take_over(client, &options, (mode, draw_author()), &work, &files) => started,
        };
        tries += 1;
        // Another owner recorded meanwhile.
        let is_behind = matches!(&started, Err(RecordingError::Recorder(error))
            if matches!(**error, RecorderError::HeadMoved { .. }));
        if !is_behind || tries >= TRIES_MAX {
            break (started?, files);
        }
    };
    let mut found = files.found;
    found.notes.extend(taken);
    if let Some(aside) = &aside {
        found.notes.push(format!(
            "the backing files of before differ from the log, and may hold what it never got: they \
             are in {}",
            aside.display()
        ));
    }
    let mut recording = begin(client, options, work, recorder, found).await?;
    recording
        .seed_if_asked(files.is_seed_cut, cancel, tell)
        .await?;
    recording.sign();
    Ok(recording)
}

pub(super) fn draw_author() -> Author {
    Author::from_random(rand::random())
}

/// Begins to serve backing files that are as the log says, which is ours.
pub(super) async fn begin(
    client: &Client,
    options: Options,
    work: WorkDir,
    recorder: Recorder,
    found: Found,
) -> Result<Recording, RecordingError> {
    let log = RecorderLog::new(recorder.clone(), options.fsync);
    let fs = RecordedFs::start(log.clone(), &work.tree())?;
    Ok(Recording {
        found,
        source: Source::Broker(client.clone()),
        successor: None,
        neighbours: Neighbours::start(client, &options, recorder.author()).await,
        handed_to: None,
        options,
        work,
        recorder,
        log,
        fs,
    })
}

impl Recording {
    /// Says in the log who records.
    pub(super) fn sign(&self) {
        let who = &self.neighbours.who;
        let who = format!(
            "gazfs {} on {}, process {}, at {}, known as {}",
            env!("CARGO_PKG_VERSION"),
            who.host,
            who.pid,
            who.mountpoint,
            who.id,
        );
        let _seq_no = self.recorder.mark(Mark::Text(who.into()));
    }
}

/// Sets backing files aside that may hold what the log never got, as somebody else goes on with it.
fn keep_aside(work: &WorkDir, log: &str) -> Result<(), RecordingError> {
    let state = work.read_state(log)?;
    let may_hold_more = state.is_some_and(|state| state.phase == Phase::Recording);
    if may_hold_more && work.tree().symlink_metadata().is_ok() {
        let aside = work.set_aside(OffsetDateTime::now_utc())?;
        tracing::warn!(
            aside = %aside.display(),
            "the backing files of before may hold what the log never got; they are kept there"
        );
    }
    Ok(())
}

/// Checks that a tree that is taken over lies apart from where it goes. Returns it without links.
fn seed_place(from: &Path, point: &Path, work: &Path) -> Result<PathBuf, RecordingError> {
    let from = fs::canonicalize(from).map_err(|cause| RecordingError::io("find", from, cause))?;
    match [point, work]
        .into_iter()
        .find(|other| from.starts_with(other) || other.starts_with(&from))
    {
        None => Ok(from),
        Some(other) => Err(RecordingError::SeedOverlaps {
            from,
            other: other.to_owned(),
        }),
    }
}

/// Waits some time for brokers, which may be about to start too.
pub(super) async fn log_mode_in_time(
    client: &Client,
    options: &Options,
) -> Result<Mode, RecordingError> {
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        match log_mode(client, options).await {
            Err(error) if error.is_temporary() && begun.elapsed() < BROKER_PATIENCE => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(err = %error, "waiting for brokers");
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            mode => return mode,
        }
    }
}

/// Makes the log if it is not there. Returns how it records.
async fn log_mode(client: &Client, options: &Options) -> Result<Mode, RecordingError> {
    let found = find_log(client, &options.log).await?;
    match (found, options.mode) {
        (Some(found), Some(wanted)) if found != wanted => Err(RecordingError::OtherMode {
            log: options.log.clone(),
            found: match found {
                Mode::Native => "native",
                Mode::Compat => "compat",
            },
        }),
        (found, wanted) => {
            let mode = found.or(wanted).unwrap_or(Mode::Native);
            let template = options.template.spec_of(&options.log);
            // That of the hints may be missing.
            make_log(client, &options.log, mode, &template).await?;
            make_notices(client, &options.log, &template).await?;
            Ok(mode)
        }
    }
}

/// Takes the log over.
pub(super) async fn take_over(
    client: &Client,
    options: &Options,
    (mode, author): (Mode, Author),
    work: &WorkDir,
    files: &Files,
) -> Result<Recorder, RecordingError> {
    let tree = work.tree();
    let root = root_inode(&tree).map_err(|cause| RecordingError::io("look at", &tree, cause))?;
    // From now on the tree may hold what the log never gets.
    work.write_state(&State {
        log: options.log.clone(),
        author: author.get(),
        offset: files.write_head,
        phase: if options.seed.is_some() && (files.is_seed_cut || is_fresh(files)) {
            Phase::Seeding
        } else {
            Phase::Recording
        },
    })?;
    let start = Start {
        log: options.log.clone(),
        mode,
        author,
        fsm: files.fsm.clone(),
        tree: files.tree.clone(),
        root,
        write_head: files.write_head,
    };
    let recorder = RecorderOptions {
        max_pending_bytes: options.max_pending,
        fail_after: options.fail_after,
        idle_mark: Some(options.idle_mark),
        ..RecorderOptions::default()
    };
    Ok(Recorder::start(client.clone(), start, recorder).await?)
}

fn is_fresh(files: &Files) -> bool {
    files.found.origin == Origin::Fresh
}

fn root_inode(tree: &Path) -> io::Result<Inode> {
    let root = fs::symlink_metadata(tree)?;
    Ok(Inode {
        kind: Kind::Directory,
        mode: root.mode() & 0o7777,
        uid: root.uid(),
        gid: root.gid(),
        mtime: Timestamp {
            seconds: root.mtime(),
            nanos: u32::try_from(root.mtime_nsec()).unwrap_or_default(),
        },
        ..Inode::default()
    })
}

impl Recording {
    /// Takes a tree over, if one is given and the log has none yet.
    async fn seed_if_asked(
        &mut self,
        is_seed_cut: bool,
        cancel: &CancellationToken,
        tell: Tell,
    ) -> Result<(), RecordingError> {
        let Some(from) = self.options.seed.clone() else {
            return Ok(());
        };
        if !is_seed_cut && self.found.origin != Origin::Fresh {
            self.found.notes.push(format!(
                "the log has files already; {} is not taken over again",
                from.display()
            ));
            return Ok(());
        }
        let _seq_no = self.recorder.mark(Mark::SeedBegin);
        let (fs, recorder, cancel) = (self.fs.clone(), self.recorder.clone(), cancel.clone());
        let seeded = blocking(move || {
            let is_cancelled = || cancel.is_cancelled() || is_final(&recorder.status().state);
            if is_seed_cut {
                seed::clear(&fs, &is_cancelled)?;
            }
            seed::seed(&fs, &from, &is_cancelled, &|done| {
                tell(Progress::Seeding { done });
            })
        })
        .await?;
        let _seq_no = self.recorder.mark(Mark::SeedEnd);
        self.recorder
            .flush()
            .await
            .map_err(|fault| RecordingError::Lost {
                log: self.options.log.clone(),
                cause: fault.to_string(),
            })?;
        self.found.origin = Origin::Seeded;
        self.found
            .notes
            .push(format!("{} files were taken over", seeded.files));
        let state = self.work.read_state(&self.options.log)?;
        if let Some(state) = state {
            let phase = Phase::Recording;
            self.work.write_state(&State { phase, ..state })?;
        }
        Ok(())
    }
}

/// Does what may wait for the disk.
pub(super) async fn blocking<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// How long brokers are waited for at the start.
const BROKER_PATIENCE: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// How often another owner may come between.
const TRIES_MAX: u32 = 5;
