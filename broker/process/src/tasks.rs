//! A group of tasks that lives and dies together.

use std::{
    any::Any,
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use thiserror::Error;
use tokio::task::AbortHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Tasks with names, of which the first that fails cancels all others.
///
/// A clone is the same group. Tasks can be added while it runs. A task is asked to end through the
/// [token](Self::token); it is aborted only when [`join`](Self::join) has waited long enough.
#[derive(Debug, Clone)]
pub struct TaskGroup {
    inner: Arc<Inner>,
}

/// How a group of tasks failed.
#[derive(Debug, Error)]
pub enum TaskError {
    /// A task returned an error.
    #[error("{task}: {cause:#}")]
    Failed {
        /// Name of the task.
        task: String,
        /// What it returned.
        cause: anyhow::Error,
    },
    /// A task panicked.
    #[error("{task}: panicked: {message}; next: report it with the log above")]
    Panicked {
        /// Name of the task.
        task: String,
        /// Message of the panic.
        message: String,
    },
    /// Tasks did not end in time and were aborted.
    #[error("stop tasks: {} did not end within {} s", .tasks.join(", "), .waited.as_secs())]
    Stuck {
        /// Names of the tasks.
        tasks: Vec<String>,
        /// How long the group waited for them.
        waited: Duration,
    },
}

#[derive(Debug)]
struct Inner {
    token: CancellationToken,
    tracker: TaskTracker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    running: BTreeMap<u64, (Cow<'static, str>, Option<AbortHandle>)>,
    first: Option<TaskError>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.running.values().map(|(name, _)| name))
            .finish()
    }
}

impl TaskGroup {
    /// Creates an empty group that is cancelled with `parent`.
    pub fn new(parent: &CancellationToken) -> Self {
        let inner = Inner {
            token: parent.child_token(),
            tracker: TaskTracker::new(),
            state: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the token whose cancellation asks all tasks of the group to end.
    pub fn token(&self) -> CancellationToken {
        self.inner.token.clone()
    }

    /// Asks all tasks to end.
    pub fn cancel(&self) {
        self.inner.token.cancel();
    }

    /// Starts a task. If it returns an error or panics, the group is cancelled, and
    /// [`join`](Self::join) returns the first such failure.
    pub fn spawn<F>(&self, name: impl Into<Cow<'static, str>>, task: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let name = name.into();
        let id = {
            let mut state = self.inner.lock();
            let id = state.next;
            state.next += 1;
            state.running.insert(id, (name.clone(), None));
            id
        };
        let ended = Ended {
            inner: Arc::clone(&self.inner),
            id,
        };
        let handle = self.inner.tracker.spawn(async move {
            let outcome = AssertUnwindSafe(task).catch_unwind().await;
            let failure = match outcome {
                Ok(Ok(())) => None,
                Ok(Err(cause)) => Some(TaskError::Failed {
                    task: name.into_owned(),
                    cause,
                }),
                Err(panic) => {
                    let message = message_of(panic.as_ref());
                    Some(TaskError::Panicked {
                        task: name.into_owned(),
                        message,
                    })
                }
            };
            if let Some(failure) = failure {
                ended.inner.fail(failure);
            }
            drop(ended);
        });
        if let Some((_, abort)) = self.inner.lock().running.get_mut(&id) {
            *abort = Some(handle.abort_handle());
        }
    }

    /// Waits until every task has ended. Once the group is cancelled the rest have `grace` to end,
    /// then they are aborted.
    ///
    /// # Errors
    ///
    /// The first failure of a task; or, if none failed, the tasks that had to be aborted.
    pub async fn join(self, grace: Duration) -> Result<(), TaskError> {
        self.inner.tracker.close();
        tokio::select! {
            biased;
            () = self.inner.tracker.wait() => {}
            () = self.inner.token.cancelled() => {
                if tokio::time::timeout(grace, self.inner.tracker.wait()).await.is_err() {
                    self.inner.abort_all(grace);
                    // An aborted task ends at its next await; one that blocks its thread does not.
                    let _ended = tokio::time::timeout(ABORT_MAX, self.inner.tracker.wait()).await;
                }
            }
        }
        match self.inner.lock().first.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, failure: TaskError) {
        {
            let mut state = self.lock();
            if state.first.is_some() {
                tracing::warn!(err = %failure, "another task failed");
            } else {
                state.first = Some(failure);
            }
        }
        self.token.cancel();
    }

    fn abort_all(&self, waited: Duration) {
        let mut state = self.lock();
        let tasks: Vec<String> = state
            .running
            .values()
            .map(|(name, _)| name.clone().into_owned())
            .collect();
        for abort in state
            .running
            .values()
            .filter_map(|(_, abort)| abort.as_ref())
        {
            abort.abort();
        }
        if tasks.is_empty() {
            return;
        }
        let stuck = TaskError::Stuck { tasks, waited };
        if state.first.is_some() {
            tracing::warn!(err = %stuck, "tasks were aborted");
        } else {
            state.first = Some(stuck);
        }
    }
}

/// Takes a task off the list when it ends, also when it is aborted.
struct Ended {
    inner: Arc<Inner>,
    id: u64,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let removed = self.inner.lock().running.remove(&self.id);
        drop(removed);
    }
}

/// Starts a task that lives as long as the process and that nobody waits for.
pub(crate) fn spawn_for_life(task: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(task));
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}

/// How long an aborted task may take to notice.
const ABORT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
