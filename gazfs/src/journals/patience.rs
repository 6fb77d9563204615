//! How long a request waits, and for what else than its answer.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    caller::{Caller, Ending},
    error::Cause,
};

/// The patience of one request: until its time is up, or its caller does not wait any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    caller: Caller,
    timeout: Duration,
    until: Instant,
    /// The request is an append, of which nobody knows how it ended if it is given up.
    is_append: bool,
}

impl Patience {
    /// Starts to be patient.
    pub(super) fn new(caller: Caller, timeout: Duration) -> Self {
        Self {
            caller,
            timeout,
            until: Instant::now() + timeout,
            is_append: false,
        }
    }

    /// The same, of a request that appends now.
    pub(super) fn of_append(self) -> Self {
        Self {
            is_append: true,
            ..self
        }
    }

    /// The same, with less time from now on.
    pub(super) fn at_most(self, timeout: Duration) -> Self {
        let until = Instant::now() + timeout;
        if until < self.until {
            Self {
                timeout,
                until,
                ..self
            }
        } else {
            self
        }
    }

    /// Waits for the answer of `work`, which is dropped if it takes too long.
    pub(super) async fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, Cause> {
        tokio::select! {
            biased;
            answer = work => Ok(answer),
            Ending::Signal | Ending::Killed = self.caller.ended() => Err(Cause::Interrupted {
                is_outcome_unknown: self.is_append,
            }),
            () = tokio::time::sleep_until(self.until) => Err(Cause::TimedOut {
                waited: self.timeout,
                is_outcome_unknown: self.is_append,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_its_time_is_up() {
        let patience = Patience::new(Caller::NOBODY, LONG);
        let answer: Result<(), _> = patience.wait(pending()).await;
        let timed_out = |waited, is_outcome_unknown| Cause::TimedOut {
            waited,
            is_outcome_unknown,
        };
        assert_eq!(answer, Err(timed_out(LONG, false)));
        let patience = Patience::new(Caller::NOBODY, LONG)
            .of_append()
            .at_most(SHORT);
        let answer: Result<(), _> = patience.wait(pending()).await;
        assert_eq!(answer, Err(timed_out(SHORT, true)));
    }

    #[tokio::test(start_paused = true)]
    async fn all_waits_of_a_request_share_its_time() {
        let patience = Patience::new(Caller::NOBODY, LONG);
        let before = Instant::now();
        patience
            .wait(tokio::time::sleep(LONG / 2))
            .await
            .expect("half of it is enough");
        let answer: Result<(), _> = patience.wait(pending()).await;
        assert!(answer.is_err());
        assert_eq!(before.elapsed(), LONG);
    }

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(1);
}
