//! What can be seen of a directory, and how two are compared.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
};

use gazette_recoverylog::fsm::Timestamp;
use rustix::fs::SeekFrom;

/// What can be seen of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    kind: String,
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    atime: Option<(i64, i64)>,
    rdev: u64,
    target: Vec<u8>,
    content: Vec<u8>,
    /// Blocks that hold data.
    data: Vec<u64>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Its first name, which tells hard links.
    same_as: Vec<u8>,
}

/// Files of a directory by their paths; the directory itself is empty.
pub(crate) type Snapshot = BTreeMap<Vec<u8>, Seen>;

/// Looks at a directory that was recovered.
pub(crate) fn look_at(root: &Path, with_data: bool) -> Snapshot {
    look(root, &BTreeMap::new(), with_data)
}

pub(crate) fn look(
    root: &Path,
    times: &BTreeMap<u64, (Timestamp, Option<Timestamp>)>,
    with_data: bool,
) -> Snapshot {
    let mut found: BTreeMap<Vec<u8>, (u64, Seen)> = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    let mut all = Vec::new();
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        all.push((path, metadata));
    }
    // Reading a file changes its access time, under all its names.
    for (path, metadata) in all {
        let kind = metadata.file_type();
        let mut seen = Seen {
            kind: if kind.is_socket() {
                "socket".to_owned()
            } else {
                format!("{:o}", metadata.mode() >> 12)
            },
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            atime: Some((metadata.atime(), metadata.atime_nsec())),
            rdev: metadata.rdev(),
            target: Vec::new(),
            content: Vec::new(),
            data: Vec::new(),
            xattrs: xattrs(&path),
            same_as: Vec::new(),
        };
        if !times.is_empty() {
            let (mtime, atime) = times[&metadata.ino()];
            seen.mtime = (mtime.seconds, mtime.nanos.into());
            seen.atime = atime.map(|atime| (atime.seconds, atime.nanos.into()));
        }
        if kind.is_symlink() {
            seen.target = fs::read_link(&path)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec();
        } else if kind.is_file() {
            seen.content = fs::read(&path).unwrap();
            if with_data {
                seen.data = data(&path);
            }
        }
        let name = path
            .strip_prefix(root)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .to_vec();
        found.insert(name, (metadata.ino(), seen));
    }
    let mut first: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut snapshot = Snapshot::new();
    for (name, (inode, mut seen)) in found {
        seen.same_as
            .clone_from(first.entry(inode).or_insert_with(|| name.clone()));
        snapshot.insert(name, seen);
    }
    snapshot
}

/// Compares a recovered directory with what was recorded. An access time is compared where it was set.
pub(crate) fn compare(mut found: Snapshot, wanted: &Snapshot, title: &str) {
    for (name, found) in &mut found {
        if wanted
            .get(name)
            .is_some_and(|wanted| wanted.atime.is_none())
        {
            found.atime = None;
        }
    }
    assert_eq!(
        found
            .keys()
            .map(|name| String::from_utf8_lossy(name))
            .collect::<Vec<_>>(),
        wanted
            .keys()
            .map(|name| String::from_utf8_lossy(name))
            .collect::<Vec<_>>(),
        "{title}"
    );
    for (name, found) in &found {
        let wanted = &wanted[name];
        let shown = |seen: &Seen| Seen {
            content: seen.content.iter().take(16).copied().collect(),
            ..seen.clone()
        };
        assert!(
            found == wanted,
            "{title}: {}\nfound  {:?}\nwanted {:?}",
            String::from_utf8_lossy(name),
            shown(found),
            shown(wanted)
        );
    }
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names[..]) else {
        return BTreeMap::new();
    };
    names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            value.truncate(length);
            (name.to_vec(), value)
        })
        .collect()
}

/// Numbers of the blocks that hold data.
fn data(path: &Path) -> Vec<u64> {
    let file = fs::File::open(path).unwrap();
    let mut blocks = Vec::new();
    let mut at = 0;
    while let Ok(begin) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, SeekFrom::Hole(begin)).unwrap();
        blocks.extend(begin / 4096..end.div_ceil(4096));
        at = end;
    }
    blocks
}
