//! Opens stored fragments to read them.

use std::{io, sync::Arc};

use bytes::Bytes;
use gazette_codecs::{CompressionCodec, decoder, fragment_reader};
use gazette_protocol::Fragment;
use gazette_stores::{ActiveStore, BoxRead, Store as _, StoreError};
use tokio::{io::AsyncReadExt as _, sync::mpsc};
use tokio_util::io::SyncIoBridge;

/// Bytes of content handed over at a time.
const CHUNK_BYTES: usize = 128 << 10;
/// Chunks that are decompressed ahead of the reader.
const CHUNKS_AHEAD: usize = 4;

/// Content of a stored fragment, from an offset to the fragment's end.
#[derive(Debug)]
pub(crate) enum Opened {
    /// Read as it is.
    Plain { reader: PlainReader },
    /// Decompressed on a thread of its own.
    Decoded {
        chunks: mpsc::Receiver<io::Result<Bytes>>,
    },
}

/// A reader of uncompressed content, with a name for logs only.
pub(crate) struct PlainReader {
    reader: BoxRead,
    left: u64,
}

impl std::fmt::Debug for PlainReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlainReader")
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

/// Opens a fragment at journal offset `offset`, which lies within it. `path` is where the store
/// has it.
///
/// A fragment that is read whole is checked against its sum.
pub(crate) async fn open(
    store: &Arc<ActiveStore>,
    fragment: &Fragment,
    path: &str,
    offset: i64,
) -> Result<Opened, StoreError> {
    let skip = offset.saturating_sub(fragment.begin).max(0).unsigned_abs();
    let length = fragment.content_length().unsigned_abs();
    if fragment.compression_codec() == CompressionCodec::None && skip > 0 {
        let reader = store.get_range(path, skip, length).await?;
        return Ok(Opened::Plain {
            reader: PlainReader {
                reader,
                left: length - skip,
            },
        });
    }
    let reader = store.get(path).await?;
    let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
    let bridge = SyncIoBridge::new(reader);
    let fragment = fragment.clone();
    // It ends when the receiver is dropped, or the content ends.
    drop(tokio::task::spawn_blocking(move || {
        if let Err(error) = decode(&fragment, bridge, skip, &sender) {
            drop(sender.blocking_send(Err(error)));
        }
    }));
    Ok(Opened::Decoded { chunks })
}

fn decode(
    fragment: &Fragment,
    source: SyncIoBridge<BoxRead>,
    skip: u64,
    sender: &mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let mut content: Box<dyn io::Read> = if skip == 0 {
        Box::new(fragment_reader(fragment, source).map_err(io::Error::other)?)
    } else {
        let codec = fragment.compression_codec();
        let mut content = decoder(codec, source).map_err(io::Error::other)?;
        let skipped = io::copy(&mut io::Read::take(&mut content, skip), &mut io::sink())?;
        if skipped < skip {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        content
    };
    let mut left = fragment.content_length().unsigned_abs() - skip;
    loop {
        let wanted = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .clamp(1, CHUNK_BYTES);
        let mut chunk = vec![0; wanted];
        let read = io::Read::read(&mut content, &mut chunk)?;
        if read == 0 && left == 0 {
            return Ok(());
        }
        if read == 0 || read as u64 > left {
            let cause = format!(
                "content has not the {} bytes of its name",
                fragment.content_length()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
        }
        left -= read as u64;
        chunk.truncate(read);
        if sender.blocking_send(Ok(chunk.into())).is_err() {
            return Ok(());
        }
    }
}

impl Opened {
    /// The next bytes; empty at the end of the fragment.
    pub(crate) async fn next(&mut self) -> io::Result<Bytes> {
        match self {
            Self::Decoded { chunks } => chunks.recv().await.unwrap_or_else(|| Ok(Bytes::new())),
            Self::Plain { reader } => {
                let wanted = usize::try_from(reader.left)
                    .unwrap_or(usize::MAX)
                    .min(CHUNK_BYTES);
                if wanted == 0 {
                    return Ok(Bytes::new());
                }
                let mut chunk = vec![0; wanted];
                let read = reader.reader.read(&mut chunk).await?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                reader.left -= read as u64;
                chunk.truncate(read);
                Ok(chunk.into())
            }
        }
    }
}
