//! Sizes, times, owners and modes; holes; free space.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    caller::Caller,
    coverage::Coverage,
    error::{Cause, FsError},
    fs::{JournalFs, Names},
    handle::HandleId,
    inode::Inode,
    tree::{Ino, Kind},
};

/// What stat(2) shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// The node.
    pub ino: Ino,
    /// Tells nodes with the same number apart, which there are none of.
    pub generation: u64,
    /// What it is.
    pub kind: Kind,
    /// Bytes, with holes.
    pub size: u64,
    /// Units of 512 bytes that are stored.
    pub blocks: u64,
    /// When it changed last, as far as it is known.
    pub mtime: SystemTime,
    /// Links to it.
    pub nlink: u32,
    /// Its mode, 12 bits.
    pub mode: u16,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// What a program wants to change of a node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Change {
    /// Its size.
    pub size: Option<u64>,
    /// Its mode.
    pub mode: Option<u32>,
    /// Its owner.
    pub uid: Option<u32>,
    /// Its group.
    pub gid: Option<u32>,
    /// Its time of the last change.
    pub mtime: Option<SystemTime>,
}

/// What to look for in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that are stored.
    Data,
    /// Bytes that were pruned. The end of the file counts too.
    Hole,
}

/// Free space, as statfs(2) shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks that are free.
    pub free: u64,
    /// Blocks that a program may use.
    pub available: u64,
    /// Journals that are there.
    pub files: u64,
}

impl JournalFs {
    /// Returns what is known of a node without asking.
    pub(super) fn known_attributes(&self, ino: Ino) -> Result<Attributes, Cause> {
        let names = self.names();
        match names.tree.kind(ino) {
            Some(Kind::Directory) => Ok(self.directory_attributes(&names, ino)),
            Some(Kind::Journal) => {
                let inode = names.inodes.get(&ino).ok_or(Cause::Stale)?;
                Ok(self.journal_attributes(inode, inode.head(), None))
            }
            None => Err(Cause::Stale),
        }
    }

    /// Returns the attributes of a node that does not change behind our back.
    pub fn try_attributes(&self, ino: Ino) -> Option<Result<Attributes, FsError>> {
        let kind = self.names().tree.kind(ino);
        if kind == Some(Kind::Journal) {
            return None;
        }
        let known = self.known_attributes(ino);
        Some(known.map_err(|cause| FsError::new("look at", format!("node {}", ino.0), cause)))
    }

    /// Returns the attributes of a journal as brokers say them now. `handle` is of the file that
    /// is looked at, if it is open: then it may have lost its name.
    pub async fn attributes(
        &self,
        caller: Caller,
        ino: Ino,
        handle: Option<HandleId>,
    ) -> Result<Attributes, FsError> {
        if let Some(known) = self.try_attributes(ino)
            && known.is_ok()
        {
            return known;
        }
        let inode = match handle.map(|handle| self.handles().file(handle)) {
            Some(Ok(handle)) if handle.inode.ino == ino => Ok(Arc::clone(&handle.inode)),
            _ => self.inode(ino),
        };
        let object = format!("node {}", ino.0);
        let inode = inode.map_err(|cause| FsError::new("look at", object, cause))?;
        let attributes = self.fresh_attributes(caller, &inode).await;
        attributes.map_err(|cause| FsError::new("look at", &*inode.name, cause))
    }

    async fn fresh_attributes(&self, caller: Caller, inode: &Inode) -> Result<Attributes, Cause> {
        inode.check()?;
        let patience = self.patience(caller);
        // A size that a program saw after its own write must not be smaller.
        patience.wait(inode.settled()).await?;
        // Only the number of blocks depends on what is stored.
        let coverage = async {
            if self.is_away() {
                return None;
            }
            self.ask_coverage(inode, patience.at_most(COVERAGE_TIMEOUT))
                .await
                .ok()
        };
        // Boxed, as both are large.
        let (head, coverage) = (
            Box::pin(self.ask_head_or_known(inode, patience)),
            Box::pin(coverage),
        );
        let (head, coverage) = if inode.head().is_some() {
            let (head, coverage) = tokio::join!(head, coverage);
            (head?, coverage)
        } else {
            // A list can only be understood with a head that is older.
            (head.await?, coverage.await)
        };
        Ok(self.journal_attributes(inode, Some(head), coverage.as_deref()))
    }

    /// Changes what can be changed of a node, which is little, and returns what it is then.
    pub async fn change(
        &self,
        caller: Caller,
        ino: Ino,
        handle: Option<HandleId>,
        change: Change,
    ) -> Result<Attributes, FsError> {
        let object = || {
            let names = self.names();
            let path = names.tree.name(ino).or_else(|| names.tree.path(ino));
            path.map_or_else(|| format!("node {}", ino.0), str::to_owned)
        };
        let now = self.attributes(caller, ino, handle).await?;
        check_change(&now, change).map_err(|cause| FsError::new("change", object(), cause))?;
        if let Some(mtime) = change.mtime
            && let Ok(inode) = self.inode(ino)
        {
            inode.set_mtime(mtime);
            return Ok(Attributes { mtime, ..now });
        }
        Ok(now)
    }

