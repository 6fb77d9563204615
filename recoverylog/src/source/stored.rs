//! Reads one stretch of a log, wherever it is.

use std::{
    io::{self, Read},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use gazette_client::{Client, ErrorKind, FragmentReader, ReadEvent, RetryOptions, retry_delay};
use gazette_codecs::{decoder, fragment_reader};
use gazette_protocol::{CompressionCodec, Fragment, ReadRequest};
use gazette_stores::{ActiveStore, Store, StoreErrorKind};
use tokio::sync::mpsc;
use tokio_util::io::SyncIoBridge;

use super::{At, FragmentName, Piece, Source, SourceError, Stretch};

/// Where pieces go. An error is the last one.
pub(super) type Sink = mpsc::Sender<Result<Piece, SourceError>>;

/// What is wanted of a stretch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) begin: i64,
    pub(super) end: i64,
    /// The sum of a fragment that is wanted whole is compared.
    pub(super) with_sum: bool,
}

impl Wanted {
    fn is_compared(self, fragment: &Fragment) -> bool {
        self.with_sum && self.begin == fragment.begin && self.end == fragment.end
    }
}

/// Sends the wanted content, in order, until it ends or nobody wants more.
pub(super) async fn send(source: Source, stretch: Stretch, wanted: Wanted, sink: Sink) {
    let Wanted { begin, end, .. } = wanted;
    let result = match (&source, &stretch.at) {
        (Source::Store(store), At::Store(path)) => {
            from_store(store, &stretch.fragment, path, wanted, &sink).await
        }
        (Source::Broker(client), At::Url(url)) => {
            from_url(client, &stretch.fragment, url, wanted, &sink).await
        }
        (Source::Broker(client), At::Broker | At::Store(_)) => {
            let journal = &stretch.fragment.journal;
            from_broker(client, journal, begin, end, PATIENCE, &sink)
                .await
                .map(drop)
        }
        // Surveys of a store name paths only.
        (Source::Store(_), At::Broker | At::Url(_)) => Ok(()),
    };
    if let Err(error) = result {
        // Nobody wants it any more, if that fails.
        let _closed = sink.send(Err(error)).await;
    }
}

/// Returns how far it came.
async fn from_broker(
    client: &Client,
    journal: &str,
    begin: i64,
    end: i64,
    patience: Duration,
    sink: &Sink,
) -> Result<i64, SourceError> {
    let request = ReadRequest {
        journal: journal.to_owned(),
        offset: begin,
        end_offset: end,
        // The replica that answers may be behind the primary, whose head it was.
        block: true,
        ..ReadRequest::default()
    };
    let options = RetryOptions {
        give_up_after: Some(patience),
    };
    let mut reader = client.retry_reader_with(request, options);
    while reader.offset() < end {
        let piece = match tokio::time::timeout(patience, reader.next()).await {
            Ok(Ok(Some(ReadEvent::Content { offset, bytes }))) => Piece::Content { offset, bytes },
            Ok(Ok(Some(ReadEvent::Jump { from, to }))) => Piece::Gap {
                begin: from,
                end: to.min(end),
            },
            Ok(Ok(Some(ReadEvent::Metadata(_)))) => continue,
            Ok(Ok(None)) => break,
            Ok(Err(error)) => return Err(error.into()),
            // The broker waits at a gap, which may never be filled. That the content does not come is told.
            Err(_elapsed) => break,
        };
        if sink.send(Ok(piece)).await.is_err() {
            return Ok(end);
        }
    }
    Ok(reader.offset())
}

async fn from_url(
    client: &Client,
    fragment: &Fragment,
    url: &str,
    wanted: Wanted,
    sink: &Sink,
) -> Result<(), SourceError> {
    let is_whole = wanted.is_compared(fragment);
    let Wanted { begin, end, .. } = wanted;
    let mut at = begin;
    let mut attempt = 0;
    loop {
        let cause = match pass_url(client, fragment, url, is_whole, &mut at, end, sink).await {
            Ok(()) => return Ok(()),
            Err(cause) => cause,
        };
        match cause.kind() {
            ErrorKind::Corrupt => {
                return Err(SourceError::Url {
                    at: Box::new(FragmentName::new(fragment, "")),
                    cause: Box::new(cause),
                });
            }
            ErrorKind::Retry if attempt < ATTEMPTS => {
                tracing::debug!(err = %cause, attempt, "fragment is read again");
                tokio::time::sleep(retry_delay(attempt)).await;
                attempt += 1;
            }
            // It is not where it should be. A broker may have it still.
            ErrorKind::NotFound => {
                let journal = &fragment.journal;
                return match from_broker(client, journal, at, end, GONE_PATIENCE, sink).await {
                    Ok(reached) if reached >= end => Ok(()),
                    Ok(_) | Err(_) => Err(SourceError::Url {
                        at: Box::new(FragmentName::new(fragment, "")),
                        cause: Box::new(cause),
                    }),
                };
            }
            // This process cannot read it there, but the brokers may.
            ErrorKind::Retry
            | ErrorKind::Denied
            | ErrorKind::Invalid
            | ErrorKind::Fenced
            | ErrorKind::Cancelled
            | ErrorKind::NoSpace
            | ErrorKind::Internal => {
                tracing::debug!(err = %cause, "fragment is read through a broker");
                let journal = &fragment.journal;
                return from_broker(client, journal, at, end, PATIENCE, sink)
                    .await
                    .map(drop);
            }
        }
    }
}

