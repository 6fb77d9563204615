//! Numbers and names in bytes.

use super::Malformed;

/// Reads one field after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.u64().map(u64::cast_signed)
    }

    /// Skips what means nothing here.
    pub(super) fn skip(&mut self, bytes: usize) -> Result<(), Malformed> {
        self.take(bytes).map(drop)
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (first, rest) = self.rest.split_at_checked(bytes).ok_or(Malformed)?;
        self.rest = rest;
        Ok(first)
    }

    /// A name, which ends at a zero byte.
    pub(super) fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self
            .rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(Malformed)?;
        let name = self.take(end)?;
        self.skip(1)?;
        Ok(name)
    }
}
