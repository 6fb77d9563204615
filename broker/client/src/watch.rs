//! Follows the journals that match a selector.

use std::{fmt, future::Future, pin::Pin};

use gazette_protocol::{Header, LabelSelector, ListRequest, ListResponse, Validate};
use tokio::time::{Instant, sleep_until};
use tonic::{Response, Streaming};

use crate::{
    Client, ClientError, LastError, Listing,
    error::{Cause, is_local},
    list::Assembler,
    retry_delay,
};

type Opening =
    Pin<Box<dyn Future<Output = Result<Response<Streaming<ListResponse>>, tonic::Status>> + Send>>;

/// The journals that match a selector, as they change.
///
/// Each item is a whole snapshot. A change of routes alone gives none. Whatever fails is tried again
/// for ever; [`last_error`](Self::last_error) says what it is waiting for.
pub struct WatchedList {
    client: Client,
    selector: LabelSelector,
    /// Header of the latest snapshot. The next one must be newer.
    seen: Option<Header>,
    /// Whether the next attempt asks only for what is newer. Not if a broker objected to that: it may
    /// be of another cluster by now.
    resume: bool,
    state: State,
    attempt: u32,
    last_error: LastError<ClientError>,
}

enum State {
    Idle,
    Waiting(Instant),
    Opening(Opening),
    Open {
        stream: Box<Streaming<ListResponse>>,
        assembler: Assembler,
    },
}

impl fmt::Debug for WatchedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedList")
            .field("selector", &self.selector)
            .field("seen", &self.seen)
            .field("attempt", &self.attempt)
            .field("last_error", &self.last_error)
            .finish_non_exhaustive()
    }
}

impl WatchedList {
    pub(crate) fn new(client: Client, selector: LabelSelector) -> Self {
        Self {
            client,
            selector,
            seen: None,
            resume: true,
            state: State::Idle,
            attempt: 0,
            last_error: LastError::new(),
        }
    }

    /// Shows the error that [`next`](Self::next) is retrying after.
    pub fn last_error(&self) -> LastError<ClientError> {
        self.last_error.clone()
    }

    /// Waits for the next snapshot: at first the present one, then one for each change.
    ///
    /// It may be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Listing {
        loop {
            match self.step().await {
                Ok(Some(listing)) => {
                    self.seen = Some(listing.header.clone());
                    self.resume = true;
                    self.attempt = 0;
                    self.last_error.clear();
                    for journal in &listing.journals {
                        self.client
                            .router()
                            .learn(&journal.spec.name, &journal.route);
                    }
                    return listing;
                }
                Ok(None) => {}
                Err(cause) => {
                    self.resume = !matches!(&cause, Cause::Rpc(status) if !is_local(status));
                    if let Cause::Rpc(status) = &cause {
                        self.client.router().calm(status);
                    }
                    let error = ClientError::new("watch", "journals", cause);
                    if self.attempt == 0 {
                        tracing::debug!(err = %error, "journal watch is retried");
                    } else {
                        tracing::warn!(
                            err = %error, attempt = self.attempt, "journal watch is retried"
                        );
                    }
                    self.last_error.set(error);
                    self.state = State::Waiting(Instant::now() + retry_delay(self.attempt));
                    self.attempt = self.attempt.saturating_add(1);
                }
            }
        }
    }

    /// Makes one step. All that was reached is kept in the state, so it may be dropped at any await.
    async fn step(&mut self) -> Result<Option<Listing>, Cause> {
        match &mut self.state {
            State::Waiting(until) => {
                sleep_until(*until).await;
                self.state = State::Idle;
                Ok(None)
            }
            State::Idle => {
                let request = ListRequest {
                    selector: self.selector.clone(),
                    watch: true,
                    watch_resume: self.seen.clone().filter(|_| self.resume),
                };
                request.validate().map_err(Cause::Request)?;
                let mut grpc = self.client.router().any_stream();
                self.state = State::Opening(Box::pin(async move { grpc.list(request).await }));
                Ok(None)
            }
            State::Opening(opening) => {
                let stream = opening.await.map_err(Cause::Rpc)?.into_inner();
                self.state = State::Open {
                    stream: Box::new(stream),
                    assembler: Assembler::default(),
                };
                Ok(None)
            }
            State::Open { stream, assembler } => {
                let message = stream.message().await.map_err(Cause::Rpc)?;
                let message = message.ok_or(Cause::Protocol("an end of stream within a watch"))?;
                let listing = assembler.push(message)?;
                Ok(listing.filter(|listing| is_newer(&listing.header, self.seen.as_ref())))
            }
        }
    }
}

/// A snapshot that is not newer than the one before would take changes back: the broker lags.
fn is_newer(now: &Header, before: Option<&Header>) -> bool {
    before.is_none_or(|before| {
        before.etcd.cluster_id != now.etcd.cluster_id || now.etcd.revision > before.etcd.revision
    })
}

#[cfg(test)]
mod tests;
