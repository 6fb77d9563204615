//! The start: backing files as the log says, and the log taken over.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use gazette_client::Client;
use gazette_process::TaskGroup;
use gazette_recoverylog::{
    Source,
    fsm::{Author, Inode, Kind, Mark, Mode, Timestamp},
    journals::{find_log, make_log},
    recorder::{Recorder, RecorderError, RecorderOptions, Start},
};
use tokio_util::sync::CancellationToken;

use super::{
    Options, Origin, Progress, Recording, RecordingError,
    bounded::Cleaner,
    checkpoints::Checkpoints,
    files::{Files, followed, kept, rebuilt},
    log::{RecorderLog, is_final},
    seed,
};
use crate::{
    mount::check,
    recorded::RecordedFs,
    work_dir::{Ground, Phase, State, WorkDir},
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
    let work = Arc::new(WorkDir::open(&options.work)?);
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
    // As the last daemon left it: a try that fails leaves another one.
    let state = work.read_state(&options.log)?;
    let (mut tries, mut aside) = (0, None);
    let (recorder, files) = loop {
        let kept = match &state {
            Some(state) if tries == 0 => match kept(&work, state, mode).await {
                Some(files) => Some(files),
                None => followed(client, &work, state, mode, cancel).await?,
            },
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
            started = take_over(client, &options, mode, &work, &files) => started,
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
    if let Some(aside) = &aside {
        found.notes.push(format!(
            "the backing files of before differ from the log, and may hold what it never got: they \
             are in {}",
            aside.display()
        ));
    }
    let pulse = work.new_pulse(recorder.author().get());
    let pulse = pulse.inspect_err(|error| {
        tracing::warn!(err = %error, "no pulse is kept; if this process is killed, the next one reads the log");
    });
    let log = RecorderLog::new(recorder.clone(), options.fsync, pulse.ok());
    let fs = RecordedFs::start(log.clone(), &work.tree())?;
    let tasks = TaskGroup::new(&CancellationToken::new());
    let cleaner = Cleaner::new(&recorder, &fs, &options, tasks.token());
    let mut recording = Recording {
        cleaner,
        tasks,
        found,
        source: Source::Broker(client.clone()),
        successor: None,
        options,
        work,
        recorder,
        log,
        fs,
        checkpoints: None,
    };
    recording
        .seed_if_asked(files.is_seed_cut, cancel, tell)
        .await?;
    if mode == Mode::Native {
        let (recorder, work) = (recording.recorder.clone(), Arc::clone(&recording.work));
        recording.checkpoints = Some(Checkpoints::start(recorder, work));
    }
    recording.keep_bounded(client);
    let who = who_records(&recording.options.point);
    let _seq_no = recording.recorder.mark(Mark::Text(who.into()));
    Ok(recording)
}

/// Who a log is told to be recorded by.
fn who_records(point: &Path) -> String {
    let host = rustix::system::uname();
    format!(
        "gazfs {} on {}, process {}, at {}",
        env!("CARGO_PKG_VERSION"),
        host.nodename().to_string_lossy(),
        std::process::id(),
        point.display(),
    )
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
async fn log_mode_in_time(client: &Client, options: &Options) -> Result<Mode, RecordingError> {
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
            Ok(mode)
        }
    }
}

/// Takes the log over.
async fn take_over(
    client: &Client,
    options: &Options,
    mode: Mode,
    work: &WorkDir,
    files: &Files,
) -> Result<Recorder, RecordingError> {
    let author = Author::from_random(rand::random());
    let tree = work.tree();
    let root = root_inode(&tree).map_err(|cause| RecordingError::io("look at", &tree, cause))?;
    if files.authors.is_none() {
        work.remove_checkpoint()?;
    }
    let ground =
        Ground::look(&tree).map_err(|cause| RecordingError::io("look at", &tree, cause))?;
    let before = files.authors.iter().flatten().copied();
    let ground = Ground {
        authors: before.chain([author.get()]).collect(),
        ..ground
    };
    // From now on the tree may hold what the log never gets.
    work.write_state(&State {
        ground: Some(ground),
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
        liveness: files.liveness.clone(),
        root,
        write_head: files.write_head,
    };
    let recorder = RecorderOptions {
        max_pending_bytes: options.max_pending,
        fail_after: options.fail_after,
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
