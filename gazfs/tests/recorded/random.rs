//! Random operations, in a recorded and in a bare directory.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, RenameFlags, Timespec, Timestamps, XattrFlags, fallocate,
    renameat_with, setxattr, utimensat,
};

use crate::{bare::describe, harness::Mount};

/// Numbers that look random, and are the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }

    fn name(&mut self) -> String {
        let names = ["a", "b", "c", "d", "e"];
        let pick = |numbers: &mut Self| {
            names[usize::try_from(numbers.next(5)).expect("it is small")].to_owned()
        };
        let depth = self.next(3);
        let mut path = pick(self);
        for _ in 0..depth {
            path = format!("{path}/{}", pick(self));
        }
        path
    }
}

/// An operation, the same for both directories.
#[derive(Debug, Clone)]
enum Op {
    Create(String),
    Write(String, u64, Vec<u8>),
    Append(String, Vec<u8>),
    Truncate(String, u64),
    Allocate(String, u32, u64, u64),
    Open(usize, String),
    WriteOpen(usize, u64, Vec<u8>),
    MakeDirectory(String),
    RemoveDirectory(String),
    Unlink(String),
    Link(String, String),
    Symlink(String, String),
    Rename(String, String, u32),
    Mode(String, u32),
    Owner(String, u32),
    Times(String, i64),
    SetXattr(String, u8),
    RemoveXattr(String),
    List(String),
}

fn draw(numbers: &mut Numbers) -> Op {
    let data = |numbers: &mut Numbers| {
        let most = if numbers.next(4) == 0 { 40_000 } else { 200 };
        let length = 1 + numbers.next(most);
        let byte = u8::try_from(numbers.next(256)).expect("it is a byte");
        vec![byte; usize::try_from(length).expect("it is small")]
    };
    let name = numbers.name();
    let small = |numbers: &mut Numbers, below| u32::try_from(numbers.next(below)).expect("small");
    match numbers.next(32) {
        0..=3 => Op::Create(name),
        4..=8 => Op::Write(name, numbers.next(100_000), data(numbers)),
        9 | 10 => Op::Append(name, data(numbers)),
        11 | 12 => Op::Truncate(name, numbers.next(60_000)),
        13 | 14 => {
            let kind = small(numbers, 5);
            Op::Allocate(name, kind, numbers.next(60_000), 1 + numbers.next(40_000))
        }
        15 => Op::Open(usize::try_from(numbers.next(4)).expect("small"), name),
        16 | 17 => {
            let slot = usize::try_from(numbers.next(4)).expect("small");
            Op::WriteOpen(slot, numbers.next(50_000), data(numbers))
        }
        18 | 19 => Op::MakeDirectory(name),
        20 => Op::RemoveDirectory(name),
        21 => Op::Unlink(name),
        22 | 23 => Op::Link(name, numbers.name()),
        24 => Op::Symlink(name, numbers.name()),
        25 | 26 => Op::Rename(name, numbers.name(), small(numbers, 4)),
        27 => Op::Mode(name, 0o700 | small(numbers, 0o1000)),
        28 => Op::Owner(name, small(numbers, 3)),
        29 => Op::Times(name, i64::from(small(numbers, 1_000_000)) - 1000),
        30 => match numbers.next(3) {
            0 => Op::RemoveXattr(name),
            _ => Op::SetXattr(name, u8::try_from(numbers.next(250)).expect("a byte")),
        },
        _ => Op::List(name),
    }
}

/// Does operations in one directory.
struct Runner {
    root: PathBuf,
    open: [Option<File>; 4],
}

impl Runner {
    fn new(root: PathBuf) -> Self {
        Self {
            root,
            open: [const { None }; 4],
        }
    }

    fn run(&mut self, op: &Op) -> String {
        match self.try_run(op) {
            Ok(found) => found,
            Err(error) => format!("error {:?}", error.raw_os_error()),
        }
    }

