use gazette_protocol::JournalSpec;
use proptest::prelude::*;

use super::*;

fn split(framing: Framing, pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, FramingError> {
    let mut splitter = Splitter::new(framing);
    let mut records = Vec::new();
    for piece in pieces {
        splitter.push(piece);
        while let Some(record) = splitter.next()? {
            records.push(record.to_vec());
        }
    }
    while let Some(record) = splitter.finish()? {
        records.push(record.to_vec());
    }
    Ok(records)
}

fn journals(names: &[&str]) -> Vec<list_response::Journal> {
    let journal = |name: &&str| list_response::Journal {
        spec: JournalSpec {
            name: (*name).to_owned(),
            ..JournalSpec::default()
        },
        ..list_response::Journal::default()
    };
    names.iter().map(journal).collect()
}

#[test]
fn lines_keep_their_newlines_and_the_last_one_gets_one() {
    let records = split(Framing::Lines, &[b"fo", b"ur\n\nfi", b"ve"]).unwrap();
    assert_eq!(records, [&b"four\n"[..], b"\n", b"five\n"]);
    assert_eq!(split(Framing::Lines, &[]).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn no_framing_gives_all_as_one() {
    let records = split(Framing::None, &[b"a\n", b"b"]).unwrap();
    assert_eq!(records, [b"a\nb"]);
}

#[test]
fn fixed_records_keep_their_headers() {
    let input = b"\x66\x33\x93\x36\x05\0\0\0ABCDE\x66\x33\x93\x36\x02\0\0\0FG\n";
    let records = split(Framing::Fixed, &[input]).unwrap();
    assert_eq!(records, [&input[..13], &input[13..23]]);
    assert_eq!(
        key_of(Framing::Fixed, &records[1].clone().into()),
        &b"FG"[..]
    );
}

#[test]
fn what_is_not_framed_says_where() {
    for (input, error) in [
        (
            &b"not fixed framing"[..],
            FramingError::NoHeader { offset: 0 },
        ),
        (
            b"\x66\x33\x93\x36\x01\0\0\0Ax",
            FramingError::NoHeader { offset: 9 },
        ),
        (
            b"\x66\x33\x93\x36\x01\0\0\0A\x66\x33",
            FramingError::Truncated { offset: 9 },
        ),
        (
            b"\x66\x33\x93\x36\x02\0\0\0A",
            FramingError::Truncated { offset: 0 },
        ),
        (
            b"\x66\x33\x93\x36\xff\xff\xff\xff",
            FramingError::TooLong {
                offset: 0,
                length: 0xffff_ffff + 8,
            },
        ),
    ] {
        assert_eq!(split(Framing::Fixed, &[input]), Err(error));
    }
}

/// As the reference was seen to map them.
#[test]
fn keys_map_to_the_journals_that_all_clients_choose() {
    let journals = journals(&["tmp/a", "tmp/b", "tmp/c"]);
    let mapped = |mapping, key: &str| map(mapping, key.as_bytes(), &journals, 0).unwrap();
    for (key, modulo, rendezvous) in [
        ("key-1", "tmp/b", "tmp/c"),
        ("key-2", "tmp/c", "tmp/c"),
        ("key-3", "tmp/a", "tmp/b"),
        ("key-4", "tmp/c", "tmp/a"),
    ] {
        assert_eq!(mapped(Mapping::Modulo, key), modulo);
        assert_eq!(mapped(Mapping::Rendezvous, key), rendezvous);
    }
}

#[test]
fn a_direct_mapping_finds_every_journal_and_no_other() {
    let journals = journals(&["tmp/a", "tmp/b", "tmp/c"]);
    for name in ["tmp/a", "tmp/b", "tmp/c"] {
        assert_eq!(
            map(Mapping::Direct, name.as_bytes(), &journals, 0),
            Some(name)
        );
    }
    assert_eq!(map(Mapping::Direct, b"tmp/zzz", &journals, 0), None);
    assert_eq!(
        map(Mapping::Random, b"", &journals, usize::MAX),
        Some("tmp/a")
    );
    assert_eq!(map(Mapping::Random, b"", &[], 1), None);
}

proptest! {
    #[test]
    fn pieces_do_not_matter(input in "[ab\n]{0,40}", at in prop::collection::vec(0..40_usize, 0..4)) {
        let mut cuts: Vec<usize> = at.into_iter().map(|at| at.min(input.len())).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts {
            pieces.push(&input.as_bytes()[from..cut]);
            from = cut;
        }
        pieces.push(&input.as_bytes()[from..]);
        let records = split(Framing::Lines, &pieces).unwrap();
        let whole = split(Framing::Lines, &[input.as_bytes()]).unwrap();
        prop_assert_eq!(&records, &whole);
        let mut expected = input.into_bytes();
        if expected.last().is_some_and(|last| *last != b'\n') {
            expected.push(b'\n');
        }
        prop_assert_eq!(records.concat(), expected);
    }

    #[test]
    fn any_input_ends(input in prop::collection::vec(any::<u8>(), 0..64)) {
        drop(split(Framing::Fixed, &[&input]));
    }
}
