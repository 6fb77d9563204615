//! Full disks: that of the broker, and that of a store.

use std::time::{Duration, Instant};

use gazette_client::{ErrorKind, Outcome};
use gazette_protocol::{ApplyRequest, CompressionCodec, apply_request::Change};

use crate::{
    house::{self, House},
    raw_http,
    tmpfs::Tmpfs,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_appends_loses_nothing_and_works_again_when_there_is_room() {
    let Some(disk) = Tmpfs::mount(192) else {
        return;
    };
    let store = tempfile::tempdir().unwrap();
    let root = store.path().to_owned();
    let data = disk.path().join("data");
    let house = House::start_with(&data, |options| options.file_root = Some(root.clone()));
    let house = house.await.unwrap();
    let client = house.client();
    for journal in ["full/large", "full/small"] {
        house::create(&client, house::spec(journal)).await;
        house::append(&client, journal, "before ").await;
    }
    let mut large = b"before ".to_vec();
    let mut small = large.clone();
    let ballast = disk.fill(256);
    let mut refused = 0;
    for round in 0..40_u64 {
        let content = house::golden_rand(100_000, round);
        let (begin, end) = match house::try_append(&client, "full/large", content.clone()).await {
            Ok(commit) => commit,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                assert_eq!(error.outcome(), Outcome::NotDone, "{error}");
                refused += 1;
                if refused > 5 {
                    break;
                }
                continue;
            }
        };
        assert_eq!(begin, i64::try_from(large.len()).unwrap());
        large.extend(content);
        assert_eq!(end, i64::try_from(large.len()).unwrap());
    }
    assert!(refused > 5, "the disk was not full: {refused}");
    // Small ones may find room yet; whatever is said of them must be true.
    for _ in 0..200 {
        match house::try_append(&client, "full/small", vec![b'x'; 2000]).await {
            Ok(_) => small.extend([b'x'; 2000]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
        }
    }
    assert!(house::read(&client, "full/large").await == large);
    assert!(house::read(&client, "full/small").await == small);
    // Leases and pulses go on meanwhile.
    tokio::time::sleep(Duration::from_secs(2)).await;
    std::fs::remove_file(ballast).unwrap();
    for (journal, content) in [("full/large", &mut large), ("full/small", &mut small)] {
        let more = house::golden_rand(200_000, 99);
        house::append(&client, journal, more.clone()).await;
        content.extend(more);
        assert!(house::read(&client, journal).await == *content, "{journal}");
    }
    house.stop().await;
    let house = House::start_with(&data, |options| options.file_root = Some(root));
    let house = house.await.unwrap();
    let client = house.client();
    assert!(
        house::read(&client, "full/large").await == large,
        "after a restart"
    );
    assert!(
        house::read(&client, "full/small").await == small,
        "after a restart"
    );
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_starts_on_a_full_disk_or_says_that_it_is_full() {
    let Some(disk) = Tmpfs::mount(192) else {
        return;
    };
    let data = disk.path().join("data");
    let house = House::start(&data).await.unwrap();
    house::create(&house.client(), house::spec("full/log")).await;
    house::append(&house.client(), "full/log", "content").await;
    house.stop().await;
    let ballast = disk.fill(0);
    match House::start(&data).await {
        Ok(house) => {
            assert_eq!(house::read(&house.client(), "full/log").await, b"content");
            house.stop().await;
        }
        Err(error) => {
            let text = error.to_string();
            assert!(
                text.contains("No space left") || text.contains("full"),
                "{text}"
            );
            assert!(text.contains("; next: "), "{text}");
        }
    }
    std::fs::remove_file(ballast).unwrap();
    let house = House::start(&data).await.unwrap();
    assert_eq!(house::read(&house.client(), "full/log").await, b"content");
    assert_eq!(
        house::append(&house.client(), "full/log", "!").await,
        (7, 8)
    );
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_holds_up_no_append_and_gets_all_when_there_is_room() {
    let Some(disk) = Tmpfs::mount(4) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = disk.path().to_owned();
    let house = House::start_with(folder.path(), |options| options.file_root = Some(root));
    let house = house.await.unwrap();
    let client = house.client();
    house::create(&client, house::spec("store/full")).await;
    let ballast = disk.fill(128);
    let mut expected = Vec::new();
    for round in 0..3_u64 {
        let content = house::golden_rand(400_000, round);
        house::append(&client, "store/full", content.clone()).await;
        expected.extend(content);
        house::close_fragment(&client, "store/full").await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!house::is_stored(&client, "store/full").await);
    assert!(house::read(&client, "store/full").await == expected);
    // What was begun and could not be written is no fragment, and takes no room.
    let partial = std::fs::read_dir(disk.path().join("store/full"));
    assert_eq!(partial.map_or(0, Iterator::count), 0, "leftovers");
    std::fs::remove_file(ballast).unwrap();
    let freed = Instant::now();
    while !house::is_stored(&client, "store/full").await {
        assert!(
            freed.elapsed() < Duration::from_mins(1),
            "uploads are not tried again"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(house::read(&client, "store/full").await == expected);
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn specs_and_uploads_that_find_the_disk_full_are_done_when_there_is_room() {
    let Some(disk) = Tmpfs::mount(192) else {
        return;
    };
    let store = tempfile::tempdir().unwrap();
    let root = store.path().to_owned();
    let data = disk.path().join("data");
    let house = House::start_with(&data, |options| options.file_root = Some(root.clone()));
    let house = house.await.unwrap();
    let client = house.client();
    let mut spec = house::spec("full/gzip");
    spec.fragment.compression_codec = CompressionCodec::Gzip.into();
    house::create(&client, spec).await;
    let content = house::golden_rand(1_000_000, 5);
    house::append(&client, "full/gzip", content.clone()).await;
    let ballast = disk.fill(0);
    let mut created = Vec::new();
    let mut refused = Vec::new();
    for number in 0..200 {
        let mut spec = house::spec(&format!("spec/j{number:03}"));
        spec.fragment.path_postfix_template = "x".repeat(5000);
        let change = Change {
            upsert: Some(spec.clone()),
            ..Change::default()
        };
        match client
            .apply(ApplyRequest {
                changes: vec![change],
            })
            .await
        {
            Ok(_) => created.push(spec.name),
            Err(error) => {
                refused.push((spec.name, error.to_string()));
                if refused.len() > 3 {
                    break;
                }
            }
        }
    }
    assert!(!refused.is_empty(), "the disk was not full");
    for (name, error) in &refused {
        assert!(
            error.contains("full") && error.contains("; next: "),
            "{error}"
        );
        assert!(client.get_journal(name).await.unwrap().is_none(), "{name}");
    }
    // It may be refused too; what counts is that it is done in the end.
    let request = gazette_protocol::AppendRequest {
        journal: "full/gzip".to_owned(),
        flush: true,
        ..Default::default()
    };
    drop(client.append(request, bytes::Bytes::new()).await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(house::read(&client, "full/gzip").await == content);
    std::fs::remove_file(ballast).unwrap();
    for (name, _) in &refused {
        house::create(&client, house::spec(name)).await;
        house::append(&client, name, "content").await;
    }
    house::close_fragment(&client, "full/gzip").await;
    house::stored(&client, "full/gzip").await;
    assert!(house::read(&client, "full/gzip").await == content);
    house.stop().await;
    let house = House::start_with(&data, |options| options.file_root = Some(root));
    let house = house.await.unwrap();
    for name in created.iter().chain(refused.iter().map(|(name, _)| name)) {
        let journal = house.client().get_journal(name).await.unwrap();
        assert!(journal.is_some(), "{name}");
    }
    assert!(house::read(&house.client(), "full/gzip").await == content);
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_tells_of_a_full_disk_by_507() {
    let Some(disk) = Tmpfs::mount(192) else {
        return;
    };
    let house = House::serve(&disk.path().join("data")).await;
    let client = house.client();
    house::create(&client, house::spec("full/log")).await;
    house::append(&client, "full/log", "before").await;
    let ballast = disk.fill(64);
    let head = [
        "PUT /full/log HTTP/1.1",
        "Host: x",
        "Connection: close",
        "Content-Length: 500000",
    ];
    let head = head.map(str::to_owned);
    let body = vec![b'x'; 500_000];
    let patience = Duration::from_secs(10);
    let answer = raw_http::send(house.address(), &head, &body, patience).await;
    assert_eq!(answer.status, 507, "{answer:?}");
    std::fs::remove_file(ballast).unwrap();
    let answer = raw_http::send(house.address(), &head, &body, patience).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(answer.header("x-commit-begin"), Some("6"));
    house.stop().await;
}
