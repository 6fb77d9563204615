//! Whole logs with their threads, on the disk of the machine.

use std::{collections::BTreeMap, fs, path::PathBuf};

use tempfile::TempDir;

use super::*;
use crate::{Durability, RealDisk};

const APPENDERS: usize = 8;
const APPENDS: usize = 150;

fn real_options(folder: &TempDir) -> Options {
    let mut options = Options::new(
        folder.path().join("data/wal"),
        folder.path().join("data/spools"),
    );
    options.segment_bytes = crate::SEGMENT_MIN_BYTES;
    options.segments = 3;
    options
}

fn open(folder: &TempDir) -> (Log, Vec<RecoveredJournal>) {
    Log::open(real_options(folder), Arc::new(RealDisk)).unwrap()
}

/// The byte of a journal's content at an offset.
fn byte(appender: usize, offset: usize) -> u8 {
    u8::try_from((appender * 31 + offset / 7) % 251).unwrap()
}

/// Appends of many sizes, most of them small, several of them at a time. Returns the end.
fn append_all(journal: &JournalLog, appender: usize) -> usize {
    let spool = journal.create_spool(0);
    let mut end = 0;
    let mut acks = Vec::new();
    for number in 0..APPENDS {
        let length = match number % 10 {
            0 => 100_000,
            1 | 2 => 20_000,
            _ => 100 + number,
        };
        let content: Vec<u8> = (end..end + length)
            .map(|offset| byte(appender, offset))
            .collect();
        acks.push(append(journal, &spool, end, &content));
        end += length;
        if number % 4 == 3 {
            wait_all(acks.drain(..));
        }
    }
    wait_all(acks);
    end
}

fn check(recovered: &[RecoveredJournal], ends: &BTreeMap<String, usize>) {
    assert_eq!(recovered.len(), ends.len());
    for found in recovered {
        let appender: usize = found.name.rsplit('/').next().unwrap().parse().unwrap();
        let end = ends[&found.name];
        assert_eq!(found.end, i64::try_from(end).unwrap());
        let mut content = vec![0; end];
        assert_eq!(found.spools[0].file.read_at(0, &mut content).unwrap(), end);
        assert_eq!(found.spools[0].file.len().unwrap(), end as u64);
        let expected: Vec<u8> = (0..end).map(|offset| byte(appender, offset)).collect();
        assert!(content == expected, "{} has its content", found.name);
    }
}

#[test]
fn appenders_side_by_side_find_all_again() {
    let folder = TempDir::new().unwrap();
    let (log, recovered) = open(&folder);
    assert!(recovered.is_empty());
    let mut ends = BTreeMap::new();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for appender in 0..APPENDERS {
            let journal = log.open_journal(&format!("some/{appender}"), 1);
            threads.push(scope.spawn(move || {
                let end = append_all(&journal, appender);
                (journal.name().to_owned(), end)
            }));
        }
        ends.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
    });
    log.close();
    let (log, recovered) = open(&folder);
    check(&recovered, &ends);
    // Not closed, but just left.
    drop((log, recovered));
    let (_log, recovered) = open(&folder);
    check(&recovered, &ends);
}

#[test]
fn a_closed_log_takes_nothing_more() {
    let folder = TempDir::new().unwrap();
    let (log, _) = open(&folder);
    let journal = log.open_journal("some/journal", 1);
    let spool = journal.create_spool(0);
    let mut before = Vec::new();
    for number in 0..20 {
        before.push(append(
            &journal,
            &spool,
            number * 100_000,
            &vec![1; 100_000],
        ));
    }
    log.close();
    wait_all(before);
    let err = append(&journal, &spool, 2_000_000, b"late")
        .wait()
        .unwrap_err();
    assert!(matches!(err, LogError::Closed));
    assert_eq!(
        err.to_string(),
        "write-ahead log is closed; next: restart the broker"
    );
}

/// The spool files that this process has open.
fn open_spools(folder: &TempDir) -> Vec<PathBuf> {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    targets
        .filter(|target| {
            target.starts_with(folder.path()) && target.to_string_lossy().contains(".spool")
        })
        .collect()
}

