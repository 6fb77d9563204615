//! Finds out whether an append took place, of which the answer was lost.

use bytes::Bytes;
use gazette_protocol::{AppendRequest, ReadRequest};

use crate::{AppendError, Client, ReadError, ReadEvent, RetryOptions};

/// What became of an append at an expected offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// It took place.
    Landed {
        /// Offset after its last byte.
        end: i64,
    },
    /// It did not take place. It may be repeated with the same expected offset: even if a broker is
    /// still at the lost one, only one of the two can be done. (This does not hold for offset zero,
    /// which cannot be expected.)
    Absent,
    /// Something else is at that offset, so it can no longer take place.
    Other,
}

/// Why it could not be found out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResolveError {
    /// The journal's end could not be learned.
    #[error("resolve an append: {0}")]
    Barrier(#[from] AppendError),
    /// The content could not be read.
    #[error("resolve an append: {0}")]
    Read(#[from] ReadError),
}

impl Client {
    /// Finds out whether an append of `content` at the expected offset `offset` took place.
    ///
    /// It is for an append of which the answer was lost, or that met another write head than it
    /// expected, perhaps because an earlier attempt at it was done. It waits, with an empty append,
    /// until everything the primary is busy with is done, and compares what is there.
    ///
    /// An equal append by another writer at that offset cannot be told from ours: content should name
    /// its writer where that matters.
    pub async fn resolve_append(
        &self,
        journal: &str,
        offset: i64,
        content: &[u8],
    ) -> Result<Resolution, ResolveError> {
        let length = i64::try_from(content.len()).unwrap_or(i64::MAX);
        let end = offset.saturating_add(length);
        let barrier = AppendRequest {
            journal: journal.to_owned(),
            ..AppendRequest::default()
        };
        let head = self
            .append(barrier, Bytes::new())
            .await?
            .commit
            .unwrap_or_default()
            .end;
        if head <= offset && length > 0 {
            return Ok(Resolution::Absent);
        }
        if head < end {
            return Ok(Resolution::Other);
        }
        // It is there, though perhaps not yet at the replica that we read.
        let request = ReadRequest {
            journal: journal.to_owned(),
            offset,
            end_offset: end,
            block: true,
            ..ReadRequest::default()
        };
        let options = RetryOptions {
            give_up_after: self.options().append_give_up_after,
        };
        let mut reader = self.retry_reader_with(request, options);
        let mut rest = content;
        while !rest.is_empty() {
            match reader.next().await? {
                Some(ReadEvent::Content { bytes, .. }) => match rest.strip_prefix(&bytes[..]) {
                    Some(after) => rest = after,
                    None => return Ok(Resolution::Other),
                },
                Some(ReadEvent::Metadata(_)) => {}
                Some(ReadEvent::Jump { .. }) | None => return Ok(Resolution::Other),
            }
        }
        Ok(Resolution::Landed { end })
    }
}

#[cfg(test)]
mod tests;
