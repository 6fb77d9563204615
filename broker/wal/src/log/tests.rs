//! Tests of whole logs, on a disk that crashes. They run without threads: the test decides who
//! goes next, so that a seed is one history.

use std::{path::Path, sync::Arc, time::Duration};

use super::*;
use crate::{
    disk::SimDisk,
    planted::Planted,
    writer::{Next, Writer},
};

mod crashes;
mod faults;
mod model;
mod threads;

/// A log without threads.
pub(crate) struct Manual {
    pub(crate) log: Log,
    writer: Writer,
}

impl Manual {
    pub(crate) fn open(
        options: &Options,
        disk: &SimDisk,
        planted: Planted,
    ) -> Result<(Self, Vec<RecoveredJournal>), OpenError> {
        let checks = Checks {
            records: !planted.no_record_check,
        };
        let disk = planted.wrap(Arc::new(disk.clone()));
        let Opened {
            shared,
            writer,
            journals,
        } = open::open(options, disk, checks)?;
        let handle = Arc::new(Handle {
            shared,
            threads: Mutex::default(),
        });
        let recovered = recovered(journals, &handle);
        Ok((
            Self {
                log: Log { handle },
                writer,
            },
            recovered,
        ))
    }

    /// Lets the writer go one round.
    pub(crate) fn round(&mut self) -> Next {
        self.writer.round(Duration::ZERO)
    }

    /// Lets the writer go one round as if nothing had come for a while.
    pub(crate) fn idle_round(&mut self) -> Next {
        self.writer.round(Duration::from_nanos(1))
    }

    /// Lets a helper do one job, if there is one.
    pub(crate) fn job(&self) -> bool {
        let shared = &self.log.handle.shared;
        let job = shared.pool.try_take(false);
        job.map(|job| pool::perform(shared, job)).is_some()
    }

    /// Closes files that are idle.
    pub(crate) fn close_idle(&self) {
        pool::close_idle(&self.log.handle.shared);
    }

    /// Lets all go until nothing moves.
    pub(crate) fn settle(&mut self) {
        loop {
            let next = self.round();
            if !self.job() && next != Next::Again {
                return;
            }
        }
    }
}

/// Small segments, so that they are used again and again.
pub(crate) fn options() -> Options {
    let mut options = Options::new("/wal", "/spools");
    options.segment_bytes = SEGMENT_BYTES;
    options.segments = 3;
    options.open_files_max = 3;
    options
}

const SEGMENT_BYTES: u64 = 32 << 10;

/// The segment files on a disk, with their bytes.
fn segment_files(disk: &SimDisk) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let names = disk.list(Path::new("/wal")).unwrap();
    let paths = names.iter().map(|name| Path::new("/wal").join(name));
    paths
        .map(|path| (path.clone(), disk.read(&path).unwrap()))
        .collect()
}

/// Appends to a spool that began at 0 with nothing but its content.
pub(crate) fn append(journal: &JournalLog, spool: &SpoolFile, at: usize, content: &[u8]) -> Ack {
    spool.write_at(at as u64, content).unwrap();
    let append_begin = spool.begin() + i64::try_from(at).unwrap();
    let end = append_begin + i64::try_from(content.len()).unwrap();
    let inline = content.len() <= crate::INLINE_MAX_BYTES;
    journal.commit(Commit {
        spool: spool.clone(),
        fragment: Fragment {
            begin: spool.begin(),
            end,
            ..Fragment::default()
        },
        append_begin,
        registers: Arc::default(),
        first_append: None,
        content: if inline {
            Content::Inline(vec![content.to_vec().into()])
        } else {
            Content::InSpool
        },
    })
}

impl Ack {
    /// Lets all go until nothing moves, and takes the answer.
    fn wait_for(mut self, manual: &mut Manual) -> Result<(), LogError> {
        manual.settle();
        self.0.try_recv().unwrap()
    }
}

/// Waits for all of them.
pub(crate) fn wait_all(acks: impl IntoIterator<Item = Ack>) {
    for ack in acks {
        ack.wait().unwrap();
    }
}