    fn try_run(&mut self, op: &Op) -> std::io::Result<String> {
        let at = |name: &str| self.root.join(name);
        match op {
            Op::Create(name) => drop(File::create_new(at(name))?),
            Op::Write(name, offset, data) => {
                File::options()
                    .write(true)
                    .open(at(name))?
                    .write_all_at(data, *offset)?;
            }
            Op::Append(name, data) => {
                let mut file = File::options().append(true).open(at(name))?;
                std::io::Write::write_all(&mut file, data)?;
            }
            Op::Truncate(name, size) => {
                File::options().write(true).open(at(name))?.set_len(*size)?;
            }
            Op::Allocate(name, kind, offset, length) => {
                let file = File::options().write(true).open(at(name))?;
                let flags = [
                    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    FallocateFlags::ZERO_RANGE,
                    FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                    FallocateFlags::empty(),
                    FallocateFlags::KEEP_SIZE,
                ];
                fallocate(
                    &file,
                    flags[usize::try_from(*kind).expect("small")],
                    *offset,
                    *length,
                )?;
            }
            Op::Open(slot, name) => {
                self.open[*slot] = Some(File::options().read(true).write(true).open(at(name))?);
            }
            Op::WriteOpen(slot, offset, data) => {
                if let Some(file) = &self.open[*slot] {
                    file.write_all_at(data, *offset)?;
                }
            }
            Op::MakeDirectory(name) => fs::create_dir(at(name))?,
            Op::RemoveDirectory(name) => fs::remove_dir(at(name))?,
            Op::Unlink(name) => fs::remove_file(at(name))?,
            Op::Link(from, to) => fs::hard_link(at(from), at(to))?,
            Op::Symlink(name, target) => std::os::unix::fs::symlink(target, at(name))?,
            Op::Rename(from, to, kind) => {
                let flags = match kind {
                    0 => RenameFlags::EXCHANGE,
                    1 => RenameFlags::NOREPLACE,
                    _ => RenameFlags::empty(),
                };
                renameat_with(CWD, at(from), CWD, at(to), flags)?;
            }
            Op::Mode(name, mode) => {
                fs::set_permissions(at(name), fs::Permissions::from_mode(*mode))?;
            }
            Op::Owner(name, group) => {
                let group = crate::harness::is_root().then_some(*group);
                std::os::unix::fs::lchown(at(name), None, group)?;
            }
            Op::Times(name, seconds) => {
                let time = Timespec {
                    tv_sec: *seconds,
                    tv_nsec: 123_456_789,
                };
                let times = Timestamps {
                    last_access: time,
                    last_modification: time,
                };
                utimensat(CWD, at(name), &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Op::SetXattr(name, length) => {
                let value = vec![*length; usize::from(*length)];
                setxattr(at(name), "user.random", &value, XattrFlags::empty())?;
            }
            Op::RemoveXattr(name) => rustix::fs::removexattr(at(name), "user.random")?,
            Op::List(name) => return list(&at(name)),
        }
        Ok(String::new())
    }
}

fn list(path: &Path) -> std::io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        names.push((entry.file_name(), entry.file_type()?.is_dir()));
    }
    names.sort();
    Ok(format!("{names:?}"))
}

fn run(seed: u64, count: u32) {
    let Some(mount) = Mount::new() else { return };
    let (ours, bare) = (mount.path("tree"), mount.bare("tree"));
    for root in [&ours, &bare] {
        fs::create_dir(root).expect("make a directory");
    }
    let (mut on_mount, mut on_disk) = (Runner::new(ours.clone()), Runner::new(bare.clone()));
    let mut numbers = Numbers(seed);
    for step in 0..count {
        let op = draw(&mut numbers);
        let expected = on_disk.run(&op);
        let found = on_mount.run(&op);
        assert_eq!(found, expected, "seed {seed} step {step}: {op:?}");
        if step % 250 == 249 {
            assert_eq!(describe(&ours), describe(&bare), "seed {seed} step {step}");
            mount.check_replay();
        }
    }
    assert_eq!(describe(&ours), describe(&bare), "seed {seed}");
    mount.check_replay();
}

#[test]
fn random_operations_do_what_they_do_in_a_bare_directory() {
    for seed in 1..=6_u64 {
        run(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1500);
    }
}