/// Passes content on from `at`, which it moves. A fragment that is wanted whole is read whole again by a new
/// attempt, so that its sum is checked.
async fn pass_url(
    client: &Client,
    fragment: &Fragment,
    url: &str,
    is_whole: bool,
    at: &mut i64,
    end: i64,
    sink: &Sink,
) -> Result<(), gazette_client::FragmentReaderError> {
    let mut offset = if is_whole { fragment.begin } else { *at };
    // Its reader compares the sum if all of the fragment is wanted, which this is then not.
    let beyond = i64::from(!is_whole);
    let fragment = Fragment {
        end: fragment.end.saturating_add(beyond),
        ..fragment.clone()
    };
    let mut reader =
        FragmentReader::open(client.clone(), fragment, url.to_owned(), offset, end).await?;
    while let Some(mut bytes) = reader.next().await? {
        let known = usize::try_from(*at - offset).map_or(0, |known| known.min(bytes.len()));
        offset += i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        bytes = bytes.split_off(known);
        if bytes.is_empty() {
            continue;
        }
        let piece = Piece::Content { offset: *at, bytes };
        *at = offset;
        if sink.send(Ok(piece)).await.is_err() {
            break;
        }
    }
    Ok(())
}

async fn from_store(
    store: &Arc<ActiveStore>,
    fragment: &Fragment,
    path: &str,
    wanted: Wanted,
    sink: &Sink,
) -> Result<(), SourceError> {
    let is_whole = wanted.is_compared(fragment);
    let Wanted { begin, end, .. } = wanted;
    let skip = length(fragment.begin, begin);
    let is_plain = fragment.compression_codec() == CompressionCodec::None;
    let mut attempt = 0;
    let object = loop {
        let opened = if is_plain && !is_whole {
            let to = length(fragment.begin, end);
            store.get_range(path, skip, to).await
        } else {
            store.get(path).await
        };
        match opened {
            Ok(object) => break object,
            Err(error) if error.kind() == StoreErrorKind::Retry && attempt < ATTEMPTS => {
                tokio::time::sleep(retry_delay(attempt)).await;
                attempt += 1;
            }
            Err(error) => return Err(error.into()),
        }
    };
    let discard = if is_plain && !is_whole { 0 } else { skip };
    let task = Blocking {
        object: SyncIoBridge::new(object),
        fragment: fragment.clone(),
        path: path.to_owned(),
        is_whole,
        discard,
        begin,
        end,
        sink: sink.clone(),
    };
    tokio::task::spawn_blocking(move || task.run())
        .await
        .unwrap_or_else(|error| Err(failed(fragment, path, io::Error::other(error))))
}

/// Decodes a fragment on a thread that may block.
struct Blocking<R: tokio::io::AsyncRead + Unpin> {
    object: SyncIoBridge<R>,
    fragment: Fragment,
    path: String,
    is_whole: bool,
    discard: u64,
    begin: i64,
    end: i64,
    sink: Sink,
}

impl<R: tokio::io::AsyncRead + Unpin + Send + 'static> Blocking<R> {
    fn run(self) -> Result<(), SourceError> {
        let Self {
            object,
            fragment,
            path,
            ..
        } = self;
        let buffered = io::BufReader::with_capacity(PIECE_BYTES, object);
        let content: Result<Box<dyn Read + Send>, _> = if self.is_whole {
            fragment_reader(&fragment, buffered)
                .map(|reader| Box::new(reader) as Box<dyn Read + Send>)
        } else {
            decoder(fragment.compression_codec(), buffered)
        };
        let mut content = content.map_err(|cause| SourceError::Codec {
            at: Box::new(FragmentName::new(&fragment, &path)),
            cause: Box::new(cause),
        })?;
        let fail = |error| failed(&fragment, &path, error);
        let skipped = io::copy(&mut (&mut content).take(self.discard), &mut io::sink());
        if skipped.map_err(fail)? < self.discard {
            return Err(fail(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut at = self.begin;
        while at < self.end {
            let wanted = usize::try_from(self.end - at)
                .map_or(PIECE_BYTES, |wanted| wanted.min(PIECE_BYTES));
            let mut piece = vec![0; wanted];
            content.read_exact(&mut piece).map_err(fail)?;
            let offset = at;
            at += i64::try_from(wanted).unwrap_or(i64::MAX);
            let bytes = Bytes::from(piece);
            if self
                .sink
                .blocking_send(Ok(Piece::Content { offset, bytes }))
                .is_err()
            {
                break;
            }
        }
        Ok(())
    }
}

fn failed(fragment: &Fragment, path: &str, error: io::Error) -> SourceError {
    SourceError::Fragment {
        at: Box::new(FragmentName::new(fragment, path)),
        cause: Arc::new(error),
    }
}

fn length(begin: i64, end: i64) -> u64 {
    u64::try_from(end.saturating_sub(begin)).unwrap_or(0)
}

/// Content handed on at once.
pub(super) const PIECE_BYTES: usize = 512 << 10;

/// Attempts at a store, over some seconds.
const ATTEMPTS: u32 = 6;

/// How long brokers are waited for when a fragment is not in its store.
const GONE_PATIENCE: Duration = Duration::from_secs(10);

/// How long brokers are waited for.
const PATIENCE: Duration = Duration::from_secs(20);
