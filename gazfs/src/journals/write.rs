//! Writing, which is appending.

use std::{sync::Arc, time::Duration, time::SystemTime};

use bytes::Bytes;
use gazette_client::{AppendError, AppendParams, Queued};
use gazette_protocol::AppendRequest;

use super::{
    caller::{Caller, Ending},
    error::{Cause, FsError},
    fs::{Ack, JournalFs},
    handle::{Handle, HandleId},
    patience::Patience,
};

/// One request to write.
#[derive(Debug, Clone)]
pub struct Write {
    /// The open file.
    pub handle: HandleId,
    /// Where to write. It is left out of account if the file was opened to append.
    pub offset: u64,
    /// What to write.
    pub content: Bytes,
    /// The broker chooses the place.
    pub is_append: bool,
    /// It must be durable when it is reported as done.
    pub is_sync: bool,
    /// It comes from a page that a program changed through a mapping.
    pub is_mapped: bool,
}

/// Where an append must land.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Anywhere,
    At(i64),
}

impl JournalFs {
    /// Appends all of a request, or nothing. Returns how many bytes.
    pub async fn write(&self, caller: Caller, write: Write) -> Result<usize, FsError> {
        let handle = self.handles().file(write.handle);
        let handle = handle.map_err(|cause| FsError::new("write", "", cause))?;
        let length = write.content.len();
        let written = self.write_span(caller, &handle, write).await;
        let written = written.map_err(|cause| FsError::new("write", &*handle.inode.name, cause));
        written.map(|()| length)
    }

    async fn write_span(
        &self,
        caller: Caller,
        handle: &Arc<Handle>,
        write: Write,
    ) -> Result<(), Cause> {
        if write.is_mapped {
            return Err(Cause::AppendOnly {
                what: "its bytes cannot be changed through a mapping",
            });
        }
        if !handle.may_write {
            return Err(Cause::BadHandle);
        }
        handle.take_failure()?;
        handle.inode.check()?;
        self.check_not_ending()?;
        if write.content.is_empty() {
            return Ok(());
        }
        // The client gives up by itself, and knows then whether anything was done.
        let patience = Patience::new(caller, self.options().timeout + GIVE_UP_GRACE);
        let place = if write.is_append {
            Place::Anywhere
        } else {
            self.place(handle, write.offset, patience).await?
        };
        match self.options().ack {
            Ack::Write => self.append(handle, place, write.content, patience).await,
            Ack::Close => {
                self.queue(handle, place, write.content, patience).await?;
                if write.is_sync {
                    self.settle(handle, patience).await?;
                }
                Ok(())
            }
        }
    }

    /// Checks the offset of a write that does not append by itself.
    async fn place(
        &self,
        handle: &Handle,
        offset: u64,
        patience: Patience,
    ) -> Result<Place, Cause> {
        let origin = handle.inode.origin().unwrap_or(0);
        let offset = i64::try_from(offset)
            .ok()
            .and_then(|offset| offset.checked_add(origin));
        let offset = offset.ok_or(Cause::Invalid)?;
        if offset == 0 {
            // No append can expect offset zero on the wire, so it has to be looked at first.
            patience.wait(handle.inode.settled()).await?;
            let end = self.ask_head(&handle.inode, patience).await?;
            if end != 0 {
                return Err(Cause::NotAtEnd { offset, end });
            }
        }
        // The head only grows, so nothing has to be asked to refuse this.
        match handle.inode.head() {
            Some(end) if end > offset => Err(Cause::NotAtEnd { offset, end }),
            _ => Ok(Place::At(offset)),
        }
    }

    /// Appends, and waits until that is acknowledged.
    async fn append(
        &self,
        handle: &Handle,
        place: Place,
        content: Bytes,
        patience: Patience,
    ) -> Result<(), Cause> {
        let _pending = self.pending_token();
        let request = AppendRequest {
            journal: handle.inode.name.clone(),
            offset: place.expected().unwrap_or(0),
            ..AppendRequest::default()
        };
        let append = self.client().append(request, content);
        let landed = match patience.of_append().wait(append).await {
            Ok(Ok(response)) => response.commit.map(|commit| (commit.begin, commit.end)),
            Ok(Err(error)) => {
                let cause = self.append_failed(handle, place, error);
                return Err(cause);
            }
            Err(cause) => {
                self.not_answered(&cause);
                return Err(cause);
            }
        };
        self.answered();
        match landed {
            Some((begin, end)) => landed_at(handle, place, begin, end),
            None => Ok(()),
        }
    }

