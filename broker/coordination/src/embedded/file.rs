//! The thread that owns the engine and its file.

#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, mpsc},
    thread,
    time::Instant,
};

use tokio::sync::{oneshot, watch as channel};

use super::{
    EmbeddedOptions, OpenCause, OpenError, Progress,
    database::{CommitError, Database},
    publish,
};
use crate::{
    CoordinationError,
    engine::{Engine, Request, Response},
};

/// Requests that share one commit, at most. A commit waits for the disk, so the more the better;
/// the bound keeps the first of them from waiting for long.
const GROUP_MAX: usize = 256;

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Option<thread::JoinHandle<()>>,
    closed: channel::Receiver<bool>,
}

#[derive(Debug)]
struct Job {
    now: Instant,
    request: Request,
    reply: oneshot::Sender<Result<Response, CoordinationError>>,
}

type Opened = Result<channel::Sender<Progress>, OpenError>;

impl Worker {
    pub(super) async fn start(
        path: &Path,
        options: EmbeddedOptions,
    ) -> Result<(Self, channel::Sender<Progress>), OpenError> {
        let (jobs, incoming) = mpsc::channel();
        let (opened, outcome) = oneshot::channel::<Opened>();
        let (closing, closed) = channel::channel(false);
        let owned = path.to_owned();
        let failed = |cause| OpenError {
            path: path.to_owned(),
            cause,
        };
        let thread = thread::Builder::new()
            .name("coordination".to_owned())
            .spawn(move || {
                run(owned, options, opened, &incoming);
                closing.send_replace(true);
            })
            .map_err(|err| {
                failed(OpenCause::Io {
                    cause: err.to_string(),
                })
            })?;
        let progress = outcome.await.map_err(|_| {
            failed(OpenCause::Io {
                cause: "its thread ended".to_owned(),
            })
        })??;
        let worker = Self {
            jobs: Mutex::new(Some(jobs)),
            thread: Some(thread),
            closed,
        };
        Ok((worker, progress))
    }

    pub(super) async fn call(
        &self,
        now: Instant,
        request: Request,
    ) -> Result<Response, CoordinationError> {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            now,
            request,
            reply,
        };
        match self.jobs.lock().expect("sending does not panic").as_ref() {
            Some(jobs) => jobs.send(job).map_err(|_| CoordinationError::Closed)?,
            None => return Err(CoordinationError::Closed),
        }
        answer.await.map_err(|_| CoordinationError::Closed)?
    }

    /// Lets the thread finish what was asked, and waits until the file is closed.
    pub(super) async fn close(&self) {
        self.jobs.lock().expect("sending does not panic").take();
        // An error says that the thread is gone, which is as good.
        self.closed.clone().wait_for(|closed| *closed).await.ok();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs.lock().expect("sending does not panic").take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the coordination store panicked");
        }
    }
}

fn run(
    path: PathBuf,
    options: EmbeddedOptions,
    opened: oneshot::Sender<Opened>,
    jobs: &mpsc::Receiver<Job>,
) {
    let (mut database, mut engine) = match open(path, options) {
        Ok(open) => open,
        Err(err) => {
            // If nobody waits any more, nobody needs the error.
            opened.send(Err(err)).ok();
            return;
        }
    };
    let (progress, _) = channel::channel(Progress::of(&engine));
    if opened.send(Ok(progress.clone())).is_err() {
        return;
    }
    while let Ok(job) = jobs.recv() {
        let mut group = vec![job];
        while group.len() < GROUP_MAX
            && let Ok(job) = jobs.try_recv()
        {
            group.push(job);
        }
        let answers = apply(&mut engine, &mut database, &group);
        publish(&progress, &engine);
        for (job, answer) in group.into_iter().zip(answers) {
            // A caller that went away does not want its answer.
            job.reply.send(answer).ok();
        }
    }
    database.close();
}

fn open(path: PathBuf, options: EmbeddedOptions) -> Result<(Database, Engine), OpenError> {
    let (mut database, config, revision, keys) = Database::open(path, options)?;
    let mut engine = Engine::new(config, revision, keys);
    database.commit(&engine).map_err(|err| OpenError {
        path: database.path().to_owned(),
        cause: OpenCause::from(err),
    })?;
    engine.commit();
    Ok((database, engine))
}

/// Applies a group of requests with one commit.
fn apply(
    engine: &mut Engine,
    database: &mut Database,
    group: &[Job],
) -> Vec<Result<Response, CoordinationError>> {
    let mut answers: Vec<_> = group
        .iter()
        .map(|job| engine.handle(job.now, job.request.clone()))
        .collect();
    match database.commit(engine) {
        Ok(()) => engine.commit(),
        Err(err) => {
            tracing::error!(%err, path = %database.path().display(), "commit coordination store");
            engine.roll_back();
            // What was answered may rest on changes that are no more. Reads can be answered again.
            for (job, answer) in group.iter().zip(&mut answers) {
                *answer = match &job.request {
                    Request::Txn(_) | Request::Grant { .. } | Request::Revoke { .. } => {
                        Err(err.clone().into())
                    }
                    read @ (Request::Range(_)
                    | Request::KeepAlive { .. }
                    | Request::Compact { .. }
                    | Request::History { .. }) => engine.answer(job.now, read.clone()),
                };
            }
        }
    }
    answers
}

impl From<CommitError> for CoordinationError {
    fn from(err: CommitError) -> Self {
        match err {
            CommitError::NoSpace => Self::NoSpace,
            CommitError::Failed { cause } => Self::Unavailable { cause },
        }
    }
}
