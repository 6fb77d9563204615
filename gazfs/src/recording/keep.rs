//! Backing files that are kept from one daemon to the next.
//!
//! A daemon that ends in order leaves an image beside its backing files: what the log had said, and
//! for each file its size and the time of its last change of anything. If all of that is as it was,
//! the next daemon need not read the log.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsStr,
    fs::{self, Metadata},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use bytes::{Buf, BufMut, Bytes, TryGetError};
use gazette_recoverylog::fsm::{
    Body, Change, Fnode, Fsm, FsmHints, Inode, Kind, LinkName, Liveness, Mode, RecordedOp, Rest,
    SizeChange, Timestamp, Tree,
};
use thiserror::Error;

use super::xattrs::xattrs;

/// Why backing files are not kept.
#[derive(Debug, Error)]
pub(super) enum KeepError {
    /// The image is not what one is.
    #[error("the image is damaged: {0}")]
    Image(&'static str),
    /// The image ends early.
    #[error("the image is cut short")]
    Short(#[from] TryGetError),
    /// The files cannot be looked at.
    #[error("{path}: {cause}", path = .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// A file is not as it was left.
    #[error("{} is not as it was left", .0.display())]
    Changed(PathBuf),
    /// The log has something that files alone do not tell.
    #[error("the log has names out of sight")]
    Hidden,
}

/// What a file was when it was left.
type Stamp = (i64, i64, u64);

/// State and files as a daemon left them.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) fsm: Fsm,
    pub(super) tree: Tree,
    pub(super) liveness: Option<Liveness>,
}

/// Writes down a state whose backing files are in `tree`, as of an offset of the log.
pub(super) fn image(
    fsm: &Fsm,
    liveness: Option<&Liveness>,
    offset: i64,
    tree: &Path,
) -> Result<Vec<u8>, KeepError> {
    let rest = fsm.rest();
    let hints = fsm.hints(fsm.log()).encode();
    let mut out = Vec::new();
    out.put_i64(offset);
    out.put_i64(rest.next_seq_no);
    out.put_u32(rest.next_checksum);
    out.put_u64(hints.len() as u64);
    out.put_slice(&hints);
    out.put_u64(rest.links.len() as u64);
    for (at, fnode) in &rest.links {
        out.put_i64(at.parent.0);
        out.put_i64(fnode.0);
        out.put_u32(u32::try_from(at.path.len()).map_err(|_| KeepError::Image("a name"))?);
        out.put_slice(&at.path);
    }
    let mut stamps = BTreeMap::new();
    for (fnode, path) in paths(&rest.links)? {
        let metadata = look(&tree.join(path))?;
        stamps.insert(fnode, stamp(&metadata));
    }
    out.put_u64(stamps.len() as u64);
    for (fnode, (seconds, nanos, size)) in stamps {
        out.put_i64(fnode.0);
        out.put_i64(seconds);
        out.put_i64(nanos);
        out.put_u64(size);
    }
    let liveness = liveness.map(Liveness::encode).unwrap_or_default();
    out.put_u64(liveness.len() as u64);
    out.put_slice(&liveness);
    let mut sealed = MAGIC.to_vec();
    sealed.put_u32(crc32c::crc32c(&out));
    sealed.append(&mut out);
    Ok(sealed)
}

/// Reads an image of an offset, and checks that the files in `tree` are as it says.
pub(super) fn keep(image: &[u8], offset: i64, tree: &Path) -> Result<Kept, KeepError> {
    let mut rest = image
        .strip_prefix(MAGIC)
        .ok_or(KeepError::Image("it is none"))?;
    if rest.try_get_u32()? != crc32c::crc32c(rest) {
        return Err(KeepError::Image("its sum is wrong"));
    }
    if rest.try_get_i64()? != offset {
        return Err(KeepError::Image("it is of another offset"));
    }
    let (next_seq_no, next_checksum) = (rest.try_get_i64()?, rest.try_get_u32()?);
    let length = rest.try_get_u64()?;
    let hints = take(&mut rest, length)?;
    let hints = FsmHints::decode(hints).map_err(|_| KeepError::Image("its hints"))?;
    let mut links = BTreeMap::new();
    for _ in 0..rest.try_get_u64()? {
        let (parent, fnode) = (Fnode(rest.try_get_i64()?), Fnode(rest.try_get_i64()?));
        let length = rest.try_get_u32()?;
        let path = Bytes::copy_from_slice(take(&mut rest, length.into())?);
        links.insert(LinkName { parent, path }, fnode);
    }
    let mut stamps = BTreeMap::new();
    for _ in 0..rest.try_get_u64()? {
        let fnode = Fnode(rest.try_get_i64()?);
        let stamp = (
            rest.try_get_i64()?,
            rest.try_get_i64()?,
            rest.try_get_u64()?,
        );
        stamps.insert(fnode, stamp);
    }
    let length = rest.try_get_u64()?;
    let liveness = match take(&mut rest, length)? {
        [] => None,
        liveness => Some(
            Liveness::decode(liveness).map_err(|_| KeepError::Image("what is live in the log"))?,
        ),
    };
    let names = paths(&links)?;
    let built = build(&names, &links, &stamps, tree)?;
    let rest = Rest {
        links,
        next_seq_no,
        next_checksum,
    };
    let fsm = Fsm::resume(&hints, rest).map_err(|_| KeepError::Image("its state"))?;
    Ok(Kept {
        fsm,
        tree: built,
        liveness,
    })
}

/// Builds names and attributes of files that are as they were.
fn build(
    names: &[(Fnode, PathBuf)],
    links: &BTreeMap<LinkName, Fnode>,
    stamps: &BTreeMap<Fnode, Stamp>,
    root: &Path,
) -> Result<Tree, KeepError> {
    let mut tree = Tree::new(Mode::Native);
    // By the path that a file was found at, which is a link of it.
    let by_name: BTreeMap<(Fnode, &[u8]), Fnode> = links
        .iter()
        .map(|(at, fnode)| ((at.parent, &*at.path), *fnode))
        .collect();
    let mut known: BTreeMap<&Path, Fnode> = BTreeMap::new();
    let mut made: BTreeMap<Fnode, u64> = BTreeMap::new();
    for (fnode, path) in names {
        let at = match path.file_name() {
            None => root_name(),
            Some(name) => {
                let above = path.parent().unwrap_or_else(|| Path::new(""));
                let parent = known.get(above).copied().unwrap_or(Fnode::ROOT);
                let path = Bytes::copy_from_slice(name.as_bytes());
                LinkName { parent, path }
            }
        };
        if by_name.get(&(at.parent, &*at.path)) != Some(fnode) {
            return Err(KeepError::Hidden);
        }
        known.insert(
            path,
            if path.as_os_str().is_empty() {
                Fnode::ROOT
            } else {
                *fnode
            },
        );
        let full = root.join(path);
        let metadata = look(&full)?;
        let changed = || KeepError::Changed(full.clone());
        if stamps.get(fnode) != Some(&stamp(&metadata)) {
            return Err(changed());
        }
        if let Some(ino) = made.get(fnode) {
            if *ino != metadata.ino() {
                return Err(changed());
            }
            apply(&mut tree, *fnode, Body::Link { fnode: *fnode, at })?;
            continue;
        }
        made.insert(*fnode, metadata.ino());
        create(&mut tree, *fnode, at, &full, &metadata)?;
    }
    Ok(tree)
}

fn create(
    tree: &mut Tree,
    fnode: Fnode,
    at: LinkName,
    path: &Path,
    metadata: &Metadata,
) -> Result<(), KeepError> {
    let io = |cause| KeepError::Io {
        path: path.to_owned(),
        cause,
    };
    let kind = kind(metadata);
    let target = if kind == Kind::Symlink {
        Bytes::copy_from_slice(fs::read_link(path).map_err(io)?.as_os_str().as_bytes())
    } else {
        Bytes::new()
    };
    let inode = Inode {
        kind,
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: if matches!(kind, Kind::CharDevice | Kind::BlockDevice) {
            metadata.rdev()
        } else {
            0
        },
        target,
        mtime: Timestamp {
            seconds: metadata.mtime(),
            nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or_default(),
        },
    };
    let mtime = inode.mtime;
    let inode = Some(inode);
    apply(tree, fnode, Body::Create { at, inode })?;
    let mut change = |change, mtime| {
        let body = Body::Change {
            fnode,
            change,
            mtime,
        };
        apply(tree, fnode, body)
    };
    if kind == Kind::Regular && metadata.len() > 0 {
        let size = metadata.len();
        change(Change::Size(SizeChange::Truncate { size }), Some(mtime))?;
    }
    for (name, value) in xattrs(path).map_err(io)? {
        change(Change::SetXattr { name, value }, None)?;
    }
    Ok(())
}

fn apply(tree: &mut Tree, fnode: Fnode, body: Body) -> Result<(), KeepError> {
    // The tree looks at what an op does, and, of a new file, at its number.
    let op = RecordedOp::new(fnode.0, 0, 1, body);
    tree.apply(&op).map_err(|_| KeepError::Hidden)
}

/// Returns each link with its path below the root directory, which comes first; a directory comes
/// before what lies in it. All links must be in sight.
fn paths(links: &BTreeMap<LinkName, Fnode>) -> Result<Vec<(Fnode, PathBuf)>, KeepError> {
    let root = root_name();
    let root_fnode = *links.get(&root).ok_or(KeepError::Hidden)?;
    let mut below: BTreeMap<Fnode, Vec<(&Bytes, Fnode)>> = BTreeMap::new();
    for (at, fnode) in links.iter().filter(|(at, _)| **at != root) {
        if at.path.contains(&b'/') {
            return Err(KeepError::Hidden);
        }
        below.entry(at.parent).or_default().push((&at.path, *fnode));
    }
    let mut found = vec![(root_fnode, PathBuf::new())];
    let mut open = VecDeque::from([(Fnode::ROOT, PathBuf::new())]);
    while let Some((directory, path)) = open.pop_front() {
        for (name, fnode) in below.remove(&directory).unwrap_or_default() {
            let path = path.join(OsStr::from_bytes(name));
            if below.contains_key(&fnode) {
                open.push_back((fnode, path.clone()));
            }
            found.push((fnode, path));
        }
    }
    if below.is_empty() {
        Ok(found)
    } else {
        Err(KeepError::Hidden)
    }
}

fn root_name() -> LinkName {
    LinkName {
        parent: Fnode::ROOT,
        path: Bytes::from_static(b"/"),
    }
}

fn look(path: &Path) -> Result<Metadata, KeepError> {
    path.symlink_metadata().map_err(|cause| KeepError::Io {
        path: path.to_owned(),
        cause,
    })
}

fn stamp(metadata: &Metadata) -> Stamp {
    // The size of a directory is its file system's own matter.
    let size = if metadata.is_file() {
        metadata.len()
    } else {
        0
    };
    (metadata.ctime(), metadata.ctime_nsec(), size)
}

fn kind(metadata: &Metadata) -> Kind {
    use std::os::unix::fs::FileTypeExt;
    let found = metadata.file_type();
    if found.is_dir() {
        Kind::Directory
    } else if found.is_symlink() {
        Kind::Symlink
    } else if found.is_fifo() {
        Kind::Fifo
    } else if found.is_socket() {
        Kind::Socket
    } else if found.is_char_device() {
        Kind::CharDevice
    } else if found.is_block_device() {
        Kind::BlockDevice
    } else {
        Kind::Regular
    }
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], KeepError> {
    let length = usize::try_from(length).map_err(|_| KeepError::Image("a length"))?;
    let (taken, left) = rest
        .split_at_checked(length)
        .ok_or(KeepError::Image("it is cut short"))?;
    *rest = left;
    Ok(taken)
}

const MAGIC: &[u8] = b"gazfs image 2\n";

#[cfg(test)]
mod tests;
