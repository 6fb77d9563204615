use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::{Encoder, compress_block, concatenates};

const CODECS: [CompressionCodec; 5] = [
    CompressionCodec::None,
    CompressionCodec::Gzip,
    CompressionCodec::Zstandard,
    CompressionCodec::Snappy,
    CompressionCodec::GzipOffloadDecompression,
];

/// Those that compress.
fn compressing() -> impl Iterator<Item = CompressionCodec> {
    CODECS
        .into_iter()
        .filter(|codec| *codec != CompressionCodec::None)
}

fn decode(codec: CompressionCodec, object: &[u8]) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    decoder(codec, object)
        .expect("codec is one")
        .read_to_end(&mut content)?;
    Ok(content)
}

/// Compressible text that is a little different at each place.
fn sample(length: usize) -> Vec<u8> {
    (0..)
        .flat_map(|i: u32| format!("line {i} of many, ").into_bytes())
        .take(length)
        .collect()
}

fn any_codec() -> impl Strategy<Value = CompressionCodec> {
    prop::sample::select(CODECS.to_vec())
}

/// Runs of bytes, so that there is something to compress.
fn any_content() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((any::<u8>(), 1_usize..400), 0..200).prop_map(|runs| {
        runs.into_iter()
            .flat_map(|(byte, length)| std::iter::repeat_n(byte, length))
            .collect()
    })
}

proptest! {
    #[test]
    fn content_written_in_pieces_is_read_back(
        codec in any_codec(),
        content in any_content(),
        piece in 1_usize..70_000,
        read in 1_usize..70_000,
    ) {
        use std::io::Write;

        let mut encoder = Encoder::new(codec, Vec::new()).unwrap();
        for piece in content.chunks(piece) {
            encoder.write_all(piece).unwrap();
        }
        let object = encoder.finish().unwrap();

        let mut reader = decoder(codec, Stutter::new(&object, read)).unwrap();
        let mut decoded = Vec::new();
        let mut buffer = vec![0; read];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => decoded.extend_from_slice(&buffer[..length]),
                Err(error) => prop_assert_eq!(error.kind(), io::ErrorKind::Interrupted),
            }
        }
        prop_assert!(decoded == content);
    }

    #[test]
    fn blocks_one_after_the_other_are_the_whole(
        codec in any_codec(),
        content in any_content(),
        block in 1_usize..20_000,
    ) {
        let block = if concatenates(codec) { block } else { content.len().max(1) };
        let mut object = Vec::new();
        for block in content.chunks(block) {
            object.extend(compress_block(codec, block).unwrap());
        }
        if content.is_empty() {
            object = compress_block(codec, &[]).unwrap();
        }
        prop_assert!(decode(codec, &object).unwrap() == content);
    }

    #[test]
    fn empty_blocks_do_no_harm(codec in any_codec(), content in any_content()) {
        prop_assume!(concatenates(codec));
        let empty = compress_block(codec, &[]).unwrap();
        let block = compress_block(codec, &content).unwrap();
        let object = [empty.clone(), block, empty].concat();
        prop_assert!(decode(codec, &object).unwrap() == content);
    }

    #[test]
    fn any_bytes_at_all_are_survived(
        codec in any_codec(),
        noise in prop::collection::vec(any::<u8>(), 0..2000),
        header in any::<bool>(),
    ) {
        let mut object = Vec::new();
        if header {
            object = compress_block(codec, b"start").unwrap();
        }
        object.extend(noise);
        drop(decode(codec, &object));
    }

    #[test]
    fn a_changed_byte_changes_no_content_unseen(
        content in any_content(),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..=255,
    ) {
        for codec in compressing() {
            let mut object = compress_block(codec, &content).unwrap();
            let at = at.index(object.len());
            object[at] ^= flip;
            // A changed byte in a header, such as the time in that of gzip, may mean nothing. One that hides the
            // gzip magic makes the offloaded stream look like content, which is what its sum is for.
            if let Ok(decoded) = decode(codec, &object) {
                let is_hidden = codec == CompressionCodec::GzipOffloadDecompression && at < 3;
                let is_marker = codec == CompressionCodec::Snappy;
                prop_assert!(decoded == content || is_hidden || is_marker, "{:?} at {}", codec, at);
            }
        }
    }
}