    /// Finds data or a hole from an offset on.
    pub async fn seek(
        &self,
        caller: Caller,
        handle: HandleId,
        offset: i64,
        seek: Seek,
    ) -> Result<i64, FsError> {
        let handle = self.handles().file(handle);
        let handle = handle.map_err(|cause| FsError::new("seek in", "", cause))?;
        let found = self.seek_from(caller, &handle.inode, offset, seek).await;
        found.map_err(|cause| FsError::new("seek in", &*handle.inode.name, cause))
    }

    async fn seek_from(
        &self,
        caller: Caller,
        inode: &Inode,
        offset: i64,
        seek: Seek,
    ) -> Result<i64, Cause> {
        let patience = self.patience(caller);
        patience.wait(inode.settled()).await?;
        let head = self.ask_head(inode, patience).await?;
        let coverage = self.ask_coverage(inode, patience).await?;
        let origin = inode.origin().unwrap_or(0);
        let from = offset
            .checked_add(origin)
            .filter(|_| offset >= 0)
            .ok_or(Cause::NoData)?;
        let found = match seek {
            Seek::Data => coverage.next_data(from, head),
            Seek::Hole => coverage.next_hole(from, head),
        };
        found.map(|found| found - origin).ok_or(Cause::NoData)
    }

    /// Returns the free space.
    pub fn space(&self) -> Space {
        let files = self.names().inodes.len() as u64;
        let space = self
            .options()
            .space_of
            .as_deref()
            .and_then(|folder| space_of(folder, files));
        space.unwrap_or(Space {
            block_bytes: BLOCK_BYTES,
            blocks: UNKNOWN_BLOCKS,
            free: UNKNOWN_BLOCKS,
            available: UNKNOWN_BLOCKS,
            files,
        })
    }

    fn directory_attributes(&self, names: &Names, ino: Ino) -> Attributes {
        let mode = self.options().mode;
        Attributes {
            ino,
            generation: 0,
            kind: Kind::Directory,
            size: 0,
            blocks: 0,
            mtime: self.started(),
            nlink: u32::try_from(names.tree.subdirectories(ino)).unwrap_or(u32::MAX - 2) + 2,
            // Who may read a directory may also search it.
            mode: mode | (mode & 0o444) >> 2,
            uid: self.options().uid,
            gid: self.options().gid,
        }
    }

    fn journal_attributes(
        &self,
        inode: &Inode,
        head: Option<i64>,
        coverage: Option<&Coverage>,
    ) -> Attributes {
        let end = head.unwrap_or(0);
        let first = coverage.map_or(0, |coverage| coverage.first(end));
        let origin = match self.options().origin {
            super::Origin::Zero => 0,
            super::Origin::Available => inode.origin().unwrap_or(first),
        };
        let stored = coverage.map_or(end - origin, |coverage| coverage.bytes(end));
        Attributes {
            ino: inode.ino,
            generation: u64::try_from(inode.create_revision).unwrap_or(0),
            kind: Kind::Journal,
            size: u64::try_from(end - origin).unwrap_or(0),
            blocks: u64::try_from(stored).unwrap_or(0).div_ceil(512),
            mtime: inode.mtime(),
            nlink: 1,
            mode: self.options().mode,
            uid: self.options().uid,
            gid: self.options().gid,
        }
    }
}

fn check_change(now: &Attributes, change: Change) -> Result<(), Cause> {
    match change.size {
        Some(_) if now.kind == Kind::Directory => return Err(Cause::IsDirectory),
        Some(size) if size != now.size => {
            return Err(Cause::AppendOnly {
                what: "it cannot be cut or filled up to another size",
            });
        }
        Some(_) | None => {}
    }
    let fixed = |what| Err(Cause::FixedAttribute { what });
    match change {
        Change {
            mode: Some(mode), ..
        } if mode & 0o7777 != u32::from(now.mode) => fixed("mode"),
        Change { uid: Some(uid), .. } if uid != now.uid => fixed("owner"),
        Change { gid: Some(gid), .. } if gid != now.gid => fixed("group"),
        _ => Ok(()),
    }
}

fn space_of(folder: &Path, files: u64) -> Option<Space> {
    let space = rustix::fs::statvfs(folder).ok()?;
    Some(Space {
        block_bytes: u32::try_from(space.f_frsize).ok()?,
        blocks: space.f_blocks,
        free: space.f_bfree,
        available: space.f_bavail,
        files,
    })
}

/// How long stat(2) waits for the number of blocks.
const COVERAGE_TIMEOUT: Duration = Duration::from_secs(2);

const BLOCK_BYTES: u32 = 4096;
/// A tebibyte, where nobody knows what the brokers have.
const UNKNOWN_BLOCKS: u64 = 1 << 28;
