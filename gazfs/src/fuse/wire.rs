//! The words of FUSE: requests of the kernel, and answers to them, as bytes.
//!
//! Pure. Nothing that the bytes say makes it panic, or read beyond their end.

mod answer;
mod fields;
mod init;
mod operation;

#[cfg(test)]
mod tests;

use thiserror::Error;

use self::fields::Fields;
pub use self::{
    answer::{Answer, Attributes, Lines, OpenFlags, Space, Time},
    init::{Capabilities, Init, Offer},
    operation::{Forgotten, Operation, SetTime, argument_bytes, is_answered},
};

/// What each request begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the request, with this.
    pub length: u32,
    /// What is asked for.
    pub opcode: u32,
    /// Tells requests apart.
    pub unique: u64,
    /// The file that it is about.
    pub node: u64,
    /// The user who asks.
    pub uid: u32,
    /// His group.
    pub gid: u32,
    /// The thread that asks, or zero if it is not visible here.
    pub pid: u32,
    /// Bytes at the end that say more of who asks.
    pub extension_bytes: usize,
}

impl Header {
    /// Reads it from the beginning of a request.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(bytes);
        Ok(Self {
            length: fields.u32()?,
            opcode: fields.u32()?,
            unique: fields.u64()?,
            node: fields.u64()?,
            uid: fields.u32()?,
            gid: fields.u32()?,
            pid: fields.u32()?,
            extension_bytes: usize::from(fields.u16()?) * EXTENSION_UNIT_BYTES,
        })
    }
}

/// A request as it was read from the device: header, arguments and payload one after another.
pub fn split(request: &[u8]) -> Result<(Header, &[u8], &[u8]), Malformed> {
    let header = Header::decode(request)?;
    let length = usize::try_from(header.length).map_err(|_| Malformed)?;
    let end = length
        .checked_sub(header.extension_bytes)
        .ok_or(Malformed)?;
    let rest = request.get(HEADER_BYTES..end).ok_or(Malformed)?;
    let arguments = argument_bytes(header.opcode).min(rest.len());
    let (arguments, payload) = rest.split_at(arguments);
    Ok((header, arguments, payload))
}

/// What no kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a request of the kernel is not understood")]
pub struct Malformed;

/// Bytes of [`Header`].
pub const HEADER_BYTES: usize = 40;

/// What each answer begins with: its length, an error, and the number of the request.
pub fn answer_header(length: usize, error: i32, unique: u64) -> [u8; ANSWER_HEADER_BYTES] {
    let mut out = Answer::new();
    out.u32(u32::try_from(length + ANSWER_HEADER_BYTES).unwrap_or(u32::MAX))
        .u32(error.cast_unsigned())
        .u64(unique);
    let mut header = [0; ANSWER_HEADER_BYTES];
    header.copy_from_slice(out.bytes());
    header
}

/// Bytes of what each answer begins with.
pub const ANSWER_HEADER_BYTES: usize = 16;

/// The kernel's own number of a file is dropped from its memory. `begin` is where its content gets
/// stale, or negative if only attributes do.
pub fn stale_inode(node: u64, begin: i64, length: i64) -> Answer {
    let mut out = Answer::new();
    out.u64(node)
        .u64(begin.cast_unsigned())
        .u64(length.cast_unsigned());
    out
}

/// What a message is that answers no request: [`stale_inode`].
pub const NOTIFY_STALE_INODE: i32 = 2;

const EXTENSION_UNIT_BYTES: usize = 8;
