//! What the log had for a spool whose file is damaged, kept beside the file.
//!
//! The log uses its space again, and may have the only copy of a spool's last bytes. If the rest of
//! the file comes back, from a copy or from `lost+found`, these bytes complete it.
//!
//! The file is a sequence of extents: offset, length (u64, little-endian each), CRC-32C of those
//! and the content (u32), content. It ends at the first extent that fails its check: that was being
//! written when the log was opened before, and the log has all of it still.

use std::{
    collections::BTreeSet,
    io::{self, IoSlice},
    path::{Path, PathBuf},
};

use bytes::Bytes;

use crate::{
    disk::{Disk, OpenMode},
    spool::{file_name, parse_file_name},
};

/// Bytes of an extent before its content.
const HEADER_BYTES: usize = 20;

/// Content, and the offset of the spool at which it belongs.
pub(super) type Extent = (u64, Bytes);

/// The spools that have such a file.
pub(super) fn list(disk: &dyn Disk, dir: &Path) -> io::Result<BTreeSet<u64>> {
    let names = disk.list(dir)?;
    let spools = names.iter().filter_map(|name| {
        let spool = name.strip_suffix(".rest")?;
        parse_file_name(spool)
    });
    Ok(spools.collect())
}

/// The path of the file for a spool.
pub(super) fn path(dir: &Path, spool_id: u64) -> PathBuf {
    dir.join(format!("{}.rest", file_name(spool_id)))
}

/// Reads all whole extents of a file.
pub(super) fn read(disk: &dyn Disk, path: &Path) -> io::Result<Vec<Extent>> {
    let file = disk.open(path, OpenMode::Existing)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(decode(bytes.into()))
}

/// Writes a file with these extents, and syncs it. Its name is not synced.
pub(super) fn write(disk: &dyn Disk, path: &Path, extents: &[Extent]) -> io::Result<()> {
    let file = disk.open(path, OpenMode::Create)?;
    let mut at = 0;
    for (offset, content) in extents {
        let header = header(*offset, content);
        file.write_at(at, &[IoSlice::new(&header), IoSlice::new(content)])?;
        at += (HEADER_BYTES + content.len()) as u64;
    }
    file.sync_data()
}

fn header(offset: u64, content: &[u8]) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&offset.to_le_bytes());
    bytes[8..16].copy_from_slice(&(content.len() as u64).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), content);
    bytes[16..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(mut bytes: Bytes) -> Vec<Extent> {
    let mut extents = Vec::new();
    while let Some(found) = bytes.first_chunk::<HEADER_BYTES>().copied() {
        let [offset, length] = [0, 8].map(|at| {
            let mut number = [0; 8];
            number.copy_from_slice(&found[at..at + 8]);
            u64::from_le_bytes(number)
        });
        let rest = bytes.slice(HEADER_BYTES..);
        let Some(length) = usize::try_from(length).ok().filter(|l| *l <= rest.len()) else {
            break;
        };
        let content = rest.slice(..length);
        if header(offset, &content) != found {
            break;
        }
        extents.push((offset, content));
        bytes = rest.slice(length..);
    }
    extents
}

#[cfg(test)]
mod tests;
