//! Reads the content of a fragment directly from its store.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Component, Path},
    sync::Arc,
};

use bytes::Bytes;
use gazette_codecs::{CodecError, decoder, fragment_reader};
use gazette_protocol::{CompressionCodec, Fragment};
use tokio::task::JoinHandle;

use crate::{
    Client, ErrorKind,
    metrics::{
        CODEC, DISCARD_FRAGMENT_BYTES, FRAGMENT_OPEN, FRAGMENT_OPEN_BYTES,
        FRAGMENT_OPEN_CONTENT_LENGTH, JOURNAL, READ_FRAGMENT_BYTES,
    },
};

mod ahead;
mod http;

use ahead::ReadAhead;
pub(crate) use http::Http;

/// Content read at once. Each piece is a trip to a thread that may block, so it should not be small.
const PIECE_MAX_BYTES: usize = 1 << 20;

/// Why a fragment could not be read from its store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FragmentReaderError {
    /// The URL has a scheme that this client cannot read.
    #[error("fragment {url}: URLs with {scheme:?} are not supported here")]
    UnsupportedScheme {
        /// The URL.
        url: String,
        /// Its scheme.
        scheme: String,
    },
    /// The URL is none.
    #[error("fragment {url:?} has a malformed URL: {cause}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong.
        cause: String,
    },
    /// The fragment is in a local file, and this client does not know under which folder.
    #[error("fragment {url}: the client has no root folder of file stores")]
    NoFileRoot {
        /// The URL.
        url: String,
    },
    /// The store answered with another HTTP status than OK.
    #[error("fragment {url}: the store answered {status}")]
    Http {
        /// The URL, without its signature.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// It could not be opened or read.
    #[error("fragment {url}: {cause}")]
    Io {
        /// The URL, without its signature.
        url: String,
        /// What went wrong.
        cause: Arc<io::Error>,
    },
    /// Its codec is not one.
    #[error("fragment {url}: {cause}")]
    Codec {
        /// The URL, without its signature.
        url: String,
        /// What is wrong.
        cause: CodecError,
    },
}

impl FragmentReaderError {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnsupportedScheme { .. } | Self::Url { .. } | Self::NoFileRoot { .. } => {
                ErrorKind::Invalid
            }
            Self::Http {
                status: 401 | 403, ..
            } => ErrorKind::Denied,
            Self::Codec { .. } => ErrorKind::Corrupt,
            Self::Io { cause, .. } if cause.kind() == io::ErrorKind::InvalidData => {
                ErrorKind::Corrupt
            }
            Self::Io { cause, .. } if cause.kind() == io::ErrorKind::PermissionDenied => {
                ErrorKind::Denied
            }
            Self::Http { .. } | Self::Io { .. } => ErrorKind::Retry,
        }
    }
}

/// Reads the content of one fragment from its store, from an offset to its end.
///
/// The content must have the length that the fragment's name says, and if it is read from its begin
/// to its end, also the SHA-1 sum. The last piece is given out after that was checked.
pub struct FragmentReader {
    url: String,
    /// Waits here until the first read, and is with the reading task after that.
    source: Option<Box<Source>>,
    reading: Option<JoinHandle<(Box<Source>, io::Result<Bytes>)>>,
    bytes_read: ::metrics::Counter,
}

/// Blocking reader of content.
struct Source {
    content: Box<dyn Read + Send>,
    /// Content to skip before the wanted offset.
    discard: u64,
    /// Content that is wanted after that.
    remaining: u64,
    /// Content that the fragment must have after the wanted one.
    beyond: u64,
    /// Whether the end is to be checked. Not if the wanted end is inside of the fragment.
    to_end: bool,
}

impl fmt::Debug for FragmentReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FragmentReader")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl FragmentReader {
    /// Opens the content `[begin, end)` of `fragment`, which is stored at `url`.
    ///
    /// URLs may be `http://`, or `file://` if the client knows the root folder of such stores.
    pub async fn open(
        client: Client,
        fragment: Fragment,
        url: String,
        begin: i64,
        end: i64,
    ) -> Result<Self, FragmentReaderError> {
        let parsed = url::Url::parse(&url).map_err(|error| FragmentReaderError::Url {
            url: without_query(&url).to_owned(),
            cause: error.to_string(),
        })?;
        let shown = without_query(&url).to_owned();
        let skip = length(fragment.begin, begin);
        let opened = match parsed.scheme() {
            "file" => {
                let Some(root) = client.options().file_root.as_deref() else {
                    return Err(FragmentReaderError::NoFileRoot { url: shown });
                };
                open_file(root, &parsed, &fragment, skip)
                    .await
                    .map_err(|error| io_error(&shown, error))?
            }
            "http" => client.http().open(&shown, &parsed, &fragment, skip).await?,
            scheme => {
                return Err(FragmentReaderError::UnsupportedScheme {
                    url: shown,
                    scheme: scheme.to_owned(),
                });
            }
        };
        let labels = [
            (JOURNAL, fragment.journal.clone()),
            (CODEC, fragment.compression_codec().as_str_name().to_owned()),
        ];
        count(&labels, &opened, length(fragment.begin, fragment.end), skip);

        let whole = begin == fragment.begin && end == fragment.end;
        let content = if whole {
            let plain = Fragment {
                compression_codec: opened.codec.into(),
                ..fragment.clone()
            };
            fragment_reader(&plain, opened.bytes)
                .map(|reader| Box::new(reader) as Box<dyn Read + Send>)
        } else {
            decoder(opened.codec, opened.bytes)
        };
        let content = content.map_err(|cause| FragmentReaderError::Codec {
            url: shown.clone(),
            cause,
        })?;
        let source = Source {
            content,
            discard: skip - opened.skipped,
            remaining: length(begin, end),
            beyond: length(end, fragment.end),
            // The reader of a whole fragment checks that itself.
            to_end: end == fragment.end && !whole,
        };
        Ok(Self {
            url: shown,
            source: Some(Box::new(source)),
            reading: None,
            bytes_read: ::metrics::counter!(READ_FRAGMENT_BYTES, &labels),
        })
    }

    /// Waits for the next content. `None` is the end.
    ///
    /// It may be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FragmentReaderError> {
        if let Some(source) = self.source.take() {
            self.read_on(source);
        }
        let Some(reading) = self.reading.as_mut() else {
            return Ok(None);
        };
        let joined = reading.await;
        self.reading = None;
        let (source, piece) =
            joined.map_err(|error| io_error(&self.url, io::Error::other(error)))?;
        let piece = piece.map_err(|error| io_error(&self.url, error))?;
        if piece.is_empty() {
            return Ok(None);
        }
        self.bytes_read.increment(piece.len() as u64);
        // The next piece is read and hashed while this one is used.
        self.read_on(source);
        Ok(Some(piece))
    }

    fn read_on(&mut self, mut source: Box<Source>) {
        self.reading = Some(tokio::task::spawn_blocking(move || {
            let piece = source.read_piece();
            (source, piece)
        }));
    }
}

