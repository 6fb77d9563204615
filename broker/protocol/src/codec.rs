//! Codecs of fragments and the extensions of their files.

use crate::CompressionCodec;

impl CompressionCodec {
    /// Extension of the files that hold content of this codec, with its dot. That of
    /// `GZIP_OFFLOAD_DECOMPRESSION` is empty: its files are served decompressed.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Invalid | Self::GzipOffloadDecompression => "",
            Self::None => ".raw",
            Self::Gzip => ".gz",
            Self::Zstandard => ".zst",
            Self::Snappy => ".sz",
        }
    }

    /// The codec of files with this extension, in any case.
    pub fn from_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            ".raw" => Some(Self::None),
            ".gz" | ".gzip" => Some(Self::Gzip),
            ".zst" | ".zstandard" => Some(Self::Zstandard),
            ".sz" | ".snappy" => Some(Self::Snappy),
            "" | ".gzod" => Some(Self::GzipOffloadDecompression),
            _ => None,
        }
    }
}
