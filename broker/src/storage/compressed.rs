//! A spool's content as a store shall have it: compressed, off the path of appends, in parallel.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Seek as _, SeekFrom, Write as _},
    path::Path,
    thread,
};

use gazette_codecs::{CompressionCodec, Encoder, compress_block, concatenates};
use gazette_protocol::{Fragment, Sha1Sum};
use gazette_stores::Content;
use gazette_wal::{SpoolFile, SpoolReader};
use sha1::{Digest as _, Sha1};

/// Bytes that are compressed by one thread at a time, and become a member or frame of their own.
const BLOCK_BYTES: usize = 1 << 20;
/// Threads that compress one fragment, at most.
const THREADS_MAX: usize = 4;

/// What a store is given.
#[derive(Debug)]
pub(super) enum Stored {
    /// The spool's content as it is.
    Plain { reader: SpoolReader, length: u64 },
    /// A temporary file.
    Compressed { file: File, length: u64 },
}

/// Why content cannot be prepared for a store.
#[derive(Debug, thiserror::Error)]
pub(super) enum PrepareError {
    #[error("read spool {path}: {cause}")]
    Read { path: String, cause: io::Error },
    #[error("compress a fragment: {0}")]
    Compress(io::Error),
    #[error("spool {path} has sum {actual}, but {expected} was committed")]
    Corrupt {
        path: String,
        expected: Sha1Sum,
        actual: Sha1Sum,
    },
}

/// Reads a spool whole, checks it against its sum, and compresses it into a file in `scratch`.
pub(super) fn prepare(
    fragment: &Fragment,
    spool: &SpoolFile,
    scratch: &Path,
) -> Result<Stored, PrepareError> {
    let length = fragment.content_length().unsigned_abs();
    let failed = |cause| PrepareError::Read {
        path: spool.path().display().to_string(),
        cause,
    };
    let reader = spool.reader().map_err(failed)?;
    let mut source = Summed {
        content: Whole {
            reader: reader.clone(),
            at: 0,
            length,
        },
        hash: Sha1::new(),
    };
    let codec = fragment.compression_codec();
    let stored = if codec == CompressionCodec::None {
        io::copy(&mut source, &mut io::sink()).map_err(failed)?;
        Stored::Plain { reader, length }
    } else {
        let file = tempfile::tempfile_in(scratch).map_err(PrepareError::Compress)?;
        let file = compress(codec, &mut source, file).map_err(PrepareError::Compress)?;
        let length = file.metadata().map_err(PrepareError::Compress)?.len();
        Stored::Compressed { file, length }
    };
    let actual = Sha1Sum::from_digest(source.hash.finalize().into());
    if actual == fragment.sum {
        return Ok(stored);
    }
    let path = spool.path().display().to_string();
    Err(PrepareError::Corrupt {
        path,
        expected: fragment.sum,
        actual,
    })
}

fn compress(codec: CompressionCodec, source: &mut impl Read, file: File) -> io::Result<File> {
    let mut writer = BufWriter::new(file);
    if !concatenates(codec) {
        let mut encoder = Encoder::new(codec, writer).map_err(io::Error::other)?;
        io::copy(source, &mut encoder)?;
        return encoder
            .finish()?
            .into_inner()
            .map_err(io::IntoInnerError::into_error);
    }
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(THREADS_MAX);
    loop {
        let blocks = (0..threads)
            .map(|_| block(source))
            .collect::<io::Result<Vec<_>>>()?;
        let blocks: Vec<_> = blocks.iter().filter(|block| !block.is_empty()).collect();
        let mut compressed = vec![Ok(Vec::new()); blocks.len()];
        thread::scope(|scope| {
            for (block, result) in blocks.iter().zip(&mut compressed) {
                scope.spawn(|| *result = compress_block(codec, block));
            }
        });
        if compressed.is_empty() {
            return writer.into_inner().map_err(io::IntoInnerError::into_error);
        }
        for block in compressed {
            writer.write_all(&block.map_err(io::Error::other)?)?;
        }
    }
}

fn block(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    source.take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
    Ok(block)
}

impl Content for Stored {
    fn len(&self) -> u64 {
        match self {
            Self::Plain { length, .. } | Self::Compressed { length, .. } => *length,
        }
    }

    fn open(&self) -> io::Result<Box<dyn Read + Send + '_>> {
        Ok(match self {
            Self::Plain { reader, length } => Box::new(Whole {
                reader: reader.clone(),
                at: 0,
                length: *length,
            }),
            Self::Compressed { file, .. } => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(0))?;
                Box::new(file)
            }
        })
    }
}

/// The committed content of a spool. That it ends early is an error.
struct Whole {
    reader: SpoolReader,
    at: u64,
    length: u64,
}

impl Read for Whole {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length - self.at).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.reader.read_at(self.at, &mut buffer[..wanted])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += read as u64;
        Ok(read)
    }
}

/// Hashes what passes.
struct Summed<R> {
    content: R,
    hash: Sha1,
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.content.read(buffer)?;
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}
