//! Reads one journal into the sink.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gazette_client::{Client, ReadEvent, RetryOptions, RetryReader};
use gazette_protocol::{ReadRequest, Status};

use super::sink::{Closed, Piece, Sink, Turn, Turns};

/// Reads a journal, and writes it in pieces that end where appends end.
pub(super) struct Pump {
    reader: RetryReader,
    journal: Arc<str>,
    block: bool,
    turns: Turns,
    turn: Option<Turn>,
    /// Content before the border that follows.
    held: Vec<(i64, Bytes)>,
    held_bytes: usize,
    /// Offset at which the fragment, as the broker described it last, ends. No append crosses it.
    border: i64,
}

/// Why a journal is no longer read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// All of it was.
    AtEnd,
    /// It is gone.
    Deleted,
    /// Nobody takes the output any more.
    OutputClosed,
}

impl Pump {
    pub(super) fn new(client: &Client, request: ReadRequest, sink: &Sink) -> Self {
        let block = request.block;
        let give_up_after = (!block).then_some(GIVE_UP_AFTER);
        Self {
            journal: request.journal.as_str().into(),
            reader: client.retry_reader_with(request, RetryOptions { give_up_after }),
            block,
            turns: sink.turns(),
            turn: None,
            held: Vec::new(),
            held_bytes: 0,
            border: 0,
        }
    }

    pub(super) async fn run(mut self) -> anyhow::Result<Ended> {
        match self.read().await {
            Ok(ended) => Ok(ended),
            Err(Stop::Closed) => Ok(Ended::OutputClosed),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    async fn read(&mut self) -> Result<Ended, Stop> {
        let begin = self.reader.resolve_offset().await;
        match begin {
            Ok(begin) => self.write(begin, Bytes::new()).await?,
            Err(error) => return self.ended(error).await?.ok_or(Stop::Closed),
        }
        self.release().await?;
        loop {
            match self.reader.next().await {
                Ok(Some(ReadEvent::Metadata(response))) => {
                    self.border = response.fragment.map_or(0, |fragment| fragment.end);
                }
                Ok(Some(ReadEvent::Content { offset, bytes })) => {
                    let next = offset.saturating_add(i64::try_from(bytes.len())?);
                    self.write(next, bytes).await?;
                    if next >= self.border {
                        self.release().await?;
                    }
                }
                Ok(Some(ReadEvent::Jump { from, to })) => {
                    self.release().await?;
                    tracing::warn!(
                        journal = &*self.journal,
                        from,
                        to,
                        "content is missing and was skipped"
                    );
                    self.write(to, Bytes::new()).await?;
                }
                Ok(None) => {
                    self.release().await?;
                    return Ok(Ended::AtEnd);
                }
                Err(error) => {
                    if let Some(ended) = self.ended(error).await? {
                        return Ok(ended);
                    }
                }
            }
        }
    }

    /// Decides what an error of the reader means: the end, that it has to wait, or a failure.
    async fn ended(&mut self, error: gazette_client::ReadError) -> Result<Option<Ended>, Stop> {
        self.release().await?;
        match error.status() {
            Some(Status::JournalNotFound) => {
                tracing::warn!(journal = &*self.journal, "journal was deleted");
                Ok(Some(Ended::Deleted))
            }
            // All of it was read. The next append wakes it.
            Some(Status::Suspended) if self.block => {
                tokio::time::sleep(SUSPENDED_INTERVAL).await;
                Ok(None)
            }
            Some(Status::Suspended | Status::OffsetNotYetAvailable) => Ok(Some(Ended::AtEnd)),
            Some(_) | None => Err(Stop::Failed(error.into())),
        }
    }

    /// Holds content until its border, or takes a turn if that is far.
    async fn write(&mut self, next: i64, content: Bytes) -> Result<(), Stop> {
        self.held_bytes += content.len();
        self.held.push((next, content));
        if self.turn.is_none() && self.held_bytes > HELD_MAX_BYTES {
            self.turn = Some(self.turns.take().await);
        }
        if self.turn.is_some() {
            self.write_held().await?;
        }
        Ok(())
    }

    /// Writes what is held, and lets others write.
    async fn release(&mut self) -> Result<(), Stop> {
        if self.turn.is_none() && !self.held.is_empty() {
            self.turn = Some(self.turns.take().await);
        }
        self.write_held().await?;
        self.turn = None;
        Ok(())
    }

    async fn write_held(&mut self) -> Result<(), Stop> {
        let Some(turn) = &self.turn else {
            return Ok(());
        };
        for (next, content) in self.held.drain(..) {
            let journal = Arc::clone(&self.journal);
            turn.write(Piece {
                journal,
                next,
                content,
            })
            .await?;
        }
        self.held_bytes = 0;
        Ok(())
    }
}

/// Why a pump stops before the end.
enum Stop {
    Closed,
    Failed(anyhow::Error),
}

impl From<Closed> for Stop {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl<E: Into<anyhow::Error>> From<E> for Stop
where
    E: std::error::Error,
{
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Content that is held for a border in memory, before other journals have to wait for it.
const HELD_MAX_BYTES: usize = 1 << 20;

/// Time between two looks at a journal that is suspended, while its next content is waited for.
const SUSPENDED_INTERVAL: Duration = Duration::from_secs(1);

/// How long a read that has an end goes on without an answer.
const GIVE_UP_AFTER: Duration = Duration::from_mins(1);
