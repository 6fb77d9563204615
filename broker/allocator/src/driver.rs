//! The loop that allocates while this member leads, and notices when it may leave.

mod planner;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use gazette_coordination::{Coordination, CoordinationError, ErrorKind};
use gazette_keyspace::{Mirror, MirrorError};
use gazette_protocol::process_spec::Id;
use tokio::time;

use crate::{Decoded, Keys, Schema, State, converge::Batch, tracker::Tracker};
#[cfg(test)]
pub(crate) use planner::Planner;
#[cfg(not(test))]
use planner::Planner;

/// Settings of the loop.
#[derive(Clone, Copy, Debug)]
pub struct AllocatorOptions {
    /// When to try again after a transaction failed, if nothing changes before.
    pub retry: Duration,
    /// How long to wait for others to take over from a member that leaves; for ever if `None`.
    pub drain_timeout: Option<Duration>,
}

impl Default for AllocatorOptions {
    fn default() -> Self {
        Self {
            retry: Duration::from_secs(1),
            drain_timeout: None,
        }
    }
}

/// How this member may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It has no assignments left.
    Drained,
    /// It has assignments, but every member of the cluster leaves too, so no one will take over.
    Alone,
    /// It has assignments that no one took over in time.
    TimedOut,
}

/// Why the loop failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The key of this member was deleted, although its process lives.
    #[error(
        "allocate: member {member} is gone from the coordination store; next: restart this process"
    )]
    MemberGone {
        /// This member.
        member: Id,
    },
    /// The mirror ended.
    #[error("allocate: {0}")]
    Mirror(#[from] MirrorError),
    /// The store refused for good.
    #[error("allocate: {0}")]
    Coordination(#[from] CoordinationError),
}

/// Allocates items to members.
pub struct Allocator<S: Schema> {
    coordination: Arc<dyn Coordination>,
    keys: Keys,
    mirror: Mirror<Decoded<S>>,
    local: Id,
    options: AllocatorOptions,
    tracker: Arc<Mutex<Tracker>>,
}

impl<S: Schema> Allocator<S> {
    /// Returns an allocator of member `local`, whose key `mirror` must hold. It begins to follow
    /// the mirror at once.
    pub fn new(
        coordination: Arc<dyn Coordination>,
        keys: Keys,
        mirror: Mirror<Decoded<S>>,
        local: Id,
        options: AllocatorOptions,
    ) -> Self {
        let tracker = Arc::new(Mutex::new(Tracker::default()));
        let follower = Arc::downgrade(&tracker);
        mirror.observe(move |_, changes| {
            if let Some(tracker) = follower.upgrade() {
                tracker.lock().expect(TRACKER).apply::<S>(changes);
            }
        });
        Self {
            coordination,
            keys,
            mirror,
            local,
            options,
            tracker,
        }
    }

    /// Runs until this member may leave. Dropping the future stops it cleanly.
    pub async fn run(self) -> Result<Exit, AllocateError> {
        let mut planner = Planner::default();
        let mut changed = self.mirror.changed();
        let mut drain_until = None;
        loop {
            changed.borrow_and_update();
            let round = self.plan(&mut planner)?;
            if let Some(exit) = round.exit {
                return Ok(exit);
            }
            if round.is_exiting && drain_until.is_none() {
                drain_until = self
                    .options
                    .drain_timeout
                    .map(|wait| time::Instant::now() + wait);
            }
            let is_complete = self.apply(round.batches, &mut planner).await?;
            let retry_at = (!is_complete).then(|| time::Instant::now() + self.options.retry);
            tokio::select! {
                biased;
                err = self.mirror.ended() => return Err(err.into()),
                // The sender lives as long as the mirror.
                _ = changed.changed() => {}
                () = at(drain_until) => return Ok(Exit::TimedOut),
                () = at(retry_at) => {}
            }
        }
    }

    fn plan(&self, planner: &mut Planner) -> Result<Round, AllocateError> {
        let space = self.mirror.read();
        let state = State::<S>::new(&self.keys, &space);
        let mut tracker = self.tracker.lock().expect(TRACKER);
        let Some(local) = state.member(&self.local) else {
            return Err(AllocateError::MemberGone {
                member: self.local.clone(),
            });
        };
        let is_exiting = S::is_exiting(&local.decoded.spec);
        if is_exiting {
            let exit = if tracker.load(&self.local).assigned == 0 {
                Some(Exit::Drained)
            } else if state
                .members()
                .all(|member| S::is_exiting(&member.decoded.spec))
            {
                Some(Exit::Alone)
            } else {
                None
            };
            if exit.is_some() {
                return Ok(Round {
                    batches: Vec::new(),
                    is_exiting,
                    exit,
                });
            }
        }
        let batches = match state.leader() {
            Some(leader) if leader.decoded.id == self.local => {
                planner.plan(state, leader, &mut tracker, self.coordination.max_txn_ops())
            }
            _ => {
                planner.follow(&mut tracker);
                Vec::new()
            }
        };
        Ok(Round {
            batches,
            is_exiting,
            exit: None,
        })
    }

    /// Applies batches in order, up to the first that fails. Returns whether none did.
    async fn apply(
        &self,
        batches: Vec<Batch>,
        planner: &mut Planner,
    ) -> Result<bool, AllocateError> {
        let mut written = None;
        let mut rest = batches.into_iter();
        let mut is_complete = true;
        for batch in rest.by_ref() {
            match self.coordination.txn(batch.txn).await {
                Ok(response) if response.succeeded => {
                    written = Some(response.header.revision);
                    continue;
                }
                Ok(_) => tracing::debug!("allocate: something changed meanwhile; planning again"),
                Err(err) => match err.kind() {
                    // A lease that is not there is of a member that has just left.
                    ErrorKind::Retry | ErrorKind::NoSpace | ErrorKind::NotFound => {
                        tracing::warn!(%err, "allocate");
                    }
                    ErrorKind::Compacted | ErrorKind::Invalid | ErrorKind::Closed => {
                        return Err(err.into());
                    }
                },
            }
            planner.again(batch.items);
            is_complete = false;
            break;
        }
        for batch in rest {
            planner.again(batch.items);
        }
        if let Some(revision) = written {
            self.mirror.wait_for_revision(revision).await?;
        }
        Ok(is_complete)
    }
}

struct Round {
    batches: Vec<Batch>,
    is_exiting: bool,
    exit: Option<Exit>,
}

async fn at(when: Option<time::Instant>) {
    match when {
        Some(when) => time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

impl<S: Schema> fmt::Debug for Allocator<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator")
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

/// Why the lock is never poisoned.
const TRACKER: &str = "tracking does not panic";
