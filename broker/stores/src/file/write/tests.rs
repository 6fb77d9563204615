mod power;

use std::sync::Barrier;

use bytes::Bytes;

use self::power::{Ignore, Luck, Part, PowerDisk, Trouble};
use super::*;

const OLD: &[u8] = b"old content";
const NEW: &[u8] = b"the new content";
const OBJECT: &str = "/store/a/b/object";

/// What is there before the put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Only the store's folder.
    Nothing,
    /// The folders too, made by a process that died before it synced them.
    UnsyncedFolders,
    /// The folders and an older object.
    OldObject,
}

const BEFORE: [Before; 3] = [Before::Nothing, Before::UnsyncedFolders, Before::OldObject];

fn prepare(before: Before) -> PowerDisk {
    let disk = PowerDisk::new(Trouble::default());
    disk.create_folder(Path::new("/store")).unwrap();
    disk.sync_folder(Path::new("/")).unwrap();
    match before {
        Before::Nothing => {}
        Before::UnsyncedFolders => {
            disk.create_folder(Path::new("/store/a")).unwrap();
            disk.create_folder(Path::new("/store/a/b")).unwrap();
        }
        Before::OldObject => put(&disk, Trouble::default(), OLD).unwrap(),
    }
    disk
}

fn put(disk: &PowerDisk, trouble: Trouble, content: &'static [u8]) -> io::Result<()> {
    writer(disk.with(trouble)).put(Path::new(OBJECT), &Bytes::from_static(content))
}

fn writer(disk: PowerDisk) -> Writer {
    Writer::new(Arc::new(disk), PathBuf::from("/store"))
}

/// Cuts the power at each point of a put, and looks at all that may be left then.
fn survives_power_cuts(ignore: Option<Ignore>) -> Result<(), String> {
    for before in BEFORE {
        for cut in 0.. {
            let disk = prepare(before);
            let cut = Some(cut);
            let trouble = Trouble {
                cut,
                ignore,
                fail: None,
            };
            let result = put(&disk, trouble, NEW);

            for folders in 0..1_u32 << disk.folders() {
                for bytes in [Part::None, Part::Half, Part::All] {
                    let luck = Luck { folders, bytes };
                    let files = disk.survivors(luck);
                    let content = files.get(OBJECT).map(Vec::as_slice);
                    let is_right = match content {
                        _ if result.is_ok() => content == Some(NEW),
                        None => before != Before::OldObject,
                        Some(OLD) => before == Before::OldObject,
                        Some(content) => content == NEW,
                    };
                    if !is_right {
                        return Err(format!(
                            "{before:?}, cut at {cut:?}, {result:?}, {luck:?}: {files:?}"
                        ));
                    }
                }
            }
            if result.is_ok() {
                break;
            }
        }
    }
    Ok(())
}

#[test]
fn a_power_cut_leaves_the_object_whole_or_as_it_was() {
    survives_power_cuts(None).unwrap();
}

#[test]
fn the_test_of_power_cuts_finds_each_sync_that_is_left_out() {
    for ignore in [
        Ignore::FileSyncs,
        Ignore::FolderSyncs(1), // /store, which has the entry a
        Ignore::FolderSyncs(2), // /store/a, which has the entry b
        Ignore::FolderSyncs(3), // /store/a/b, which has the object
    ] {
        let found = survives_power_cuts(Some(ignore));
        assert!(found.is_err(), "{ignore:?}");
    }
}

#[test]
fn whichever_call_fails_the_object_is_whole_and_no_partial_file_stays() {
    for before in BEFORE {
        for fail in 0.. {
            let disk = prepare(before);
            let trouble = Trouble {
                fail: Some(fail),
                ..Trouble::default()
            };
            let result = put(&disk, trouble, NEW);
            let files = disk.files();
            let has_partial = files.keys().any(|path| path != OBJECT);
            assert!(!has_partial, "{before:?}, {fail}: {files:?}");
            match files.get(OBJECT).map(Vec::as_slice) {
                None => assert!(result.is_err() && before != Before::OldObject),
                Some(OLD) => assert!(result.is_err() && before == Before::OldObject),
                Some(content) => assert_eq!(content, NEW),
            }
            let was_reached = disk.calls() > fail;
            assert_eq!(
                result.is_err(),
                was_reached,
                "{before:?}, {fail}: no failure is swallowed"
            );

            // A second try works, on whatever the first left.
            put(&disk, Trouble::default(), NEW).unwrap();
            assert_eq!(disk.files()[OBJECT], NEW);
            if !was_reached {
                break;
            }
        }
    }
}

