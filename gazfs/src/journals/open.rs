//! Opening and closing of files.

use std::{sync::Arc, time::Duration};

use gazette_protocol::journal_spec::Flag;

use super::{
    caller::Caller,
    error::{Cause, FsError},
    fs::{Ack, JournalFs, Origin},
    handle::{Handle, HandleId},
    inode::Inode,
    tree::Ino,
};

/// How a file is opened.
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are the flags of open(2), which any program combines"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenFlags {
    /// It will be read.
    pub may_read: bool,
    /// It will be written.
    pub may_write: bool,
    /// It shall be empty.
    pub is_truncating: bool,
    /// It must not be there yet.
    pub is_exclusive: bool,
}

/// A file that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Its number.
    pub handle: HandleId,
    /// Its last close has something to wait for.
    pub wants_flush: bool,
    /// Its pages may be kept. What is stored never changes, but the kernel drops all pages of a
    /// file when its size changes, so this is no gain where a journal grows.
    pub may_cache: bool,
}

impl JournalFs {
    /// Opens a journal, if nothing about it has to be asked.
    pub fn try_open(&self, ino: Ino, flags: OpenFlags) -> Option<Result<Opened, FsError>> {
        let inode = match self.inode(ino) {
            Ok(inode) => inode,
            Err(cause) => return Some(Err(FsError::new("open", "", cause))),
        };
        let is_ready = !flags.is_truncating
            && check_flags(&inode, flags).is_ok()
            && self.origin_is_fixed(&inode);
        is_ready.then(|| Ok(self.opened(inode, flags)))
    }

    /// Opens a journal.
    pub async fn open(
        &self,
        caller: Caller,
        ino: Ino,
        flags: OpenFlags,
    ) -> Result<Opened, FsError> {
        let inode = self
            .inode(ino)
            .map_err(|cause| FsError::new("open", "", cause))?;
        let name = inode.name.clone();
        self.open_slowly(caller, inode, flags)
            .await
            .map_err(|cause| FsError::new("open", name, cause))
    }

    async fn open_slowly(
        &self,
        caller: Caller,
        inode: Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<Opened, Cause> {
        let patience = self.patience(caller);
        if check_flags(&inode, flags).is_err() {
            // They may have been changed a moment ago.
            self.relist(&inode, patience).await?;
            check_flags(&inode, flags)?;
        }
        if !self.origin_is_fixed(&inode) {
            let head = self.ask_head(&inode, patience).await?;
            let coverage = self.ask_coverage(&inode, patience).await?;
            inode.fix_origin(coverage.first(head));
        }
        if flags.is_truncating {
            patience.wait(inode.settled()).await?;
            let head = self.ask_head(&inode, patience).await?;
            if head > inode.origin().unwrap_or(0) {
                return Err(Cause::AppendOnly {
                    what: "it cannot be emptied",
                });
            }
        }
        Ok(self.opened(inode, flags))
    }

    /// Closes a file. Appends that are under way go on.
    pub fn release(&self, handle: HandleId) {
        let handle = self.handles().close(handle);
        if handle.is_some_and(|handle| handle.close()) {
            self.count_failed_append();
        }
    }

    fn opened(&self, inode: Arc<Inode>, flags: OpenFlags) -> Opened {
        let wants_flush = flags.may_write && self.options().ack == Ack::Close;
        let may_cache = !flags.may_write && inode.is_quiet(QUIET);
        let handle = Handle::new(inode, flags.may_read, flags.may_write);
        Opened {
            handle: self.handles().open(handle),
            wants_flush,
            may_cache,
        }
    }

    fn origin_is_fixed(&self, inode: &Inode) -> bool {
        match self.options().origin {
            Origin::Zero => true,
            Origin::Available => inode.origin().is_some(),
        }
    }
}

/// Checks that the journal's flags allow what a file is opened for.
fn check_flags(inode: &Inode, flags: OpenFlags) -> Result<(), Cause> {
    let journal = inode.with_spec(|spec| spec.flags);
    if flags.may_write && journal == Flag::ORdonly as u32 {
        return Err(Cause::ReadOnlyJournal);
    }
    if flags.may_read && !flags.may_write && journal == Flag::OWronly as u32 {
        return Err(Cause::WriteOnlyJournal);
    }
    Ok(())
}

/// How long a journal must not have grown before its pages are kept.
const QUIET: Duration = Duration::from_secs(2);
