//! Gives each spool file what the log has for it, and nothing else.

use std::{
    io::{self, IoSlice},
    path::PathBuf,
    sync::Arc,
};

use super::failure;
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
}

/// Checks that the spool files have what they must have, writes what the log has for them, cuts
/// what was not acknowledged, and syncs. Changes nothing where a file is damaged.
pub(super) fn mend(
    options: &Options,
    disk: &dyn Disk,
    recovery: &mut Recovery,
) -> Result<(), OpenError> {
    let mut due = Vec::new();
    let mut lost = Vec::new();
    let synced = recovery.synced;
    for (journal_id, journal) in recovery.ledger.journals_mut() {
        for (spool_id, spool) in &mut journal.spools {
            let path = options.spool_dir.join(file_name(*spool_id));
            let found = match disk
                .open(&path, OpenMode::Existing)
                .and_then(|file| file.len())
            {
                Ok(length) => Some(length),
                Err(err) if err.kind() == io::ErrorKind::NotFound => None,
                Err(err) => return Err(failure("open", &path)(err).into()),
            };
            let this = Due {
                journal: journal.identity.name.clone(),
                path,
                found,
                length: spool.fragment.end.abs_diff(spool.fragment.begin),
                writes: std::mem::take(&mut spool.extra),
            };
            match check(&this) {
                Ok(()) => due.push(this),
                Err(corruption) if synced => return Err(corruption.into()),
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
    let durable = options.durability == Durability::Durable;
    for some in due.chunks(FILES_MAX) {
        let mut files = Vec::with_capacity(some.len());
        for this in some {
            files.push(write(disk, this).map_err(failure("mend", &this.path))?);
        }
        if durable {
            disk.sync_files(&files)
                .map_err(failure("sync spools in", &options.spool_dir))?;
        }
    }
    if durable {
        let dir = &options.spool_dir;
        disk.sync_dir(dir).map_err(failure("sync", dir))?;
    }
    Ok(())
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
