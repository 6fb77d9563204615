use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use tempfile::TempDir;

use super::*;

struct House {
    _folder: TempDir,
    mount: PathBuf,
    after: PathBuf,
}

/// Makes the folders of a test, if this machine can mount. Where it cannot, it says so.
fn house() -> Option<House> {
    if let Err(why) = available() {
        println!("SKIPPED: {why}");
        return None;
    }
    let folder = TempDir::new().unwrap();
    let house = House {
        mount: folder.path().join("mount"),
        after: folder.path().join("after"),
        _folder: folder,
    };
    fs::create_dir(&house.mount).unwrap();
    fs::create_dir(&house.after).unwrap();
    Some(house)
}

fn write(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
}

fn write_and_sync(path: &Path, content: &str) {
    let mut file = File::create(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

fn sync_folder(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// Reads all files below a folder.
fn tree(folder: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(inner) = pending.pop() {
        for entry in fs::read_dir(inner).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let relative = path.strip_prefix(folder).unwrap().to_str().unwrap();
                files.insert(relative.to_owned(), fs::read_to_string(&path).unwrap());
            }
        }
    }
    files
}

/// Mounts, does something, cuts the power strictly and returns what is left.
fn left_after(act: impl FnOnce(&Path)) -> Option<BTreeMap<String, String>> {
    let house = house()?;
    let guard = mount_with(&house.mount, &Options::default()).unwrap();
    act(&house.mount);
    guard.cut_strictly().unwrap();
    guard.survivors(&house.after).unwrap();
    guard.unmount().unwrap();
    Some(tree(&house.after))
}

fn pairs<const N: usize>(expected: [(&str, &str); N]) -> BTreeMap<String, String> {
    expected
        .map(|(path, content)| (path.to_owned(), content.to_owned()))
        .into()
}

#[test]
fn bytes_and_names_need_a_sync_each() {
    let left = left_after(|top| {
        write_and_sync(&top.join("both"), "content");
        write(&top.join("name-only"), "content");
        sync_folder(top);
        write_and_sync(&top.join("bytes-only"), "content");
        write(&top.join("neither"), "content");
    });
    let Some(left) = left else { return };
    assert_eq!(left, pairs([("both", "content"), ("name-only", "")]));
}

#[test]
fn each_folder_on_the_way_needs_a_sync() {
    let left = left_after(|top| {
        fs::create_dir_all(top.join("a/b")).unwrap();
        write_and_sync(&top.join("a/b/file"), "1");
        sync_folder(&top.join("a/b"));
        sync_folder(top);
        fs::create_dir_all(top.join("c/d")).unwrap();
        write_and_sync(&top.join("c/d/file"), "2");
        for folder in ["c/d", "c", ""] {
            sync_folder(&top.join(folder));
        }
    });
    let Some(left) = left else { return };
    assert_eq!(
        left,
        pairs([("c/d/file", "2")]),
        "the name a/b was not synced"
    );
}

#[test]
fn a_later_write_needs_a_later_sync() {
    let left = left_after(|top| {
        let mut file = File::create(top.join("file")).unwrap();
        file.write_all(b"first").unwrap();
        file.sync_data().unwrap();
        sync_folder(top);
        file.write_all(b", second").unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(b"FIRST").unwrap();
        assert_eq!(
            fs::read_to_string(top.join("file")).unwrap(),
            "FIRST, second"
        );
    });
    let Some(left) = left else { return };
    assert_eq!(left, pairs([("file", "first")]));
}

#[test]
fn synchronous_writes_need_no_sync() {
    let left = left_after(|top| {
        for (name, flag) in [("o-sync", OFlags::SYNC), ("o-dsync", OFlags::DSYNC)] {
            let mut options = OpenOptions::new();
            options
                .write(true)
                .create(true)
                .custom_flags(flag.bits().cast_signed());
            let file = options.open(top.join(name)).unwrap();
            file.write_all_at(b"content", 0).unwrap();
        }
        sync_folder(top);
    });
    let Some(left) = left else { return };
    assert_eq!(left, pairs([("o-dsync", "content"), ("o-sync", "content")]));
}

#[test]
fn syncing_ranges_and_whole_systems_does_not_count() {
    let left = left_after(|top| {
        let mut file = File::create(top.join("file")).unwrap();
        file.write_all(b"content").unwrap();
        sync_folder(top);
        rustix::fs::syncfs(&file).unwrap();
    });
    let Some(left) = left else { return };
    assert_eq!(left, pairs([("file", "")]));
}

#[test]
fn a_rename_lasts_as_a_whole_once_a_folder_is_synced() {
    let left = left_after(|top| {
        for folder in ["from", "to"] {
            fs::create_dir(top.join(folder)).unwrap();
        }
        for name in ["1", "2", "3"] {
            write_and_sync(&top.join("from").join(name), name);
        }
        write_and_sync(&top.join("old"), "old");
        write_and_sync(&top.join("new"), "new");
        for folder in ["from", "to", ""] {
            sync_folder(&top.join(folder));
        }
        fs::rename(top.join("from/1"), top.join("to/1")).unwrap();
        fs::rename(top.join("from/2"), top.join("2")).unwrap();
        fs::rename(top.join("new"), top.join("old")).unwrap();
        sync_folder(&top.join("to"));
    });
    let Some(left) = left else { return };
    let expected = [
        ("from/2", "2"),
        ("from/3", "3"),
        ("new", "new"),
        ("old", "old"),
        ("to/1", "1"),
    ];
    assert_eq!(left, pairs(expected));
}

#[test]
fn what_was_removed_comes_back_unless_the_folder_is_synced() {
    let left = left_after(|top| {
        fs::create_dir(top.join("folder")).unwrap();
        for path in ["back", "gone", "folder/file"] {
            write_and_sync(&top.join(path), path);
        }
        sync_folder(&top.join("folder"));
        sync_folder(top);
        fs::remove_file(top.join("gone")).unwrap();
        sync_folder(top);
        fs::remove_file(top.join("back")).unwrap();
        fs::remove_dir_all(top.join("folder")).unwrap();
        assert_eq!(tree(top), pairs([]));
    });
    let Some(left) = left else { return };
    assert_eq!(
        left,
        pairs([("back", "back"), ("folder/file", "folder/file")])
    );
}

#[test]
fn a_mapping_is_written_by_a_sync_of_its_file() {
    // Nothing here maps files itself, but what a user runs may.
    const SCRIPT: &str = "import mmap,os,sys; f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0)
m[0:6]=b'synced'; os.fsync(f.fileno()); m[0:6]=b'lost  '";
    let python = |file: &Path| {
        let mut command = std::process::Command::new("python3");
        command.args(["-c", SCRIPT]).arg(file).status()
    };
    let mut ran = Ok(());
    let left = left_after(|top| {
        write(&top.join("file"), &"x".repeat(5000));
        ran = python(&top.join("file")).map(|status| assert!(status.success()));
        sync_folder(top);
    });
    match (left, ran) {
        (Some(left), Ok(())) => {
            assert_eq!(left["file"].len(), 5000);
            assert!(
                left["file"].starts_with("syncedxxx"),
                "{}",
                &left["file"][..9]
            );
        }
        (Some(_), Err(error)) => println!("SKIPPED: run python3: {error}"),
        (None, _) => {}
    }
}

#[test]
fn after_the_cut_every_call_fails_and_nothing_more_survives() {
    let Some(house) = house() else { return };
    let guard = mount_with(&house.mount, &Options::default()).unwrap();
    assert!(
        guard.survivors(&house.after).is_err(),
        "there was no cut yet"
    );
    let top = &house.mount;
    let mut file = File::create(top.join("file")).unwrap();
    file.write_all(b"content").unwrap();
    file.sync_all().unwrap();
    sync_folder(top);
    assert_eq!(
        fs::read(top.join("file")).unwrap(),
        b"content",
        "now it is in the cache"
    );

    guard.cut_strictly().unwrap();
    let is_eio = |error: io::Error| error.raw_os_error() == Some(5);
    assert!(is_eio(file.write_all(b"more").unwrap_err()));
    assert!(is_eio(file.sync_all().unwrap_err()));
    assert!(is_eio(file.set_len(1).unwrap_err()));
    assert!(is_eio(File::create(top.join("new")).unwrap_err()));
    assert!(is_eio(File::open(top.join("file")).unwrap_err()));
    assert!(is_eio(fs::remove_file(top.join("file")).unwrap_err()));
    assert!(is_eio(fs::metadata(top.join("file")).unwrap_err()));
    let reading = File::open(top).and_then(|_| fs::read_dir(top)?.collect::<Result<Vec<_>, _>>());
    assert!(is_eio(reading.unwrap_err()));

    guard.cut(7).unwrap();
    guard.survivors(&house.after).unwrap();
    assert_eq!(
        tree(&house.after),
        pairs([("file", "content")]),
        "the first cut counts"
    );
    drop(file);
    guard.unmount().unwrap();
}

#[test]
fn caches_of_the_kernel_are_gone_too() {
    let Some(house) = house() else { return };
    let guard = mount_with(&house.mount, &Options::default()).unwrap();
    write_and_sync(&house.mount.join("file"), "content");
    let mut open = File::open(house.mount.join("file")).unwrap();
    open.read_to_end(&mut Vec::new()).unwrap();
    guard.cut_strictly().unwrap();
    open.seek(SeekFrom::Start(0)).unwrap();
    assert!(open.read_to_end(&mut Vec::new()).is_err());
}

#[test]
fn a_file_system_starts_with_what_another_left() {
    let Some(house) = house() else { return };
    let before = TempDir::new().unwrap();
    fs::create_dir_all(before.path().join("a/b")).unwrap();
    write(&before.path().join("a/b/file"), "content");
    std::os::unix::fs::symlink("b/file", before.path().join("a/link")).unwrap();
    fs::hard_link(before.path().join("a/b/file"), before.path().join("hard")).unwrap();

    let guard = mount(before.path(), &house.mount).unwrap();
    let top = house.mount.as_path();
    assert_eq!(fs::read_to_string(top.join("a/link")).unwrap(), "content");
    write(&top.join("a/b/file"), "changed");
    guard.cut_strictly().unwrap();
    guard.survivors(&house.after).unwrap();
    assert_eq!(
        fs::read_to_string(house.after.join("a/link")).unwrap(),
        "content"
    );
    assert_eq!(
        tree(before.path())["a/b/file"],
        "content",
        "the folder is left alone"
    );
}

#[test]
fn it_is_an_ordinary_file_system_until_then() {
    let Some(house) = house() else { return };
    let guard = mount_with(&house.mount, &Options::default()).unwrap();
    let top = guard.path();
    let error = |result: io::Result<()>| result.unwrap_err().raw_os_error().unwrap();

    fs::create_dir(top.join("folder")).unwrap();
    assert_eq!(error(fs::create_dir(top.join("folder"))), 17); // EEXIST
    write(&top.join("folder/file"), "content");
    assert_eq!(error(fs::remove_dir(top.join("folder"))), 39); // ENOTEMPTY
    assert_eq!(error(fs::remove_file(top.join("none"))), 2); // ENOENT
    assert_eq!(
        error(fs::rename(top.join("folder"), top.join("folder/file/x"))),
        20
    ); // ENOTDIR
    fs::create_dir(top.join("folder/inner")).unwrap();
    assert_eq!(
        error(fs::rename(top.join("folder"), top.join("folder/inner/x"))),
        22
    ); // EINVAL

    // A file without a name is there while it is open.
    let mut file = File::options()
        .read(true)
        .write(true)
        .open(top.join("folder/file"))
        .unwrap();
    fs::remove_file(top.join("folder/file")).unwrap();
    let mut content = String::new();
    file.read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");

    // Sparse, cut and grown.
    file.write_all_at(b"far", 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 20) + 3);
    file.set_len(3).unwrap();
    file.set_len(10).unwrap();
    let mut bytes = [1; 10];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"con\0\0\0\0\0\0\0");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 100).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100);

    // Many names in one folder, listed in several calls.
    for i in 0..2000 {
        write(
            &top.join(format!("folder/inner/a-rather-long-name-{i}")),
            "",
        );
    }
    assert_eq!(
        fs::read_dir(top.join("folder/inner")).unwrap().count(),
        2000
    );
    fs::remove_dir_all(top.join("folder")).unwrap();
    assert_eq!(fs::read_dir(top).unwrap().count(), 0);
    drop(file);
    guard.unmount().unwrap();
    assert_eq!(fs::read_dir(&house.mount).unwrap().count(), 0);
}

