//! Gives each spool file what the log has for it, and nothing else.
//!
//! A file that lacks more than the log has is damaged, which is the end of its journal only. It is
//! left as it is, and what the log has for it is kept beside it.

use std::{
    io::{self, IoSlice},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{failure, rest};
use crate::{
    disk::{Disk, DiskFile, OpenMode},
    error::{Corruption, CorruptionCause, OpenError},
    options::{Durability, Options},
    recover::{Recovery, SpoolWrites},
    spool::file_name,
};

/// Files that are open at a time.
const FILES_MAX: usize = 128;

/// A spool and its file.
struct Due {
    journal: String,
    path: PathBuf,
    /// Length of the file; nothing if there is none.
    found: Option<u64>,
    /// Length of what was acknowledged.
    length: u64,
    writes: SpoolWrites,
    /// Some of the writes were kept from an earlier time, in this file.
    rest: Option<PathBuf>,
}

/// Checks that the spool files have what they must have, writes what the log has for them, cuts
/// what was not acknowledged, and syncs. Files that are damaged stay as they are, and are told in
/// `recovery`; `found_none` says that there are no spool files at all, which is no damage of one.
pub(super) fn mend(
    options: &Options,
    disk: &dyn Disk,
    recovery: &mut Recovery,
    found_none: bool,
) -> Result<(), OpenError> {
    let dir = &options.spool_dir;
    let durable = options.durability == Durability::Durable;
    let mut rests = rest::list(disk, dir).map_err(failure("list", dir))?;
    let mut due = Vec::new();
    let mut lost = Vec::new();
    let synced = recovery.synced;
    for (journal_id, journal) in recovery.ledger.journals_mut() {
        for (spool_id, spool) in &mut journal.spools {
            let path = dir.join(file_name(*spool_id));
            let mut this = Due {
                journal: journal.identity.name.clone(),
                found: length(disk, &path).map_err(failure("open", &path))?,
                path,
                length: spool.fragment.end.abs_diff(spool.fragment.begin),
                writes: std::mem::take(&mut spool.extra),
                rest: None,
            };
            let is_in_log = !this.writes.writes.is_empty();
            if rests.remove(spool_id) {
                let path = rest::path(dir, *spool_id);
                let kept = rest::read(disk, &path).map_err(failure("read", &path))?;
                this.writes.writes.splice(0..0, kept);
                this.rest = Some(path);
            }
            match check(&this) {
                Ok(()) => due.push(this),
                Err(corruption) if synced && found_none => return Err(corruption.into()),
                Err(corruption) if synced => {
                    if is_in_log {
                        let path = rest::path(dir, *spool_id);
                        rest::write(disk, &path, &this.writes.writes)
                            .map_err(failure("write", &path))?;
                    }
                    recovery.damaged.insert(*spool_id, corruption);
                }
                Err(corruption) => {
                    // It was never synced, and a power cut was not promised to spare it.
                    tracing::warn!(err = %corruption, "spool is lost, the log was not synced");
                    lost.push((*journal_id, *spool_id));
                }
            }
        }
    }
    for (journal_id, spool_id) in lost {
        recovery.ledger.drop_spool(journal_id, spool_id);
    }

    // What is as it should be needs no look.
    due.retain(|this| {
        !synced || !this.writes.writes.is_empty() || this.found.is_some_and(|l| l > this.length)
    });
    for some in due.chunks(FILES_MAX) {
        let mut files = Vec::with_capacity(some.len());
        for this in some {
            files.push(write(disk, this).map_err(failure("mend", &this.path))?);
        }
        if durable {
            disk.sync_files(&files)
                .map_err(failure("sync spools in", dir))?;
        }
    }
    if durable {
        disk.sync_dir(dir).map_err(failure("sync", dir))?;
    }
    // What was kept is in its place now, or its spool is gone.
    let done = due.into_iter().filter_map(|this| this.rest);
    for path in done.chain(rests.iter().map(|id| rest::path(dir, *id))) {
        disk.unlink(&path).map_err(failure("remove", &path))?;
    }
    Ok(())
}

/// The length of a file; nothing if there is none.
fn length(disk: &dyn Disk, path: &Path) -> io::Result<Option<u64>> {
    let opened = disk.open(path, OpenMode::Existing);
    match opened.and_then(|file| file.len()) {
        Ok(length) => Ok(Some(length)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

/// Whether the file, with the writes, has all bytes.
fn check(this: &Due) -> Result<(), Corruption> {
    let corruption = |offset, cause| {
        let journal = Some(this.journal.clone());
        Err(Corruption {
            path: this.path.clone(),
            offset,
            journal,
            cause,
        })
    };
    let mut length = this.found.unwrap_or(0);
    let mut missing = this.found.is_none();
    for (offset, content) in &this.writes.writes {
        if length < *offset {
            break;
        }
        missing = false;
        length = length.max(*offset + content.len() as u64);
    }
    if missing {
        return corruption(
            0,
            CorruptionCause::MissingSpool {
                expected: this.length,
            },
        );
    }
    if length < this.length {
        let cause = CorruptionCause::ShortSpool {
            actual: length,
            expected: this.length,
        };
        return corruption(length, cause);
    }
    Ok(())
}

fn write(disk: &dyn Disk, this: &Due) -> io::Result<Arc<dyn DiskFile>> {
    let mode = if this.found.is_some() {
        OpenMode::Existing
    } else {
        OpenMode::Create
    };
    let file = disk.open(&this.path, mode)?;
    let mut length = this.found.unwrap_or(0);
    for (offset, content) in &this.writes.writes {
        file.write_at(*offset, &[IoSlice::new(content)])?;
        length = length.max(*offset + content.len() as u64);
    }
    if length > this.length {
        file.set_len(this.length)?;
    }
    Ok(file)
}
