//! What mutations lead to, kept as simply as possible.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt},
    },
    path::Path,
};

use gazette_recoverylog_fsm::{AttributeChange, Fnode, Inode, Kind, SizeChange, Timestamp};
use gazfs::recorded::memory::Owned;

use crate::bare::{PAGE, data_pages, walk, xattrs};

/// A tree in memory.
#[derive(Debug, Default)]
pub(crate) struct Model {
    files: BTreeMap<Fnode, Replayed>,
    names: BTreeMap<(Fnode, Vec<u8>), Fnode>,
    /// Files that never had a name, and are open.
    unnamed: BTreeSet<Fnode>,
}

#[derive(Debug, Default, Clone)]
struct Replayed {
    inode: Inode,
    atime: Option<Timestamp>,
    size: u64,
    /// Pages that are no holes.
    pages: BTreeMap<u64, Vec<u8>>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What is asked of holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holes {
    /// They are where they were recorded.
    Exact,
    /// They may also be zeros.
    Zeros,
}

impl Model {
    /// Applies mutations to an empty tree.
    pub(crate) fn of(mutations: &[Owned]) -> Self {
        let mut model = Self::default();
        model.files.insert(Fnode::ROOT, Replayed::default());
        for mutation in mutations {
            model.apply(mutation);
        }
        model
    }

    fn apply(&mut self, mutation: &Owned) {
        match mutation {
            Owned::Create { fnode, at, inode } => {
                let file = Replayed {
                    inode: inode.clone(),
                    ..Replayed::default()
                };
                self.files.insert(*fnode, file);
                match at {
                    None => assert!(self.unnamed.insert(*fnode), "{mutation:?}"),
                    Some(at) => {
                        assert_eq!(self.names.insert(at.clone(), *fnode), None, "{mutation:?}");
                    }
                }
            }
            Owned::Link { fnode, at } => {
                self.unnamed.remove(fnode);
                assert_eq!(self.names.insert(at.clone(), *fnode), None, "{mutation:?}");
            }
            Owned::Unlink { at } => {
                assert!(self.names.remove(at).is_some(), "{mutation:?}");
            }
            Owned::Rename { from, to, exchange } => {
                let source = self.names.remove(from).expect("it renames a name");
                let target = self.names.insert(to.clone(), source);
                if *exchange {
                    let target = target.expect("it exchanges two names");
                    self.names.insert(from.clone(), target);
                }
            }
            Owned::Write {
                fnode,
                offset,
                data,
                mtime,
            } => {
                assert!(!data.is_empty(), "an empty write");
                let file = self.file(*fnode);
                file.write(*offset, data);
                file.inode.mtime = *mtime;
            }
            Owned::Size {
                fnode,
                change,
                mtime,
            } => {
                let file = self.file(*fnode);
                file.resize(*change);
                file.inode.mtime = *mtime;
            }
            Owned::Attributes { fnode, change } => self.file(*fnode).change(*change),
            Owned::SetXattr { fnode, name, value } => {
                self.file(*fnode).xattrs.insert(name.clone(), value.clone());
            }
            Owned::RemoveXattr { fnode, name } => {
                self.file(*fnode).xattrs.remove(name);
            }
            Owned::Release { fnode } => assert!(self.unnamed.remove(fnode), "{mutation:?}"),
        }
    }

    /// Returns a file that has a name still, or never had one: of others nothing is recorded.
    fn file(&mut self, fnode: Fnode) -> &mut Replayed {
        let has_name = fnode == Fnode::ROOT
            || self.unnamed.contains(&fnode)
            || self.names.values().any(|named| *named == fnode);
        assert!(has_name, "{fnode} has no name any more");
        self.files.get_mut(&fnode).expect("it was created")
    }

    /// Checks that a tree is as this.
    pub(crate) fn check(&self, root: &Path, holes: Holes) {
        let mut seen = BTreeMap::new();
        let mut inodes = BTreeMap::new();
        walk(root, &mut |path, metadata| {
            let fnode = self.find(path.strip_prefix(root).expect("it is below the root"));
            let fnode = fnode.unwrap_or_else(|| panic!("{} was not recorded", path.display()));
            *seen.entry(fnode).or_insert(0) += 1;
            let same = *inodes.entry(fnode).or_insert_with(|| metadata.ino());
            assert_eq!(same, metadata.ino(), "{} is another file", path.display());
            if fnode != Fnode::ROOT {
                self.files[&fnode].check(path, metadata, holes);
            }
        });
        let names = self.names.len() + 1;
        let found: usize = seen.values().sum();
        assert_eq!(found, names, "names that are not there: {:?}", self.names);
    }

    fn find(&self, path: &Path) -> Option<Fnode> {
        path.components().try_fold(Fnode::ROOT, |parent, name| {
            let name = name.as_os_str().as_bytes().to_vec();
            self.names.get(&(parent, name)).copied()
        })
    }
}

impl Replayed {
    fn write(&mut self, offset: u64, data: &[u8]) {
        for (at, byte) in (offset..).zip(data) {
            let page = self.pages.entry(at / PAGE).or_insert_with(empty_page);
            page[index(at)] = *byte;
        }
        self.size = self.size.max(offset + length(data));
    }

