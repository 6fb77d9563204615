//! Logs of which parts are gone, hints that are no good, brokers that fail, and journals that are no logs.

use bytes::BytesMut;
use gazette_client::fake::{Call, FakeBroker, Fault};
use gazette_protocol::{CompressionCodec, Fragment, Status};
use gazette_recoverylog::{
    Source, SourceError,
    fsm::{Author, Fnode, Fsm, Inode, Kind, Mode, Mutation, OpWriter, Place, Timestamp, Tree},
    hints::PublishedHints,
    player::{
        HintsChoice, HintsUse, Nearest, Point, RecoverError, RecoverOptions, Recovered, recover,
    },
};

use crate::{
    histories::world,
    look::{compare, look_at},
    support::{add_log, broker_with, files, options, place},
    world::LOG,
};

/// A file that stays, hints, one that comes and goes, hints again, and another one that stays.
struct Story {
    log: Vec<u8>,
    hints: Vec<PublishedHints>,
    /// What belongs to the file that went.
    gone: (i64, i64),
}

fn story() -> Story {
    let author = Author::new(9).unwrap();
    let fsm = Fsm::of_log(LOG).unwrap();
    let mut writer =
        OpWriter::new(Mode::Native, author, LOG, fsm, Tree::new(Mode::Native)).unwrap();
    let mut story = Story {
        log: Vec::new(),
        hints: Vec::new(),
        gone: (0, 0),
    };
    let mut now = Timestamp {
        seconds: 100,
        nanos: 0,
    };
    let root = Inode {
        kind: Kind::Directory,
        mode: 0o755,
        ..Inode::default()
    };
    let mut nothing = |_: u64, _: &mut [u8]| 0;
    let mut append = |writer: &mut OpWriter, log: &mut Vec<u8>, mutations: &[&str]| {
        let mut out = BytesMut::new();
        for mutation in mutations {
            let (verb, name) = mutation.split_once(' ').unwrap_or((mutation, ""));
            let at = Place {
                parent: Fnode::ROOT,
                name: name.as_bytes(),
            };
            let fnode = writer.tree().lookup(Fnode::ROOT, name.as_bytes());
            let inode = Inode {
                mode: 0o644,
                ..Inode::default()
            };
            let mutation = match verb {
                "begin" => {
                    writer.begin(&root, now, &mut out).unwrap();
                    continue;
                }
                "create" => Mutation::Create {
                    at: Some(at),
                    inode: &inode,
                },
                "write" => Mutation::Write {
                    fnode: fnode.unwrap(),
                    offset: 0,
                    data: name.as_bytes(),
                    mtime: now,
                },
                _ => Mutation::Unlink { at },
            };
            writer
                .write(&mutation, now, &mut nothing, &mut out)
                .unwrap();
        }
        writer.seal();
        writer
            .acknowledged(i64::try_from(log.len()).unwrap())
            .unwrap();
        log.extend_from_slice(&out);
        now.seconds += 10;
    };
    let note = |writer: &OpWriter, log: &[u8]| PublishedHints {
        author,
        offset: i64::try_from(log.len()).unwrap(),
        seq_no: writer.next_seq_no() - 1,
        checksum: writer.next_checksum(),
        time: writer.last_time().unwrap(),
        hints: writer.fsm().hints(&LOG.into()),
    };
    append(
        &mut writer,
        &mut story.log,
        &["begin", "create a", "write a"],
    );
    story.hints.push(note(&writer, &story.log));
    story.gone.0 = i64::try_from(story.log.len()).unwrap();
    append(&mut writer, &mut story.log, &["create t"]);
    append(&mut writer, &mut story.log, &["write t"]);
    append(&mut writer, &mut story.log, &["remove t"]);
    story.gone.1 = i64::try_from(story.log.len()).unwrap();
    append(&mut writer, &mut story.log, &["create b", "write b"]);
    story.hints.push(note(&writer, &story.log));
    append(&mut writer, &mut story.log, &["create c", "write c"]);
    story
}

