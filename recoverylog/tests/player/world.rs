//! A directory that is changed at random, and recorded.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use bytes::{Bytes, BytesMut};
use gazette_recoverylog::fsm::{
    AttributeChange, Author, Fnode, Fsm, FsmHints, Inode, Kind, Mark, Mode, Mutation, OpWriter,
    Place, SizeChange, Timestamp, Tree, WriteError,
};
use gazette_recoverylog::hints::PublishedHints;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode as FileMode, RenameFlags, Uid, XattrFlags,
    makedev,
};

use crate::look::{Snapshot, look};

pub(crate) const LOG: &str = "test/log";

/// A point of the history.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    pub(crate) end: i64,
    pub(crate) time: Timestamp,
    pub(crate) files: Snapshot,
}

pub(crate) struct World {
    folder: tempfile::TempDir,
    pub(crate) mode: Mode,
    pub(crate) writer: OpWriter,
    pub(crate) log: Vec<u8>,
    pub(crate) cuts: Vec<Cut>,
    /// Each mutation is an append of its own.
    pub(crate) seals_each: bool,
    pub(crate) hints: Vec<PublishedHints>,
    rng: StdRng,
    now: Timestamp,
    out: BytesMut,
    /// Times that were recorded, by inode. The file system changes those of directories by itself.
    times: BTreeMap<u64, (Timestamp, Option<Timestamp>)>,
    is_root: bool,
}

impl World {
    pub(crate) fn new(seed: u64, mode: Mode) -> Self {
        let author = Author::new(7).unwrap();
        let fsm = Fsm::of_log(LOG).unwrap();
        let writer = OpWriter::new(mode, author, LOG, fsm, Tree::new(mode)).unwrap();
        let mut world = Self {
            folder: tempfile::tempdir().unwrap(),
            mode,
            writer,
            log: Vec::new(),
            cuts: Vec::new(),
            seals_each: false,
            hints: Vec::new(),
            rng: StdRng::seed_from_u64(seed),
            now: Timestamp {
                seconds: 1_000_000,
                nanos: 5,
            },
            out: BytesMut::new(),
            times: BTreeMap::new(),
            is_root: rustix::process::geteuid().is_root(),
        };
        let root = fs::metadata(world.root()).unwrap();
        let inode = Inode {
            kind: Kind::Directory,
            mode: root.mode() & 0o7777,
            uid: root.uid(),
            gid: root.gid(),
            mtime: world.now,
            ..Inode::default()
        };
        world.times.insert(root.ino(), (world.now, None));
        world.writer.mark(Mark::Claim, world.now, &mut world.out);
        world
            .writer
            .begin(&inode, world.now, &mut world.out)
            .unwrap();
        world.seal();
        world
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, fnode: Fnode) -> PathBuf {
        let path = self.writer.tree().path(fnode).unwrap();
        self.root().join(std::ffi::OsStr::from_bytes(&path[1..]))
    }

    fn at(&self, place: Place<'_>) -> PathBuf {
        self.path(place.parent)
            .join(std::ffi::OsStr::from_bytes(place.name))
    }

    /// Ends a batch, notes the state, and sometimes hints.
    pub(crate) fn seal(&mut self) {
        if self.writer.seal().is_none() {
            return;
        }
        let begin = i64::try_from(self.log.len()).unwrap();
        self.log.extend_from_slice(&self.out);
        self.out.clear();
        self.writer.acknowledged(begin).unwrap();
        let end = i64::try_from(self.log.len()).unwrap();
        let files = look(self.root(), &self.times, self.mode == Mode::Native);
        self.cuts.push(Cut {
            end,
            time: self.now,
            files,
        });
        if self.rng.random_ratio(1, 8) {
            let hints = self.writer.hints();
            self.publish(hints);
        }
        self.now.seconds += self.rng.random_range(1..100);
    }

    /// Publishes hints of all that is sealed, which leave out all that they can do without.
    pub(crate) fn note_hints(&mut self) {
        let hints = self.writer.fsm().hints(&LOG.into());
        self.publish(hints);
    }

    fn publish(&mut self, hints: FsmHints) {
        self.hints.push(PublishedHints {
            author: self.writer.author(),
            offset: i64::try_from(self.log.len()).unwrap(),
            seq_no: self.writer.next_seq_no() - 1,
            checksum: self.writer.next_checksum(),
            time: self.writer.last_time().unwrap(),
            hints,
        });
    }

