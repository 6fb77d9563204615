//! What a replica does by itself: it lists its stores, and it pulses.

use std::{sync::Arc, time::Duration};

use gazette_protocol::duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Phase, Replica, lock};
use crate::storage;

/// Time between two pulses. A pulse closes the fragment whose flush interval is over, and
/// synchronises the replicas.
const PULSE_INTERVAL: Duration = Duration::from_mins(1);
/// Until a failed listing is tried again, unless the refresh interval is shorter.
const LISTING_RETRY: Duration = Duration::from_secs(5);
/// Until a listing counts as failed.
const LISTING_TIMEOUT: Duration = Duration::from_mins(2);
/// Listings that are asked for are not closer than this, so that a burst of uploads does not list
/// the store once for each.
const LISTING_PAUSE: Duration = Duration::from_millis(100);

impl Replica {
    /// Cares for the replica until it is stopped.
    pub(super) async fn care(self: &Arc<Self>) {
        // Side by side: a pulse is an append, which may wait for a listing.
        let cares = async {
            if *self.phase.borrow() == Phase::Serving {
                tokio::join!(self.list_again_and_again(), self.pulse_again_and_again());
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = cares => self.stop.cancelled().await,
        }
    }

    async fn list_again_and_again(self: &Arc<Self>) {
        loop {
            let mut next = Instant::now() + self.list_stores().await;
            loop {
                tokio::select! {
                    biased;
                    () = sleep_until(next) => break,
                    () = self.refresh.notified() => next = next.min(Instant::now() + LISTING_PAUSE),
                }
            }
        }
    }

    async fn pulse_again_and_again(&self) {
        loop {
            self.beat().await;
            tokio::select! {
                biased;
                () = self.pulse.notified() => {}
                () = sleep(PULSE_INTERVAL) => {}
            }
        }
    }

    /// Lists the stores and takes over what they hold. Returns the time until the next listing.
    async fn list_stores(self: &Arc<Self>) -> Duration {
        let Some(spec) = self.spec() else {
            return LISTING_RETRY;
        };
        let interval = duration::to_std(&spec.fragment.refresh_interval).unwrap_or(LISTING_RETRY);
        let specs = &self.context.specs;
        let listing = storage::list(&self.context.stores, &spec, |name| specs.is_journal(name));
        let error = match timeout(LISTING_TIMEOUT, listing).await {
            Ok(Ok(listed)) => {
                let covered = self.index().replace_stored(listed);
                self.drop_spools(covered);
                *lock(&self.listing_error) = None;
                self.index_version.send_modify(|version| *version += 1);
                return interval;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no end after {} s", LISTING_TIMEOUT.as_secs()),
        };
        tracing::warn!(journal = self.name, err = error, "stores cannot be listed");
        *lock(&self.listing_error) = Some(error);
        self.index_version.send_modify(|version| *version += 1);
        interval.min(LISTING_RETRY)
    }

    async fn beat(&self) {
        if let Some(pulse) = self.context.pulse.get() {
            pulse(self.name.clone()).await;
        }
    }

    /// Closes the pipeline and forgets the spools: without a spec nothing of the journal has a
    /// place in a store.
    pub(super) async fn wind_down(&self) {
        let mut turn = self.acquire().await;
        *turn = None;
        self.lines().close();
        // Uploads that begin from here on find that the journal is gone.
        drop(self.uploads.write().await);
        drop(self.log.forget().await);
    }
}