/// A broker that has only these ranges of the log, and the hints.
fn with_ranges(story: &Story, ranges: &[(i64, i64)]) -> FakeBroker {
    let broker = broker_with(LOG, Mode::Native, &[]);
    for &(begin, end) in ranges {
        let at = |offset: i64| usize::try_from(offset).unwrap();
        broker.append(LOG, &story.log[at(begin)..at(end)]);
        let (fragment, _) = broker.compress(LOG, CompressionCodec::None).unwrap();
        let fragment = Fragment {
            begin,
            end,
            ..fragment
        };
        broker.store_at(LOG, fragment, String::new());
    }
    let journal = format!("{LOG}.hints");
    broker.create(&journal);
    for hints in &story.hints {
        broker.append(&journal, &hints.encode().unwrap());
    }
    broker
}

async fn names_at(source: &Source, point: Point) -> Result<(Vec<String>, Recovered), RecoverError> {
    let place = place();
    let options = RecoverOptions {
        point,
        ..options(LOG, &place.to)
    };
    let recovered = recover(source, options).await?;
    let names = files(&place.to).into_keys();
    let names = names.map(|name| String::from_utf8(name).unwrap()).collect();
    Ok((names, recovered))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hints_do_without_may_be_gone_and_points_in_it_are_refused_with_the_nearest() {
    let story = story();
    let head = i64::try_from(story.log.len()).unwrap();
    let broker = with_ranges(&story, &[(0, story.gone.0), (story.gone.1, head)]);
    let source = Source::Broker(broker.client());
    let (names, recovered) = names_at(&source, Point::Head).await.unwrap();
    assert_eq!(names, ["/a", "/b", "/c"]);
    assert_eq!(recovered.report.hints, HintsUse::Of(story.hints[1].offset));
    let nearest = Nearest {
        before: Some(story.gone.0),
        after: Some(story.hints[1].offset),
    };
    for point in [story.gone.0 + 1, story.gone.1, story.hints[1].offset - 1] {
        let error = names_at(&source, Point::Offset(point)).await.unwrap_err();
        let RecoverError::Missing(missing) = error else {
            panic!("{error}");
        };
        assert_eq!(
            (missing.begin, missing.end),
            (story.gone.0, story.gone.1.min(point))
        );
        assert_eq!(missing.nearest, nearest, "{point}");
    }
    let time = Point::Time(Timestamp {
        seconds: 115,
        nanos: 0,
    });
    let error = names_at(&source, time).await.unwrap_err();
    assert!(matches!(error, RecoverError::Missing(_)), "{error}");
    let (names, _) = names_at(&source, Point::Offset(story.gone.0))
        .await
        .unwrap();
    assert_eq!(names, ["/a"]);
    let (names, _) = names_at(&source, Point::Offset(story.hints[1].offset))
        .await
        .unwrap();
    assert_eq!(names, ["/a", "/b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pruned_beginning_or_a_hinted_range_that_is_gone_is_an_error() {
    let story = story();
    let head = i64::try_from(story.log.len()).unwrap();
    let broker = with_ranges(&story, &[(story.gone.1, head)]);
    let source = Source::Broker(broker.client());
    let error = names_at(&source, Point::Head).await.unwrap_err();
    assert!(
        error.to_string().contains("and hints name it; next: "),
        "{error}"
    );
    broker.delete(&format!("{LOG}.hints"));
    let error = names_at(&source, Point::Head).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("and no hints do without it; next: "),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_that_cannot_be_read_are_an_error_unless_they_are_not_wanted() {
    let world = world(70, Mode::Native, 20);
    let broker = broker_with(LOG, Mode::Native, &world.log);
    let journal = format!("{LOG}.hints");
    broker.create(&journal);
    broker.append(
        &journal,
        b"gzh1\x05\0\0\0garbage, and more of it than a header has, so that it is one",
    );
    let source = Source::Broker(broker.client());
    let place = place();
    let error = recover(&source, options(LOG, &place.to)).await.unwrap_err();
    assert!(matches!(error, RecoverError::Hints { .. }), "{error}");
    assert!(error.to_string().contains("--no-hints"), "{error}");
    let options = RecoverOptions {
        hints: HintsChoice::Never,
        ..options(LOG, &place.to)
    };
    let recovered = recover(&source, options).await.unwrap();
    assert_eq!(recovered.report.hints, HintsUse::NotAsked);
    compare(
        look_at(&place.to, true),
        &world.cuts.last().unwrap().files,
        "no hints",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_log_is_refused() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    add_log(&broker, "empty/log", Mode::Native, &[]);
    let source = Source::Broker(broker.client());
    let place = place();
    let error = recover(&source, options("app/log", &place.to))
        .await
        .unwrap_err();
    assert!(matches!(error, RecoverError::ContentType { .. }), "{error}");
    let error = recover(&source, options("no/log", &place.to))
        .await
        .unwrap_err();
    assert!(
        matches!(error, RecoverError::Source(SourceError::NoJournal { .. })),
        "{error}"
    );
    let nowhere = Source::of_store(&format!("file://{}/", place.to.parent().unwrap().display()));
    let error = recover(&nowhere, options("no/log", &place.to))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            RecoverError::Source(SourceError::NothingStored { .. })
        ),
        "{error}"
    );
    // A log without ops is an empty directory.
    let recovered = recover(&source, options("empty/log", &place.to))
        .await
        .unwrap();
    assert_eq!((recovered.report.ops, recovered.fsm.next_seq_no()), (0, 1));
    assert_eq!(recovered.mode, Some(Mode::Native));
    assert!(files(&place.to).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_that_fail_now_and_then_make_no_difference() {
    let world = world(71, Mode::Native, 60);
    let broker = broker_with(LOG, Mode::Native, &[]);
    for part in world.log.chunks(world.log.len() / 9) {
        broker.append(LOG, part);
        let (fragment, _) = broker.compress(LOG, CompressionCodec::None).unwrap();
        broker.store_at(LOG, fragment, String::new());
    }
    broker.inject_every(Call::Read, 3, Fault::BreakAfter(2));
    broker.inject(
        Call::Append,
        [Fault::Status(Status::NoJournalPrimaryBroker)],
    );
    broker.inject(Call::List, [Fault::None]);
    let place = place();
    let source = Source::Broker(broker.client());
    let recovered = recover(&source, options(LOG, &place.to)).await.unwrap();
    compare(
        look_at(&place.to, true),
        &world.cuts.last().unwrap().files,
        "failing brokers",
    );
    assert!(!recovered.report.is_head_uncertain);
    // No primary: what a replica says is the head, which the report tells.
    broker.inject_every(Call::Append, 1, Fault::Status(Status::NotAllowed));
    std::fs::remove_dir_all(&place.to).unwrap();
    let recovered = recover(&source, options(LOG, &place.to)).await.unwrap();
    assert!(recovered.report.is_head_uncertain);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fragment_whose_file_was_changed_is_named() {
    let world = world(72, Mode::Native, 40);
    let store = tempfile::tempdir().unwrap();
    let broker = broker_with(LOG, Mode::Native, &world.log);
    let fragment = broker
        .store(LOG, CompressionCodec::None, store.path())
        .unwrap();
    let path = store.path().join(fragment.content_path());
    let mut content = std::fs::read(&path).unwrap();
    let last = content.len() - 1;
    content[last] ^= 1;
    std::fs::write(&path, content).unwrap();
    let source = Source::of_store(&format!("file://{}/", store.path().display()));
    let place = place();
    let error = recover(&source, options(LOG, &place.to)).await.unwrap_err();
    let text = error.to_string();
    // Either the sum of the file, or that of what is in it, is noticed first.
    assert!(
        text.contains(&fragment.content_name()) || text.contains("damaged at offset"),
        "{text}"
    );
    assert!(!place.to.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_that_was_cut_short_is_no_tree() {
    use gazette_recoverylog::fsm::Mark;
    let mut world = world(73, Mode::Native, 10);
    let before = world.cuts.last().unwrap().clone();
    world.mark(Mark::SeedBegin);
    world.step();
    world.seal();
    let broker = broker_with(LOG, Mode::Native, &world.log);
    let source = Source::Broker(broker.client());
    let place = place();
    let error = recover(&source, options(LOG, &place.to)).await.unwrap_err();
    let RecoverError::SeedIncomplete {
        begin,
        before: good,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((begin, good), (before.end, Some(before.end)));
    world.mark(Mark::SeedEnd);
    let broker = broker_with(LOG, Mode::Native, &world.log);
    let source = Source::Broker(broker.client());
    recover(&source, options(LOG, &place.to)).await.unwrap();
    compare(
        look_at(&place.to, true),
        &world.cuts.last().unwrap().files,
        "a whole seed",
    );
}
