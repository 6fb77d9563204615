//! The one writer of all that is read.

use std::{
    io::{self, Write},
    sync::Arc,
    thread,
};

use anyhow::Context as _;
use bytes::Bytes;
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc, oneshot};

use super::offsets::Offsets;

/// Writes what several journals give, in a thread of its own, since a pipe may block for long.
#[derive(Debug)]
pub(super) struct Sink {
    turn: Turns,
    ended: oneshot::Receiver<io::Result<Offsets>>,
}

/// Hands out the right to write.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Mutex<mpsc::Sender<Piece>>>);

/// The right to write: as long as it is held, nobody else's content comes in between.
#[derive(Debug)]
pub(super) struct Turn(OwnedMutexGuard<mpsc::Sender<Piece>>);

/// Content of a journal.
#[derive(Debug)]
pub(super) struct Piece {
    /// The journal.
    pub(super) journal: Arc<str>,
    /// Where reading goes on once the content is written.
    pub(super) next: i64,
    /// The content; empty to note the offset only.
    pub(super) content: Bytes,
}

/// The output was closed, or failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Closed;

impl Sink {
    /// Starts to write to `output`. `offsets` are those that are known already.
    pub(super) fn start(output: Box<dyn Write + Send>, offsets: Offsets) -> Self {
        let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
        let (end, ended) = oneshot::channel();
        // It ends with the senders.
        drop(thread::spawn(move || {
            let result = write_all(output, pieces, offsets);
            drop(end.send(result));
        }));
        Self {
            turn: Turns(Arc::new(Mutex::new(sender))),
            ended,
        }
    }

    pub(super) fn turns(&self) -> Turns {
        self.turn.clone()
    }

    /// Waits until all is written. Nobody may write any more. Returns how far each journal was
    /// written.
    pub(super) async fn finish(self) -> anyhow::Result<Offsets> {
        drop(self.turn);
        let offsets = self
            .ended
            .await
            .context("the writer ended without a result")?;
        offsets.context("write output")
    }
}

impl Turns {
    pub(super) async fn take(&self) -> Turn {
        Turn(Arc::clone(&self.0).lock_owned().await)
    }
}

impl Turn {
    pub(super) async fn write(&self, piece: Piece) -> Result<(), Closed> {
        self.0.send(piece).await.map_err(|_| Closed)
    }
}

fn write_all(
    output: Box<dyn Write + Send>,
    mut pieces: mpsc::Receiver<Piece>,
    mut offsets: Offsets,
) -> io::Result<Offsets> {
    let mut output = io::BufWriter::with_capacity(BUFFER_BYTES, output);
    // What is in the buffer is not written: its offset does not count yet.
    let mut unwritten = Vec::new();
    loop {
        let piece = if let Ok(piece) = pieces.try_recv() {
            Some(piece)
        } else {
            // Nothing more at the moment: show what there is.
            output.flush()?;
            for (journal, next) in unwritten.drain(..) {
                let journal: Arc<str> = journal;
                offsets.set(&journal, next);
            }
            pieces.blocking_recv()
        };
        let Some(piece) = piece else {
            return Ok(offsets);
        };
        output.write_all(&piece.content)?;
        unwritten.push((piece.journal, piece.next));
    }
}

/// Pieces between the readers and the writer.
const PIECES_AHEAD: usize = 16;

const BUFFER_BYTES: usize = 256 << 10;
