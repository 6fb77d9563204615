//! Journals as files without a kernel: the operations as methods, against a broker in memory.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gazette_client::{
    Client, ClientOptions,
    fake::{Call, FakeBroker, Fault},
};
use gazette_protocol::Status;
use gazfs::journals::{
    Ack, Attributes, Caller, Cause, FsError, HandleId, Ino, JournalFs, Kind, OpenFlags, Options,
    Origin, Read, Seek, StartError, Template, Write,
};
use rustix::io::Errno;

fn options() -> Options {
    Options {
        timeout: Duration::from_secs(5),
        ack: Ack::Write,
        origin: Origin::Zero,
        allow_delete: true,
        uid: 1,
        gid: 2,
        mode: 0o640,
        template: Template::default(),
        space_of: None,
    }
}

async fn start(broker: &FakeBroker, change: impl FnOnce(&mut Options)) -> JournalFs {
    let mut options = options();
    change(&mut options);
    JournalFs::start(broker.client(), options)
        .await
        .expect("the broker answers")
}

const NOBODY: Caller = Caller::NOBODY;
const READ: OpenFlags = OpenFlags {
    may_read: true,
    may_write: false,
    is_truncating: false,
    is_exclusive: false,
};
const WRITE: OpenFlags = OpenFlags {
    may_read: false,
    may_write: true,
    is_truncating: false,
    is_exclusive: false,
};

async fn find(fs: &JournalFs, path: &str) -> Result<Attributes, FsError> {
    let mut ino = Ino::ROOT;
    let mut found = None;
    for name in path.split('/') {
        let attributes = fs.lookup(NOBODY, ino, name.as_bytes()).await?;
        ino = attributes.ino;
        found = Some(attributes);
    }
    Ok(found.expect("a path has a component"))
}

async fn open(fs: &JournalFs, path: &str, flags: OpenFlags) -> HandleId {
    let ino = find(fs, path).await.expect("it is there").ino;
    match fs.try_open(ino, flags) {
        Some(opened) => opened.expect("it may be opened").handle,
        None => {
            fs.open(NOBODY, ino, flags)
                .await
                .expect("it may be opened")
                .handle
        }
    }
}

fn append(handle: HandleId, content: &'static [u8]) -> Write {
    Write {
        handle,
        offset: 12_345,
        content: Bytes::from_static(content),
        is_append: true,
        is_sync: false,
        is_mapped: false,
    }
}

fn write(handle: HandleId, offset: u64, content: &'static [u8]) -> Write {
    Write {
        offset,
        is_append: false,
        ..append(handle, content)
    }
}

