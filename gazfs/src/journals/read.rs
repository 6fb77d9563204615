//! Reading.

use bytes::Bytes;

use super::{
    caller::Caller,
    error::{Cause, FsError},
    fs::JournalFs,
    handle::{Handle, HandleId},
    patience::Patience,
};

/// One request to read.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// The open file.
    pub handle: HandleId,
    /// Where to read.
    pub offset: u64,
    /// How much to read. Less is returned only at the end of the journal.
    pub size: u32,
}

impl JournalFs {
    /// Reads what was fetched already.
    pub fn try_read(&self, read: Read) -> Option<Result<Bytes, FsError>> {
        let handle = self.handles().file(read.handle).ok()?;
        if handle.inode.has_pending() || !handle.may_read {
            return None;
        }
        let (begin, end) = span(&handle, read)?;
        if handle.inode.head().is_none_or(|head| end > head) {
            return None;
        }
        let stream = handle.stream(begin, end)?;
        let bytes = stream.try_read(begin, end)?;
        handle.note_read(&stream, begin, end);
        Some(Ok(bytes))
    }

    /// Reads.
    pub async fn read(&self, caller: Caller, read: Read) -> Result<Bytes, FsError> {
        let handle = self.handles().file(read.handle);
        let handle = handle.map_err(|cause| FsError::new("read", "", cause))?;
        let patience = self.patience(caller);
        let bytes = self.read_span(&handle, read, patience).await;
        bytes.map_err(|cause| FsError::new("read", &*handle.inode.name, cause))
    }

    async fn read_span(
        &self,
        handle: &Handle,
        read: Read,
        patience: Patience,
    ) -> Result<Bytes, Cause> {
        let inode = &handle.inode;
        if !handle.may_read {
            return Err(Cause::BadHandle);
        }
        inode.check()?;
        // A reader sees what was written here, also if it is not acknowledged yet.
        patience.wait(inode.settled()).await?;
        let (begin, end) = span(handle, read).ok_or(Cause::Invalid)?;
        let head = match inode.head() {
            Some(head) if end <= head => head,
            known => match (self.ask_head(inode, patience).await, known) {
                (Ok(head), _) => head,
                // What is known to be there is returned. The next read finds out about the rest.
                (Err(cause), Some(known)) if cause.is_away() && begin < known => known,
                (Err(cause), _) => return Err(cause),
            },
        };
        let end = end.min(head);
        if begin >= end {
            return Ok(Bytes::new());
        }
        loop {
            let stream = handle.stream_or_start(self, begin, end, head);
            let read = patience.wait(stream.read(begin, end)).await;
            match read.and_then(|read| read) {
                Ok(Some(bytes)) => {
                    handle.note_read(&stream, begin, end);
                    return Ok(bytes);
                }
                Ok(None) => {}
                Err(cause) => {
                    handle.drop_stream();
                    self.not_answered(&cause);
                    return Err(cause);
                }
            }
        }
    }
}

/// The offsets of the journal that a request is about.
fn span(handle: &Handle, read: Read) -> Option<(i64, i64)> {
    let origin = handle.inode.origin().unwrap_or(0);
    let begin = i64::try_from(read.offset).ok()?.checked_add(origin)?;
    Some((begin, begin.checked_add(i64::from(read.size))?))
}
