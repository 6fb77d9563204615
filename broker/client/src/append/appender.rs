//! Appends of content that is written piece by piece.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures_util::StreamExt;
use gazette_protocol::{AppendRequest, AppendResponse};
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Response;

use super::{CHUNK_MAX_BYTES, check_request, outcome, within};
use crate::{AppendCause, AppendError, Client, Outcome, router::Need};

/// Messages between the writer and the connection.
const CHUNKS_AHEAD: usize = 4;

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
    pub(super) fn new(client: &Client, request: AppendRequest) -> Self {
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
        let answer = within(limit.map(|limit| Instant::now() + limit), &mut self.call).await;
        let committed = self.committed.load(Ordering::Acquire);
        let Some(answer) = answer else {
            let cause = AppendCause::Timeout(limit.unwrap_or_default());
            return Err(AppendError::new(&*self.journal, outcome(committed), cause));
        };
        self.client.finish_append(&self.journal, answer, committed)
    }

    /// Gives the append up. The broker rolls it back.
    pub fn abort(self) {
        drop(self);
    }

    /// Waits for the broker to end the append before it was asked to commit.
    pub(super) async fn failure(&mut self) -> AppendError {
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
        let early = || {
            let cause = AppendCause::Protocol("success before the end of the content");
            AppendError::new(&*self.journal, outcome(committed), cause)
        };
        let answer = self.client.finish_append(&self.journal, answer, committed);
        let error = answer.err().unwrap_or_else(early);
        self.messages = None;
        self.refused = Some(error.clone());
        error
    }
}
