//! Watches of an embedded store. They read its history at their own pace.

use std::{future, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch as channel;

use super::{Progress, Shared};
use crate::{
    CoordinationError, Watch, WatchRequest, WatchResponse,
    engine::{Request, Response},
};

#[derive(Debug)]
pub(super) struct EmbeddedWatch {
    shared: Arc<Shared>,
    prefix: Bytes,
    /// First revision that was not delivered.
    next: i64,
    progress: channel::Receiver<Progress>,
}

impl EmbeddedWatch {
    pub(super) async fn start(
        shared: Arc<Shared>,
        request: WatchRequest,
    ) -> Result<Self, CoordinationError> {
        let progress = shared.progress.subscribe();
        let next = request.start_revision;
        let mut watch = Self {
            shared,
            prefix: request.prefix,
            next,
            progress,
        };
        if next <= 0 {
            watch.next = i64::MAX;
            watch.next = watch.history().await?.header.revision + 1;
        } else {
            watch.history().await?;
        }
        Ok(watch)
    }

    async fn history(&self) -> Result<WatchResponse, CoordinationError> {
        let request = Request::History {
            prefix: self.prefix.clone(),
            start_revision: self.next,
        };
        let Response::History(response) = self.shared.call(request).await? else {
            unreachable!("another answer to a history");
        };
        Ok(response)
    }
}

#[async_trait]
impl Watch for EmbeddedWatch {
    async fn next(&mut self) -> Result<WatchResponse, CoordinationError> {
        loop {
            let progress = *self.progress.borrow_and_update();
            if progress.closed {
                return Err(CoordinationError::Closed);
            }
            if progress.revision < self.next {
                let expiry = async {
                    match progress.next_expiry {
                        Some(expiry) => tokio::time::sleep_until(expiry.into()).await,
                        None => future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    changed = self.progress.changed() => {
                        changed.map_err(|_| CoordinationError::Closed)?;
                        continue;
                    }
                    // Reading the history, as any request, ends the lease.
                    () = expiry => {}
                }
            }
            let response = self.history().await?;
            self.next = self.next.max(response.header.revision + 1);
            if !response.events.is_empty() {
                return Ok(response);
            }
        }
    }
}
