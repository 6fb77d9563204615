use std::fmt;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use gazette_protocol::CompressionCodec;
use snap::write::{FrameEncoder, IntoInnerError};
use zstd::stream::write::Encoder as ZstdEncoder;

use crate::CodecError;

/// Compresses what is written to it into `W`.
///
/// Only [`Encoder::finish`] makes the stream complete; an encoder that is dropped leaves one that need not
/// decode.
pub struct Encoder<W: Write> {
    codec: CompressionCodec,
    inner: Inner<W>,
}

enum Inner<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zstandard(ZstdEncoder<'static, W>),
    Snappy {
        encoder: Box<FrameEncoder<W>>,
        is_empty: bool,
    },
}

impl<W: Write> Encoder<W> {
    /// Starts a stream of `codec`: one gzip member, zstd frame or snappy stream.
    pub fn new(codec: CompressionCodec, writer: W) -> Result<Self, CodecError> {
        let inner = match codec {
            CompressionCodec::Invalid => return Err(CodecError::Unsupported { codec }),
            CompressionCodec::None => Inner::Plain(writer),
            CompressionCodec::Gzip | CompressionCodec::GzipOffloadDecompression => {
                Inner::Gzip(GzEncoder::new(writer, Compression::default()))
            }
            CompressionCodec::Zstandard => {
                // A frame without checksum can be damaged and still decode.
                let encoder = ZstdEncoder::new(writer, zstd::DEFAULT_COMPRESSION_LEVEL).and_then(
                    |mut encoder| {
                        encoder.include_checksum(true)?;
                        Ok(encoder)
                    },
                );
                Inner::Zstandard(encoder.map_err(|error| CodecError::Corrupt {
                    codec,
                    cause: error.to_string(),
                })?)
            }
            CompressionCodec::Snappy => Inner::Snappy {
                encoder: Box::new(FrameEncoder::new(writer)),
                is_empty: true,
            },
        };
        Ok(Self { codec, inner })
    }

    /// Writes what is left, and returns the writer.
    pub fn finish(self) -> io::Result<W> {
        match self.inner {
            Inner::Plain(writer) => Ok(writer),
            Inner::Gzip(encoder) => encoder.finish(),
            Inner::Zstandard(encoder) => encoder.finish(),
            Inner::Snappy { encoder, is_empty } => {
                let mut writer = encoder.into_inner().map_err(IntoInnerError::into_error)?;
                if is_empty {
                    // The library writes it in front of the first chunk only.
                    writer.write_all(SNAPPY_STREAM_IDENTIFIER)?;
                }
                Ok(writer)
            }
        }
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.inner {
            Inner::Plain(writer) => writer.write(buf),
            Inner::Gzip(encoder) => encoder.write(buf),
            Inner::Zstandard(encoder) => encoder.write(buf),
            Inner::Snappy { encoder, is_empty } => {
                *is_empty &= buf.is_empty();
                encoder.write(buf)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.inner {
            Inner::Plain(writer) => writer.flush(),
            Inner::Gzip(encoder) => encoder.flush(),
            Inner::Zstandard(encoder) => encoder.flush(),
            Inner::Snappy { encoder, .. } => encoder.flush(),
        }
    }
}

impl<W: Write> fmt::Debug for Encoder<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("codec", &self.codec)
            .finish_non_exhaustive()
    }
}

/// Compresses one block of content into a stream of its own.
///
/// Where [`concatenates`] holds, the streams of consecutive blocks, one after the other, are a stream of
/// the whole content, so that blocks can be compressed at the same time.
pub fn compress_block(codec: CompressionCodec, block: &[u8]) -> Result<Vec<u8>, CodecError> {
    let failed = |error: io::Error| CodecError::Corrupt {
        codec,
        cause: error.to_string(),
    };
    let mut encoder = Encoder::new(codec, Vec::with_capacity(block.len() / 2 + 64))?;
    encoder.write_all(block).map_err(failed)?;
    encoder.finish().map_err(failed)
}

/// Tells whether streams of `codec` may follow each other in one object.
///
/// `GZIP_OFFLOAD_DECOMPRESSION` must be one gzip member: services that decompress on the way to the reader
/// are known to stop after the first.
pub fn concatenates(codec: CompressionCodec) -> bool {
    match codec {
        CompressionCodec::Invalid | CompressionCodec::GzipOffloadDecompression => false,
        CompressionCodec::None
        | CompressionCodec::Gzip
        | CompressionCodec::Zstandard
        | CompressionCodec::Snappy => true,
    }
}

const SNAPPY_STREAM_IDENTIFIER: &[u8] = b"\xff\x06\x00\x00sNaPpY";

#[cfg(test)]
mod tests;
