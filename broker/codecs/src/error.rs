use gazette_protocol::CompressionCodec;

/// Says why bytes could not be compressed or decompressed.
///
/// A decoder hands it out inside an [`std::io::Error`]: of kind `UnexpectedEof` for `Truncated`, of kind
/// `InvalidData` for `Corrupt`, and of kind `InvalidInput` for `Unsupported`. Errors of the source that
/// feeds a decoder pass through unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The codec is no codec: the field was never set.
    #[error("compression codec {} is not one that content can be stored with", codec.as_str_name())]
    Unsupported {
        /// The codec that was asked for.
        codec: CompressionCodec,
    },
    /// The compressed bytes end too early.
    #[error("the {} stream ends in the middle", codec.as_str_name())]
    Truncated {
        /// The codec of the stream.
        codec: CompressionCodec,
    },
    /// The bytes are not what an encoder of this codec writes, or something else follows them.
    #[error("the {} stream is corrupt: {cause}", codec.as_str_name())]
    Corrupt {
        /// The codec of the stream.
        codec: CompressionCodec,
        /// What the decoder of that format found.
        cause: String,
    },
}

/// Says how the content of a fragment differs from what its name promises.
///
/// It is found inside an [`std::io::Error`] of kind `InvalidData`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FragmentError {
    /// There are fewer bytes than the fragment's range.
    #[error("content ends after {actual} of {expected} bytes")]
    TooShort {
        /// Length of the fragment's range.
        expected: u64,
        /// Bytes that there were.
        actual: u64,
    },
    /// There are more bytes than the fragment's range.
    #[error("content goes on after its {expected} bytes")]
    TooLong {
        /// Length of the fragment's range.
        expected: u64,
    },
    /// The bytes have another SHA-1 sum than the fragment.
    #[error(
        "content has SHA-1 {} where {} is expected",
        hex(actual),
        hex(expected)
    )]
    SumMismatch {
        /// Sum of the fragment.
        expected: [u8; 20],
        /// Sum of the bytes.
        actual: [u8; 20],
    },
}

fn hex(digest: &[u8; 20]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('?');
    digest
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}
