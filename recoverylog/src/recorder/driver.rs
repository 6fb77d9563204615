//! The task of a recorder: makes its RPCs, one at a time, and publishes its hints.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep_until, timeout};

use super::{
    machine::{Found, Now, Outcome, Seen},
    outcome::Fault,
    rpc::Rpcs,
    shared::{Call, Shared},
};
use crate::hints::{HintsHome, PublishedHints};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How long hints may take to be published; then they are tried again later.
const PUBLISH_WITHIN: Duration = Duration::from_mins(2);

enum Came {
    Outcome(Outcome),
    Looked(u64, Result<Seen, Arc<str>>),
    Found(Found),
}

/// Answers whoever waits when the task ends, also when its runtime does.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.with(|core, _| core.machine.handle_end());
    }
}

pub(super) async fn run(shared: Arc<Shared>, rpcs: Rpcs, home: Arc<dyn HintsHome>) {
    let _ends = Ends(Arc::clone(&shared));
    let mut call: Option<Boxed<Came>> = None;
    let mut publishing: Option<Boxed<Result<(), String>>> = None;
    while shared.ended.borrow().is_none() {
        let timeout = {
            let mut core = shared.lock();
            // It may come instead of a look.
            if let Some(next) = core.call.take() {
                call = Some(start(&rpcs, next));
            }
            if let Some(hints) = core.publish.take() {
                publishing = Some(publish(&home, hints));
            }
            let timeout = core.machine.next_timeout();
            core.sleeps_until = Some(timeout.unwrap_or(Now::MAX));
            timeout
        };
        tokio::select! {
            biased;
            came = maybe(&mut call) => {
                call = None;
                shared.with(|core, now| match came {
                    Came::Outcome(outcome) => core.machine.handle_outcome(now, outcome),
                    Came::Looked(number, seen) => core.machine.handle_looked(now, number, seen),
                    Came::Found(found) => core.machine.handle_found(now, found),
                });
            }
            result = maybe(&mut publishing) => {
                publishing = None;
                if let Err(error) = &result {
                    tracing::warn!(log = %shared.log, err = error.as_str(), "hints were not published");
                }
                shared.with(|core, now| core.machine.handle_hints_published(now, result.is_ok()));
            }
            () = shared.wake.notified() => {}
            () = until(&shared, timeout) => {
                shared.with(|core, now| core.machine.handle_timeout(now));
            }
        }
    }
}

fn start(rpcs: &Rpcs, call: Call) -> Boxed<Came> {
    let rpcs = rpcs.clone();
    Box::pin(async move {
        match call {
            Call::Append {
                offset,
                check,
                lost,
                content,
            } => Came::Outcome(rpcs.append(offset, check, lost, &content).await),
            Call::Probe { offset } => Came::Outcome(rpcs.probe(offset).await),
            Call::Look { number } => Came::Looked(number, rpcs.look().await),
            Call::ReadBack { offset, sent } => {
                Came::Found(rpcs.read_back(offset, sent.as_ref()).await)
            }
        }
    })
}

fn publish(home: &Arc<dyn HintsHome>, hints: PublishedHints) -> Boxed<Result<(), String>> {
    let home = Arc::clone(home);
    Box::pin(async move {
        match timeout(PUBLISH_WITHIN, home.publish(&hints)).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("not done within {} s", PUBLISH_WITHIN.as_secs())),
        }
    })
}

async fn maybe<T>(future: &mut Option<Boxed<T>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn until(shared: &Shared, timeout: Option<Now>) {
    match timeout.and_then(|at| shared.instant(at)) {
        Some(at) => sleep_until(Instant::from_std(at)).await,
        None => pending().await,
    }
}

/// Waits until the recorder has ended.
pub(super) async fn ended(shared: &Shared) -> Result<super::Acked, Fault> {
    let mut ended = shared.ended.subscribe();
    let result = ended.wait_for(Option::is_some).await;
    result.map_or(Err(Fault::Ended), |result| {
        result.clone().unwrap_or(Err(Fault::Ended))
    })
}