#[test]
fn a_stream_cut_at_any_point_is_an_error() {
    for codec in compressing() {
        let content = sample(3_000);
        let object = compress_block(codec, &content).unwrap();
        for cut in 0..object.len() {
            let object = &object[..cut];
            match decode(codec, object) {
                Err(error) => {
                    assert_eq!(
                        error.kind(),
                        io::ErrorKind::UnexpectedEof,
                        "{codec:?} at {cut}"
                    );
                }
                // Nothing that could be known as gzip.
                Ok(decoded) if codec == CompressionCodec::GzipOffloadDecompression => {
                    assert!(cut < 3 && decoded == object, "cut at {cut}");
                }
                // Snappy streams have no end mark: a cut between two chunks is found by the length.
                Ok(decoded) => {
                    assert_eq!(codec, CompressionCodec::Snappy);
                    assert!(decoded.is_empty() && cut == 10, "cut at {cut}");
                }
            }
        }
    }
}

#[test]
fn a_cut_of_several_blocks_is_an_error_except_between_them() {
    for codec in compressing().filter(|codec| concatenates(*codec)) {
        let first = compress_block(codec, &sample(2_000)).unwrap();
        let object = [first.clone(), compress_block(codec, &sample(900)).unwrap()].concat();
        for cut in first.len() + 1..object.len() {
            match decode(codec, &object[..cut]) {
                Err(error) => {
                    assert_eq!(
                        error.kind(),
                        io::ErrorKind::UnexpectedEof,
                        "{codec:?} at {cut}"
                    );
                }
                Ok(_) => assert_eq!((codec, cut), (CompressionCodec::Snappy, first.len() + 10)),
            }
        }
        assert_eq!(
            decode(codec, &object[..first.len()]).unwrap(),
            sample(2_000)
        );
    }
}

#[test]
fn something_after_the_stream_is_an_error() {
    for codec in compressing() {
        for garbage in [
            b"\0".as_slice(),
            b"x",
            b"xyz",
            b"\0\0\0\0\0\0\0\0",
            b"more content follows here",
        ] {
            let mut object = compress_block(codec, &sample(500)).unwrap();
            object.extend_from_slice(garbage);
            assert!(decode(codec, &object).is_err(), "{codec:?} and {garbage:?}");
        }
    }
}

#[test]
fn an_error_is_given_again_and_again() {
    for codec in compressing() {
        let mut object = compress_block(codec, &sample(5_000)).unwrap();
        object.truncate(object.len() - 1);
        let mut reader = decoder(codec, object.as_slice()).unwrap();
        let mut content = Vec::new();
        let first = reader.read_to_end(&mut content).unwrap_err();
        for _ in 0..3 {
            let again = reader.read(&mut [0; 10]).unwrap_err();
            assert_eq!(
                (again.kind(), again.to_string()),
                (first.kind(), first.to_string())
            );
        }
    }
}

#[test]
fn an_error_of_the_source_is_passed_on_unchanged() {
    struct Broken(VecDeque<u8>);

    impl Read for Broken {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buf)? {
                0 => Err(io::Error::new(
                    io::ErrorKind::ConnectionReset,
                    "the line is dead",
                )),
                length => Ok(length),
            }
        }
    }

    for codec in compressing() {
        for keep in [0, 2, 15] {
            let mut object = compress_block(codec, &sample(5_000)).unwrap();
            object.truncate(keep);
            let mut reader = decoder(codec, Broken(object.into())).unwrap();
            let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{codec:?}");
            assert_eq!(error.to_string(), "the line is dead");
        }
    }
}

#[test]
fn offloaded_content_that_the_transport_decompressed_is_passed_on() {
    let codec = CompressionCodec::GzipOffloadDecompression;
    for content in [b"".as_slice(), b"a", b"plain content", b"\x1f", b"\x1f\x8b"] {
        assert_eq!(decode(codec, content).unwrap(), content);
    }
}

#[test]
fn no_codec_is_no_codec() {
    let error = decoder(CompressionCodec::Invalid, io::empty())
        .err()
        .unwrap();
    let expected = CodecError::Unsupported {
        codec: CompressionCodec::Invalid,
    };
    assert_eq!(error, expected);
    assert!(Encoder::new(CompressionCodec::Invalid, Vec::new()).is_err());
    assert!(compress_block(CompressionCodec::Invalid, b"x").is_err());
}

/// Reads little at a time, and is interrupted in between.
struct Stutter<'a> {
    bytes: &'a [u8],
    step: usize,
    turn: usize,
}

impl<'a> Stutter<'a> {
    fn new(bytes: &'a [u8], step: usize) -> Self {
        Self {
            bytes,
            step,
            turn: 0,
        }
    }
}

impl Read for Stutter<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.turn += 1;
        if self.turn.is_multiple_of(5) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let limit = buf.len().min(self.step).min(1 + self.turn * 7);
        self.bytes.read(&mut buf[..limit])
    }
}
