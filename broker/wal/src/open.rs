//! Opens a log: recovers, makes good what the spools lack, and begins a new run.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, Hasher, RandomState},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use gazette_protocol::{Fragment, LabelSet};

use crate::{
    disk::{Disk, OpenMode},
    error::{Corruption, CorruptionCause, Failure, LogError, OpenError},
    format::{Checks, SegmentHeader, payload::Identity},
    ledger::Ledger,
    log::RecoveredSpool,
    options::{Durability, Options, SEGMENTS_MIN},
    recover::{Image, recover},
    shared::Shared,
    spool::{self, SpoolFile, SpoolFolder},
    writer::{Segments, Writer, parse_segment_name},
};

mod mend;
mod rest;

/// A log that is ready to run.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) writer: Writer,
    pub(crate) journals: Vec<OpenedJournal>,
}

/// A journal that was in it.
#[derive(Debug)]
pub(crate) struct OpenedJournal {
    pub(crate) identity: Arc<Identity>,
    pub(crate) registers: Arc<LabelSet>,
    pub(crate) end: i64,
    pub(crate) spools: Vec<RecoveredSpool>,
}

/// Opens a log. The options are valid.
pub(crate) fn open(
    options: &Options,
    disk: Arc<dyn Disk>,
    checks: Checks,
) -> Result<Opened, OpenError> {
    for dir in [&options.wal_dir, &options.spool_dir] {
        disk.create_dir(dir)
            .map_err(failure("create folder", dir))?;
    }

    let found = find_segments(&*disk, &options.wal_dir)?;
    let mut recovery = recover(&found.images, checks)?;
    if let Some((path, offset)) = &recovery.torn_at {
        let path = path.display();
        tracing::info!(%path, offset, "log ends in a write that was not acknowledged");
    }
    let spools = find_spools(&*disk, &options.spool_dir)?;
    if !recovery.established && !spools.is_empty() {
        let cause = CorruptionCause::NoLog {
            spools: spools.len(),
        };
        let path = options.wal_dir.clone();
        return Err(Corruption {
            path,
            offset: 0,
            journal: None,
            cause,
        }
        .into());
    }
    mend::mend(options, &*disk, &mut recovery, spools.is_empty())?;
    let mut damaged = std::mem::take(&mut recovery.damaged);

    let next_id = spools
        .last()
        .map_or(1, |id| id.saturating_add(1))
        .max(recovery.next_id);
    let (max, dir) = (options.open_files_max, options.spool_dir.clone());
    let folder = SpoolFolder::new(disk, dir, options.durability, max);
    let disk = &folder.disk;
    let shared = Shared::new(Arc::clone(&folder), next_id);
    let header = SegmentHeader {
        synced: options.durability == Durability::Durable,
        follows: recovery.established,
        generation: recovery.next_generation,
        first_lsn: recovery.next_lsn,
        run: recovery.next_generation,
        salt: RandomState::new().build_hasher().finish(),
        previous_end: recovery.next_lsn,
        segment_bytes: options.segment_bytes,
    };
    let ledger = recovery
        .ledger
        .map(|id, fragment, _| folder.existing(id, fragment.begin));
    let journals = journals(&ledger, &mut damaged);
    let live: BTreeSet<_> = ledger
        .journals()
        .values()
        .flat_map(|j| j.spools.keys())
        .collect();
    let orphans: Vec<u64> = spools.into_iter().filter(|id| !live.contains(id)).collect();

    let mut segments = segments(options, disk, &found, &recovery.live)?;
    if segments.free() == 0 {
        segments.make().map_err(made)?;
    }
    let writer = Writer::new(Arc::clone(&shared), ledger, segments, header);
    let mut writer = writer.map_err(failure("begin log in", &options.wal_dir))?;
    writer.establish().map_err(|err| match err {
        LogError::Failed(failure) => OpenError::Io(failure),
        LogError::Closed | LogError::TooLarge { .. } => unreachable!("only disks fail here"),
    })?;
    writer.adopt(recovery.live, SEGMENTS_MIN).map_err(made)?;
    remove_orphans(&**disk, &options.spool_dir, &orphans);
    Ok(Opened {
        shared,
        writer,
        journals,
    })
}

