//! What holds for all ops and all bytes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gazette_recoverylog_fsm::image::MemoryImage;
use gazette_recoverylog_fsm::{
    AttributeChange, Author, Body, Change, Event, FRAME_HEADER_BYTES, Fnode, FnodeSegments, Fsm,
    FsmHints, Group, Inode, Kind, LinkName, Mark, Mode, Mutation, OpReader, OpWriter, Place,
    Property, RecordedOp, Restated, Segment, SizeChange, Timestamp, Unfinished, Write, chain,
};
use proptest::prelude::*;

const LOG: &str = "test/log";

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos })
}

fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..most).prop_map(Bytes::from)
}

fn kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(vec![
        Kind::Regular,
        Kind::Directory,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::CharDevice,
        Kind::BlockDevice,
    ])
}

/// Names that meet each other often, and bad ones.
fn name() -> impl Strategy<Value = LinkName> {
    let paths = [
        "a",
        "b",
        "/",
        "/7",
        "/a",
        "/a/b",
        "/a/.gzdir",
        "/.gzdir",
        "/.gztmp.3",
        "..",
    ];
    let path = prop_oneof![
        9 => proptest::sample::select(paths.to_vec()).prop_map(Bytes::from_static_str),
        1 => bytes(12),
    ];
    (0..6i64, path).prop_map(|(parent, path)| LinkName {
        parent: Fnode(parent),
        path,
    })
}

