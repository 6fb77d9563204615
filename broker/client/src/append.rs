//! Appends: as a stream, or at once.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use gazette_protocol::{AppendRequest, AppendResponse, Status, Validate, append_request};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Response;

use crate::{
    AppendCause, AppendError, Client, Outcome,
    metrics::{APPEND_BYTES, JOURNAL},
    retry_delay,
    router::{Need, without_meta},
};

/// Largest content of one message. Larger ones make the broker hold more per writer and gain nothing,
/// as HTTP/2 cuts them into frames anyway.
const CHUNK_MAX_BYTES: usize = 128 << 10;

/// Pieces below this are copied together into one message; larger ones are sent as they are.
const GATHER_MAX_BYTES: usize = 16 << 10;

/// Messages between the writer and the connection.
const CHUNKS_AHEAD: usize = 4;

/// Content in memory, in pieces. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AppendContent {
    pieces: Arc<[Bytes]>,
    length: usize,
}

impl AppendContent {
    /// Bytes of all pieces.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no content. Such an append is a barrier: it says where the journal ends.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl From<Vec<Bytes>> for AppendContent {
    fn from(pieces: Vec<Bytes>) -> Self {
        Self {
            length: pieces.iter().map(Bytes::len).sum(),
            pieces: pieces.into(),
        }
    }
}

impl From<Bytes> for AppendContent {
    fn from(bytes: Bytes) -> Self {
        vec![bytes].into()
    }
}

impl From<Vec<u8>> for AppendContent {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<&'static [u8]> for AppendContent {
    fn from(bytes: &'static [u8]) -> Self {
        Bytes::from_static(bytes).into()
    }
}

