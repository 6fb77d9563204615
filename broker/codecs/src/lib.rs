#![doc = include_str!("../README.md")]

mod decode;
mod encode;
mod error;
mod fragment;

pub use decode::decoder;
pub use encode::{Encoder, compress_block, concatenates};
pub use error::{CodecError, FragmentError};
pub use fragment::{FragmentReader, fragment_reader};
pub use gazette_protocol::CompressionCodec;
