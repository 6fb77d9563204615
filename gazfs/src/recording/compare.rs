//! Whether two trees of files are the same: names, kinds, modes, owners, links, attributes and
//! content. Times are left out: they are those of the last change, which is compared itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use super::xattrs::xattrs;

/// Returns the path, below both, of the first difference that is found.
pub(super) fn first_difference(a: &Path, b: &Path) -> io::Result<Option<PathBuf>> {
    Comparison {
        roots: [a, b],
        links: BTreeMap::new(),
    }
    .directory(Path::new(""))
}

struct Comparison<'a> {
    roots: [&'a Path; 2],
    /// Of files with several names, which inode of the other side they were compared with.
    links: BTreeMap<u64, u64>,
}

impl Comparison<'_> {
    fn directory(&mut self, below: &Path) -> io::Result<Option<PathBuf>> {
        let [a, b] = self.roots.map(|root| root.join(below));
        if !is_same_inode(&a, &b, &a.symlink_metadata()?, &b.symlink_metadata()?)? {
            return Ok(Some(below.to_owned()));
        }
        let (ours, theirs) = (names(&a)?, names(&b)?);
        let differing = ours.symmetric_difference(&theirs);
        let unexpected = differing
            .into_iter()
            .find(|name| !is_unrecorded(&a, name) && !is_unrecorded(&b, name));
        if let Some(name) = unexpected {
            return Ok(Some(below.join(name)));
        }
        for name in ours.intersection(&theirs) {
            let path = below.join(name);
            if is_unrecorded(&a, name) {
                continue;
            }
            let found = self.entry(&path)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn entry(&mut self, below: &Path) -> io::Result<Option<PathBuf>> {
        let [a, b] = self.roots.map(|root| root.join(below));
        let (in_a, in_b) = (a.symlink_metadata()?, b.symlink_metadata()?);
        if in_a.is_dir() && in_b.is_dir() {
            return self.directory(below);
        }
        let differs = || Ok(Some(below.to_owned()));
        if in_a.nlink() != in_b.nlink() {
            return differs();
        }
        if in_a.nlink() > 1 {
            match self.links.insert(in_a.ino(), in_b.ino()) {
                None => {}
                Some(before) if before == in_b.ino() => return Ok(None),
                Some(_) => return differs(),
            }
        }
        if !is_same_inode(&a, &b, &in_a, &in_b)? {
            return differs();
        }
        let is_same = if in_a.is_file() {
            in_a.len() == in_b.len() && is_same_content(&a, &b)?
        } else if in_a.is_symlink() {
            fs::read_link(&a)? == fs::read_link(&b)?
        } else {
            in_a.rdev() == in_b.rdev()
        };
        if is_same { Ok(None) } else { differs() }
    }
}

fn names(dir: &Path) -> io::Result<BTreeSet<OsString>> {
    fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name()))
        .collect()
}

/// The shared memory of `SQLite` is never in the log, and is made anew from nothing.
fn is_unrecorded(dir: &Path, name: &OsStr) -> bool {
    let Some(database) = name.as_bytes().strip_suffix(b"-shm") else {
        return false;
    };
    let mut header = [0; SQLITE_HEADER.len()];
    File::open(dir.join(OsStr::from_bytes(database)))
        .and_then(|mut file| file.read_exact(&mut header))
        .is_ok_and(|()| header == *SQLITE_HEADER)
}

fn is_same_inode(a: &Path, b: &Path, in_a: &Metadata, in_b: &Metadata) -> io::Result<bool> {
    let key = |found: &Metadata| (found.mode(), found.uid(), found.gid());
    // File systems list them in any order.
    let sorted = |path| xattrs(path).map(BTreeMap::from_iter);
    Ok(key(in_a) == key(in_b) && sorted(a)? == sorted(b)?)
}

fn is_same_content(a: &Path, b: &Path) -> io::Result<bool> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    let (mut in_a, mut in_b) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    loop {
        let length = fill(&mut a, &mut in_a)?;
        if fill(&mut b, &mut in_b)? != length || in_a[..length] != in_b[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full, or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

const BLOCK_BYTES: usize = 1 << 20;
const SQLITE_HEADER: &[u8; 16] = b"SQLite format 3\0";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;

    use super::*;

    /// Two equal trees.
    fn trees() -> TempDir {
        let temp = tempfile::tempdir().expect("make a folder");
        for side in ["a", "b"] {
            let root = temp.path().join(side);
            fs::create_dir_all(root.join("d/e")).expect("make");
            fs::write(root.join("d/f"), "content").expect("write");
            fs::hard_link(root.join("d/f"), root.join("g")).expect("link");
            symlink("d/f", root.join("s")).expect("link");
        }
        temp
    }

    fn compare(temp: &TempDir) -> Option<PathBuf> {
        first_difference(&temp.path().join("a"), &temp.path().join("b")).expect("compare")
    }

    #[test]
    fn equal_trees_are_equal_whatever_their_times() {
        assert_eq!(compare(&trees()), None);
    }

    #[test]
    fn each_kind_of_difference_is_found_where_it_is() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 6] = [
            ("d/e", |at| fs::remove_dir(at).expect("remove")),
            ("d/f", |at| fs::write(at, "Content").expect("write")),
            ("d/e", |at| {
                fs::set_permissions(at, fs::Permissions::from_mode(0o700)).expect("change");
            }),
            ("s", |at| {
                fs::remove_file(at).expect("remove");
                symlink("g", at).expect("link");
            }),
            ("d/new", |at| fs::write(at, "").expect("write")),
            ("g", |at| {
                fs::remove_file(at).expect("remove");
                fs::write(at, "content").expect("write");
            }),
        ];
        for (path, change) in changes {
            let temp = trees();
            change(&temp.path().join("b").join(path));
            let found = compare(&temp).expect("they differ");
            let is_link = path == "g" && found == Path::new("d/f");
            assert!(found == Path::new(path) || is_link, "{path}: {found:?}");
        }
    }

    #[test]
    fn shared_memory_of_a_database_is_left_out() {
        let temp = trees();
        let [a, b] = ["a", "b"].map(|side| temp.path().join(side));
        for root in [&a, &b] {
            fs::write(root.join("db"), SQLITE_HEADER).expect("write");
        }
        fs::write(a.join("db-shm"), "x").expect("write");
        assert_eq!(compare(&temp), None);
        fs::write(a.join("other-shm"), "x").expect("write");
        assert_eq!(compare(&temp), Some("other-shm".into()));
    }
}
