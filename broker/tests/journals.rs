//! A whole embedded broker, through its client: what is promised, and what comes back after a restart.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use gazette_broker::{Embedded, EmbeddedOptions};
use gazette_client::{Client, ErrorKind, ReadEvent};
use gazette_protocol::{
    AppendRequest, ApplyRequest, CompressionCodec, FragmentsRequest, JournalSpec, LabelSelector,
    LabelSet, ReadRequest, Status, append_request::Suspend, apply_request::Change, duration,
    journal_spec,
};
use tempfile::TempDir;

struct House {
    folder: TempDir,
    broker: Embedded,
}

impl House {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let broker = start(&folder).await;
        Self { folder, broker }
    }

    /// Ends the broker in order, and starts it on the same data.
    async fn restart(self) -> Self {
        self.broker.stop().await.unwrap();
        let broker = start(&self.folder).await;
        Self {
            folder: self.folder,
            broker,
        }
    }

    fn client(&self) -> Client {
        self.broker.client()
    }

    async fn stop(self) {
        self.broker.stop().await.unwrap();
    }

    fn fragments(&self, journal: &str) -> Vec<String> {
        let folder = self.folder.path().join("fragments").join(journal);
        let Ok(entries) = std::fs::read_dir(folder) else {
            return Vec::new();
        };
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

async fn start(folder: &TempDir) -> Embedded {
    let options = EmbeddedOptions::new(folder.path(), "unix://localhost/not/served");
    Embedded::start(options).await.unwrap()
}

fn spec(name: &str) -> JournalSpec {
    JournalSpec {
        name: name.to_owned(),
        replication: 1,
        fragment: journal_spec::Fragment {
            length: 1 << 20,
            compression_codec: CompressionCodec::Gzip.into(),
            stores: vec!["file:///".to_owned()],
            refresh_interval: duration::from_seconds(1),
            ..journal_spec::Fragment::default()
        },
        ..JournalSpec::default()
    }
}

async fn create(client: &Client, spec: JournalSpec) {
    let change = Change {
        upsert: Some(spec),
        ..Change::default()
    };
    client
        .apply(ApplyRequest {
            changes: vec![change],
        })
        .await
        .unwrap();
}

async fn append(client: &Client, journal: &str, content: impl Into<Bytes>) -> (i64, i64) {
    let request = AppendRequest {
        journal: journal.to_owned(),
        ..AppendRequest::default()
    };
    let response = client.append(request, content.into()).await.unwrap();
    let commit = response.commit.unwrap();
    (commit.begin, commit.end)
}

async fn read_from(client: &Client, journal: &str, offset: i64) -> Vec<u8> {
    let request = ReadRequest {
        journal: journal.to_owned(),
        offset,
        ..ReadRequest::default()
    };
    let mut reader = client.reader(request);
    let mut content = Vec::new();
    loop {
        match reader.next().await {
            Ok(Some(ReadEvent::Content { bytes, .. })) => content.extend_from_slice(&bytes),
            Ok(Some(_)) => {}
            Ok(None) => return content,
            Err(error) => {
                assert_eq!(
                    error.status(),
                    Some(Status::OffsetNotYetAvailable),
                    "{error}"
                );
                return content;
            }
        }
    }
}

/// Closes the open fragment and waits until the store has all.
async fn flush(client: &Client, journal: &str) {
    let request = AppendRequest {
        journal: journal.to_owned(),
        flush: true,
        ..AppendRequest::default()
    };
    client.append(request, Bytes::new()).await.unwrap();
    for _ in 0..200 {
        let request = FragmentsRequest {
            journal: journal.to_owned(),
            ..FragmentsRequest::default()
        };
        let fragments = client.list_all_fragments(request).await.unwrap();
        if fragments.iter().all(|fragment| fragment.spec.mod_time != 0) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the fragments of {journal} do not get to their store");
}

fn pairs(pairs: &[(&str, &str)]) -> LabelSet {
    LabelSet::from_pairs(pairs.iter().copied())
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_are_read_back_before_and_after_they_are_stored() {
    let house = House::new().await;
    let client = house.client();
    create(&client, spec("app/log")).await;
    assert_eq!(append(&client, "app/log", "hello\n").await, (0, 6));
    assert_eq!(append(&client, "app/log", "world\n").await, (6, 12));
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(
        append(&client, "app/log", large.clone()).await,
        (12, 3_000_012)
    );
    let expected = [b"hello\nworld\n".as_slice(), &large].concat();
    assert_eq!(read_from(&client, "app/log", 0).await, expected);
    flush(&client, "app/log").await;
    assert!(!house.fragments("app/log").is_empty());
    assert_eq!(read_from(&client, "app/log", 0).await, expected);
    assert_eq!(
        read_from(&client, "app/log", 1_000_000).await,
        &expected[1_000_000..]
    );
    assert_eq!(
        append(&client, "app/log", "!").await,
        (3_000_012, 3_000_013)
    );
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_has_content_registers_and_the_write_head() {
    let mut house = House::new().await;
    let client = house.client();
    for journal in ["one/journal", "two/journal"] {
        create(&client, spec(journal)).await;
    }
    append(&client, "one/journal", "first ").await;
    let request = AppendRequest {
        journal: "one/journal".to_owned(),
        union_registers: Some(pairs(&[("author", "me")])),
        ..AppendRequest::default()
    };
    client
        .append(request, Bytes::from_static(b"second "))
        .await
        .unwrap();
    house = house.restart().await;
    let client = house.client();
    assert_eq!(read_from(&client, "one/journal", 0).await, b"first second ");
    let request = AppendRequest {
        journal: "one/journal".to_owned(),
        check_registers: Some(LabelSelector::parse("author=you").unwrap()),
        ..AppendRequest::default()
    };
    let error = client
        .append(request, Bytes::from_static(b"x"))
        .await
        .unwrap_err();
    assert_eq!(error.status(), Some(Status::RegisterMismatch), "{error}");
    assert_eq!(append(&client, "one/journal", "third").await, (13, 18));
    flush(&client, "one/journal").await;
    house = house.restart().await;
    let client = house.client();
    assert_eq!(
        read_from(&client, "one/journal", 0).await,
        b"first second third"
    );
    assert_eq!(append(&client, "one/journal", ".").await, (18, 19));
    assert_eq!(append(&client, "two/journal", ".").await, (0, 1));
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expected_offset_is_held_against_the_write_head() {
    let house = House::new().await;
    let client = house.client();
    create(&client, spec("app/log")).await;
    append(&client, "app/log", "12345").await;
    let at = |offset| AppendRequest {
        journal: "app/log".to_owned(),
        offset,
        ..AppendRequest::default()
    };
    let error = client
        .append(at(4), Bytes::from_static(b"x"))
        .await
        .unwrap_err();
    assert_eq!(error.status(), Some(Status::WrongAppendOffset), "{error}");
    assert!(client.append(at(5), Bytes::from_static(b"6")).await.is_ok());
    assert_eq!(read_from(&client, "app/log", 0).await, b"123456");
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_journal_is_gone_with_its_fragments_and_begins_anew_at_zero() {
    let mut house = House::new().await;
    let client = house.client();
    create(&client, spec("app/log")).await;
    append(&client, "app/log", "old content").await;
    flush(&client, "app/log").await;
    append(&client, "app/log", " and more").await;
    let delete = Change {
        expect_mod_revision: -1,
        delete: "app/log".to_owned(),
        delete_fragments: true,
        ..Change::default()
    };
    client
        .apply(ApplyRequest {
            changes: vec![delete],
        })
        .await
        .unwrap();
    assert_eq!(house.fragments("app/log"), Vec::<String>::new());
    let request = AppendRequest {
        journal: "app/log".to_owned(),
        ..AppendRequest::default()
    };
    let error = client
        .append(request, Bytes::from_static(b"x"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    create(&client, spec("app/log")).await;
    assert_eq!(append(&client, "app/log", "fresh").await, (0, 5));
    house = house.restart().await;
    assert_eq!(read_from(&house.client(), "app/log", 0).await, b"fresh");
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_journal_is_read_without_waking_and_woken_by_an_append() {
    let mut house = House::new().await;
    let client = house.client();
    create(&client, spec("app/log")).await;
    append(&client, "app/log", "content").await;
    let suspend = AppendRequest {
        journal: "app/log".to_owned(),
        suspend: Suspend::Now.into(),
        ..AppendRequest::default()
    };
    let error = client.append(suspend, Bytes::new()).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::Suspended), "{error}");
    let level = |client: Client| async move {
        let journal = client.get_journal("app/log").await.unwrap().unwrap();
        journal.spec.suspend_level()
    };
    assert_eq!(
        level(client.clone()).await,
        journal_spec::suspend::Level::Partial
    );
    assert_eq!(read_from(&client, "app/log", 0).await, b"content");
    house = house.restart().await;
    let client = house.client();
    assert_eq!(
        level(client.clone()).await,
        journal_spec::suspend::Level::Partial
    );
    assert_eq!(read_from(&client, "app/log", 3).await, b"tent");
    assert_eq!(append(&client, "app/log", "!").await, (7, 8));
    assert_eq!(
        level(client.clone()).await,
        journal_spec::suspend::Level::None
    );
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_not_there_holds_up_no_append_and_gets_all_when_it_is() {
    let house = House::new().await;
    let client = house.client();
    let mut wrong = spec("app/log");
    wrong.fragment.stores = vec!["file:///missing/".to_owned()];
    create(&client, wrong).await;
    append(&client, "app/log", "kept").await;
    let request = AppendRequest {
        journal: "app/log".to_owned(),
        flush: true,
        ..AppendRequest::default()
    };
    client.append(request, Bytes::new()).await.unwrap();
    assert_eq!(read_from(&client, "app/log", 0).await, b"kept");
    let change = Change {
        expect_mod_revision: -1,
        upsert: Some(spec("app/log")),
        ..Change::default()
    };
    client
        .apply(ApplyRequest {
            changes: vec![change],
        })
        .await
        .unwrap();
    flush(&client, "app/log").await;
    assert!(!house.fragments("app/log").is_empty());
    assert_eq!(read_from(&client, "app/log", 0).await, b"kept");
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn journals_within_the_folder_of_another_keep_their_fragments_apart() {
    let house = House::new().await;
    let client = house.client();
    for journal in ["outer/log", "outer/log/inner"] {
        create(&client, spec(journal)).await;
        append(&client, journal, journal.to_owned()).await;
        flush(&client, journal).await;
    }
    for journal in ["outer/log", "outer/log/inner"] {
        assert_eq!(read_from(&client, journal, 0).await, journal.as_bytes());
        append(&client, journal, "+").await;
    }
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_read_sees_an_append_and_ends_in_order_when_the_broker_stops() {
    let house = House::new().await;
    let client = house.client();
    create(&client, spec("app/log")).await;
    let request = ReadRequest {
        journal: "app/log".to_owned(),
        block: true,
        ..ReadRequest::default()
    };
    let mut reader = client.reader(request);
    let writer = client.clone();
    let reading = tokio::spawn(async move {
        let mut content = Vec::new();
        while let Ok(Some(event)) = reader.next().await {
            if let ReadEvent::Content { bytes, .. } = event {
                content.extend_from_slice(&bytes);
            }
        }
        content
    });
    append(&writer, "app/log", "one ").await;
    append(&writer, "app/log", "two").await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    house.stop().await;
    let content = tokio::time::timeout(std::time::Duration::from_secs(5), reading).await;
    assert_eq!(content.unwrap().unwrap(), b"one two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_serves_one_broker_at_a_time() {
    let house = House::new().await;
    let options = EmbeddedOptions::new(house.folder.path(), "unix://localhost/not/served");
    let error = Embedded::start(options).await.unwrap_err();
    assert!(
        error.to_string().contains("is in use by another broker"),
        "{error}"
    );
    house.stop().await;
}
