//! Extended attributes of files that are read by their paths.

use std::{io, path::Path};

use bytes::Bytes;
use rustix::{
    fs::{lgetxattr, llistxattr},
    io::Errno,
};

/// Returns names and values of all attributes of a file, also if it is a symbolic link. Where the
/// file system has none there are none.
pub(super) fn xattrs(path: &Path) -> io::Result<Vec<(Bytes, Bytes)>> {
    let mut list = vec![0; BYTES_MAX];
    let length = match llistxattr(path, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = list[..length].split(|byte| *byte == 0);
    let mut buffer = Vec::new();
    let values = names.filter(|name| !name.is_empty()).map(|name| {
        buffer.resize(BYTES_MAX, 0);
        let length = lgetxattr(path, name, &mut buffer[..])?;
        let value = Bytes::copy_from_slice(&buffer[..length]);
        Ok((Bytes::copy_from_slice(name), value))
    });
    values.collect()
}

/// What Linux allows for the names together, and for a value.
const BYTES_MAX: usize = 64 << 10;
