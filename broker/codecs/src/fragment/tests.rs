use gazette_protocol::Sha1Sum;
use proptest::prelude::*;

use super::*;
use crate::{CompressionCodec, compress_block};

const CONTENT: &[u8] = b"content of a fragment";

fn sum_of(content: &[u8]) -> [u8; 20] {
    Sha1::digest(content).into()
}

fn fragment_of(content: &[u8], codec: CompressionCodec) -> Fragment {
    Fragment {
        begin: 100,
        end: 100 + i64::try_from(content.len()).unwrap(),
        sum: Sha1Sum::from_digest(sum_of(content)),
        compression_codec: codec.into(),
        ..Fragment::default()
    }
}

/// Reads all, and returns what was passed on and how it ended.
fn read(reader: &mut impl Read) -> (Vec<u8>, Result<(), FragmentError>) {
    let mut content = Vec::new();
    let mut buffer = [0; 4];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return (content, Ok(())),
            Ok(length) => content.extend_from_slice(&buffer[..length]),
            Err(error) => {
                let error = error.downcast().expect("an error of the fragment");
                return (content, Err(error));
            }
        }
    }
}

#[test]
fn a_whole_fragment_is_passed_on() {
    for codec in [
        CompressionCodec::None,
        CompressionCodec::Gzip,
        CompressionCodec::Snappy,
    ] {
        let object = compress_block(codec, CONTENT).unwrap();
        let fragment = fragment_of(CONTENT, codec);
        let mut reader = fragment_reader(&fragment, object.as_slice()).unwrap();
        assert_eq!(read(&mut reader), (CONTENT.to_vec(), Ok(())));
        assert_eq!(read(&mut reader), (vec![], Ok(())), "the end stays the end");
    }
}

#[test]
fn the_last_bytes_of_another_content_are_never_passed_on() {
    let mut other = CONTENT.to_vec();
    other[0] = b'C';
    let mut reader = FragmentReader::new(other.as_slice(), other.len() as u64, sum_of(CONTENT));
    let (passed_on, end) = read(&mut reader);
    assert!(passed_on.len() < CONTENT.len());
    let expected = FragmentError::SumMismatch {
        expected: sum_of(CONTENT),
        actual: sum_of(&other),
    };
    assert_eq!(end, Err(expected.clone()));
    assert_eq!(read(&mut reader), (vec![], Err(expected)), "and again");
}

#[test]
fn content_of_another_length_is_an_error() {
    let length = CONTENT.len() as u64;
    let mut short = FragmentReader::new(&CONTENT[..7], length, sum_of(CONTENT));
    let too_short = FragmentError::TooShort {
        expected: length,
        actual: 7,
    };
    assert_eq!(read(&mut short).1, Err(too_short));

    let mut long = FragmentReader::new(CONTENT, 7, sum_of(&CONTENT[..7]));
    let too_long = FragmentError::TooLong { expected: 7 };
    assert_eq!(read(&mut long).1, Err(too_long));
}

#[test]
fn an_empty_fragment_has_no_sum() {
    assert_eq!(
        read(&mut FragmentReader::new(io::empty(), 0, [0; 20])),
        (vec![], Ok(()))
    );
    assert_eq!(
        read(&mut FragmentReader::new(io::empty(), 0, sum_of(b""))),
        (vec![], Ok(()))
    );
    assert!(
        read(&mut FragmentReader::new(&b"x"[..], 0, [0; 20]))
            .1
            .is_err()
    );
}

#[test]
fn a_source_that_fails_at_the_end_loses_nothing_unseen() {
    struct FailsOnce<'a>(&'a [u8], bool);

    impl Read for FailsOnce<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() && !std::mem::replace(&mut self.1, true) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.0.read(buf)
        }
    }

    let mut reader = FragmentReader::new(
        FailsOnce(CONTENT, false),
        CONTENT.len() as u64,
        sum_of(CONTENT),
    );
    let mut buffer = [0; 100];
    for _ in 0..2 {
        let error = reader.read(&mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

#[test]
fn errors_name_both_sums() {
    let error = FragmentError::SumMismatch {
        expected: [0xab; 20],
        actual: [0x01; 20],
    };
    let expected = format!(
        "content has SHA-1 {} where {} is expected",
        "01".repeat(20),
        "ab".repeat(20)
    );
    assert_eq!(error.to_string(), expected);
}

proptest! {
    #[test]
    fn any_change_of_the_content_is_found(
        content in prop::collection::vec(any::<u8>(), 1..500),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..=255,
    ) {
        let mut changed = content.clone();
        changed[at.index(content.len())] ^= flip;
        let length = content.len() as u64;
        let (passed_on, end) = read(&mut FragmentReader::new(changed.as_slice(), length, sum_of(&content)));
        prop_assert!(end.is_err());
        prop_assert!(passed_on.len() < content.len());
    }
}
