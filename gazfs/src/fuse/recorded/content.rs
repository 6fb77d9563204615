//! What an open file holds: reading, writing, fsync, and the last close.

use std::sync::Arc;

use rustix::fs::OFlags;

use super::{
    Adapter,
    convert::answer_empty,
    waiting::{self, Who},
};
use crate::{
    fuse::{ReplyData, ReplyEmpty, ReplyWrite, Request, WriteRequest},
    recorded::{Abandoned, Call, FsError, HandleId, RecordedFs, Write, log::Log},
};

impl<L: Log> Adapter<L> {
    /// Reads at once what is in memory, and leaves what is not to others.
    pub(super) fn read_content(
        &self,
        handle: HandleId,
        offset: u64,
        size: u32,
        mut reply: ReplyData,
    ) {
        let size = usize::try_from(size).unwrap_or(0);
        match self.fs.try_read(handle, offset, reply.room(size)) {
            Ok(length) => reply.filled(length),
            Err(FsError::Held) => {
                let fs = self.fs.clone();
                self.waiting
                    .read(move || match fs.read(handle, offset, reply.room(size)) {
                        Ok(length) => reply.filled(length),
                        Err(error) => reply.error(error.errno()),
                    });
            }
            Err(error) => reply.error(error.errno()),
        }
    }

    /// Writes, and waits for the log where the kernel does not ask for that itself.
    pub(super) fn write_content(
        &self,
        request: &Request,
        write: &WriteRequest<'_>,
        reply: ReplyWrite,
    ) {
        let WriteRequest {
            handle,
            offset,
            data,
            drops_privileges,
            ..
        } = *write;
        let handle = HandleId(handle);
        let flags = OFlags::from_bits_retain(write.flags);
        // After others the kernel asks for a barrier itself. O_SYNC contains the bit of O_DSYNC.
        let needs_barrier = flags.contains(OFlags::DSYNC)
            && (flags.contains(OFlags::DIRECT) || self.fs.is_direct(handle));
        let write = move |fs: &RecordedFs<L>, call: &Call<'_>, data: &[u8]| {
            let write = Write {
                handle,
                offset,
                data,
                drops_privileges,
            };
            fs.write(call, &write)
        };
        let answer = |reply: ReplyWrite, written: Result<usize, FsError>| match written {
            Ok(length) => reply.written(u32::try_from(length).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error.errno()),
        };
        let who = Who::of(request);
        match write(&self.fs, &who.call(), data) {
            Err(FsError::Held) => {
                let (data, fs) = (data.to_vec(), self.fs.clone());
                let waiting = Arc::clone(&self.waiting);
                waiting::spawn(move || match who.wait(|call| write(&fs, call, &data)) {
                    Ok(length) if needs_barrier => {
                        fs.sync(waiting.until_killed(&who, move |synced| {
                            answer(reply, synced.map(|()| length));
                        }));
                    }
                    written => answer(reply, written),
                });
            }
            Ok(length) if needs_barrier => {
                self.after_barrier(request, move |synced| {
                    answer(reply, synced.map(|()| length));
                });
            }
            written => answer(reply, written),
        }
    }

    /// Closes a file, when the log has what others stored through its mappings.
    pub(super) fn close_handle(&self, request: &Request, handle: HandleId, reply: ReplyEmpty) {
        let (fs, passing, who) = (self.fs.clone(), Arc::clone(&self.passing), Who::of(request));
        let close = move |fs: &RecordedFs<L>| {
            let abandoned = fs.close(handle);
            passing.close(handle);
            abandoned
        };
        let forget = move |fs: &RecordedFs<L>, abandoned: &Abandoned| {
            if let Err(error) = who.wait(|call| fs.forget_unnamed(call, abandoned)) {
                // Whoever records next does.
                tracing::info!(err = %error, "the log keeps a file without a name");
            }
        };
        if self.fs.is_direct(handle) {
            return waiting::spawn(move || {
                if let Err(error) = who.wait(|call| fs.catch_up(call, handle)) {
                    tracing::error!(err = %error, "what was stored through a mapping is not recorded");
                }
                if let Some(abandoned) = close(&fs) {
                    forget(&fs, &abandoned);
                }
                reply.ok();
            });
        }
        match close(&self.fs) {
            None => reply.ok(),
            Some(abandoned) => waiting::spawn(move || {
                forget(&fs, &abandoned);
                reply.ok();
            }),
        }
    }

    /// Answers when the log has all that the file holds.
    pub(super) fn sync_content(&self, request: &Request, handle: HandleId, reply: ReplyEmpty) {
        if !self.fs.may_be_behind(handle) {
            return self.after_barrier(request, |synced| answer_empty(reply, synced));
        }
        let who = Who::of(request);
        let done = self
            .waiting
            .until_killed(&who, |synced| answer_empty(reply, synced));
        let fs = self.fs.clone();
        waiting::spawn(move || match who.wait(|call| fs.catch_up(call, handle)) {
            Ok(()) => fs.sync(done),
            Err(error) => done(Err(error)),
        });
    }
}
