//! Spool files on a simulated disk.

use super::*;
use crate::disk::{Crash, SimDisk};

fn folder(disk: &SimDisk, open_files_max: usize) -> Arc<SpoolFolder> {
    let dir = PathBuf::from("/spools");
    disk.create_dir(&dir).unwrap();
    SpoolFolder::new(
        Arc::new(disk.clone()),
        dir,
        Durability::Durable,
        open_files_max,
    )
}

fn content(spool: &SpoolFile) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let read = spool.read_at(0, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

#[test]
fn a_file_is_made_at_the_first_write() {
    let disk = SimDisk::new();
    let folder = folder(&disk, 10);
    let spool = folder.create(7, 100);
    assert_eq!((spool.begin(), spool.len().unwrap()), (100, 0));
    assert_eq!(
        spool.read_at(0, &mut [0]).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    assert!(disk.list(&folder.dir).unwrap().is_empty());
    spool.write_at(0, b"ab").unwrap();
    spool.write_at(2, b"c").unwrap();
    assert_eq!(disk.list(&folder.dir).unwrap(), ["0000000000000007.spool"]);
    assert_eq!(content(&spool), b"abc");
    assert!(!spool.is_empty().unwrap());
}

#[test]
fn a_spool_that_no_commit_named_vanishes() {
    let disk = SimDisk::new();
    let folder = folder(&disk, 10);
    let (lost, kept) = (folder.create(1, 0), folder.create(2, 0));
    lost.write_at(0, b"a").unwrap();
    kept.write_at(0, b"b").unwrap();
    kept.keep();
    drop((lost, kept));
    assert_eq!(disk.list(&folder.dir).unwrap(), ["0000000000000002.spool"]);
}

#[test]
fn a_synced_spool_survives_a_power_cut_with_its_name() {
    let disk = SimDisk::new();
    let first = folder(&disk, 1);
    let spools: Vec<SpoolFile> = (0..20).map(|id| first.create(id, 0)).collect();
    for spool in &spools {
        spool.write_at(0, b"content").unwrap();
    }
    // One sync of the folder is enough for all that were made before.
    let before = disk.calls();
    for spool in &spools {
        spool.sync().unwrap();
    }
    assert_eq!(disk.calls() - before, 21);
    for spool in &spools {
        spool.sync().unwrap();
    }
    assert_eq!(disk.calls() - before, 21, "there is nothing to sync");

    let disk = disk.restart(Crash::PowerCut { seed: 3 });
    let second = folder(&disk, 1);
    for id in 0..20 {
        assert_eq!(content(&second.existing(id, 0)), b"content");
    }
}

#[test]
fn a_failed_sync_is_tried_again() {
    let disk = SimDisk::new();
    let folder = folder(&disk, 1);
    let spool = folder.create(1, 0);
    spool.write_at(0, b"content").unwrap();
    disk.fail_at(disk.calls(), io::ErrorKind::Other);
    spool.sync().unwrap_err();
    let before = disk.calls();
    spool.sync().unwrap();
    assert_eq!(disk.calls() - before, 2);
}

#[test]
fn the_number_of_open_files_is_bounded() {
    let disk = SimDisk::new();
    let folder = folder(&disk, 3);
    let spools: Vec<SpoolFile> = (0..10).map(|id| folder.create(id, 0)).collect();
    for round in 0..3 {
        for spool in &spools {
            spool.write_at(round, b"x").unwrap();
            assert!(folder.open_files.count() <= 3);
        }
    }
    folder.close_idle().unwrap();
    folder.close_idle().unwrap();
    assert_eq!(folder.open_files.count(), 0);
    for spool in &spools {
        assert_eq!(content(spool), b"xxx");
    }
}

#[test]
fn what_is_closed_for_idleness_was_synced() {
    let disk = SimDisk::new();
    let first = folder(&disk, 3);
    let spool = first.create(1, 0);
    spool.write_at(0, b"content").unwrap();
    first.close_idle().unwrap();
    first.close_idle().unwrap();
    let disk = disk.restart(Crash::PowerCut { seed: 1 });
    assert_eq!(content(&folder(&disk, 3).existing(1, 0)), b"content");
}

#[test]
fn a_dropped_spool_is_neither_made_nor_synced() {
    let disk = SimDisk::new();
    let folder = folder(&disk, 1);
    let (written, empty) = (folder.create(1, 0), folder.create(2, 0));
    written.write_at(0, b"content").unwrap();
    for spool in [&written, &empty] {
        spool.mark_dropped();
        spool.unlink().unwrap();
        spool.unlink().unwrap();
        spool.sync().unwrap();
        assert!(spool.write_at(0, b"late").is_err());
    }
    assert!(disk.list(&folder.dir).unwrap().is_empty());
}

#[test]
fn names_are_told_from_others() {
    assert_eq!(parse_file_name("000000000000001f.spool"), Some(31));
    for other in [
        "1f.spool",
        "000000000000001F.spool",
        "000000000000001f.wal",
        "x",
        "+00000000000001f.spool",
    ] {
        assert_eq!(parse_file_name(other), None, "{other}");
    }
}
