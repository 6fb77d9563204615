//! Appends that are under way, and waiting for them.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::runtime::Handle;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

/// Appends that are under way.
#[derive(Debug, Default)]
pub(super) struct Pending(Mutex<Rounds>);

/// Whoever waits begins a new round, so that he does not wait for what begins later: there is no end of
/// that while programs write without a pause.
#[derive(Debug, Default)]
struct Rounds {
    current: TaskTracker,
    /// The ones before, which somebody waits for.
    earlier: Vec<TaskTracker>,
}

impl Pending {
    /// Runs a task that counts until it ends.
    pub(super) fn spawn(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        self.lock().current.spawn_on(task, runtime);
    }

    /// Counts until it is dropped.
    pub(super) fn token(&self) -> TaskTrackerToken {
        self.lock().current.token()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        let rounds = self.lock();
        let earlier = rounds.earlier.iter().map(TaskTracker::len);
        rounds.current.len() + earlier.sum::<usize>()
    }

    /// Waits for all that have begun.
    pub(super) async fn settled(&self) {
        let rounds = {
            let mut rounds = self.lock();
            rounds.earlier.retain(|round| !round.is_empty());
            let current = std::mem::take(&mut rounds.current);
            current.close();
            rounds.earlier.push(current);
            rounds.earlier.clone()
        };
        for round in rounds {
            round.wait().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rounds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Waker},
    };

    use super::*;

    fn is_done(future: Pin<&mut impl Future<Output = ()>>) -> bool {
        future
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn who_waits_does_so_for_what_had_begun_and_for_nothing_that_begins_later() {
        let pending = Pending::default();
        let first = pending.token();
        let mut one = pin!(pending.settled());
        assert!(!is_done(one.as_mut()));
        // Writers that never pause: there is always one under way.
        let second = pending.token();
        let mut other = pin!(pending.settled());
        assert!(!is_done(other.as_mut()));
        let third = pending.token();
        assert_eq!(pending.len(), 3);

        // One that began before somebody else waited counts for both.
        drop(second);
        assert!(!is_done(one.as_mut()));
        assert!(!is_done(other.as_mut()));
        drop(first);
        assert!(is_done(one.as_mut()));
        assert!(is_done(other.as_mut()));
        assert_eq!(pending.len(), 1);
        drop(third);
        assert!(is_done(pin!(pending.settled())));
        assert_eq!(pending.len(), 0);
    }
}
