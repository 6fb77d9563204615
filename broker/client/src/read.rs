//! Reads with a single RPC.

use std::{fmt, future::Future, pin::Pin};

use bytes::Bytes;
use gazette_protocol::{ReadRequest, ReadResponse, Route, Status, Validate};
use tonic::{Response, Streaming};

use crate::{
    Client, FragmentReader,
    metrics::{JOURNAL, READ_BYTES},
    read_error::{ReadCause, ReadError},
    router::{Need, without_meta},
};

/// What a read meets.
#[derive(Debug, Clone, PartialEq)]
pub enum ReadEvent {
    /// The next fragment begins, or the present one has grown. No content is lost if it is ignored.
    Metadata(Box<ReadResponse>),
    /// Content of the journal. It follows upon the content before, unless a jump came in between.
    Content {
        /// Offset of the first byte.
        offset: i64,
        /// The bytes, of which there is at least one.
        bytes: Bytes,
    },
    /// Content is missing from the journal: it was deleted, or the offset was never written. The
    /// read goes on behind it.
    Jump {
        /// Offset that was to be read.
        from: i64,
        /// Offset that is read instead.
        to: i64,
    },
}

type Opening =
    Pin<Box<dyn Future<Output = Result<Response<Streaming<ReadResponse>>, tonic::Status>> + Send>>;
type OpeningFragment =
    Pin<Box<dyn Future<Output = Result<FragmentReader, crate::FragmentReaderError>> + Send>>;

/// Reads a journal with a single RPC, and whatever fragment in a store that leads to.
///
/// It ends with `Ok(None)` where the broker ended the stream, or at the end of a fragment that was
/// read from its store; go on from [`offset`](Self::offset) with a new reader. All of that is what
/// [`crate::RetryReader`] does.
pub struct Reader {
    client: Client,
    request: ReadRequest,
    state: State,
    offset: i64,
    metadata: Option<Box<ReadResponse>>,
    route: Option<Route>,
    bytes_read: ::metrics::Counter,
}

