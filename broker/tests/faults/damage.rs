//! Damaged, cut and missing files of a broker and of its store.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use gazette_client::ErrorKind;
use gazette_protocol::{ApplyRequest, CompressionCodec, apply_request::Change, duration};

use crate::{
    house::{self, House},
    raw_http,
    tmpfs::Tmpfs,
};

/// Content that is too long to be in the log too.
const LONG: usize = 700_000;

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// The file below a folder that has these bytes, and where.
fn find(folder: &Path, needle: &[u8]) -> (PathBuf, usize) {
    let mut found = files(folder).into_iter().filter_map(|path| {
        let bytes = fs::read(&path).unwrap();
        let at = bytes
            .windows(needle.len())
            .rposition(|window| window == needle)?;
        Some((path, at))
    });
    found.next().expect("some file has it")
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x20;
    fs::write(path, bytes).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[track_caller]
fn assert_clear(text: &str, parts: &[&str]) {
    for part in parts.iter().chain(&["; next: "]) {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// Two journals with long content, of a broker that has ended. All is in spools, for they have no
/// store.
async fn two_journals(data: &Path) -> (Vec<u8>, Vec<u8>) {
    let house = House::start(data).await.unwrap();
    let client = house.client();
    let contents = (house::golden_rand(LONG, 1), house::golden_rand(LONG, 2));
    for (journal, content) in [("hurt/one", &contents.0), ("hurt/two", &contents.1)] {
        let mut spec = house::spec(journal);
        spec.fragment.stores.clear();
        house::create(&client, spec).await;
        house::append(&client, journal, content.clone()).await;
    }
    house.stop().await;
    contents
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spool_with_a_wrong_byte_stops_its_journal_only_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = two_journals(folder.path()).await;
    let (spool, at) = find(&folder.path().join("spools"), &one[LONG / 2..LONG / 2 + 64]);
    flip(&spool, at);
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    let name = spool.file_name().unwrap().to_str().unwrap();
    let error = house::try_read(&client, "hurt/one", 0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_clear(&error.to_string(), &["hurt/one", name]);
    let error = house::try_append(&client, "hurt/one", "x")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_clear(&error.to_string(), &["hurt/one", name]);
    assert!(house::read(&client, "hurt/two").await == two);
    house::append(&client, "hurt/two", "more").await;
    house::create(&client, house::spec("hurt/new")).await;
    house::append(&client, "hurt/new", "content").await;
    house.stop().await;
    // The error says that it may be deleted. Here: in a copy.
    let copied = tempfile::tempdir().unwrap();
    copy(folder.path(), copied.path());
    let house = House::start(copied.path()).await.unwrap();
    let client = house.client();
    let delete = Change {
        delete: "hurt/one".to_owned(),
        expect_mod_revision: -1,
        ..Change::default()
    };
    let changes = vec![delete];
    client.apply(ApplyRequest { changes }).await.unwrap();
    house::create(&client, house::spec("hurt/one")).await;
    assert_eq!(house::append(&client, "hurt/one", "anew").await, (0, 4));
    assert_eq!(house::read(&client, "hurt/one").await, b"anew");
    house.stop().await;
    // The file is as it was found, and when it is mended all is there.
    flip(&spool, at);
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    assert!(house::read(&client, "hurt/one").await == one);
    house::append(&client, "hurt/one", "more").await;
    assert!(house::read(&client, "hurt/two").await == [&two[..], b"more"].concat());
    assert_eq!(house::read(&client, "hurt/new").await, b"content");
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spool_that_was_cut_or_is_missing_stops_its_journal_only_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (one, mut two) = two_journals(folder.path()).await;
    let (spool, _) = find(&folder.path().join("spools"), &one[..64]);
    let whole = fs::read(&spool).unwrap();
    let cut = || fs::write(&spool, &whole[..LONG / 2]);
    let remove = || fs::remove_file(&spool);
    let damages: [(&dyn Fn() -> std::io::Result<()>, &str); 2] =
        [(&cut, "350000"), (&remove, "missing")];
    for (damage, found) in damages {
        damage().unwrap();
        let house = House::start(folder.path()).await.unwrap();
        let client = house.client();
        let parts = ["hurt/one", spool.to_str().unwrap(), found];
        let error = house::try_read(&client, "hurt/one", 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_clear(&error.to_string(), &parts);
        let error = house::try_append(&client, "hurt/one", "x")
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_clear(&error.to_string(), &parts);
        assert!(house::read(&client, "hurt/two").await == two);
        house::append(&client, "hurt/two", "more").await;
        two.extend_from_slice(b"more");
        house.stop().await;
    }
    fs::write(&spool, whole).unwrap();
    let house = House::start(folder.path()).await.unwrap();
    assert!(house::read(&house.client(), "hurt/one").await == one);
    assert!(house::read(&house.client(), "hurt/two").await == two);
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_spools_that_is_empty_is_refused_and_nothing_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = two_journals(folder.path()).await;
    let (spools, aside) = (folder.path().join("spools"), folder.path().join("aside"));
    fs::rename(&spools, &aside).unwrap();
    let error = House::start(folder.path()).await.map(|_| ()).unwrap_err();
    assert_clear(&error.to_string(), &["hurt/one", spools.to_str().unwrap()]);
    fs::remove_dir(&spools).unwrap();
    fs::rename(&aside, &spools).unwrap();
    let house = House::start(folder.path()).await.unwrap();
    assert!(house::read(&house.client(), "hurt/one").await == one);
    assert!(house::read(&house.client(), "hurt/two").await == two);
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_byte_within_the_log_is_refused_and_one_at_its_torn_end_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let torn = folder.path().join("torn");
    let house = House::start(&data).await.unwrap();
    let client = house.client();
    house::create(&client, house::spec("hurt/log")).await;
    let mut expected = Vec::new();
    for number in 0..20 {
        let content = format!("needle {number:02} in the log. ");
        expected.extend_from_slice(content.as_bytes());
        house::append(&client, "hurt/log", content).await;
    }
    // As after kill -9.
    copy(&data, &torn);
    house.stop().await;
    let (segment, at) = find(&data.join("wal"), b"needle 10 in the log");
    flip(&segment, at);
    let error = House::start(&data).await.map(|_| ()).unwrap_err();
    assert_clear(&error.to_string(), &[segment.to_str().unwrap(), "at byte "]);
    flip(&segment, at);
    let house = House::start(&data).await.unwrap();
    assert!(house::read(&house.client(), "hurt/log").await == expected);
    house.stop().await;

    fs::remove_file(torn.join("lock")).unwrap();
    let (segment, at) = find(&torn.join("wal"), b"needle 19 in the log");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[at + 3..].fill(0);
    fs::write(&segment, bytes).unwrap();
    let house = House::start(&torn).await.unwrap();
    let client = house.client();
    let (kept, _) = expected.split_at(expected.len() - "needle 19 in the log. ".len());
    assert_eq!(house::read(&client, "hurt/log").await, kept);
    let (begin, _) = house::append(&client, "hurt/log", "more").await;
    assert_eq!(begin, i64::try_from(kept.len()).unwrap());
    assert_eq!(
        house::read(&client, "hurt/log").await,
        [kept, b"more"].concat()
    );
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_fragments_that_are_damaged_or_gone_are_errors_and_no_wrong_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    let mut contents = Vec::new();
    let journals = [
        "hurt/none",
        "hurt/gzip",
        "hurt/zstd",
        "hurt/snappy",
        "hurt/gone",
        "hurt/well",
    ];
    let codecs = [
        CompressionCodec::None,
        CompressionCodec::Gzip,
        CompressionCodec::Zstandard,
        CompressionCodec::Snappy,
        CompressionCodec::None,
        CompressionCodec::None,
    ];
    for (seed, (journal, codec)) in journals.into_iter().zip(codecs).enumerate() {
        let mut spec = house::spec(journal);
        spec.fragment.compression_codec = codec.into();
        spec.fragment.refresh_interval = duration::from_seconds(600);
        house::create(&client, spec).await;
        let content = house::golden_rand(100_000, seed as u64);
        house::append(&client, journal, content.clone()).await;
        house::close_fragment(&client, journal).await;
        contents.push(content);
    }
    for journal in journals {
        house::stored(&client, journal).await;
        let folder = folder.path().join("fragments").join(journal);
        let fragment = files(&folder).remove(0);
        match journal {
            "hurt/well" => {}
            "hurt/gone" => fs::remove_file(fragment).unwrap(),
            _ => flip(&fragment, 60_000),
        }
    }
    for (journal, content) in journals.into_iter().zip(&contents) {
        let folder = folder.path().join("fragments").join(journal);
        let read = house::try_read(&client, journal, 0).await;
        if journal == "hurt/well" {
            assert!(read.unwrap() == *content);
            continue;
        }
        let error = read.map(|bytes| bytes.len()).expect_err(journal);
        assert_clear(
            &error.to_string(),
            &[journal, "0000000000000000-00000000000186a0-"],
        );
        if journal != "hurt/gone" {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
        // Nothing of what was stored before stands in the way of what is new.
        let name = folder.display();
        let (begin, _) = house::append(&client, journal, "new").await;
        assert_eq!(begin, 100_000, "{name}");
        assert_eq!(
            house::try_read(&client, journal, 100_000).await.unwrap(),
            b"new",
            "{name}"
        );
    }
    house.stop().await;
    // Nor are the offsets of what is gone used again by a broker that only sees the store.
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    let (begin, _) = house::append(&client, "hurt/gone", "newer").await;
    assert_eq!(begin, 100_003);
    assert_eq!(
        house::try_read(&client, "hurt/gone", 100_000)
            .await
            .unwrap(),
        b"newnewer"
    );
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_coordination_database_is_refused_by_name_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (one, _) = two_journals(folder.path()).await;
    let path = folder.path().join("coordination.db");
    let whole = fs::read(&path).unwrap();
    let mut headless = whole.clone();
    headless[..64].fill(0x5a);
    let mut hollow = whole.clone();
    hollow[4096..].fill(0x5a);
    for damaged in [&headless, &hollow, &whole[..whole.len() / 2].to_vec()] {
        fs::write(&path, damaged).unwrap();
        let error = House::start(folder.path()).await.map(|_| ()).unwrap_err();
        assert_clear(&error.to_string(), &["coordination.db"]);
        assert!(
            fs::read(&path).unwrap() == *damaged,
            "it was written: {error}"
        );
    }
    fs::write(&path, whole).unwrap();
    let house = House::start(folder.path()).await.unwrap();
    assert!(house::read(&house.client(), "hurt/one").await == one);
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "not a folder").unwrap();
    let error = House::start(&file.join("data"))
        .await
        .map(|_| ())
        .unwrap_err();
    assert_clear(&error.to_string(), &[file.to_str().unwrap()]);
    assert_eq!(fs::read(&file).unwrap(), b"not a folder");
    let Some(disk) = Tmpfs::mount_with("ro") else {
        return;
    };
    let error = House::start(&disk.path().join("data"))
        .await
        .map(|_| ())
        .unwrap_err();
    assert_clear(
        &error.to_string(),
        &[disk.path().to_str().unwrap(), "Read-only"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_gone_while_its_spools_are_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (one, _) = two_journals(folder.path()).await;
    let (wal, aside) = (folder.path().join("wal"), folder.path().join("aside"));
    fs::rename(&wal, &aside).unwrap();
    let error = House::start(folder.path()).await.map(|_| ()).unwrap_err();
    assert_clear(&error.to_string(), &[wal.to_str().unwrap()]);
    if wal.exists() {
        fs::remove_dir_all(&wal).unwrap();
    }
    fs::rename(aside, wal).unwrap();
    let house = House::start(folder.path()).await.unwrap();
    assert!(house::read(&house.client(), "hurt/one").await == one);
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_ends_the_body_of_a_damaged_fragment_with_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::serve(folder.path()).await;
    let client = house.client();
    house::create(&client, house::spec("hurt/log")).await;
    house::append(&client, "hurt/log", house::golden_rand(400_000, 3)).await;
    house::close_fragment(&client, "hurt/log").await;
    house::stored(&client, "hurt/log").await;
    let fragment = files(&folder.path().join("fragments/hurt/log")).remove(0);
    flip(&fragment, 300_000);
    let head = [
        "GET /hurt/log HTTP/1.1",
        "Host: x",
        "Connection: close",
        "TE: trailers",
    ];
    let head = head.map(str::to_owned);
    let answer = raw_http::send(house.address(), &head, b"", Duration::from_secs(10)).await;
    let error = answer.trailers.first().map(|(_, value)| value.as_str());
    assert_clear(
        error.unwrap_or_default(),
        &["hurt/log", "0000000000000000-"],
    );
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_damage_to_the_log_changes_what_is_served_it_is_refused_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let house = House::start(&data).await.unwrap();
    let client = house.client();
    let mut expected = Vec::new();
    house::create(&client, house::spec("hurt/log")).await;
    for number in 0..40 {
        let content = house::golden_rand(100 + 37 * number, number as u64);
        house::append(&client, "hurt/log", content.clone()).await;
        expected.extend(content);
    }
    house.stop().await;
    // The part of each segment that has something.
    let segments: Vec<(PathBuf, Vec<u8>)> = files(&data.join("wal"))
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let mut damages: Vec<(usize, Vec<u8>, String)> = Vec::new();
    for (at, (path, bytes)) in segments.iter().enumerate() {
        let used = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        let name = path.display();
        for length in [0, used / 2, bytes.len() / 2] {
            damages.push((
                at,
                bytes[..length].to_vec(),
                format!("{name} cut at {length}"),
            ));
        }
        for step in 0..12 {
            let position = step * used.max(1) / 12;
            let mut flipped = bytes.clone();
            if let Some(byte) = flipped.get_mut(position) {
                *byte ^= 0x11;
            }
            damages.push((
                at,
                flipped,
                format!("{name} flipped at {position} of {used}"),
            ));
        }
    }
    let mut refused = 0;
    for (at, damaged, what) in &damages {
        let copied = folder.path().join("copied");
        copy(&data, &copied);
        let path = copied
            .join("wal")
            .join(segments[*at].0.file_name().unwrap());
        fs::write(&path, damaged).unwrap();
        match House::start(&copied).await {
            Err(error) => {
                refused += 1;
                assert_clear(&error.to_string(), &[copied.to_str().unwrap()]);
            }
            Ok(house) => {
                let client = house.client();
                let read = house::try_read(&client, "hurt/log", 0).await;
                let read = read.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(
                    read == expected,
                    "{what}: {} of {}",
                    read.len(),
                    expected.len()
                );
                house.stop().await;
            }
        }
        fs::remove_dir_all(&copied).unwrap();
    }
    assert!(refused >= 10, "{refused} of {} are refused", damages.len());
}

// A broker pulses each journal by an append of its own. That must not wait for a listing which waits
// for it.
#[tokio::test(flavor = "multi_thread")]
async fn appends_go_on_as_soon_as_a_store_can_be_listed_again() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    let lookalike = folder.path().join("fragments/slow");
    std::os::unix::fs::symlink("slow", &lookalike).unwrap();
    house::create(&client, house::spec("slow/log")).await;
    // By now it was listed in vain, and the broker's own append waits.
    tokio::time::sleep(Duration::from_millis(500)).await;
    fs::remove_file(&lookalike).unwrap();
    let appended = house::try_append(&client, "slow/log", "content");
    let appended = tokio::time::timeout(Duration::from_secs(10), appended).await;
    assert_eq!(appended.expect("it does not hang").unwrap(), (0, 7));
    house.stop().await;
}