#[test]
fn idle_journals_hold_no_descriptor() {
    let folder = TempDir::new().unwrap();
    let mut options = real_options(&folder);
    options.open_files_max = 10;
    let (log, _) = Log::open(options, Arc::new(RealDisk)).unwrap();
    let mut journals = Vec::new();
    for number in 0..50 {
        let journal = log.open_journal(&format!("some/{number}"), 1);
        let spool = journal.create_spool(0);
        append(&journal, &spool, 0, b"content").wait().unwrap();
        journals.push((journal, spool));
        assert!(open_spools(&folder).len() <= 10);
    }
    // The first call only takes note of what is used.
    pool::close_idle(&log.handle.shared);
    pool::close_idle(&log.handle.shared);
    assert_eq!(open_spools(&folder), Vec::<PathBuf>::new());
    for (_, spool) in &journals {
        let mut content = [0; 7];
        spool.read_at(0, &mut content).unwrap();
        assert_eq!(&content, b"content");
    }
}

#[test]
fn a_reader_keeps_a_dropped_spool() {
    let folder = TempDir::new().unwrap();
    let (log, _) = open(&folder);
    let journal = log.open_journal("some/journal", 1);
    let spool = journal.create_spool(0);
    append(&journal, &spool, 0, b"content").wait().unwrap();
    let reader = spool.reader().unwrap();
    let completed = Some(spool.clone());
    let roll = Roll {
        completed,
        next_begin: 7,
        registers: Arc::default(),
    };
    journal.roll(roll).wait().unwrap();
    journal.drop_spool(&spool).wait().unwrap();
    assert!(!spool.path().exists());
    let mut content = [0; 7];
    assert_eq!(reader.read_at(0, &mut content).unwrap(), 7);
    assert_eq!(&content, b"content");
    assert!(spool.read_at(0, &mut content).is_err());
}

#[test]
fn an_unsynced_log_works_the_same_way() {
    let folder = TempDir::new().unwrap();
    let mut options = real_options(&folder);
    options.durability = Durability::Replicated;
    let (log, _) = Log::open(options, Arc::new(RealDisk)).unwrap();
    let journal = log.open_journal("some/0", 1);
    let end = append_all(&journal, 0);
    drop(log);
    // And the other mode goes on from there.
    drop(journal);
    let (_log, recovered) = open(&folder);
    check(&recovered, &BTreeMap::from([("some/0".to_owned(), end)]));
}

#[test]
fn options_out_of_range_are_refused() {
    let folder = TempDir::new().unwrap();
    let refused = |change: fn(&mut Options)| {
        let mut options = real_options(&folder);
        change(&mut options);
        Log::open(options, Arc::new(RealDisk))
            .err()
            .unwrap()
            .to_string()
    };
    assert_eq!(
        refused(|options| options.segment_bytes = 4096),
        "open write-ahead log: segment_bytes must be a multiple of 4096, at least 1048576, and \
         less than 4294967296; next: change it"
    );
    assert_eq!(
        refused(|options| options.segments = 2),
        "open write-ahead log: segments must be at least 3; next: change it"
    );
}

#[test]
fn another_segment_length_replaces_the_files() {
    let folder = TempDir::new().unwrap();
    let (log, _) = open(&folder);
    let journal = log.open_journal("some/0", 1);
    let end = append_all(&journal, 0);
    drop(journal);
    log.close();
    let mut options = real_options(&folder);
    options.segment_bytes = 2 * crate::SEGMENT_MIN_BYTES;
    let (log, recovered) = Log::open(options.clone(), Arc::new(RealDisk)).unwrap();
    check(&recovered, &BTreeMap::from([("some/0".to_owned(), end)]));
    drop(recovered);
    log.close();
    for entry in fs::read_dir(&options.wal_dir).unwrap() {
        assert_eq!(
            entry.unwrap().metadata().unwrap().len(),
            options.segment_bytes
        );
    }
}