#[test]
fn two_failures_in_a_row_leave_a_partial_file_at_worst() {
    let count = {
        let disk = prepare(Before::Nothing);
        put(&disk, Trouble::default(), NEW).unwrap();
        disk.calls()
    };
    for cut in 0..count {
        let disk = prepare(Before::Nothing);
        let trouble = Trouble {
            cut: Some(cut),
            ..Trouble::default()
        };
        put(&disk, trouble, NEW).unwrap_err();
        for path in disk.files().keys() {
            let name = path.rsplit('/').next().unwrap();
            assert!(name.starts_with(PARTIAL_PREFIX) || path == OBJECT, "{path}");
        }
        // The next put of the same process number picks another name.
        put(&disk, Trouble::default(), NEW).unwrap();
        assert_eq!(disk.files()[OBJECT], NEW);
    }
}

#[test]
fn what_a_dead_process_left_unsynced_lasts_once_it_was_looked_at() {
    let disk = prepare(Before::UnsyncedFolders);
    let mut file = disk.create_file(Path::new(OBJECT)).unwrap();
    file.write_all(NEW).unwrap();
    file.sync().unwrap();
    let unlucky = Luck {
        folders: 0,
        bytes: Part::None,
    };
    assert!(disk.survivors(unlucky).is_empty());

    let writer = writer(disk.with(Trouble::default()));
    writer.settle_parents(Path::new(OBJECT)).unwrap();
    assert_eq!(disk.survivors(unlucky)[OBJECT], NEW);

    let calls = disk.calls();
    writer.settle_parents(Path::new(OBJECT)).unwrap();
    assert_eq!(disk.calls(), calls, "nothing is synced twice");
}

#[test]
fn a_removal_lasts_and_removing_nothing_is_fine() {
    let disk = prepare(Before::OldObject);
    let unlucky = Luck {
        folders: 0,
        bytes: Part::None,
    };
    assert_eq!(disk.survivors(unlucky)[OBJECT], OLD);
    let writer = writer(disk.with(Trouble::default()));
    writer.remove(Path::new(OBJECT)).unwrap();
    assert!(disk.survivors(unlucky).is_empty());

    writer.remove(Path::new(OBJECT)).unwrap();
    writer.remove(Path::new("/store/none/such")).unwrap();
}

#[test]
fn a_second_put_into_a_folder_syncs_that_folder_only() {
    let disk = prepare(Before::Nothing);
    let writer = writer(disk.with(Trouble::default()));
    let content = Bytes::from_static(NEW);
    writer.put(Path::new("/store/a/b/1"), &content).unwrap();
    let before = disk.calls();
    writer.put(Path::new("/store/a/b/2"), &content).unwrap();
    let calls = disk.calls() - before;
    assert_eq!(calls, 5, "create, write, sync, rename, sync of the folder");
}

#[test]
fn the_folder_of_the_store_is_never_made() {
    let disk = PowerDisk::new(Trouble::default());
    let error = put(&disk, Trouble::default(), NEW).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(error.to_string(), "the store's folder /store is gone");
}

#[test]
fn puts_at_the_same_time_all_last() {
    let disk = prepare(Before::Nothing);
    let writer = writer(disk.with(Trouble::default()));
    let threads = 8;
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (writer, start) = (&writer, &start);
            scope.spawn(move || {
                start.wait();
                for i in 0..20 {
                    let path = format!("/store/a/{}/{thread}-{i}", i % 3);
                    writer
                        .put(Path::new(&path), &Bytes::from_static(NEW))
                        .unwrap();
                }
            });
        }
    });
    let survivors = disk.survivors(Luck {
        folders: 0,
        bytes: Part::None,
    });
    assert_eq!(survivors.len(), threads * 20);
    assert!(survivors.values().all(|content| content == NEW));
}
