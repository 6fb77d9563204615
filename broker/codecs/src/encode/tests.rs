use super::*;

#[test]
fn streams_start_as_their_formats_do() {
    let start = |codec| compress_block(codec, b"x").unwrap()[..4].to_vec();
    assert_eq!(start(CompressionCodec::Gzip)[..3], [0x1f, 0x8b, 8]);
    assert_eq!(
        start(CompressionCodec::GzipOffloadDecompression)[..3],
        [0x1f, 0x8b, 8]
    );
    assert_eq!(start(CompressionCodec::Zstandard), [0x28, 0xb5, 0x2f, 0xfd]);
    assert_eq!(start(CompressionCodec::Snappy), [0xff, 6, 0, 0]);
}

#[test]
fn an_empty_snappy_stream_is_its_identifier() {
    let empty = compress_block(CompressionCodec::Snappy, &[]).unwrap();
    assert_eq!(empty, SNAPPY_STREAM_IDENTIFIER);
}

#[test]
fn an_error_of_the_writer_comes_out_of_finish() {
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    for codec in [
        CompressionCodec::Gzip,
        CompressionCodec::Zstandard,
        CompressionCodec::Snappy,
    ] {
        let mut encoder = Encoder::new(codec, Full).unwrap();
        let result = encoder
            .write_all(b"content")
            .and_then(|()| encoder.finish().map(drop));
        assert_eq!(
            result.unwrap_err().kind(),
            io::ErrorKind::StorageFull,
            "{codec:?}"
        );
    }
}

#[test]
fn blocks_of_the_same_content_are_the_same_bytes() {
    for codec in [
        CompressionCodec::Gzip,
        CompressionCodec::Zstandard,
        CompressionCodec::Snappy,
    ] {
        let block = |_| compress_block(codec, b"nothing of the time or the place").unwrap();
        assert_eq!(block(1), block(2), "{codec:?}");
    }
}