#[test]
fn it_is_fast_enough_for_a_broker() {
    let Some(house) = house() else { return };
    let _guard = mount_with(&house.mount, &Options::default()).unwrap();
    let log = File::create(house.mount.join("log")).unwrap();
    log.set_len(16 << 20).unwrap();
    for megabyte in 0..16 {
        log.write_all_at(&vec![0; 1 << 20], megabyte << 20).unwrap();
    }
    log.sync_all().unwrap();

    let begun = Instant::now();
    for i in 0..3000_u64 {
        log.write_all_at(&[1; 700], i * 700).unwrap();
        if i % 4 == 0 {
            log.sync_data().unwrap();
        }
    }
    let elapsed = begun.elapsed();
    println!("3000 writes and 750 syncs: {elapsed:?}");
    assert!(elapsed < Duration::from_secs(3), "{elapsed:?}");
}

/// Puts objects into a file store from several tasks until the power goes, and returns those that were
/// acknowledged.
fn put_until_cut(house: &House, guard: &Guard, seed: u64) -> Vec<String> {
    use gazette_stores::{Store, StoreConfig, Stores};

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stores = Stores::new(StoreConfig {
            file_root: Some(house.mount.clone()),
            ..StoreConfig::default()
        });
        let store = stores.get("file:///");
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    let mut acknowledged = Vec::new();
                    for i in 0.. {
                        let path = format!("journal-{}/part-{}/{writer}-{i}", i % 3, i % 7);
                        let content = Arc::new(content_of(&path));
                        match store.put(&path, content, None).await {
                            Ok(()) => acknowledged.push(path),
                            Err(_) => break,
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20 + seed % 30)).await;
        guard.cut(seed).unwrap();
        let mut acknowledged = Vec::new();
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        acknowledged
    })
}

fn content_of(path: &str) -> Vec<u8> {
    path.repeat(600).into_bytes()
}

#[test]
fn a_file_store_keeps_what_it_acknowledged_and_shows_nothing_torn() {
    let mut acknowledged = 0;
    for seed in 0..20 {
        let Some(house) = house() else { return };
        let options = Options {
            from: None,
            write_back_seed: Some(seed),
            sync_time: Duration::ZERO,
        };
        let guard = mount_with(&house.mount, &options).unwrap();
        let paths = put_until_cut(&house, &guard, seed);
        let left = guard.survived().unwrap().files();
        for path in &paths {
            let content = left.get(Path::new(path));
            assert!(
                content == Some(&content_of(path)),
                "seed {seed}: {path} is lost or torn"
            );
        }
        for (path, content) in &left {
            let path = path.to_str().unwrap();
            let is_partial = path.contains("/.partial-");
            assert!(
                is_partial || *content == content_of(path),
                "seed {seed}: {path} is torn"
            );
        }
        acknowledged += paths.len();
        guard.unmount().unwrap();
    }
    println!("{acknowledged} objects were acknowledged");
    assert!(acknowledged > 100);
}