    /// Changes something, and records it. Whatever does not fit is left out.
    pub(crate) fn step(&mut self) {
        for _ in 0..20 {
            if self.try_step() {
                break;
            }
        }
        if self.seals_each || self.rng.random_ratio(2, 3) {
            self.seal();
        }
    }

    /// Appends a mark.
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.writer.mark(mark, self.now, &mut self.out);
        self.seal();
    }

    fn try_step(&mut self) -> bool {
        let moment = Timestamp {
            seconds: self.rng.random_range(-100..2_000_000_000),
            nanos: self.rng.random_range(0..1_000_000_000),
        };
        match self.rng.random_range(0..22) {
            0..5 => self.create(moment),
            5..9 => {
                let Some(fnode) = self.regular() else {
                    return false;
                };
                let offset = self.rng.random_range(0..60_000);
                let length = self.rng.random_range(1..9_000);
                let mut data = vec![0; length];
                self.rng.fill(&mut data[..]);
                OpenOptions::new()
                    .write(true)
                    .open(self.path(fnode))
                    .unwrap()
                    .write_all_at(&data, offset)
                    .unwrap();
                self.touch(fnode, Some(moment), None);
                let data = &data;
                self.record(Mutation::Write {
                    fnode,
                    offset,
                    data,
                    mtime: moment,
                })
            }
            9..12 => self.size(moment),
            12 => {
                let Some(fnode) = self.any(|kind| kind != Kind::Directory) else {
                    return false;
                };
                let (parent, name) = self.free();
                let at = Place {
                    parent,
                    name: &name,
                };
                let flags = AtFlags::empty();
                rustix::fs::linkat(CWD, self.path(fnode), CWD, self.at(at), flags).unwrap();
                self.record(Mutation::Link { fnode, at })
            }
            13..15 => {
                let Some(fnode) = self.any(|_| true) else {
                    return false;
                };
                let (parent, name) = self.name_of(fnode);
                let at = Place {
                    parent,
                    name: &name,
                };
                let path = self.at(at);
                let removed = if self.writer.tree().kind(fnode) == Some(Kind::Directory) {
                    fs::remove_dir(path)
                } else {
                    fs::remove_file(path)
                };
                removed.is_ok() && self.record(Mutation::Unlink { at })
            }
            15..18 => self.rename(),
            18 => self.attributes(moment),
            _ => self.xattr(),
        }
    }

    fn create(&mut self, moment: Timestamp) -> bool {
        let kinds = [
            Kind::Regular,
            Kind::Regular,
            Kind::Directory,
            Kind::Directory,
            Kind::Symlink,
            Kind::Fifo,
            Kind::Socket,
            Kind::CharDevice,
            Kind::BlockDevice,
        ];
        let kind = kinds[self.rng.random_range(0..if self.is_root { 9 } else { 7 })];
        let (parent, name) = self.free();
        let at = Place {
            parent,
            name: &name,
        };
        let path = self.at(at);
        let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let rdev = if device { makedev(1, 3) } else { 0 };
        let target = if kind == Kind::Symlink {
            "../some/where"
        } else {
            ""
        };
        let special = Inode {
            kind,
            rdev,
            ..Inode::default()
        };
        let create = Mutation::Create {
            at: Some(at),
            inode: &special,
        };
        // A log of mode `compat` cannot have special files.
        if self.writer.cost(&create).is_err() {
            return false;
        }
        let make = |kind| rustix::fs::mknodat(CWD, &path, kind, FileMode::RUSR, rdev).unwrap();
        match kind {
            Kind::Regular => fs::write(&path, b"").unwrap(),
            Kind::Directory => fs::create_dir(&path).unwrap(),
            Kind::Symlink => std::os::unix::fs::symlink(target, &path).unwrap(),
            Kind::Fifo => make(FileType::Fifo),
            Kind::Socket => make(FileType::Socket),
            Kind::CharDevice => make(FileType::CharacterDevice),
            Kind::BlockDevice => make(FileType::BlockDevice),
        }
        let mode = if kind == Kind::Symlink {
            0o777
        } else {
            let modes = [0o644, 0o600, 0o755, 0o4755, 0o2750, 0o1777, 0o444, 0o000];
            let mode = modes[self.rng.random_range(0..modes.len())];
            if self.is_root { mode } else { mode | 0o700 }
        };
        let (uid, gid) = self.owner();
        set_owner(&path, uid, gid);
        if kind != Kind::Symlink {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        let inode = Inode {
            kind,
            mode,
            uid,
            gid,
            rdev,
            target: Bytes::from_static(target.as_bytes()),
            mtime: moment,
        };
        let recorded = self.record(Mutation::Create {
            at: Some(at),
            inode: &inode,
        });
        let inode = fs::symlink_metadata(&path).unwrap().ino();
        self.times.insert(inode, (moment, None));
        recorded
    }

    fn size(&mut self, moment: Timestamp) -> bool {
        let Some(fnode) = self.regular() else {
            return false;
        };
        let (offset, length) = (
            self.rng.random_range(0..60_000),
            self.rng.random_range(1..30_000),
        );
        let keep_size = self.rng.random();
        let change = match self.rng.random_range(0..4) {
            0 => SizeChange::Truncate { size: 0 },
            1 => SizeChange::Truncate { size: offset },
            2 => SizeChange::Punch { offset, length },
            _ => SizeChange::Zero {
                offset,
                length,
                keep_size,
            },
        };
        let file = OpenOptions::new()
            .write(true)
            .open(self.path(fnode))
            .unwrap();
        match change {
            SizeChange::Truncate { size } => file.set_len(size).unwrap(),
            SizeChange::Punch { offset, length } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, flags, offset, length).unwrap();
            }
            SizeChange::Zero {
                offset,
                length,
                keep_size,
            } => {
                let mut flags = FallocateFlags::ZERO_RANGE;
                flags.set(FallocateFlags::KEEP_SIZE, keep_size);
                rustix::fs::fallocate(&file, flags, offset, length).unwrap();
            }
        }
        self.touch(fnode, Some(moment), None);
        self.record(Mutation::Size {
            fnode,
            change,
            mtime: moment,
        })
    }

    fn rename(&mut self) -> bool {
        let Some(fnode) = self.any(|_| true) else {
            return false;
        };
        let (parent, name) = self.name_of(fnode);
        let from = Place {
            parent,
            name: &name,
        };
        let exchange = self.rng.random_ratio(1, 4);
        let (to_parent, to_name) = if exchange || self.rng.random_ratio(1, 2) {
            let other = self.any(|_| true).unwrap();
            self.name_of(other)
        } else {
            self.free()
        };
        let to = Place {
            parent: to_parent,
            name: &to_name,
        };
        let other = self.writer.tree().lookup(to_parent, &to_name);
        let mutation = Mutation::Rename { from, to, exchange };
        // Two names of one file stay as they are.
        if other == Some(fnode) || self.writer.cost(&mutation).is_err() {
            return false;
        }
        let flags = if exchange {
            RenameFlags::EXCHANGE
        } else {
            RenameFlags::empty()
        };
        let renamed = rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), flags);
        renamed.is_ok() && self.record(mutation)
    }

    fn attributes(&mut self, moment: Timestamp) -> bool {
        let Some(fnode) = self.any(|kind| kind != Kind::Symlink) else {
            return false;
        };
        let path = self.path(fnode);
        let mut change = AttributeChange::default();
        if self.rng.random() {
            let (uid, gid) = self.owner();
            set_owner(&path, uid, gid);
            change.uid = Some(uid);
            change.gid = Some(gid);
        }
        if self.rng.random() {
            let mode = self.rng.random_range(0..0o10000) | 0o700;
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        // Changes of an owner take bits away, so that the mode is said again.
        change.mode = Some(fs::metadata(&path).unwrap().mode() & 0o7777);
        if self.rng.random() {
            change.mtime = Some(moment);
        }
        if self.rng.random() {
            change.atime = Some(moment);
        }
        self.touch(fnode, change.mtime, change.atime);
        self.record(Mutation::Attributes { fnode, change })
    }

    fn xattr(&mut self) -> bool {
        let Some(fnode) = self.any(|kind| matches!(kind, Kind::Regular | Kind::Directory)) else {
            return false;
        };
        let path = self.path(fnode);
        let names: &[&str] = if self.is_root {
            &["user.a", "user.b", "trusted.c", "system.posix_acl_access"]
        } else {
            &["user.a", "user.b", "system.posix_acl_access"]
        };
        let name = names[self.rng.random_range(0..names.len())];
        if self.rng.random_ratio(1, 4) {
            return rustix::fs::lremovexattr(&path, name).is_ok()
                && self.record(Mutation::RemoveXattr {
                    fnode,
                    name: name.as_bytes(),
                });
        }
        let value = if name.starts_with("system.") {
            acl(self.rng.random_range(0..8))
        } else {
            let mut value = vec![0; self.rng.random_range(0..40)];
            self.rng.fill(&mut value[..]);
            value
        };
        rustix::fs::lsetxattr(&path, name, &value, XattrFlags::empty()).unwrap();
        let (name, value) = (name.as_bytes(), value.as_slice());
        self.record(Mutation::SetXattr { fnode, name, value });
        let change = AttributeChange {
            mode: Some(fs::metadata(&path).unwrap().mode() & 0o7777),
            ..AttributeChange::default()
        };
        self.record(Mutation::Attributes { fnode, change })
    }

    fn record(&mut self, mutation: Mutation<'_>) -> bool {
        let path = if let Mutation::Size { fnode, .. } = mutation {
            Some(self.path(fnode))
        } else {
            None
        };
        let mut content = |offset: u64, buffer: &mut [u8]| {
            let file = fs::File::open(path.as_ref().unwrap()).unwrap();
            let mut filled = 0;
            while filled < buffer.len() {
                let count = file
                    .read_at(&mut buffer[filled..], offset + filled as u64)
                    .unwrap();
                if count == 0 {
                    break;
                }
                filled += count;
            }
            filled
        };
        let written = self
            .writer
            .write(&mutation, self.now, &mut content, &mut self.out);
        match written {
            Ok(_) => true,
            Err(WriteError::Refused(refusal)) => panic!("{mutation:?}: {refusal}"),
            Err(error) => panic!("{mutation:?}: {error}"),
        }
    }

    fn touch(&mut self, fnode: Fnode, mtime: Option<Timestamp>, atime: Option<Timestamp>) {
        let path = self.path(fnode);
        let inode = fs::symlink_metadata(&path).unwrap().ino();
        let times = self.times.entry(inode).or_default();
        times.0 = mtime.unwrap_or(times.0);
        times.1 = atime.or(times.1);
    }

    fn owner(&mut self) -> (u32, u32) {
        if self.is_root {
            (
                self.rng.random_range(0..3) * 1000,
                self.rng.random_range(0..3) * 100,
            )
        } else {
            let own = fs::metadata(self.root()).unwrap();
            (own.uid(), own.gid())
        }
    }

    /// A place in some directory at which there is nothing.
    fn free(&mut self) -> (Fnode, Vec<u8>) {
        loop {
            let directories: Vec<_> = self.all(|kind| kind == Kind::Directory);
            let parent = match self.rng.random_range(0..=directories.len()) {
                0 => Fnode::ROOT,
                index => directories[index - 1],
            };
            let names: [&[u8]; 7] = [b"a", b"b", b"c", b"d d", b"\xff\xfe", "ü".as_bytes(), b".x"];
            let mut name = names[self.rng.random_range(0..names.len())].to_vec();
            if self.rng.random_ratio(1, 3) {
                name.extend_from_slice(self.rng.random_range(0..100).to_string().as_bytes());
            }
            if self.writer.tree().lookup(parent, &name).is_none() {
                return (parent, name);
            }
        }
    }

    fn all(&self, which: impl Fn(Kind) -> bool) -> Vec<Fnode> {
        let tree = self.writer.tree();
        let root = tree.root_fnode();
        tree.fnodes()
            .filter(|fnode| Some(*fnode) != root && tree.kind(*fnode).is_some_and(&which))
            .collect()
    }

    fn any(&mut self, which: impl Fn(Kind) -> bool) -> Option<Fnode> {
        let all = self.all(which);
        (!all.is_empty()).then(|| all[self.rng.random_range(0..all.len())])
    }

    fn regular(&mut self) -> Option<Fnode> {
        self.any(|kind| kind == Kind::Regular)
    }

    fn name_of(&mut self, fnode: Fnode) -> (Fnode, Vec<u8>) {
        let links: Vec<_> = self.writer.tree().links(fnode).collect();
        let (parent, name) = links[self.rng.random_range(0..links.len())];
        (parent, name.to_vec())
    }
}

fn set_owner(path: &Path, uid: u32, gid: u32) {
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// An ACL by which user 1000 may do `bits`.
fn acl(bits: u16) -> Vec<u8> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in [
        (1u16, 6u16, u32::MAX),
        (2, bits, 1000),
        (4, 4, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&bits.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}
