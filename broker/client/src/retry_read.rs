//! Reads that outlast brokers.

use std::{fmt, sync::Arc, time::Duration};

use gazette_protocol::{ReadRequest, Status};
use tokio::time::{Instant, sleep_until};

use crate::{
    Client, ErrorKind, LastError, ReadEvent, Reader,
    read_error::{ReadCause, ReadError},
    retry_delay,
};

/// How long a [`RetryReader`] goes on.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetryOptions {
    /// How long it tries in vain before the last error is returned. Time during which the connection
    /// is good and no content comes does not count. `None` tries for ever.
    pub give_up_after: Option<Duration>,
}

/// Reads a journal, and goes on after whatever a new attempt may cure.
///
/// - The end of a stream and of a fragment go unnoticed.
/// - A lost connection, a moved journal, a broken fragment store: tried again with growing waits, for
///   ever or for [`RetryOptions::give_up_after`].
/// - A fragment in a store that this client cannot reach: the broker is asked to read it for us.
/// - The end of a bounded read is `Ok(None)`.
/// - The end of the journal, a suspended journal, a missing journal (after four attempts, as news of a
///   new journal takes time), a read that is not allowed, a fragment with wrong content: an error.
///   [`next`](Self::next) may be called again.
///
/// A request for the end (offset -1) becomes one for an absolute offset with the first answer, also
/// if that answer has no content. What is written after that answer is not skipped.
pub struct RetryReader {
    client: Client,
    request: ReadRequest,
    options: RetryOptions,
    reader: Reader,
    /// Failed attempts since anything was read.
    attempt: u32,
    /// How many of the latest ones in a row failed because there is no such journal.
    not_found: u32,
    /// When the first of them failed.
    failing_since: Option<Instant>,
    retry_at: Option<Instant>,
    /// Whether anything came since the RPC was started.
    progressed: bool,
    last_error: LastError<ReadError>,
}

impl fmt::Debug for RetryReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryReader")
            .field("request", &self.request)
            .field("options", &self.options)
            .field("attempt", &self.attempt)
            .field("last_error", &self.last_error)
            .finish_non_exhaustive()
    }
}

impl RetryReader {
    pub(crate) fn new(client: Client, request: ReadRequest, options: RetryOptions) -> Self {
        let reader = client.reader(first_request(&request));
        Self {
            client,
            request,
            options,
            reader,
            attempt: 0,
            not_found: 0,
            failing_since: None,
            retry_at: None,
            progressed: false,
            last_error: LastError::new(),
        }
    }

    /// Offset of the next content, or -1 before the end that was asked for is known.
    pub fn offset(&self) -> i64 {
        self.request.offset
    }

    /// The request, with the offset of the next content.
    pub fn request(&self) -> &ReadRequest {
        &self.request
    }

    /// Shows the error that [`next`](Self::next) is retrying after.
    pub fn last_error(&self) -> LastError<ReadError> {
        self.last_error.clone()
    }

    /// Goes on reading at another offset.
    pub fn seek(&mut self, offset: i64) {
        self.request.offset = offset;
        self.restart();
        self.succeeded();
    }

    /// Sets whether the end of the journal is waited at.
    pub fn set_block(&mut self, block: bool) {
        if self.request.block != block {
            self.request.block = block;
            self.restart();
        }
    }

    /// Waits until the offset of the next content is known, which matters only for a read of the end.
    pub async fn resolve_offset(&mut self) -> Result<i64, ReadError> {
        while self.request.offset < 0 {
            self.find_end().await?;
        }
        Ok(self.request.offset)
    }