impl Source {
    /// Reads the next piece, which is empty at the end. Content that ends early, or that goes on
    /// after the end of the fragment, is an error.
    fn read_piece(&mut self) -> io::Result<Bytes> {
        if self.discard > 0 {
            let skipped = io::copy(&mut (&mut self.content).take(self.discard), &mut io::sink())?;
            if skipped < self.discard {
                return Err(short(self.discard - skipped + self.remaining + self.beyond));
            }
            self.discard = 0;
        }
        let wanted = usize::try_from(self.remaining)
            .map_or(PIECE_MAX_BYTES, |remaining| remaining.min(PIECE_MAX_BYTES));
        let mut piece = vec![0; wanted];
        let mut filled = 0;
        while filled < wanted {
            match self.content.read(&mut piece[filled..]) {
                Ok(0) => return Err(short(self.remaining + self.beyond - filled as u64)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.remaining -= wanted as u64;
        if self.remaining == 0 && self.to_end && wanted > 0 {
            // Checked before the last piece is given out.
            self.to_end = false;
            let mut beyond = [0];
            if self.content.read(&mut beyond)? != 0 {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "content goes on after the end of the fragment",
                ));
            }
        }
        Ok(piece.into())
    }
}

/// The stored bytes of a fragment, from which content can be decoded.
struct Opened {
    bytes: Box<dyn Read + Send>,
    /// Codec that the bytes have by now.
    codec: CompressionCodec,
    /// Content before the wanted offset that the bytes no longer have.
    skipped: u64,
    /// Length of the stored bytes, if it is known.
    stored: Option<u64>,
}

/// Opens the file of a fragment. Uncompressed content begins at the wanted offset.
async fn open_file(
    root: &Path,
    url: &url::Url,
    fragment: &Fragment,
    skip: u64,
) -> io::Result<Opened> {
    let path = percent_decode(url.path());
    let relative = Path::new(path.trim_start_matches('/'));
    if relative
        .components()
        .any(|part| part == Component::ParentDir)
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path leads out of the store",
        ));
    }
    let path = root.join(relative);
    let codec = fragment.compression_codec();
    let open = move || {
        let mut file = File::open(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let stored = file.metadata()?.len();
        let skipped = if codec == CompressionCodec::None {
            skip.min(stored)
        } else {
            0
        };
        if skipped > 0 {
            file.seek(SeekFrom::Start(skipped))?;
        }
        let file = ReadAhead::new(file, skipped);
        let bytes: Box<dyn Read + Send> = if codec == CompressionCodec::None {
            Box::new(file)
        } else {
            Box::new(io::BufReader::with_capacity(64 << 10, file))
        };
        Ok(Opened {
            bytes,
            codec,
            skipped,
            stored: Some(stored),
        })
    };
    tokio::task::spawn_blocking(open)
        .await
        .map_err(io::Error::other)?
}

fn count(labels: &[(&'static str, String)], opened: &Opened, content: u64, skip: u64) {
    ::metrics::counter!(FRAGMENT_OPEN, labels).increment(1);
    ::metrics::counter!(FRAGMENT_OPEN_CONTENT_LENGTH, labels).increment(content);
    if let Some(stored) = opened.stored {
        ::metrics::counter!(FRAGMENT_OPEN_BYTES, labels).increment(stored);
    }
    if skip > opened.skipped {
        ::metrics::counter!(DISCARD_FRAGMENT_BYTES, labels).increment(skip - opened.skipped);
    }
}

fn length(begin: i64, end: i64) -> u64 {
    u64::try_from(end.saturating_sub(begin)).unwrap_or(0)
}

fn short(missing: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("content ends {missing} bytes before the end of the fragment"),
    )
}

fn io_error(url: &str, error: io::Error) -> FragmentReaderError {
    FragmentReaderError::Io {
        url: url.to_owned(),
        cause: Arc::new(error),
    }
}

/// The part of a URL that may be shown. The rest can be a signature.
fn without_query(url: &str) -> &str {
    url.split_once('?').map_or(url, |(path, _)| path)
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |byte: u8| {
            char::from(byte)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                if let (Some(high), Some(low)) = (hex(*high), hex(*low)) {
                    bytes.push(high << 4 | low);
                    rest = after;
                    continue;
                }
                bytes.push(*first);
            }
            _ => bytes.push(*first),
        }
        rest = tail;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