enum State {
    Idle,
    Opening(Opening),
    Open(Box<Streaming<ReadResponse>>),
    /// Gives this metadata, which came with a jump, and then goes on with the stream.
    Jumped(Box<Streaming<ReadResponse>>),
    OpeningFragment(OpeningFragment),
    Fragment(Box<FragmentReader>),
    Ended,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("request", &self.request)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl Reader {
    pub(crate) fn new(client: Client, request: ReadRequest) -> Self {
        let journal = without_meta(&request.journal).to_owned();
        Self {
            client,
            offset: request.offset,
            request,
            state: State::Idle,
            metadata: None,
            route: None,
            bytes_read: ::metrics::counter!(READ_BYTES, JOURNAL => journal),
        }
    }

    /// Uses a route that an earlier reader learned.
    pub(crate) fn with_route(mut self, route: Option<Route>) -> Self {
        self.route = route;
        self
    }

    /// Offset of the next content. It is -1 until the broker said where the end is, if that was asked
    /// for.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// The request it was made with.
    pub fn request(&self) -> &ReadRequest {
        &self.request
    }

    /// The latest metadata.
    pub fn metadata(&self) -> Option<&ReadResponse> {
        self.metadata.as_deref()
    }

    /// The latest route of the journal.
    pub(crate) fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    /// Waits for the next event. The RPC is started by the first call.
    ///
    /// It may be dropped and called again without losing anything. After an error or `Ok(None)` it
    /// returns `Ok(None)`.
    pub async fn next(&mut self) -> Result<Option<ReadEvent>, ReadError> {
        loop {
            match self.step().await {
                Ok(Step::Again) => {}
                Ok(Step::Event(event)) => return Ok(Some(event)),
                Ok(Step::End) => {
                    self.state = State::Ended;
                    return Ok(None);
                }
                Err(cause) => {
                    self.state = State::Ended;
                    return Err(ReadError::new(&self.request.journal, self.offset, cause));
                }
            }
        }
    }

    /// Makes one step. All that was reached is kept in the state, so it may be dropped at any await.
    async fn step(&mut self) -> Result<Step, ReadCause> {
        match &mut self.state {
            State::Idle => {
                self.request.validate().map_err(ReadCause::Request)?;
                let router = self.client.router();
                let journal = &self.request.journal;
                let mut grpc = router.stream(journal, self.route.as_ref(), Need::Member);
                let request = self.request.clone();
                self.state = State::Opening(Box::pin(async move { grpc.read(request).await }));
                Ok(Step::Again)
            }
            State::Opening(opening) => {
                let answer = opening.await.map_err(|status| self.rpc_failed(status))?;
                self.state = State::Open(Box::new(answer.into_inner()));
                Ok(Step::Again)
            }
            State::Open(stream) => match stream.message().await {
                Ok(Some(message)) => self.take(message),
                Ok(None) => Ok(self.follow()),
                Err(status) => Err(self.rpc_failed(status)),
            },
            State::Jumped(_) => {
                if let State::Jumped(stream) = std::mem::replace(&mut self.state, State::Ended) {
                    self.state = State::Open(stream);
                }
                Ok(self.metadata.clone().map_or(Step::Again, |metadata| {
                    Step::Event(ReadEvent::Metadata(metadata))
                }))
            }
            State::OpeningFragment(opening) => {
                let fragment = opening.await.map_err(ReadCause::Fragment)?;
                self.state = State::Fragment(Box::new(fragment));
                Ok(Step::Again)
            }
            State::Fragment(fragment) => {
                match fragment.next().await.map_err(ReadCause::Fragment)? {
                    Some(bytes) => Ok(Step::Event(self.content(bytes))),
                    None => Ok(Step::End),
                }
            }
            State::Ended => Ok(Step::End),
        }
    }

    fn rpc_failed(&self, status: tonic::Status) -> ReadCause {
        self.client.router().failed(&self.request.journal, &status);
        ReadCause::Rpc(status)
    }

    fn content(&mut self, bytes: Bytes) -> ReadEvent {
        let offset = self.offset;
        self.offset += i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        self.bytes_read.increment(bytes.len() as u64);
        ReadEvent::Content { offset, bytes }
    }

    /// Takes a message of the stream.
    fn take(&mut self, message: ReadResponse) -> Result<Step, ReadCause> {
        message.validate().map_err(ReadCause::Answer)?;
        if !message.content.is_empty() {
            if self.offset < 0 || message.offset != self.offset {
                return Err(ReadCause::Protocol(
                    "content at another offset than announced",
                ));
            }
            return Ok(Step::Event(self.content(message.content)));
        }
        if let Some(header) = &message.header {
            self.client
                .router()
                .learn(&self.request.journal, &header.route);
            self.route = Some(header.route.clone()).filter(|route| !route.members.is_empty());
        }
        let status = Status::try_from(message.status)
            .map_err(|_| ReadCause::Protocol("a status that this client does not know"))?;
        if status != Status::Ok {
            if status == Status::OffsetNotYetAvailable && self.offset < 0 {
                self.offset = message.offset;
            }
            return Err(ReadCause::Status {
                status,
                response: Box::new(message),
            });
        }
        let from = std::mem::replace(&mut self.offset, message.offset);
        if message.offset < from {
            self.offset = from;
            return Err(ReadCause::Protocol(
                "an offset before the one that was asked for",
            ));
        }
        let to = message.offset;
        let metadata = Box::new(message);
        self.metadata = Some(metadata.clone());
        if from >= 0 && to > from {
            if matches!(self.state, State::Open(_))
                && let State::Open(stream) = std::mem::replace(&mut self.state, State::Ended)
            {
                self.state = State::Jumped(stream);
            }
            return Ok(Step::Event(ReadEvent::Jump { from, to }));
        }
        Ok(Step::Event(ReadEvent::Metadata(metadata)))
    }

    /// Opens the fragment in its store, if the broker left that to us by ending the stream.
    fn follow(&mut self) -> Step {
        let Some(metadata) = self
            .metadata
            .as_deref()
            .filter(|_| !self.request.metadata_only)
        else {
            return Step::End;
        };
        let Some(fragment) = &metadata.fragment else {
            return Step::End;
        };
        // Content may have followed in the stream already.
        let end = match self.request.end_offset {
            0 => fragment.end,
            end => end.min(fragment.end),
        };
        if metadata.fragment_url.is_empty() || self.offset >= end {
            return Step::End;
        }
        self.state = State::OpeningFragment(Box::pin(FragmentReader::open(
            self.client.clone(),
            fragment.clone(),
            metadata.fragment_url.clone(),
            self.offset,
            end,
        )));
        Step::Again
    }
}

enum Step {
    Again,
    Event(ReadEvent),
    End,
}

#[cfg(test)]
mod tests;
