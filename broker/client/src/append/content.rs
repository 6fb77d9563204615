//! Content in memory, and the messages that carry it.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use gazette_protocol::AppendRequest;

/// Largest content of one message. Larger ones make the broker hold more per writer and gain nothing,
/// as HTTP/2 cuts them into frames anyway.
pub(super) const CHUNK_MAX_BYTES: usize = 128 << 10;

/// Pieces below this are copied together into one message; larger ones are sent as they are.
const GATHER_MAX_BYTES: usize = 16 << 10;

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

    /// The messages of an append of it. They set `committed` when the one that asks to commit leaves.
    pub(super) fn messages(
        &self,
        request: AppendRequest,
        committed: Arc<AtomicBool>,
    ) -> ContentMessages {
        ContentMessages {
            opening: Some(request),
            pieces: Arc::clone(&self.pieces),
            piece: 0,
            at: 0,
            committed,
            ended: false,
        }
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

/// The messages of an append of content in memory: the request, the content, and the empty message
/// that asks to commit. It notes when that one is handed to the connection: before, the broker cannot
/// have committed.
pub(super) struct ContentMessages {
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
