use std::fmt;
use std::io::{self, Read};

use gazette_protocol::Fragment;
use sha1::{Digest, Sha1};

use crate::{CodecError, FragmentError, decoder};

/// Returns a reader of the whole content of `fragment`, given the bytes of its object in a store.
///
/// See [`FragmentReader`] for what it checks.
pub fn fragment_reader<'a>(
    fragment: &Fragment,
    source: impl Read + Send + 'a,
) -> Result<FragmentReader<Box<dyn Read + Send + 'a>>, CodecError> {
    let content = decoder(fragment.compression_codec(), source)?;
    let length = u64::try_from(fragment.content_length()).unwrap_or(0);
    Ok(FragmentReader::new(
        content,
        length,
        fragment.sum.to_digest(),
    ))
}

/// Passes on the content of a fragment, and checks its length and its SHA-1 sum.
///
/// The last bytes are held back until everything was found right, so a reader that got all bytes got
/// the right ones. Before that, the bytes passed on are as yet unproven.
pub struct FragmentReader<R> {
    content: R,
    length: u64,
    remaining: u64,
    expected: [u8; 20],
    sum: Sha1,
    outcome: Outcome,
}

#[derive(Debug, Clone)]
enum Outcome {
    /// Content is still to come.
    Pending,
    Good,
    Bad(FragmentError),
    /// The content could not be read to its end. Bytes are lost, so this is not left again.
    Broken {
        kind: io::ErrorKind,
        message: String,
    },
}

impl<R: Read> FragmentReader<R> {
    /// Wraps decompressed `content`, which should be of `length` bytes and have the SHA-1 `sum`.
    pub fn new(content: R, length: u64, sum: [u8; 20]) -> Self {
        Self {
            content,
            length,
            remaining: length,
            expected: sum,
            sum: Sha1::new(),
            outcome: Outcome::Pending,
        }
    }

    /// Checks that the end is where it should be, and the sum.
    fn check(&mut self) -> Outcome {
        let mut beyond = [0];
        match read_uninterrupted(&mut self.content, &mut beyond) {
            Ok(0) => {}
            Ok(_) => {
                return Outcome::Bad(FragmentError::TooLong {
                    expected: self.length,
                });
            }
            Err(error) => {
                return Outcome::Broken {
                    kind: error.kind(),
                    message: error.to_string(),
                };
            }
        }
        // An empty fragment has no sum, rather than the sum of nothing.
        if self.length == 0 && self.expected == [0; 20] {
            return Outcome::Good;
        }
        let expected = self.expected;
        let actual: [u8; 20] = std::mem::take(&mut self.sum).finalize().into();
        if actual == expected {
            Outcome::Good
        } else {
            Outcome::Bad(FragmentError::SumMismatch { expected, actual })
        }
    }
}

impl<R: Read> Read for FragmentReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let mut length = 0;
        if let Outcome::Pending = self.outcome {
            if self.remaining > 0 {
                let limit = usize::try_from(self.remaining).map_or(buf.len(), |r| r.min(buf.len()));
                length = self.content.read(&mut buf[..limit])?;
                self.sum.update(&buf[..length]);
                self.remaining -= length as u64;
            }
            if self.remaining == 0 {
                self.outcome = self.check();
            } else if length == 0 {
                self.outcome = Outcome::Bad(FragmentError::TooShort {
                    expected: self.length,
                    actual: self.length - self.remaining,
                });
            }
        }
        match &self.outcome {
            Outcome::Pending | Outcome::Good => Ok(length),
            Outcome::Bad(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.clone())),
            Outcome::Broken { kind, message } => Err(io::Error::new(*kind, message.clone())),
        }
    }
}

fn read_uninterrupted(content: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match content.read(buf) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl<R> fmt::Debug for FragmentReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FragmentReader")
            .field("length", &self.length)
            .field("remaining", &self.remaining)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
