//! What a tree is, for comparison of two.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
};

use rustix::fs::{SeekFrom, seek};

/// What comparison of two trees shows, one line for each file: name, kind, mode, owner, links, size,
/// content, attributes. Not times, which differ.
pub(crate) fn describe(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut groups = BTreeMap::new();
    walk(root, &mut |path, metadata| {
        let name = path.strip_prefix(root).expect("it is below the root");
        let next = groups.len();
        let group = *groups.entry(metadata.ino()).or_insert(next);
        lines.push(format!(
            "{} inode {group} {:o} {}:{} links {} size {} rdev {} {} {:?}",
            name.as_os_str().as_bytes().escape_ascii(),
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.nlink(),
            // Of a directory it says nothing.
            if metadata.is_dir() { 0 } else { metadata.len() },
            metadata.rdev(),
            content(path, metadata),
            xattrs(path, metadata),
        ));
    });
    lines
}

/// Calls back for the root and all below it, in order of names.
pub(crate) fn walk(path: &Path, visit: &mut dyn FnMut(&Path, &fs::Metadata)) {
    let metadata = fs::symlink_metadata(path).expect("look at a file");
    visit(path, &metadata);
    if metadata.is_dir() {
        let entries = fs::read_dir(path).expect("list a directory");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("list a directory").file_name())
            .collect();
        names.sort();
        for name in names {
            walk(&path.join(name), visit);
        }
    }
}

fn content(path: &Path, metadata: &fs::Metadata) -> String {
    if metadata.is_symlink() {
        format!("-> {}", fs::read_link(path).expect("read a link").display())
    } else if metadata.is_file() {
        let file = File::open(path).expect("open a file");
        let ranges: Vec<String> = data_pages(&file, metadata.len())
            .iter()
            .map(u64::to_string)
            .collect();
        let sum = fs::read(path)
            .expect("read a file")
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
                (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
            });
        format!("sum {sum:x} pages {}", ranges.join(","))
    } else {
        let file_type = metadata.file_type();
        format!("special {} {}", file_type.is_fifo(), file_type.is_socket())
    }
}

/// Returns which pages of a file are not in holes.
pub(crate) fn data_pages(file: &File, size: u64) -> Vec<u64> {
    let mut pages = Vec::new();
    let mut at = 0;
    while at < size {
        let Ok(begin) = seek(file, SeekFrom::Data(at)) else {
            break;
        };
        let end = seek(file, SeekFrom::Hole(begin)).expect("a file ends with a hole");
        pages.extend(begin / PAGE..end.div_ceil(PAGE));
        at = end;
    }
    pages
}

/// Returns the extended attributes of a file.
pub(crate) fn xattrs(path: &Path, metadata: &fs::Metadata) -> BTreeMap<Vec<u8>, Vec<u8>> {
    if metadata.is_symlink() {
        return BTreeMap::new();
    }
    let mut buffer = vec![0; 1 << 16];
    let length = rustix::fs::listxattr(path, &mut buffer[..]).expect("list attributes");
    buffer.truncate(length);
    let names = buffer
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 1 << 16];
            let length = rustix::fs::getxattr(path, name, &mut value[..]).expect("read one");
            value.truncate(length);
            (name.to_vec(), value)
        })
        .collect()
}

pub(crate) const PAGE: u64 = 4096;