async fn read(fs: &JournalFs, handle: HandleId, offset: u64, size: u32) -> Bytes {
    let request = Read {
        handle,
        offset,
        size,
    };
    match fs.try_read(request) {
        Some(bytes) => bytes.expect("it can be read"),
        None => fs.read(NOBODY, request).await.expect("it can be read"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_found_and_what_is_unknown_is_asked_for() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    let fs = start(&broker, |_| {}).await;
    assert!(fs.try_lookup(Ino::ROOT, b"app").is_some());
    assert!(
        fs.try_lookup(Ino::ROOT, b"web").is_none(),
        "somebody may have made it"
    );
    let log = find(&fs, "app/log").await.expect("it is there");
    assert_eq!(
        (log.kind, log.uid, log.gid, log.mode),
        (Kind::Journal, 1, 2, 0o640)
    );
    let error = find(&fs, "web").await.expect_err("nobody made it");
    assert_eq!(error.errno(), Errno::NOENT);
    broker.create("web/access");
    assert_eq!(
        find(&fs, "web/access").await.expect("it is there").kind,
        Kind::Journal
    );
    assert_eq!(
        find(&fs, "app/log/x").await.expect_err("no").errno(),
        Errno::STALE
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_was_fetched_does_not_wait() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    broker.append("app/log", &vec![7; 1 << 20]);
    let fs = start(&broker, |_| {}).await;
    let handle = open(&fs, "app/log", READ).await;
    assert_eq!(read(&fs, handle, 0, 4096).await.len(), 4096);
    let mut offset = 4096;
    let mut at_once = 0;
    while offset < 1 << 20 {
        let request = Read {
            handle,
            offset,
            size: 4096,
        };
        at_once += u32::from(fs.try_read(request).is_some());
        assert_eq!(read(&fs, handle, offset, 4096).await.len(), 4096);
        offset += 4096;
    }
    assert!(at_once > 200, "{at_once} of 255");
    assert!(
        read(&fs, handle, offset, 4096).await.is_empty(),
        "that is the end"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_ignores_the_offset_and_a_write_needs_it() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    let fs = start(&broker, |_| {}).await;
    let handle = open(&fs, "app/log", WRITE).await;
    assert_eq!(fs.write(NOBODY, append(handle, b"abc")).await, Ok(3));
    assert_eq!(fs.write(NOBODY, write(handle, 3, b"def")).await, Ok(3));
    let error = fs
        .write(NOBODY, write(handle, 3, b"x"))
        .await
        .expect_err("not the end");
    assert_eq!(error.cause, Cause::NotAtEnd { offset: 3, end: 6 });
    broker.append("app/log", b"!");
    let error = fs
        .write(NOBODY, write(handle, 6, b"x"))
        .await
        .expect_err("too late");
    assert_eq!(error.cause, Cause::Overtaken { offset: 6 });
    let error = fs
        .write(NOBODY, write(handle, 0, b"x"))
        .await
        .expect_err("not empty");
    assert_eq!(error.errno(), Errno::PERM);
    let mapped = Write {
        is_mapped: true,
        ..append(handle, b"x")
    };
    assert_eq!(
        fs.write(NOBODY, mapped).await.expect_err("no").errno(),
        Errno::PERM
    );
    assert_eq!(broker.content("app/log"), b"abcdef!");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_whose_answer_is_lost_is_never_repeated() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    let fs = start(&broker, |_| {}).await;
    let handle = open(&fs, "app/log", WRITE).await;
    broker.inject(Call::Append, [Fault::DropAnswer]);
    let error = fs
        .write(NOBODY, append(handle, b"once;"))
        .await
        .expect_err("no answer");
    assert!(error.cause.is_outcome_unknown(), "{error}");
    assert_eq!(error.errno(), Errno::IO);
    assert_eq!(fs.write(NOBODY, append(handle, b"twice;")).await, Ok(6));
    assert_eq!(broker.content("app/log"), b"once;twice;");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_journal_is_served_when_create_returns() {
    let broker = FakeBroker::new();
    let fs = start(&broker, |_| {}).await;
    let app = fs
        .make_directory(Ino::ROOT, b"app")
        .expect("nothing is there")
        .ino;
    broker.inject(
        Call::Read,
        [
            Fault::Status(Status::InsufficientJournalBrokers),
            Fault::Status(Status::JournalNotFound),
        ],
    );
    let created = fs.create(NOBODY, app, b"new", WRITE).await.expect("create");
    assert!(broker.calls(Call::Read) >= 3, "it was waited for");
    assert_eq!(
        fs.write(NOBODY, append(created.1.handle, b"first")).await,
        Ok(5)
    );
    let exclusive = OpenFlags {
        is_exclusive: true,
        ..WRITE
    };
    let error = fs
        .create(NOBODY, app, b"new", exclusive)
        .await
        .expect_err("it is there");
    assert_eq!(error.errno(), Errno::EXIST);
    // Somebody else makes it between our look and our apply.
    broker.create("app/race");
    broker.inject(Call::Apply, [Fault::Status(Status::EtcdTransactionFailed)]);
    fs.create(NOBODY, app, b"race", WRITE)
        .await
        .expect("it is there, which is as good");
    let error = fs
        .create(NOBODY, Ino::ROOT, b"abc", WRITE)
        .await
        .expect_err("too short");
    assert!(error.to_string().contains("must be 4 to 512"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_never_shrinks_although_a_replica_lags() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    let fs = start(&broker, |_| {}).await;
    let handle = open(&fs, "app/log", WRITE).await;
    assert_eq!(fs.write(NOBODY, append(handle, b"12345")).await, Ok(5));
    let ino = find(&fs, "app/log").await.expect("it is there").ino;
    // Nobody answers: what was known is shown.
    broker.inject(Call::Read, [Fault::Hang]);
    assert_eq!(
        fs.attributes(NOBODY, ino, None).await.expect("known").size,
        5
    );
    assert_eq!(
        fs.attributes(NOBODY, ino, None).await.expect("asked").size,
        5
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_journal_has_its_size_and_content() {
    use gazette_protocol::journal_spec::{Suspend, suspend::Level};
    let broker = FakeBroker::new();
    let mut spec = FakeBroker::spec("app/log");
    spec.suspend = Some(Suspend {
        level: Level::Full.into(),
        offset: 500,
    });
    broker.upsert(spec);
    let fs = start(&broker, |_| {}).await;
    let suspended = || Fault::Status(Status::Suspended);
    broker.inject_every(Call::Read, 1, suspended());
    broker.inject_every(Call::ListFragments, 1, suspended());
    let log = find(&fs, "app/log").await.expect("it is there");
    let attributes = fs
        .attributes(NOBODY, log.ino, None)
        .await
        .expect("its spec knows");
    assert_eq!((attributes.size, attributes.blocks), (500, 0));
    let handle = open(&fs, "app/log", READ).await;
    assert_eq!(
        read(&fs, handle, 100, 1000).await,
        vec![0; 400],
        "all of it was pruned"
    );
    let hole = fs
        .seek(NOBODY, handle, 0, Seek::Data)
        .await
        .expect_err("no data");
    assert_eq!(hole.errno(), Errno::NXIO);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_made_again_is_never_mixed_with_the_old_one() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    broker.append("app/log", &[b'o'; 100]);
    let fs = start(&broker, |_| {}).await;
    let handle = open(&fs, "app/log", READ).await;
    assert_eq!(read(&fs, handle, 0, 10).await, vec![b'o'; 10]);
    let before = find(&fs, "app/log").await.expect("it is there").ino;
    broker.delete("app/log");
    broker.create("app/log");
    broker.append("app/log", &[b'n'; 300]);
    let later = Read {
        handle,
        offset: 150,
        size: 10,
    };
    let error = fs
        .read(NOBODY, later)
        .await
        .expect_err("that is another journal");
    assert_eq!(error.errno(), Errno::STALE);
    let after = find(&fs, "app/log").await.expect("it is there");
    assert_ne!(after.ino, before);
    let error = fs
        .attributes(NOBODY, before, None)
        .await
        .expect_err("it is gone");
    assert_eq!(error.errno(), Errno::STALE);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_survives_a_change_of_the_spec_meanwhile() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    let fs = start(&broker, |_| {}).await;
    let app = find(&fs, "app").await.expect("it is there").ino;
    broker.inject(Call::Apply, [Fault::Status(Status::EtcdTransactionFailed)]);
    fs.unlink(NOBODY, app, b"log")
        .await
        .expect("it is tried again");
    assert_eq!(
        find(&fs, "app/log").await.expect_err("gone").errno(),
        Errno::NOENT
    );
    fs.remove_directory(Ino::ROOT, b"app")
        .expect("it is empty, and still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_what_was_accepted_is_waited_for_and_no_more_is_taken() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    let fs = start(&broker, |options| options.ack = Ack::Close).await;
    let handle = open(&fs, "app/log", WRITE).await;
    broker.inject(Call::Append, [Fault::Delay(Duration::from_millis(300))]);
    assert_eq!(fs.write(NOBODY, append(handle, b"accepted")).await, Ok(8));
    assert_eq!(fs.pending(), 1);
    fs.refuse_appends();
    let error = fs
        .write(NOBODY, append(handle, b"refused"))
        .await
        .expect_err("it ends");
    assert_eq!(error.cause, Cause::Ending);
    assert_eq!(fs.drain().await, 0);
    assert_eq!(broker.content("app/log"), b"accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded_by_making_writers_wait() {
    const PIECE: usize = 1 << 20;
    let broker = FakeBroker::new();
    broker.create("app/log");
    let fs = start(&broker, |options| options.ack = Ack::Close).await;
    let handle = open(&fs, "app/log", WRITE).await;
    broker.inject(Call::Append, [Fault::Delay(Duration::from_millis(700))]);
    let content = Bytes::from(vec![1; PIECE]);
    let writing = async {
        for _ in 0..100 {
            let write = Write {
                content: content.clone(),
                ..append(handle, b"")
            };
            fs.write(NOBODY, write).await.expect("it waits for room");
        }
    };
    let early = tokio::time::timeout(Duration::from_millis(400), writing).await;
    assert!(
        early.is_err(),
        "100 MiB were taken although nothing was acknowledged"
    );
    assert_eq!(fs.drain().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_the_start_fails_and_says_why() {
    let mut options = options();
    options.timeout = Duration::from_millis(300);
    let client =
        Client::connect("http://127.0.0.1:1", ClientOptions::default()).expect("an address");
    let Err(StartError::NoAnswer { waited, last }) = JournalFs::start(client, options).await else {
        panic!("nobody is there");
    };
    assert_eq!(waited, Duration::from_millis(300));
    assert!(last.contains("refused"), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_handles_of_many_tasks_read_right() {
    let broker = FakeBroker::new();
    let content: Vec<u8> = (0u32..).flat_map(u32::to_le_bytes).take(3 << 20).collect();
    broker.create("app/log");
    broker.append("app/log", &content);
    let fs = start(&broker, |_| {}).await;
    let content = Arc::new(content);
    let readers = (0..16u64).map(|reader| {
        let (fs, content) = (fs.clone(), Arc::clone(&content));
        tokio::spawn(async move {
            let handle = open(&fs, "app/log", READ).await;
            let mut offset = reader * 1000;
            while offset < content.len() as u64 {
                let bytes = read(&fs, handle, offset, 65_536).await;
                let begin = usize::try_from(offset).expect("it is small");
                assert!(bytes[..] == content[begin..begin + bytes.len()]);
                offset += bytes.len() as u64;
            }
            fs.release(handle);
        })
    });
    let readers: Vec<_> = readers.collect();
    for reader in readers {
        reader.await.expect("it read right");
    }
}