impl From<&'static str> for AppendContent {
    fn from(text: &'static str) -> Self {
        text.as_bytes().into()
    }
}

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
        let (mut attempt, mut not_found) = (0, 0);
        loop {
            let error = match self.append_once(request, content, started, deadline).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            not_found = count_not_found(&error, not_found);
            if !is_retried(&error, not_found, request) {
                return Err(error);
            }
            let at = Instant::now() + retry_delay(attempt);
            if deadline.is_some_and(|deadline| at >= deadline) {
                let cause = AppendCause::GaveUp {
                    after: started.elapsed(),
                    last: Arc::new(error),
                };
                return Err(AppendError::new(&*request.journal, Outcome::NotDone, cause));
            }
            if attempt == 0 {
                tracing::debug!(err = %error, "append is retried");
            } else {
                tracing::warn!(err = %error, attempt, "append is retried");
            }
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
        let messages = ContentMessages {
            opening: Some(request.clone()),
            pieces: Arc::clone(&content.pieces),
            piece: 0,
            at: 0,
            committed: Arc::clone(&committed),
            ended: false,
        };
        let mut grpc = self.router().call(&request.journal, Need::Primary);
        let call = grpc.append(messages);
        let answer = match deadline {
            None => call.await,
            Some(deadline) => match timeout_at(deadline, call).await {
                Ok(answer) => answer,
                Err(_) => {
                    let cause = AppendCause::Timeout(started.elapsed());
                    let outcome = outcome(committed.load(Ordering::Acquire));
                    return Err(AppendError::new(&*request.journal, outcome, cause));
                }
            },
        };
        self.finish_append(&request.journal, answer, committed.load(Ordering::Acquire))
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

fn outcome(committed: bool) -> Outcome {
    if committed {
        Outcome::Unknown
    } else {
        Outcome::NotDone
    }
}

/// The messages of an append of content in memory: the request, the content, and the empty message
/// that asks to commit. It notes when that one is handed to the connection: before, the broker cannot
/// have committed.
struct ContentMessages {
    opening: Option<AppendRequest>,
    pieces: Arc<[Bytes]>,
    piece: usize,
    /// Offset in the piece.
    at: usize,
    committed: Arc<AtomicBool>,
    ended: bool,
}

impl Stream for ContentMessages {
    type Item = AppendRequest;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<AppendRequest>> {
        if let Some(opening) = self.opening.take() {
            return Poll::Ready(Some(opening));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        let content = self.next_chunk();
        if content.is_empty() {
            self.ended = true;
            self.committed.store(true, Ordering::Release);
        }
        Poll::Ready(Some(AppendRequest {
            content,
            ..AppendRequest::default()
        }))
    }
}

impl ContentMessages {
    /// Returns the next chunk, which is empty at the end.
    fn next_chunk(&mut self) -> Bytes {
        let mut gathered = BytesMut::new();
        while let Some(piece) = self.pieces.get(self.piece) {
            let left = piece.len() - self.at;
            if left > GATHER_MAX_BYTES {
                if !gathered.is_empty() {
                    break;
                }
                let count = left.min(CHUNK_MAX_BYTES);
                let chunk = piece.slice(self.at..self.at + count);
                self.at += count;
                return chunk;
            }
            // The only piece of a small append needs no copy.
            if gathered.is_empty() && left > 0 && self.pieces.len() == self.piece + 1 {
                let chunk = piece.slice(self.at..);
                (self.piece, self.at) = (self.piece + 1, 0);
                return chunk;
            }
            if gathered.len() + left > CHUNK_MAX_BYTES {
                break;
            }
            gathered.extend_from_slice(&piece[self.at..]);
            (self.piece, self.at) = (self.piece + 1, 0);
        }
        gathered.freeze()
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

type Call = Pin<Box<dyn Future<Output = Result<Response<AppendResponse>, tonic::Status>> + Send>>;

/// An append of content that is written piece by piece.
///
/// Nothing is in the journal before [`commit`](Self::commit) returned. Dropping it, as
/// [`abort`](Self::abort) does, rolls everything back. A broker expects a steady flow of content: it
/// gives up on a writer that stalls.
pub struct Appender {
    client: Client,
    journal: String,
    call: Call,
    /// `None` once the end was sent.
    messages: Option<mpsc::Sender<AppendRequest>>,
    /// The request, until it is sent.
    opening: Option<AppendRequest>,
    committed: Arc<AtomicBool>,
    refused: Option<AppendError>,
    /// Whether a write was begun and not ended.
    torn: bool,
}

impl fmt::Debug for Appender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appender")
            .field("journal", &self.journal)
            .finish_non_exhaustive()
    }
}

impl Appender {
    fn new(client: &Client, request: AppendRequest) -> Self {
        let (messages, receiver) = mpsc::channel(CHUNKS_AHEAD);
        let journal = request.journal.clone();
        let mut grpc = client.router().call(&journal, Need::Primary);
        let refused = check_request(&request).err();
        // Noted by the receiver's side, when the message that asks to commit leaves the queue.
        let committed = Arc::new(AtomicBool::new(false));
        let leaving = Arc::clone(&committed);
        let stream = ReceiverStream::new(receiver).inspect(move |message: &AppendRequest| {
            if message.journal.is_empty() && message.content.is_empty() {
                leaving.store(true, Ordering::Release);
            }
        });
        Self {
            client: client.clone(),
            journal,
            call: Box::pin(async move { grpc.append(stream).await }),
            messages: Some(messages),
            opening: Some(request),
            committed,
            refused,
            torn: false,
        }
    }

    /// Writes content. An empty piece does nothing.
    ///
    /// After an error the append is over, and nothing was done. The same holds if the future is
    /// dropped: what it had not sent is missing.
    pub async fn write(&mut self, content: Bytes) -> Result<(), AppendError> {
        let mut rest = content;
        let torn = std::mem::replace(&mut self.torn, true);
        while !rest.is_empty() {
            let chunk = rest.split_to(rest.len().min(CHUNK_MAX_BYTES));
            self.send(AppendRequest {
                content: chunk,
                ..AppendRequest::default()
            })
            .await?;
        }
        self.torn = torn;
        Ok(())
    }

    /// Asks the broker to commit, and waits for it.
    pub async fn commit(mut self) -> Result<AppendResponse, AppendError> {
        if self.torn && self.refused.is_none() {
            let cause = AppendCause::Protocol("a write that was dropped before its end");
            return Err(AppendError::new(&*self.journal, Outcome::NotDone, cause));
        }
        self.send(AppendRequest::default()).await?;
        self.messages = None;
        let limit = self.client.options().append_give_up_after;
        let answer = match limit {
            None => (&mut self.call).await,
            Some(limit) => match tokio::time::timeout(limit, &mut self.call).await {
                Ok(answer) => answer,
                Err(_) => {
                    let outcome = outcome(self.committed.load(Ordering::Acquire));
                    let cause = AppendCause::Timeout(limit);
                    return Err(AppendError::new(&*self.journal, outcome, cause));
                }
            },
        };
        self.client.finish_append(
            &self.journal,
            answer,
            self.committed.load(Ordering::Acquire),
        )
    }

    /// Gives the append up. The broker rolls it back.
    pub fn abort(self) {
        drop(self);
    }

    /// Waits for the broker to end the append before it was asked to commit.
    async fn failure(&mut self) -> AppendError {
        if let Some(error) = self.refused.clone() {
            return error;
        }
        let answer = (&mut self.call).await;
        self.ended_early(answer)
    }

    async fn send(&mut self, message: AppendRequest) -> Result<(), AppendError> {
        if let Some(error) = self.refused.clone() {
            return Err(error);
        }
        let Some(messages) = self.messages.clone() else {
            let cause = AppendCause::Protocol("content after the end");
            return Err(AppendError::new(&*self.journal, Outcome::NotDone, cause));
        };
        let opening = self.opening.take();
        for message in opening.into_iter().chain([message]) {
            let answer = tokio::select! {
                biased;
                answer = &mut self.call => answer,
                // It fails only if the call ended, which the branch above then shows.
                Ok(()) = messages.send(message) => continue,
            };
            return Err(self.ended_early(answer));
        }
        Ok(())
    }

    fn ended_early(
        &mut self,
        answer: Result<Response<AppendResponse>, tonic::Status>,
    ) -> AppendError {
        let committed = self.committed.load(Ordering::Acquire);
        let error = match self.client.finish_append(&self.journal, answer, committed) {
            Err(error) => error,
            Ok(_) => {
                let cause = AppendCause::Protocol("success before the end of the content");
                AppendError::new(&*self.journal, outcome(committed), cause)
            }
        };
        self.messages = None;
        self.refused = Some(error.clone());
        error
    }
}

#[cfg(test)]
mod tests;