trait FromStaticStr {
    fn from_static_str(text: &'static str) -> Self;
}

impl FromStaticStr for Bytes {
    fn from_static_str(text: &'static str) -> Self {
        Self::from_static(text.as_bytes())
    }
}

fn inode() -> impl Strategy<Value = Inode> {
    let numbers = (0..0o10000u32, any::<u32>(), any::<u32>(), any::<u64>());
    (kind(), numbers, bytes(9), time()).prop_map(|(kind, (mode, uid, gid, rdev), target, mtime)| {
        Inode {
            kind,
            mode,
            uid,
            gid,
            rdev,
            target,
            mtime,
        }
    })
}

fn restated() -> impl Strategy<Value = Restated> {
    let links = proptest::collection::vec(name(), 0..3);
    let xattrs = proptest::collection::vec((bytes(5), bytes(5)), 0..3);
    (inode(), proptest::option::of(time()), links, xattrs).prop_map(
        |(inode, atime, links, xattrs)| Restated {
            inode,
            atime,
            links,
            xattrs,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let some = proptest::option::of(0..0o10000u32);
    let attributes = (some, any::<Option<u32>>(), any::<Option<u32>>());
    let times = (proptest::option::of(time()), proptest::option::of(time()));
    let range = (0..1u64 << 40, 0..1u64 << 40);
    prop_oneof![
        (attributes, times).prop_map(|((mode, uid, gid), (atime, mtime))| {
            Change::Attributes(AttributeChange {
                mode,
                uid,
                gid,
                atime,
                mtime,
            })
        }),
        (bytes(9), bytes(9)).prop_map(|(name, value)| Change::SetXattr { name, value }),
        bytes(9).prop_map(|name| Change::RemoveXattr { name }),
        range
            .clone()
            .prop_map(|(size, _)| Change::Size(SizeChange::Truncate { size })),
        range
            .clone()
            .prop_map(|(offset, length)| Change::Size(SizeChange::Punch { offset, length })),
        (range, any::<bool>()).prop_map(|((offset, length), keep_size)| {
            Change::Size(SizeChange::Zero {
                offset,
                length,
                keep_size,
            })
        }),
        restated().prop_map(|restated| Change::Restated(Box::new(restated))),
    ]
}

fn mark() -> impl Strategy<Value = Mark> {
    prop_oneof![
        Just(Mark::Idle),
        Just(Mark::Claim),
        Just(Mark::SeedBegin),
        Just(Mark::SeedEnd),
        Just(Mark::SnapshotBegin),
        Just(Mark::SnapshotEnd),
        bytes(9).prop_map(Mark::Text),
        bytes(9).prop_map(Mark::Checkpoint),
        (100..1000u64, bytes(9)).prop_map(|(kind, content)| Mark::Other { kind, content }),
    ]
}

fn body() -> impl Strategy<Value = Body> {
    let fnode = || (0..8i64).prop_map(Fnode);
    prop_oneof![
        1 => proptest::option::of(mark()).prop_map(|mark| Body::NoOp { mark }),
        6 => (name(), proptest::option::of(inode()))
            .prop_map(|(at, inode)| Body::Create { at, inode }),
        4 => (fnode(), name()).prop_map(|(fnode, at)| Body::Link { fnode, at }),
        4 => (fnode(), name()).prop_map(|(fnode, at)| Body::Unlink { fnode, at }),
        3 => (fnode(), -9..9000i64, 0..90i64, any::<Option<u32>>(), any::<bool>()).prop_map(
            |(fnode, offset, length, crc32c, rerecorded)| {
                Body::Write(Write { fnode, offset, length, crc32c, mtime: None, rerecorded })
            }
        ),
        3 => (fnode(), change(), proptest::option::of(time()))
            .prop_map(|(fnode, change, mtime)| Body::Change { fnode, change, mtime }),
        1 => (name(), bytes(9))
            .prop_map(|(at, content)| Body::Property { path: at.path, content }),
    ]
}

fn op() -> impl Strategy<Value = RecordedOp> {
    let numbers = (any::<i64>(), any::<u32>(), any::<u32>());
    let group = (any::<i64>(), any::<bool>()).prop_map(|(first, last)| Group { first, last });
    let mode = proptest::sample::select(vec![None, Some(Mode::Native), Some(Mode::Compat)]);
    let extras = (
        proptest::option::of(time()),
        proptest::option::of(group),
        mode,
    );
    (numbers, extras, body()).prop_map(|((seq_no, checksum, author), (time, group, mode), body)| {
        let op = RecordedOp::new(seq_no, checksum, author, body);
        RecordedOp {
            time,
            group,
            mode,
            ..op
        }
    })
}

/// A log of ops that chain, whatever they say.
fn chained(bodies: &[Body]) -> Bytes {
    let (mut log, mut checksum) = (BytesMut::new(), 0);
    for (seq_no, body) in (1..).zip(bodies) {
        let mut body = body.clone();
        let mut content = Vec::new();
        if let Body::Write(write) = &mut body {
            content = vec![5; usize::try_from(write.length).unwrap()];
            write.crc32c = write.crc32c.map(|_| crc32c::crc32c(&content));
        }
        checksum = RecordedOp::new(seq_no, checksum, 9, body).encode_frame(&mut log);
        log.extend_from_slice(&content);
    }
    log.freeze()
}

/// All events of a log that is fed in pieces.
fn events(log: &Bytes, piece: usize) -> (Vec<Event>, Unfinished) {
    let (mut reader, mut rest, mut events) = (OpReader::new(0), log.clone(), Vec::new());
    loop {
        match reader.next_event() {
            Event::NeedMore if rest.is_empty() => return (events, reader.unfinished()),
            Event::NeedMore => reader.feed(rest.split_to(rest.len().min(piece))),
            event @ (Event::Op(_)
            | Event::Content { .. }
            | Event::Desync { .. }
            | Event::Damaged { .. }) => events.push(event),
        }
    }
}

/// Joins content, of which the pieces depend on the input.
fn without_pieces(events: Vec<Event>) -> Vec<Event> {
    let is_content = |event: &Event| matches!(event, Event::Content { .. });
    events
        .into_iter()
        .filter(|event| !is_content(event))
        .collect()
}

/// Plays a log, and goes on with it as a recorder would.
fn play_and_go_on(mode: Mode, log: &Bytes, hints: &FsmHints) {
    let Ok(mut image) = MemoryImage::new(mode, hints) else {
        return;
    };
    let _played = image.play(&LOG.into(), log, |_, _, _| {});
    let _orphans = image.tree.orphans();
    let _snapshot = image.snapshot();
    let author = Author::new(77).unwrap();
    let Ok(mut writer) = OpWriter::new(mode, author, LOG, image.fsm, image.tree) else {
        return;
    };
    let (now, mut out) = (Timestamp::default(), BytesMut::new());
    let inode = Inode::default();
    let _begun = writer.begin(&inode, now, &mut out);
    let fnodes: Vec<Fnode> = writer
        .tree()
        .fnodes()
        .chain([Fnode::ROOT, Fnode(-1)])
        .collect();
    for fnode in fnodes {
        let (here, there) = (
            Place {
                parent: fnode,
                name: b"a",
            },
            Place {
                parent: Fnode::ROOT,
                name: b"b",
            },
        );
        for mutation in [
            Mutation::Create {
                at: Some(here),
                inode: &inode,
            },
            Mutation::Rename {
                from: there,
                to: here,
                exchange: false,
            },
            Mutation::Rename {
                from: there,
                to: here,
                exchange: true,
            },
            Mutation::Rename {
                from: here,
                to: there,
                exchange: false,
            },
            Mutation::Write {
                fnode,
                offset: 3,
                data: b"xyz",
                mtime: now,
            },
            Mutation::Size {
                fnode,
                change: SizeChange::Truncate { size: 1 },
                mtime: now,
            },
            Mutation::Link { fnode, at: there },
            Mutation::Unlink { at: here },
        ] {
            let _cost = writer.cost(&mutation);
            let _written = writer.write(&mutation, now, &mut |_, _| 0, &mut out);
        }
        let _path = writer.tree().path(fnode);
        let _links = writer.tree().links(fnode).count();
    }
    writer.seal();
    let _acknowledged = writer.acknowledged(0);
}

fn segment() -> impl Strategy<Value = Segment> {
    let numbers = (0..3u32, 0..9i64, -1..90i64, 0..2u32, 0..12i64, 0..120i64);
    (
        numbers,
        proptest::sample::select(vec!["", LOG, "other/log"]),
    )
        .prop_map(
            |(
                (author, first_seq_no, first_offset, first_checksum, last_seq_no, last_offset),
                log,
            )| {
                Segment {
                    author,
                    first_seq_no,
                    first_offset,
                    first_checksum,
                    last_seq_no,
                    last_offset,
                    log: log.into(),
                }
            },
        )
}

fn hints() -> impl Strategy<Value = FsmHints> {
    let node = (
        0..9i64,
        proptest::collection::vec(segment(), 0..3),
        proptest::option::of(1..12i64),
    )
        .prop_map(|(fnode, segments, birth)| FnodeSegments {
            fnode: Fnode(fnode),
            segments,
            birth,
        });
    let property =
        ("[a-z/<&\u{2028}\n\"é]{0,4}", "[a-z]{0,4}").prop_map(|(path, content)| Property {
            path: path.into(),
            content: content.into(),
        });
    let nodes = proptest::collection::vec(node, 0..4);
    let properties = proptest::collection::vec(property, 0..2);
    let extras = (any::<bool>(), proptest::option::of(time()));
    (nodes, properties, extras).prop_map(|(live_nodes, properties, (native, time))| FsmHints {
        log: LOG.into(),
        live_nodes,
        properties,
        mode: native.then_some(Mode::Native),
        time,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ops_come_back_from_their_frames(op in op()) {
        let mut frame = BytesMut::new();
        let next = op.encode_frame(&mut frame);
        let payload = frame.freeze().slice(FRAME_HEADER_BYTES..);
        prop_assert_eq!(chain(op.checksum, &payload), next);
        prop_assert_eq!(RecordedOp::decode(payload), Ok(op));
    }

    #[test]
    fn hints_come_back_from_both_forms(hints in hints()) {
        prop_assert_eq!(FsmHints::decode(&hints.encode()), Ok(hints.clone()));
        prop_assert_eq!(FsmHints::decode(hints.to_json().as_bytes()), Ok(hints));
    }

    #[test]
    fn pieces_do_not_change_what_is_read(bodies in proptest::collection::vec(body(), 0..12), piece in 1..40usize) {
        let log = chained(&bodies);
        let (whole, unfinished) = events(&log, usize::MAX);
        prop_assert_eq!(unfinished, Unfinished::Nothing);
        prop_assert_eq!(whole.iter().filter(|event| matches!(event, Event::Op(_))).count(), bodies.len());
        let (pieces, _) = events(&log, piece);
        prop_assert_eq!(without_pieces(pieces), without_pieces(whole));
    }

    #[test]
    fn arbitrary_bytes_are_read_to_their_end(log in bytes(300), piece in 1..40usize) {
        let (_, whole) = events(&log, usize::MAX);
        let (_, pieces) = events(&log, piece);
        prop_assert_eq!(whole, pieces);
        let _op = RecordedOp::decode(log.clone());
        let hints = FsmHints::decode(&log);
        if let Ok(hints) = hints {
            let _fsm = Fsm::new(&hints);
        }
    }

    #[test]
    fn ops_behind_junk_are_found(junk in bytes(60), bodies in proptest::collection::vec(body(), 1..5)) {
        // Junk may hold a header of its own, which would swallow what follows.
        prop_assume!(!junk.windows(2).any(|pair| pair == [0x66, 0x33]) && !junk.ends_with(&[0x66]));
        let log = chained(&bodies);
        let with_junk: Bytes = [&junk[..], &log[..]].concat().into();
        for piece in [1, 3, usize::MAX] {
            let (found, unfinished) = events(&with_junk, piece);
            let ops = found.iter().filter(|event| matches!(event, Event::Op(_))).count();
            prop_assert_eq!(ops, bodies.len());
            prop_assert_eq!(unfinished, Unfinished::Nothing);
            let end = i64::try_from(junk.len()).unwrap();
            let first = found.first();
            let desync = Event::Desync { begin: 0, end };
            prop_assert!(junk.is_empty() || first == Some(&desync));
        }
    }

    #[test]
    fn hostile_ops_that_chain_never_panic(bodies in proptest::collection::vec(body(), 0..40), hints in hints()) {
        let log = chained(&bodies);
        for mode in [Mode::Native, Mode::Compat] {
            play_and_go_on(mode, &log, &FsmHints::of_log(LOG));
            play_and_go_on(mode, &log, &hints);
        }
    }

    #[test]
    fn damaged_logs_never_panic(
        bodies in proptest::collection::vec(body(), 1..20),
        at in any::<proptest::sample::Index>(),
        damage in bytes(9),
        cut in any::<bool>(),
    ) {
        let log = chained(&bodies).to_vec();
        let at = at.index(log.len());
        let behind = if cut { &log[log.len()..] } else { &log[(at + damage.len()).min(log.len())..] };
        let log: Bytes = [&log[..at], &damage, behind].concat().into();
        for mode in [Mode::Native, Mode::Compat] {
            play_and_go_on(mode, &log, &FsmHints::of_log(LOG));
        }
    }

    #[test]
    fn flipped_bits_of_content_are_found(flip in 0..8u32, at in 0..40usize) {
        let write = Write { fnode: Fnode(1), length: 40, crc32c: Some(0), ..Write::default() };
        let at_a = LinkName { parent: Fnode::ROOT, path: "/a".into() };
        let log = chained(&[Body::Create { at: at_a, inode: None }, Body::Write(write)]);
        let mut damaged = log.to_vec();
        let position = log.len() - 40 + at;
        damaged[position] ^= 1 << flip;
        let (found, _) = events(&damaged.into(), 7);
        let is_damaged = |event: Option<&Event>| matches!(event, Some(Event::Damaged { .. }));
        prop_assert!(is_damaged(found.last()));
        prop_assert!(!is_damaged(events(&log, 7).0.last()));
    }
}

#[test]
fn an_absurd_length_is_damage_and_takes_no_memory() {
    let mut log = vec![0x66, 0x33, 0x93, 0x36, 0xff, 0xff, 0xff, 0xff];
    let at = LinkName {
        parent: Fnode::ROOT,
        path: "/a".into(),
    };
    log.extend_from_slice(&chained(&[Body::Create { at, inode: None }]));
    let (found, unfinished) = events(&log.into(), 5);
    assert!(
        matches!(found.first(), Some(Event::Damaged { begin: 0, .. })),
        "{found:?}"
    );
    assert!(
        matches!(found.last(), Some(Event::Op(_))),
        "the op behind it is found"
    );
    assert_eq!(unfinished, Unfinished::Nothing);
}

#[test]
fn a_cut_log_says_where_it_is_cut() {
    let write = Write {
        fnode: Fnode(1),
        length: 40,
        crc32c: Some(0),
        ..Write::default()
    };
    let at = LinkName {
        parent: Fnode::ROOT,
        path: "/a".into(),
    };
    let log = chained(&[Body::Create { at, inode: None }, Body::Write(write)]);
    let first = 8 + i64::from(log[4]);
    for cut in 0..log.len() {
        let (_, unfinished) = events(&log.slice(..cut), 11);
        let cut = i64::try_from(cut).unwrap();
        let length = i64::try_from(log.len()).unwrap();
        let expected = match cut {
            0 => Unfinished::Nothing,
            _ if cut < first => Unfinished::Frame { begin: 0 },
            _ if cut == first => Unfinished::Nothing,
            _ if cut < length - 40 => Unfinished::Frame { begin: first },
            _ => Unfinished::Content {
                begin: first,
                missing: length - cut,
            },
        };
        assert_eq!(unfinished, expected, "cut at {cut}");
    }
}

#[test]
fn segments_of_other_logs_never_panic() {
    let log: Arc<str> = LOG.into();
    let mut fsm = Fsm::of_log(LOG).unwrap();
    let op = fsm.claim(Author::new(3).unwrap(), Mode::Native);
    let extent = gazette_recoverylog_fsm::OpExtent {
        log: &log,
        begin: 0,
        end: 9,
    };
    fsm.apply(&op, 5, extent).unwrap();
    assert_eq!(fsm.mode(), Some(Mode::Native));
    assert_eq!((fsm.next_seq_no(), fsm.next_checksum()), (2, 5));
}
