use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use gazette_protocol::CompressionCodec;
use snap::read::FrameDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::CodecError;

/// Returns a reader of the content that was compressed with `codec` into the bytes of `source`.
///
/// Nothing is read from the source until the first read. Streams of several gzip members, zstd frames or
/// snappy streams are read as one. A stream that is cut off, damaged, or followed by something else gives
/// an error, and goes on to give one however often it is read; an end of stream is therefore a real end.
/// A cut between two members cannot be seen here: compare the length, as [`crate::fragment_reader`] does.
///
/// With `GZIP_OFFLOAD_DECOMPRESSION` the transport may or may not have undone the compression already:
/// the stream is decompressed if it starts as gzip does, and is otherwise passed on.
pub fn decoder<'a>(
    codec: CompressionCodec,
    source: impl Read + Send + 'a,
) -> Result<Box<dyn Read + Send + 'a>, CodecError> {
    match codec {
        CompressionCodec::Invalid => Err(CodecError::Unsupported { codec }),
        CompressionCodec::None => Ok(Box::new(source)),
        CompressionCodec::Gzip
        | CompressionCodec::Zstandard
        | CompressionCodec::Snappy
        | CompressionCodec::GzipOffloadDecompression => Ok(Box::new(Decoder {
            codec,
            state: State::Start(Source(source)),
        })),
    }
}

/// Decompresses, and makes the answers of the three libraries alike.
struct Decoder<R: Read> {
    codec: CompressionCodec,
    state: State<R>,
}

/// The source again, after its first bytes were looked at.
type Rewound<R> = BufReader<Chain<Cursor<Vec<u8>>, Source<R>>>;

enum State<R: Read> {
    /// Nothing was read. Left at the first read.
    Start(Source<R>),
    /// The transport has undone the compression.
    Plain(Rewound<R>),
    Gzip(Box<MultiGzDecoder<Rewound<R>>>),
    Zstandard(ZstdDecoder<'static, Rewound<R>>),
    Snappy(Box<FrameDecoder<Rewound<R>>>),
    /// The end was reached and is right.
    Ended,
    /// An error was returned, and is returned again.
    Failed {
        kind: io::ErrorKind,
        message: String,
    },
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        match self.read_raw(buf) {
            Ok(0) => {
                self.state = State::Ended;
                Ok(0)
            }
            Ok(length) => Ok(length),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let error = self.translate(error);
                self.state = State::Failed {
                    kind: error.kind(),
                    message: error.to_string(),
                };
                Err(error)
            }
        }
    }
}

impl<R: Read> Decoder<R> {
    fn read_raw(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let State::Start(_) = self.state {
            self.start()?;
        }
        match &mut self.state {
            State::Start(_) => unreachable!("a started decoder stays started"),
            State::Plain(source) => source.read(buf),
            State::Gzip(gzip) => gzip.read(buf),
            State::Zstandard(zstandard) => zstandard.read(buf),
            State::Snappy(snappy) => snappy.read(buf),
            State::Ended => Ok(0),
            State::Failed { kind, message } => {
                Err(io::Error::new(*kind, SourceFailure::again(*kind, message)))
            }
        }
    }

    /// Looks at the first bytes and chooses the library.
    fn start(&mut self) -> io::Result<()> {
        let State::Start(source) = std::mem::replace(&mut self.state, State::Ended) else {
            unreachable!("only a new decoder starts")
        };
        let mut source = source;
        let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
        let looked = source
            .by_ref()
            .take(GZIP_MAGIC.len() as u64)
            .read_to_end(&mut magic);

        let offloaded = self.codec == CompressionCodec::GzipOffloadDecompression;
        let is_empty = magic.is_empty();
        let is_gzip = magic == GZIP_MAGIC;
        let rewound = || BufReader::with_capacity(BUFFER_BYTES, Cursor::new(magic).chain(source));

        looked?;
        if offloaded && !is_gzip {
            self.state = State::Plain(rewound());
            return Ok(());
        }
        // Each format has a header even around nothing.
        if is_empty {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.state = match self.codec {
            CompressionCodec::Zstandard => State::Zstandard(ZstdDecoder::with_buffer(rewound())?),
            CompressionCodec::Snappy => State::Snappy(Box::new(FrameDecoder::new(rewound()))),
            CompressionCodec::Gzip | CompressionCodec::GzipOffloadDecompression => {
                State::Gzip(Box::new(MultiGzDecoder::new(rewound())))
            }
            CompressionCodec::Invalid | CompressionCodec::None => {
                unreachable!("such a decoder is never made")
            }
        };
        Ok(())
    }

    /// Tells a failing source from bad bytes: the libraries use many kinds for the latter.
    fn translate(&self, error: io::Error) -> io::Error {
        let codec = self.codec;
        let kind = error.kind();
        match error.downcast::<SourceFailure>() {
            Ok(SourceFailure(original)) => original,
            Err(_) if kind == io::ErrorKind::UnexpectedEof => {
                io::Error::new(kind, CodecError::Truncated { codec })
            }
            Err(error) => io::Error::new(
                io::ErrorKind::InvalidData,
                CodecError::Corrupt {
                    codec,
                    cause: error.to_string(),
                },
            ),
        }
    }
}

/// Marks the errors of the reader below, so that they can be known again above the library.
struct Source<R>(R);

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0
            .read(buf)
            .map_err(|error| io::Error::new(error.kind(), SourceFailure(error)))
    }
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct SourceFailure(io::Error);

impl SourceFailure {
    fn again(kind: io::ErrorKind, message: &str) -> Self {
        Self(io::Error::new(kind, message.to_owned()))
    }
}

/// Magic number and the one compression method of gzip.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// Few reads of the source for one block of any of the formats (snappy: 64 KiB).
const BUFFER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests;