    /// Hands an append to the queue, which may wait for room.
    async fn queue(
        &self,
        handle: &Arc<Handle>,
        place: Place,
        content: Bytes,
        patience: Patience,
    ) -> Result<(), Cause> {
        let params = AppendParams {
            offset: place.expected(),
            ..AppendParams::default()
        };
        let queued = self.appends().append(&handle.inode.name, content, params);
        let queued = patience.wait(queued).await?;
        handle.inode.accept();
        self.spawn_append(self.clone().finish(Arc::clone(handle), place, queued));
        Ok(())
    }

    /// Waits for an append that was reported as written, and keeps its failure for a later call.
    async fn finish(self, handle: Arc<Handle>, place: Place, queued: Queued) {
        let outcome = match queued.wait().await {
            Ok(landed) => {
                self.answered();
                landed_at(&handle, place, landed.begin, landed.end)
            }
            Err(error) => Err(self.append_failed(&handle, place, error)),
        };
        if let Err(cause) = outcome {
            FsError::new("write", &*handle.inode.name, cause.clone()).log();
            if !handle.fail(cause) {
                self.count_failed_append();
            }
        }
        handle.inode.end();
    }

    fn append_failed(&self, handle: &Handle, place: Place, error: AppendError) -> Cause {
        let cause = match place {
            Place::At(offset) if error.is_wrong_append_offset() => Cause::Overtaken { offset },
            Place::At(_) | Place::Anywhere => error.into(),
        };
        self.not_answered(&cause);
        if cause == Cause::Stale {
            self.gone(&handle.inode);
        }
        cause
    }

    /// Says whether a file has nothing to wait for, and returns what there is to report.
    pub fn try_sync(&self, handle: HandleId) -> Option<Result<(), FsError>> {
        let handle = match self.handles().file(handle) {
            Ok(handle) => handle,
            Err(cause) => return Some(Err(FsError::new("sync", "", cause))),
        };
        if handle.inode.has_pending() {
            return None;
        }
        let fail = |cause| FsError::new("sync", &*handle.inode.name, cause);
        Some(handle.take_failure().map_err(fail))
    }

    /// Says whether the close of a file has nothing to wait for, and nothing to report.
    pub fn is_flushed(&self, handle: HandleId) -> bool {
        let handle = self.handles().file(handle);
        handle.is_ok_and(|handle| !handle.inode.has_pending() && !handle.has_failure())
    }

    /// Waits until all that was written is acknowledged.
    pub async fn sync(&self, caller: Caller, handle: HandleId) -> Result<(), FsError> {
        let handle = self.handles().file(handle);
        let handle = handle.map_err(|cause| FsError::new("sync", "", cause))?;
        let patience = Patience::new(caller, self.options().timeout + GIVE_UP_GRACE);
        let settled = self.settle(&handle, patience).await;
        settled.map_err(|cause| FsError::new("sync", &*handle.inode.name, cause))
    }

    /// The same when a file is closed.
    ///
    /// A program that was killed does not wait; the appends go on. Neither does one that ends, if
    /// brokers are not at it: nobody hears what would be reported, and no signal could end it.
    pub async fn flush(&self, caller: Caller, handle: HandleId) -> Result<(), FsError> {
        if caller.look() == Some(Ending::Killed) {
            return Ok(());
        }
        if caller.is_leaving() {
            let handle = self.handles().file(handle);
            let handle = handle.map_err(|cause| FsError::new("close", "", cause))?;
            handle.inode.settled_unless_stalled(STALL_MAX).await;
            return Ok(());
        }
        self.sync(caller, handle).await
    }

    async fn settle(&self, handle: &Handle, patience: Patience) -> Result<(), Cause> {
        patience.of_append().wait(handle.inode.settled()).await?;
        handle.take_failure()
    }
}

impl Place {
    /// The offset that the wire can express.
    fn expected(self) -> Option<i64> {
        match self {
            Self::Anywhere | Self::At(0) => None,
            Self::At(offset) => Some(offset),
        }
    }
}

/// Takes where an append landed, which must be the right place.
fn landed_at(handle: &Handle, place: Place, begin: i64, end: i64) -> Result<(), Cause> {
    handle.inode.observe(end, SystemTime::now());
    match place {
        Place::At(offset) if begin != offset => Err(Cause::Displaced { landed: begin }),
        Place::At(_) | Place::Anywhere => Ok(()),
    }
}

/// How long a program that ends waits for the next append to end.
const STALL_MAX: Duration = Duration::from_millis(150);

/// How much longer than the client a call waits for the client to give up.
const GIVE_UP_GRACE: Duration = Duration::from_secs(2);