    fn resize(&mut self, change: SizeChange) {
        match change {
            SizeChange::Truncate { size } => {
                self.clear(size, u64::MAX);
                self.size = size;
            }
            SizeChange::Punch { offset, length } => self.clear(offset, offset + length),
            SizeChange::Zero {
                offset,
                length,
                keep_size,
            } => {
                self.clear(offset, offset + length);
                if !keep_size {
                    self.size = self.size.max(offset + length);
                }
            }
        }
    }

    /// Makes a hole: whole pages go away, parts of pages become zeros.
    fn clear(&mut self, begin: u64, end: u64) {
        self.pages.retain(|page, bytes| {
            let (first, last) = (page * PAGE, (page + 1) * PAGE);
            let (from, to) = (begin.max(first), end.min(last));
            if from >= to {
                return true;
            }
            let to = usize::try_from(to - first).expect("it is in a page");
            bytes[index(from)..to].fill(0);
            to - index(from) < bytes.len()
        });
    }

    fn change(&mut self, change: AttributeChange) {
        let inode = &mut self.inode;
        if let (Some(mode), Some(rights)) = (change.mode, self.xattrs.get_mut(ACCESS_RIGHTS)) {
            change_rights(rights, mode);
        }
        inode.mode = change.mode.unwrap_or(inode.mode);
        inode.uid = change.uid.unwrap_or(inode.uid);
        inode.gid = change.gid.unwrap_or(inode.gid);
        inode.mtime = change.mtime.unwrap_or(inode.mtime);
        self.atime = change.atime.or(self.atime);
    }

    fn check(&self, path: &Path, metadata: &fs::Metadata, holes: Holes) {
        let name = path.display();
        let inode = &self.inode;
        let recorded = (inode.mode, inode.uid, inode.gid);
        let real = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid());
        assert_eq!(recorded, real, "mode and owner of {name}");
        assert_eq!(
            inode.mtime,
            time(metadata.mtime(), metadata.mtime_nsec()),
            "mtime of {name}"
        );
        if let Some(atime) = self.atime {
            let real = time(metadata.atime(), metadata.atime_nsec());
            assert_eq!(atime, real, "atime of {name}");
        }
        assert_eq!(inode.rdev, metadata.rdev(), "device of {name}");
        assert_eq!(self.xattrs, xattrs(path, metadata), "attributes of {name}");
        let file_type = metadata.file_type();
        assert_eq!(inode.kind == Kind::Directory, file_type.is_dir(), "{name}");
        assert_eq!(
            inode.kind == Kind::Symlink,
            file_type.is_symlink(),
            "{name}"
        );
        assert_eq!(inode.kind == Kind::Regular, file_type.is_file(), "{name}");
        if inode.kind == Kind::Symlink {
            let target = fs::read_link(path).expect("read a link");
            assert_eq!(target.as_os_str().as_bytes(), &*inode.target, "{name}");
        }
        if inode.kind == Kind::Regular {
            self.check_content(path, metadata, holes);
        }
    }

    fn check_content(&self, path: &Path, metadata: &fs::Metadata, holes: Holes) {
        let name = path.display();
        assert_eq!(self.size, metadata.len(), "size of {name}");
        let file = File::open(path).expect("open a file");
        let data = data_pages(&file, self.size);
        for page in &data {
            let begin = page * PAGE;
            let mut bytes = empty_page();
            let wanted = usize::try_from((self.size - begin).min(PAGE)).expect("a page");
            file.read_exact_at(&mut bytes[..wanted], begin)
                .expect("read a page");
            let zeros = empty_page();
            let recorded = self.pages.get(page).unwrap_or(&zeros);
            assert!(bytes == *recorded, "page {page} of {name} differs");
        }
        for (page, bytes) in &self.pages {
            let is_there = data.contains(page) || bytes.iter().all(|byte| *byte == 0);
            assert!(is_there, "page {page} of {name} is missing");
        }
        // Space that was taken without content is not recorded, and looks like zeros.
        if holes == Holes::Exact {
            for page in data {
                let is_recorded = self.pages.contains_key(&page);
                assert!(is_recorded, "page {page} of {name} should be a hole");
            }
        }
    }
}

/// Changes access rights as chmod(2) does: those of the owner, of others, and the mask, or of the
/// group if there is no mask.
fn change_rights(rights: &mut [u8], mode: u32) {
    let (owner, group, mask, others) = (1, 4, 0x10, 0x20);
    // After a header, entries of a tag, permissions and a number.
    let (_, entries) = rights.split_at_mut(4);
    let has_mask = entries.chunks(8).any(|entry| entry[0] == mask);
    for entry in entries.chunks_mut(8) {
        let shift = match entry[0] {
            tag if tag == owner => 6,
            tag if tag == mask || tag == group && !has_mask => 3,
            tag if tag == others => 0,
            _ => continue,
        };
        entry[2] = u8::try_from(mode >> shift & 7).expect("three bits");
    }
}

const ACCESS_RIGHTS: &[u8] = b"system.posix_acl_access";

fn time(seconds: i64, nanos: i64) -> Timestamp {
    let nanos = u32::try_from(nanos).expect("it is less than a second");
    Timestamp { seconds, nanos }
}

fn empty_page() -> Vec<u8> {
    vec![0; usize::try_from(PAGE).expect("a page")]
}

fn index(offset: u64) -> usize {
    usize::try_from(offset % PAGE).expect("it is in a page")
}

fn length(data: &[u8]) -> u64 {
    u64::try_from(data.len()).expect("it is in memory")
}
