//! Plays the log of a run, and judges what is there behind each op: for `SQLite` by opening the
//! database, for fsx by comparing the file.
//!
//! A batch of ops is what happened to be waiting when the append before it was acknowledged. So
//! each op that ends a mutation could have been the end of an append, and of the log.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use bytes::Bytes;
use gazette_recoverylog_fsm::{Applied, FsmHints, Mode, image::MemoryImage};
use rusqlite::Connection;

/// Files of the database by name. Its index of the write-ahead log is not recorded.
type Files = BTreeMap<String, Vec<u8>>;

/// Checks the log `MODE.log` in a folder against `MODE.acknowledged`, whose lines are a transaction
/// and where the log ended when it had been acknowledged.
pub(super) fn check(folder: &Path, mode: &str, transactions: i64) {
    let log: Arc<str> = "programs/log".into();
    let bytes = Bytes::from(fs::read(folder.join(format!("{mode}.log"))).expect("read the log"));
    let marks = fs::read_to_string(folder.join(format!("{mode}.acknowledged"))).expect("read");
    let mut marks: Vec<(i64, i64)> = marks.lines().map(parse).collect();
    marks.reverse();

    let database = tempfile::tempdir().expect("make a folder");
    let mut image = MemoryImage::new(Mode::Native, &FsmHints::of_log(&log)).expect("start");
    let (mut acknowledged, mut held, mut opened) = (0, 0, 0);
    let mut before = Files::new();
    let played = image.play(&log, &bytes, |image, decoded, applied| {
        assert_eq!(applied, Ok(Applied::Applied), "the op at {}", decoded.begin);
        while let Some((transaction, _)) = marks.pop_if(|(_, head)| *head <= decoded.end) {
            acknowledged = transaction;
        }
        if decoded.op.group.is_some_and(|group| !group.last) {
            return;
        }
        let files = files(image);
        if files != before {
            held = open(database.path(), &files, held, decoded.end);
            opened += 1;
            before = files;
        }
        assert!(
            held >= acknowledged,
            "{mode}: behind {}: {acknowledged} transactions were acknowledged, {held} are there",
            decoded.end
        );
    });
    played.expect("the log plays to its end");
    assert_eq!((held, acknowledged), (transactions, transactions), "{mode}");
    assert!(
        opened > transactions,
        "{mode}: hardly anything was recorded"
    );
}

/// Plays the log `NAME.log` in a folder, and expects the content of each of the files `1.state`,
/// `2.state` and so on in the one file that was recorded, in this order.
pub(super) fn find_states(folder: &Path, name: &str) {
    let log: Arc<str> = "programs/log".into();
    let bytes = Bytes::from(fs::read(folder.join(format!("{name}.log"))).expect("read the log"));
    let state = |number: u32| fs::read(folder.join(format!("{number}.state"))).ok();
    let (mut number, mut next) = (1, state(1));
    let mut image = MemoryImage::new(Mode::Native, &FsmHints::of_log(&log)).expect("start");
    let played = image.play(&log, &bytes, |image, decoded, applied| {
        assert_eq!(applied, Ok(Applied::Applied), "the op at {}", decoded.begin);
        if decoded.op.group.is_some_and(|group| !group.last) {
            return;
        }
        let Some(now) = files(image).into_values().next() else {
            return;
        };
        // Some operations change nothing.
        while next.as_ref() == Some(&now) {
            number += 1;
            next = state(number);
        }
    });
    played.expect("the log plays to its end");
    assert_eq!(
        next, None,
        "no prefix of the log is as operation {number} left the file"
    );
    assert!(number > 1, "there is no state to compare with");
}

fn parse(line: &str) -> (i64, i64) {
    let (transaction, head) = line.split_once(' ').expect("two words");
    (
        transaction.parse().expect("a number"),
        head.parse().expect("an offset"),
    )
}

fn files(image: &MemoryImage) -> Files {
    let children = image.tree.children(gazette_recoverylog_fsm::Fnode::ROOT);
    let named = children.into_iter().map(|(name, fnode)| {
        let name = String::from_utf8(name.to_vec()).expect("SQLite's names are text");
        (name, image.content(fnode).bytes())
    });
    named.filter(|(name, _)| !name.ends_with("-shm")).collect()
}

/// Opens the database, and returns how many transactions it holds: no fewer than a shorter log.
fn open(folder: &Path, files: &Files, least: i64, offset: i64) -> i64 {
    for name in ["d.db", "d.db-wal", "d.db-shm", "d.db-journal"] {
        drop(fs::remove_file(folder.join(name)));
    }
    for (name, content) in files {
        fs::write(folder.join(name), content).expect("write");
    }
    let database = Connection::open(folder.join("d.db")).expect("open");
    let result: String = database
        .query_row("pragma integrity_check", (), |row| row.get(0))
        .unwrap_or_else(|error| panic!("behind {offset}: {error}"));
    assert_eq!(result, "ok", "behind {offset}");
    let rows = "select count(*), coalesce(max(n), 0) from t";
    let (rows, last): (i64, i64) =
        match database.query_row(rows, (), |row| Ok((row.get(0)?, row.get(1)?))) {
            Ok(counted) => counted,
            // The table is not there yet.
            Err(error) if least == 0 && error.to_string().contains("no such table") => (0, 0),
            Err(error) => panic!("behind {offset}: {error}"),
        };
    assert_eq!(rows, last, "behind {offset}: a gap");
    assert!(
        rows >= least,
        "behind {offset}: {rows} transactions, and {least} before"
    );
    rows
}