/// The files in the folder of the log.
struct Found {
    images: Vec<Image>,
    next_number: u64,
}

fn find_segments(disk: &dyn Disk, dir: &Path) -> Result<Found, OpenError> {
    let mut found = Found {
        images: Vec::new(),
        next_number: 1,
    };
    for name in disk.list(dir).map_err(failure("list", dir))? {
        let Some(number) = parse_segment_name(&name) else {
            continue;
        };
        found.next_number = found.next_number.max(number.saturating_add(1));
        let path = dir.join(&name);
        let bytes = read_whole(disk, &path).map_err(failure("read", &path))?;
        found.images.push(Image { path, bytes });
    }
    Ok(found)
}

fn read_whole(disk: &dyn Disk, path: &Path) -> io::Result<Bytes> {
    let file = disk.open(path, OpenMode::Existing)?;
    let length = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes.into())
}

/// The numbers of the spool files, ascending.
fn find_spools(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>, OpenError> {
    let names = disk.list(dir).map_err(failure("list", dir))?;
    let mut ids: Vec<u64> = names
        .iter()
        .filter_map(|name| spool::parse_file_name(name))
        .collect();
    ids.sort_unstable();
    Ok(ids)
}

/// The segments that hold nothing that is needed. Those of another length are removed.
fn segments(
    options: &Options,
    disk: &Arc<dyn Disk>,
    found: &Found,
    live: &[PathBuf],
) -> Result<Segments, OpenError> {
    if options.durability == Durability::Durable {
        // A process that ended while it made a file may have left the name to be synced.
        let dir = &options.wal_dir;
        disk.sync_dir(dir).map_err(failure("sync", dir))?;
    }
    let (bytes, wanted) = (options.segment_bytes, options.segments);
    let mut segments = Segments::new(
        Arc::clone(disk),
        &options.wal_dir,
        bytes,
        wanted,
        found.next_number,
    );
    for image in found
        .images
        .iter()
        .filter(|image| !live.contains(&image.path))
    {
        let path = &image.path;
        if image.bytes.len() as u64 == bytes {
            segments.add(path.clone()).map_err(failure("open", path))?;
        } else {
            disk.unlink(path).map_err(failure("remove", path))?;
        }
    }
    Ok(segments)
}

fn journals(
    ledger: &Ledger<SpoolFile>,
    damaged: &mut BTreeMap<u64, Corruption>,
) -> Vec<OpenedJournal> {
    let mut journals = Vec::new();
    for journal in ledger.journals().values() {
        let spools = journal.spools.iter().map(|(id, spool)| RecoveredSpool {
            damage: damaged.remove(id),
            fragment: Fragment {
                journal: journal.identity.name.clone(),
                ..spool.fragment.clone()
            },
            first_append: spool.first_append,
            registers: Arc::clone(&spool.registers),
            complete: spool.complete || spool.fragment.end != journal.end,
            file: spool.extra.clone(),
        });
        journals.push(OpenedJournal {
            identity: Arc::clone(&journal.identity),
            registers: Arc::clone(&journal.registers),
            end: journal.end,
            spools: spools.collect(),
        });
    }
    journals
}

/// Removes files of spools that no record names: what they held was never acknowledged, or was
/// dropped.
fn remove_orphans(disk: &dyn Disk, dir: &Path, orphans: &[u64]) {
    for id in orphans {
        let path = dir.join(spool::file_name(*id));
        if let Err(err) = disk.unlink(&path) {
            let path = path.display();
            tracing::warn!(%path, %err, "file of no spool stays");
        }
    }
}

/// Makes a [`Failure`] of the disk's answer.
fn failure(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |err| Failure {
        operation,
        path: path.to_path_buf(),
        source: Arc::new(err),
    }
}

fn made((path, err): (PathBuf, io::Error)) -> Failure {
    failure("make segment", &path)(err)
}
