//! Appends: as a stream, or at once.

use std::{
    collections::VecDeque,
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use gazette_protocol::{AppendRequest, AppendResponse, Status, Validate, append_request};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::Response;

use crate::{
    AppendCause, AppendError, Client, Outcome,
    metrics::{APPEND_BYTES, JOURNAL},
    retry_delay,
    router::{Need, without_meta},
};

mod appender;
mod content;

pub use appender::Appender;
pub use content::AppendContent;
use content::CHUNK_MAX_BYTES;

impl Client {
    /// Appends content that is in memory: all of it, or nothing.
    ///
    /// It is tried again while it is certain that nothing was done: no broker could be reached, or
    /// none is primary just now, or the journal is so new that the broker does not know it yet. That
    /// goes on for [`crate::ClientOptions::append_give_up_after`]. Everything else is an error, of
    /// which [`AppendError::outcome`] says whether the content is in the journal. Dropping the future
    /// leaves that unknown.
    ///
    /// *Without* an expected offset, whoever repeats an append of unknown outcome gets "at least
    /// once". *With* one, [`resolve_append`](Self::resolve_append) finds out. Offset zero is no
    /// expectation: the protocol cannot express it.
    pub async fn append(
        &self,
        request: AppendRequest,
        content: impl Into<AppendContent>,
    ) -> Result<AppendResponse, AppendError> {
        let started = Instant::now();
        let limit = self.options().append_give_up_after;
        let deadline = limit.map(|limit| started + limit);
        self.append_until(&request, &content.into(), started, deadline)
            .await
    }

    /// As [`append`](Self::append), with an own deadline.
    pub(crate) async fn append_until(
        &self,
        request: &AppendRequest,
        content: &AppendContent,
        started: Instant,
        deadline: Option<Instant>,
    ) -> Result<AppendResponse, AppendError> {
        check_request(request)?;
        let gave_up = |last| {
            let cause = AppendCause::GaveUp {
                after: started.elapsed(),
                last: Arc::new(last),
            };
            AppendError::new(&*request.journal, Outcome::NotDone, cause)
        };
        let (mut attempt, mut not_found) = (0, 0);
        let mut last = None;
        loop {
            let error = match self.append_once(request, content, started, deadline).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            not_found = count_not_found(&error, not_found);
            if !is_retried(&error, not_found, request) {
                // That the time ran out in the middle of an attempt says less than the one before.
                let unheard = matches!(error.cause(), AppendCause::Timeout(_))
                    && error.outcome() == Outcome::NotDone;
                return Err(last.filter(|_| unheard).map_or(error, gave_up));
            }
            let at = Instant::now() + retry_delay(attempt);
            if deadline.is_some_and(|deadline| at >= deadline) {
                return Err(gave_up(error));
            }
            if attempt == 0 {
                tracing::debug!(err = %error, "append is retried");
            } else {
                tracing::warn!(err = %error, attempt, "append is retried");
            }
            last = Some(error);
            sleep_until(at).await;
            attempt += 1;
        }
    }

    async fn append_once(
        &self,
        request: &AppendRequest,
        content: &AppendContent,
        started: Instant,
        deadline: Option<Instant>,
    ) -> Result<AppendResponse, AppendError> {
        let committed = Arc::new(AtomicBool::new(false));
        let messages = content.messages(request.clone(), Arc::clone(&committed));
        let mut grpc = self.router().call(&request.journal, Need::Primary);
        let call = grpc.append(messages);
        let answer = within(deadline, call).await;
        let committed = committed.load(Ordering::Acquire);
        let Some(answer) = answer else {
            let cause = AppendCause::Timeout(started.elapsed());
            return Err(AppendError::new(
                &*request.journal,
                outcome(committed),
                cause,
            ));
        };
        self.finish_append(&request.journal, answer, committed)
    }

    /// Appends content as it comes from a stream: all of it, or nothing if the stream fails.
    ///
    /// As with [`append`](Self::append), it is tried again while nothing was done for certain and the
    /// content that was taken from the stream is still held (the first 4 MiB are). So it wakes a
    /// suspended journal.
    pub async fn append_stream(
        &self,
        request: AppendRequest,
        content: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
    ) -> Result<AppendResponse, AppendError> {
        check_request(&request)?;
        let started = Instant::now();
        let limit = self.options().append_give_up_after;
        let mut source = Replayed {
            content,
            held: VecDeque::new(),
            held_bytes: 0,
            whole: true,
        };
        let (mut attempt, mut not_found) = (0, 0);
        loop {
            let error = match self.stream_once(&request, &mut source).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            not_found = count_not_found(&error, not_found);
            if !is_retried(&error, not_found, &request) || !source.whole {
                return Err(error);
            }
            let at = Instant::now() + retry_delay(attempt);
            if limit.is_some_and(|limit| at >= started + limit) {
                let cause = AppendCause::GaveUp {
                    after: started.elapsed(),
                    last: Arc::new(error),
                };
                return Err(AppendError::new(&*request.journal, Outcome::NotDone, cause));
            }
            tracing::debug!(err = %error, attempt, "append is retried");
            sleep_until(at).await;
            attempt += 1;
        }
    }

    async fn stream_once<S: Stream<Item = io::Result<Bytes>> + Unpin>(
        &self,
        request: &AppendRequest,
        source: &mut Replayed<S>,
    ) -> Result<AppendResponse, AppendError> {
        let mut appender = self.appender(request.clone());
        for piece in source.held.clone() {
            appender.write(piece).await?;
        }
        loop {
            // The broker may refuse before the next content comes.
            let piece = tokio::select! {
                biased;
                error = appender.failure() => return Err(error),
                piece = source.next() => piece,
            };
            match piece {
                None => return appender.commit().await,
                Some(Ok(piece)) => appender.write(piece).await?,
                Some(Err(error)) => {
                    appender.abort();
                    let cause = AppendCause::Content(Arc::new(error));
                    return Err(AppendError::new(&*request.journal, Outcome::NotDone, cause));
                }
            }
        }
    }

    /// Starts an append of content that is written piece by piece.
    pub fn appender(&self, request: AppendRequest) -> Appender {
        Appender::new(self, request)
    }

    fn finish_append(
        &self,
        journal: &str,
        answer: Result<Response<AppendResponse>, tonic::Status>,
        committed: bool,
    ) -> Result<AppendResponse, AppendError> {
        let response = match answer {
            Ok(response) => response.into_inner(),
            Err(status) => {
                self.router().failed(journal, &status);
                return Err(AppendError::of_rpc(journal, status, committed));
            }
        };
        let unusable = |outcome, cause| Err(AppendError::new(journal, outcome, cause));
        let Ok(status) = Status::try_from(response.status) else {
            let cause = AppendCause::Protocol("a status that this client does not know");
            return unusable(outcome(committed), cause);
        };
        if status != Status::Ok {
            self.router().learn(journal, &response.header.route);
            return Err(AppendError::of_status(journal, status, response));
        }
        if let Err(error) = response.validate() {
            return unusable(Outcome::Done, AppendCause::Answer(error));
        }
        let Some(commit) = &response.commit else {
            return unusable(
                Outcome::Done,
                AppendCause::Protocol("success without a commit"),
            );
        };
        self.router().learn(journal, &response.header.route);
        let length = u64::try_from(commit.end.saturating_sub(commit.begin)).unwrap_or(0);
        let journal = without_meta(journal).to_owned();
        ::metrics::counter!(APPEND_BYTES, JOURNAL => journal).increment(length);
        Ok(response)
    }
}

/// Refuses what a broker would refuse, before anything is sent.
fn check_request(request: &AppendRequest) -> Result<(), AppendError> {
    let refuse = |cause| AppendError::new(&*request.journal, Outcome::NotDone, cause);
    request
        .validate()
        .map_err(|error| refuse(AppendCause::Request(error)))?;
    if request.journal.is_empty() {
        // The broker would take it for a message with content.
        return Err(refuse(AppendCause::Protocol(
            "the request names no journal",
        )));
    }
    Ok(())
}

/// Attempts at a missing journal: a broker may not have heard of a new one yet.
const NOT_FOUND_ATTEMPTS: u32 = 4;

/// Counts answers in a row that say there is no such journal.
fn count_not_found(error: &AppendError, before: u32) -> u32 {
    match error.status() {
        Some(Status::JournalNotFound) => before + 1,
        Some(_) | None => 0,
    }
}

/// Whether another attempt is made, which is only if it is certain that nothing was done. `not_found`
/// counts the latest answers that say there is no such journal.
fn is_retried(error: &AppendError, not_found: u32, request: &AppendRequest) -> bool {
    if error.outcome() != Outcome::NotDone {
        return false;
    }
    match error.cause() {
        AppendCause::Rpc(_) => error.kind() == crate::ErrorKind::Retry,
        AppendCause::Status { status, .. } => match status {
            Status::NoJournalPrimaryBroker
            | Status::NotJournalPrimaryBroker
            | Status::InsufficientJournalBrokers => true,
            Status::JournalNotFound => {
                request.min_etcd_revision == 0 && not_found < NOT_FOUND_ATTEMPTS
            }
            // Somebody suspended the journal while we were waking it.
            Status::Suspended => request.suspend() == append_request::Suspend::Resume,
            Status::Ok
            | Status::NotJournalBroker
            | Status::OffsetNotYetAvailable
            | Status::WrongRoute
            | Status::ProposalMismatch
            | Status::EtcdTransactionFailed
            | Status::NotAllowed
            | Status::WrongAppendOffset
            | Status::IndexHasGreaterOffset
            | Status::RegisterMismatch
            | Status::FragmentStoreUnhealthy => false,
        },
        AppendCause::Request(_)
        | AppendCause::Answer(_)
        | AppendCause::Protocol(_)
        | AppendCause::Content(_)
        | AppendCause::Timeout(_)
        | AppendCause::GaveUp { .. }
        | AppendCause::Closed => false,
    }
}

/// Waits for an answer, until the deadline if there is one.
async fn within<T>(deadline: Option<Instant>, answer: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(answer.await),
        Some(deadline) => timeout_at(deadline, answer).await.ok(),
    }
}

fn outcome(committed: bool) -> Outcome {
    if committed {
        Outcome::Unknown
    } else {
        Outcome::NotDone
    }
}

/// Content of a stream, of which the first part is held for another attempt.
struct Replayed<S> {
    content: S,
    held: VecDeque<Bytes>,
    held_bytes: usize,
    /// Whether everything that was taken from the stream is held.
    whole: bool,
}

const HELD_MAX_BYTES: usize = 4 << 20;

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> Replayed<S> {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let piece = self.content.next().await;
        if let Some(Ok(piece)) = &piece {
            if self.held_bytes + piece.len() <= HELD_MAX_BYTES && self.whole {
                self.held_bytes += piece.len();
                self.held.push_back(piece.clone());
            } else {
                self.whole = false;
                self.held.clear();
            }
        }
        piece
    }
}

#[cfg(test)]
mod tests;
