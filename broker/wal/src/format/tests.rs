//! The bytes of the format, and what is not taken for them.

use bytes::Bytes;
use gazette_protocol::{Fragment, Label, LabelSet, Sha1Sum};
use proptest::prelude::*;
use prost::Message;

use super::{payload::*, *};

const HEADER: SegmentHeader = SegmentHeader {
    synced: true,
    follows: true,
    generation: 7,
    first_lsn: 0x10_0000,
    run: 5,
    salt: 0x0123_4567_89ab_cdef,
    previous_end: 0x0f_ff00,
    segment_bytes: 0x8_0000,
};

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).map(|line| {
        let line: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        line.join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn commit_frame() -> Frame {
    let identity = Identity::new(3, "app/log".to_owned(), 42);
    let label = Label {
        name: "author".to_owned(),
        value: "me".to_owned(),
        prefix: false,
    };
    let registers = LabelSet {
        labels: vec![label],
    };
    let sum = Sha1Sum {
        part1: 0x1111,
        part2: 0x2222,
        part3: 0x3333,
    };
    let fragment = Fragment {
        begin: 1000,
        end: 1005,
        sum,
        compression_codec: 2,
        ..Fragment::default()
    };
    let journal = JournalRef {
        identity: &identity,
        end: 1005,
        registers: &registers,
    };
    let spool = SpoolRef {
        id: 9,
        fragment: &fragment,
        first_append: Some(from_nanos(1_700_000_000_000_000_000)),
        complete: false,
        registers: None,
    };
    let message = encode_commit(journal, spool, 1002, true);
    let content = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")];
    Frame::new(Kind::CommitInline, message, content)
}

/// A segment with the commit, and the offset after it.
fn segment() -> (Vec<u8>, usize) {
    let mut bytes = HEADER.encode().to_vec();
    let frame = commit_frame();
    let length = frame.record_bytes();
    let lsn = HEADER.lsn(SEGMENT_HEADER_BYTES);
    bytes.extend(
        frame
            .header(HEADER.generation, lsn, HEADER.first_lsn)
            .encode(HEADER.salt),
    );
    let (message, contents) = frame.into_payload();
    bytes.extend(message);
    bytes.extend(contents.concat());
    let end = SEGMENT_HEADER_BYTES + length;
    bytes.resize(end, 0);
    bytes.resize(end + 64, 0);
    (bytes, end)
}

/// A header of a segment, and a commit of `abc` at 1002 of the journal `app/log`.
const SEGMENT: &str = "\
47 5a 57 41 4c 53 45 47 01 00 00 00 53 17 38 11
03 00 00 00 00 00 00 00 07 00 00 00 00 00 00 00
00 00 10 00 00 00 00 00 05 00 00 00 00 00 00 00
ef cd ab 89 67 45 23 01 00 ff 0f 00 00 00 00 00
00 00 08 00 00 00 00 00 40 6e 61 8a 5d 00 00 00
3b b5 d7 ce 02 00 00 00 07 00 00 00 00 00 00 00
48 00 10 00 00 00 00 00 00 00 10 00 00 00 00 00
56 00 00 00 0a 20 08 03 12 07 61 70 70 2f 6c 6f
67 18 2a 20 ed 07 2a 0e 0a 0c 0a 06 61 75 74 68
6f 72 12 02 6d 65 12 2f 08 09 12 21 10 e8 07 18
ed 07 22 17 09 11 11 00 00 00 00 00 00 11 22 22
00 00 00 00 00 00 1d 33 33 00 00 28 02 18 80 80
a8 b1 e3 9f e7 cb 17 18 ea 07 61 62 63 00 00 00";

#[test]
fn a_segment_has_these_bytes() {
    let (bytes, end) = segment();
    assert_eq!(hex(&bytes[..end]), SEGMENT);
}

#[test]
fn a_header_is_read_as_it_was_written() {
    assert_eq!(
        SegmentHeader::decode(&HEADER.encode()),
        HeaderState::Valid(HEADER)
    );
    assert_eq!(SegmentHeader::decode(&[0; 4096]), HeaderState::Blank);
    assert_eq!(SegmentHeader::decode(&[0; 10]), HeaderState::Damaged);
}

#[test]
fn a_later_version_is_told_from_damage() {
    let mut bytes = HEADER.encode();
    bytes[8] = 2;
    assert_eq!(SegmentHeader::decode(&bytes), HeaderState::Damaged);
    bytes[12..16].fill(0);
    let crc = crc32c::crc32c(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(
        SegmentHeader::decode(&bytes),
        HeaderState::UnknownVersion(2)
    );
}

#[test]
fn a_record_of_an_earlier_use_of_the_segment_is_none() {
    let (bytes, _) = segment();
    let read = |header: SegmentHeader| {
        RecordHeader::decode(&bytes, SEGMENT_HEADER_BYTES, &header, Checks::ALL)
    };
    assert!(read(HEADER).is_some());
    assert_eq!(
        read(SegmentHeader {
            generation: 8,
            ..HEADER
        }),
        None
    );
    assert_eq!(
        read(SegmentHeader {
            first_lsn: 0x18_0000,
            ..HEADER
        }),
        None
    );
    assert_eq!(read(SegmentHeader { salt: 1, ..HEADER }), None);
}

#[test]
fn what_is_encoded_by_hand_is_the_message() {
    let (message, content) = commit_frame().into_payload();
    let payload: Vec<u8> = message.into_iter().chain(content.concat()).collect();
    let (message, content) = split_inline(&Bytes::from(payload)).unwrap();
    assert_eq!(content, "abc");
    let decoded = CommitMessage::decode(message.clone()).unwrap();
    assert_eq!(decoded.encode_to_vec(), message);
    assert_eq!(decoded.journal.name, "app/log");
    assert_eq!(
        (decoded.journal.id, decoded.journal.create_revision),
        (3, 42)
    );
    assert_eq!((decoded.journal.end, decoded.append_begin), (1005, 1002));
    assert_eq!((decoded.spool.id, decoded.spool.fragment.begin), (9, 1000));
    assert_eq!(
        decoded.spool.first_append_nanos,
        Some(1_700_000_000_000_000_000)
    );
    assert_eq!(decoded.spool.registers, None);
}

proptest! {
    #[test]
    fn one_changed_byte_is_noticed(at in 0usize..400, flip in 1u8..=255) {
        let (mut bytes, end) = segment();
        prop_assume!(at < end);
        bytes[at] ^= flip;
        let header = SegmentHeader::decode(&bytes);
        if at < SEGMENT_HEADER_BYTES {
            prop_assert_eq!(header, HeaderState::Damaged);
            return Ok(());
        }
        let record = RecordHeader::decode(&bytes, SEGMENT_HEADER_BYTES, &HEADER, Checks::ALL);
        let payload =
            record.and_then(|record| record.payload(&bytes, SEGMENT_HEADER_BYTES, Checks::ALL));
        // The zeros up to the next record are nobody's.
        let length = SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES + commit_payload_bytes();
        prop_assert_eq!(payload.is_some(), at >= length);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        SegmentHeader::decode(&bytes);
        for offset in 0..bytes.len() {
            for checks in [Checks::ALL, Checks { records: false }] {
                let header = RecordHeader::decode(&bytes, offset, &HEADER, checks);
                header.map(|header| header.payload(&bytes, offset, checks));
            }
        }
        split_inline(&Bytes::from(bytes));
    }

    #[test]
    fn states_are_encoded_as_their_messages(
        ids in any::<(u64, u64)>(),
        name in "[a-z/]{0,20}",
        numbers in any::<(i64, i64, i64, i64)>(),
        labels in proptest::collection::vec(("[a-z]{1,5}", "[a-z]{0,5}"), 0..4),
        nanos in any::<Option<i64>>(),
        complete in any::<bool>(),
        own in any::<bool>(),
    ) {
        let labels = labels.into_iter().map(|(name, value)| Label { name, value, prefix: false });
        let registers = LabelSet { labels: labels.collect() };
        let identity = Identity::new(ids.0, name.clone(), numbers.0);
        let fragment = Fragment { begin: numbers.1, end: numbers.2, ..Fragment::default() };
        let journal = JournalRef { identity: &identity, end: numbers.3, registers: &registers };
        let spool = SpoolRef {
            id: ids.1,
            fragment: &fragment,
            first_append: nanos.map(from_nanos),
            complete,
            registers: own.then_some(&registers),
        };
        let message = StateMessage {
            journal: JournalPart {
                id: ids.0,
                name,
                create_revision: numbers.0,
                end: numbers.3,
                registers: registers.clone(),
            },
            spool: Some(SpoolPart {
                id: ids.1,
                fragment: fragment.clone(),
                first_append_nanos: nanos,
                complete,
                registers: own.then(|| registers.clone()),
            }),
        };
        prop_assert_eq!(encode_state(journal, Some(spool)), message.encode_to_vec());
        prop_assert_eq!(spool.encoded_len(), message.spool.map_or(0, |s| s.encoded_len()));
        prop_assert_eq!(journal.encoded_len(), message.journal.encoded_len());
    }
}

fn commit_payload_bytes() -> usize {
    let (message, content) = commit_frame().into_payload();
    message.len() + content.concat().len()
}