    /// Waits for the next event.
    ///
    /// It may be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Result<Option<ReadEvent>, ReadError> {
        self.resolve_offset().await?;
        loop {
            self.wait().await;
            match self.reader.next().await {
                Ok(Some(event)) => {
                    self.request.offset = self.reader.offset();
                    // A broker that announces content and cannot give it is no success.
                    if !matches!(event, ReadEvent::Metadata(_)) || self.request.metadata_only {
                        self.succeeded();
                        self.progressed = true;
                    }
                    return Ok(Some(event));
                }
                Ok(None) if self.is_done() => return Ok(None),
                Ok(None) => self.ended(),
                Err(error) => self.failed(error)?,
            }
        }
    }

    /// Whether an end of stream is the end that was asked for.
    fn is_done(&self) -> bool {
        let end = self.request.end_offset;
        (end != 0 && self.request.offset >= end) || (self.request.metadata_only && self.progressed)
    }

    /// Makes one attempt to turn "the end" into an offset. Without waiting for content, as a broker
    /// that waits has not told us which end it waits at.
    async fn find_end(&mut self) -> Result<(), ReadError> {
        self.wait().await;
        let offset = match self.reader.next().await {
            Ok(Some(ReadEvent::Metadata(response))) => response.offset,
            Ok(_) => {
                self.ended();
                return Ok(());
            }
            Err(error) => match error.into_response(Status::OffsetNotYetAvailable) {
                Ok(response) => response.offset,
                Err(error) => return self.failed(error),
            },
        };
        self.request.offset = offset;
        self.succeeded();
        self.restart();
        Ok(())
    }

    async fn wait(&mut self) {
        if let Some(at) = self.retry_at {
            sleep_until(at).await;
            self.retry_at = None;
        }
    }

    fn restart(&mut self) {
        let route = self.reader.route().cloned();
        self.reader = self
            .client
            .reader(first_request(&self.request))
            .with_route(route);
        self.progressed = false;
    }

    fn succeeded(&mut self) {
        self.attempt = 0;
        self.not_found = 0;
        self.failing_since = None;
        self.retry_at = None;
        self.last_error.clear();
    }

    /// Goes on after an end of stream: at once if anything came before it.
    fn ended(&mut self) {
        if !self.progressed {
            self.retry_at = Some(Instant::now() + retry_delay(self.attempt));
            self.attempt = self.attempt.saturating_add(1);
        }
        self.restart();
    }

    /// Prepares another attempt, or returns the error if it is not for us to retry.
    fn failed(&mut self, error: ReadError) -> Result<(), ReadError> {
        let decision = decide(&error, self.attempt, self.not_found, &self.request);
        self.not_found = match error.status() {
            Some(Status::JournalNotFound) => self.not_found + 1,
            Some(_) | None => 0,
        };
        if let ReadCause::Fragment(cause) = error.cause()
            && cause.kind() == ErrorKind::Invalid
        {
            // We cannot read such stores, but the broker can.
            self.request.do_not_proxy = false;
        }
        let route = match error.cause() {
            // Somebody is away. The default broker knows where the journal is by now.
            ReadCause::Rpc(_) => None,
            ReadCause::Status { .. }
            | ReadCause::Request(_)
            | ReadCause::Answer(_)
            | ReadCause::Protocol(_)
            | ReadCause::Fragment(_)
            | ReadCause::GaveUp { .. } => self.reader.route().cloned(),
        };
        self.reader = self
            .client
            .reader(first_request(&self.request))
            .with_route(route);
        self.progressed = false;
        let quiet = match decision {
            Decision::Surface => {
                self.succeeded();
                return Err(error);
            }
            Decision::Retry { quiet } => quiet,
        };
        let now = Instant::now();
        let since = *self.failing_since.get_or_insert(now);
        let at = now + retry_delay(self.attempt);
        if let Some(limit) = self.options.give_up_after
            && at.saturating_duration_since(since) >= limit
        {
            let cause = ReadCause::GaveUp {
                after: now - since,
                last: Arc::new(error),
            };
            self.succeeded();
            return Err(ReadError::new(
                &self.request.journal,
                self.request.offset,
                cause,
            ));
        }
        let attempt = self.attempt;
        if quiet {
            tracing::debug!(err = %error, attempt, "read is retried");
        } else {
            tracing::warn!(err = %error, attempt, "read is retried");
        }
        self.last_error.set(error);
        self.attempt = self.attempt.saturating_add(1);
        self.retry_at = Some(at);
        Ok(())
    }
}

/// What to do about a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// Return it to the caller.
    Surface,
    /// Try again. `quiet` if it is too ordinary to be logged as a warning.
    Retry { quiet: bool },
}

/// Attempts at a missing journal: a broker may not have heard of a new one yet.
const NOT_FOUND_ATTEMPTS: u32 = 4;

/// Decides after `attempt` failures, of which the latest `not_found` were about a missing journal.
fn decide(error: &ReadError, attempt: u32, not_found: u32, request: &ReadRequest) -> Decision {
    let first = attempt == 0;
    match error.cause() {
        ReadCause::Request(_) | ReadCause::GaveUp { .. } => Decision::Surface,
        ReadCause::Status { status, .. } => match status {
            Status::OffsetNotYetAvailable if request.block => Decision::Retry { quiet: true },
            Status::OffsetNotYetAvailable | Status::Suspended | Status::NotAllowed => {
                Decision::Surface
            }
            // With a header, the caller's broker said that it exists; with a revision, a broker
            // that answers knows all that the caller knows.
            Status::JournalNotFound
                if request.header.is_some()
                    || request.min_etcd_revision != 0
                    || not_found + 1 >= NOT_FOUND_ATTEMPTS =>
            {
                Decision::Surface
            }
            Status::JournalNotFound => Decision::Retry { quiet: true },
            Status::InsufficientJournalBrokers | Status::NotJournalBroker => {
                Decision::Retry { quiet: first }
            }
            Status::Ok
            | Status::NoJournalPrimaryBroker
            | Status::NotJournalPrimaryBroker
            | Status::WrongRoute
            | Status::ProposalMismatch
            | Status::EtcdTransactionFailed
            | Status::WrongAppendOffset
            | Status::IndexHasGreaterOffset
            | Status::RegisterMismatch
            | Status::FragmentStoreUnhealthy => Decision::Retry { quiet: false },
        },
        // What the broker refuses for good stays refused.
        ReadCause::Rpc(_) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Invalid) => {
            Decision::Surface
        }
        ReadCause::Rpc(_) => Decision::Retry { quiet: first },
        // The bytes are wrong, and will be wrong again. A new attempt would begin in the middle, where
        // the sum of the whole fragment no longer helps.
        ReadCause::Fragment(cause) if cause.kind() == ErrorKind::Corrupt => Decision::Surface,
        ReadCause::Answer(_) | ReadCause::Protocol(_) | ReadCause::Fragment(_) => {
            Decision::Retry { quiet: false }
        }
    }
}

/// The request of the first attempt. Of a read of the end, it only asks where that is.
fn first_request(request: &ReadRequest) -> ReadRequest {
    if request.offset < 0 {
        ReadRequest {
            block: false,
            metadata_only: true,
            ..request.clone()
        }
    } else {
        request.clone()
    }
}

#[cfg(test)]
mod tests;
