//! Each operation, in a recorded and in a bare directory: same outcome, same tree, and what was
//! recorded leads to it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec,
        Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, fallocate, renameat_with, seek,
        setxattr, utimensat,
    },
    io::Errno,
};

use crate::{
    bare::describe,
    harness::{Mount, is_root},
};

/// What an operation did, as text: the error, or what it found.
type Outcome = io::Result<String>;

/// Does an operation in an empty directory.
type Row = fn(&Path) -> Outcome;

fn same_as_a_bare_directory(rows: &[(&str, Row)]) {
    let Some(mount) = Mount::new() else { return };
    for (name, row) in rows {
        let (ours, bare) = (mount.path(name), mount.bare(name));
        for place in [&ours, &bare] {
            fs::create_dir(place).expect("make a directory");
        }
        let outcome = |place: &Path| match row(place) {
            Ok(found) => found,
            Err(error) => format!("{:?}", error.raw_os_error()),
        };
        assert_eq!(outcome(&ours), outcome(&bare), "{name}");
        assert_eq!(describe(&ours), describe(&bare), "{name}");
        mount.check_replay();
    }
}

fn errno<T>(result: Result<T, Errno>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "done".to_owned())
}

#[test]
fn names_come_and_go_as_in_a_bare_directory() {
    same_as_a_bare_directory(&[
        ("create", |d| {
            File::create(d.join("a"))?;
            let again = File::create_new(d.join("a"));
            Ok(format!("{:?}", again.err().and_then(|e| e.raw_os_error())))
        }),
        ("create-with-mode", |d| {
            for (name, mode) in [("a", 0o600), ("b", 0o444), ("c", 0o4755), ("d", 0o000)] {
                let mut options = OpenOptions::new();
                options.write(true).create_new(true).mode(mode);
                options.open(d.join(name))?.write_all_at(b"x", 0)?;
            }
            Ok(String::new())
        }),
        ("create-with-odd-names", |d| {
            let long = "n".repeat(255);
            for name in ["a b", "\n", "-", "...", "\u{1F980}", &long] {
                File::create(d.join(name))?;
            }
            let raw: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe\x01");
            File::create(d.join(raw))?;
            let longer = File::create(d.join("n".repeat(256)));
            Ok(format!("{:?}", longer.err().and_then(|e| e.raw_os_error())))
        }),
        ("mkdir-rmdir", |d| {
            fs::create_dir(d.join("a"))?;
            fs::create_dir(d.join("a/b"))?;
            let full = fs::remove_dir(d.join("a"));
            fs::remove_dir(d.join("a/b"))?;
            fs::remove_dir(d.join("a"))?;
            fs::create_dir(d.join("left"))?;
            Ok(format!("{:?}", full.err().and_then(|e| e.raw_os_error())))
        }),
        ("set-group-id-directory", |d| {
            fs::create_dir(d.join("g"))?;
            if is_root() {
                std::os::unix::fs::chown(d.join("g"), None, Some(12))?;
            }
            fs::set_permissions(d.join("g"), fs::Permissions::from_mode(0o2775))?;
            File::create(d.join("g/file"))?;
            fs::create_dir(d.join("g/dir"))?;
            File::create(d.join("g/dir/file"))?;
            std::os::unix::fs::symlink("x", d.join("g/link"))?;
            Ok(String::new())
        }),
        ("symlink", |d| {
            std::os::unix::fs::symlink("no/where", d.join("dangling"))?;
            std::os::unix::fs::symlink("t".repeat(4095), d.join("long"))?;
            File::create(d.join("a"))?;
            std::os::unix::fs::symlink("a", d.join("link"))?;
            fs::write(d.join("link"), "through")?;
            let loops = std::os::unix::fs::symlink("loop", d.join("loop"));
            let opened = File::open(d.join("loop"))
                .err()
                .and_then(|e| e.raw_os_error());
            Ok(format!("{loops:?} {opened:?}"))
        }),
        ("special-files", |d| {
            let make = |name: &str, file_type, device| {
                let mode = Mode::from_raw_mode(0o640);
                errno(rustix::fs::mknodat(
                    CWD,
                    d.join(name),
                    file_type,
                    mode,
                    device,
                ))
            };
            let mut outcome = make("fifo", FileType::Fifo, 0);
            outcome += &make("socket", FileType::Socket, 0);
            outcome += &make("regular", FileType::RegularFile, 0);
            outcome += &make("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
            let large = rustix::fs::makedev(7, 70_000);
            outcome += &make("block", FileType::BlockDevice, large);
            Ok(outcome)
        }),
        ("link", |d| {
            fs::write(d.join("a"), "one")?;
            fs::create_dir(d.join("e"))?;
            fs::hard_link(d.join("a"), d.join("e/b"))?;
            fs::write(d.join("e/b"), "two")?;
            let exists = fs::hard_link(d.join("a"), d.join("e/b"));
            let directory = fs::hard_link(d.join("e"), d.join("f"));
            // The other name stays, and leads to the same file.
            fs::remove_file(d.join("a"))?;
            fs::write(d.join("e/b"), "three")?;
            fs::hard_link(d.join("e/b"), d.join("c"))?;
            fs::remove_file(d.join("e/b"))?;
            let text = fs::read_to_string(d.join("c"))?;
            std::os::unix::fs::symlink("x", d.join("s"))?;
            fs::hard_link(d.join("s"), d.join("t"))?;
            Ok(format!("{exists:?} {directory:?} {text}"))
        }),
        ("unlink", |d| {
            fs::write(d.join("a"), "x")?;
            fs::remove_file(d.join("a"))?;
            fs::create_dir(d.join("e"))?;
            let (gone, directory) = (fs::remove_file(d.join("a")), fs::remove_file(d.join("e")));
            Ok(format!("{gone:?} {directory:?}"))
        }),
    ]);
}

#[test]
fn renames_do_what_they_do_in_a_bare_directory() {
    fn three(d: &Path) -> io::Result<()> {
        fs::write(d.join("a"), "a")?;
        fs::write(d.join("b"), "b")?;
        fs::create_dir(d.join("e"))?;
        fs::write(d.join("e/f"), "f")
    }
    same_as_a_bare_directory(&[
        ("over", |d| {
            three(d)?;
            fs::rename(d.join("a"), d.join("b"))?;
            fs::rename(d.join("b"), d.join("e/f"))?;
            fs::rename(d.join("e/f"), d.join("e/f"))?;
            let refused = fs::rename(d.join("e"), d.join("e/g"));
            let missing = fs::rename(d.join("a"), d.join("x"));
            Ok(format!("{refused:?} {missing:?}"))
        }),
        ("over-while-open", |d| {
            three(d)?;
            let old = File::options().read(true).write(true).open(d.join("b"))?;
            let new = File::options().read(true).write(true).open(d.join("a"))?;
            fs::rename(d.join("a"), d.join("b"))?;
            old.write_all_at(b"never seen", 0)?;
            new.write_all_at(b"seen", 0)?;
            old.set_permissions(fs::Permissions::from_mode(0o600))?;
            old.set_len(3)?;
            Ok(format!(
                "{} {}",
                old.metadata()?.nlink(),
                new.metadata()?.nlink()
            ))
        }),
        ("names-of-one-file", |d| {
            three(d)?;
            fs::hard_link(d.join("a"), d.join("e/a2"))?;
            fs::rename(d.join("a"), d.join("e/a2"))?;
            fs::rename(d.join("e/a2"), d.join("moved"))?;
            fs::write(d.join("a"), "both")?;
            fs::rename(d.join("a"), d.join("b"))?;
            fs::write(d.join("moved"), "still both")?;
            Ok(String::new())
        }),
        ("directories", |d| {
            three(d)?;
            let file = File::options().write(true).open(d.join("e/f"))?;
            fs::rename(d.join("e"), d.join("g"))?;
            file.write_all_at(b"moved", 0)?;
            fs::write(d.join("g/new"), "new")?;
            fs::create_dir(d.join("h"))?;
            fs::rename(d.join("g"), d.join("h"))?;
            fs::create_dir_all(d.join("deep/er"))?;
            fs::rename(d.join("h"), d.join("deep/er/h"))?;
            let full = fs::rename(d.join("deep/er"), d.join("deep"));
            let kind = fs::rename(d.join("a"), d.join("deep"));
            fs::write(d.join("deep/er/h/f"), "found")?;
            Ok(format!("{full:?} {kind:?}"))
        }),
        ("no-replace", |d| {
            three(d)?;
            let to = |from: &str, to: &str| {
                let flags = RenameFlags::NOREPLACE;
                errno(renameat_with(CWD, d.join(from), CWD, d.join(to), flags))
            };
            Ok([to("a", "b"), to("a", "c"), to("e", "b"), to("e", "n")].join(" "))
        }),
        ("exchange", |d| {
            three(d)?;
            let with = |from: &str, to: &str| {
                let flags = RenameFlags::EXCHANGE;
                errno(renameat_with(CWD, d.join(from), CWD, d.join(to), flags))
            };
            let outcome = [
                with("a", "b"),
                with("a", "e"),
                with("b", "a/f"),
                with("b", "none"),
            ];
            fs::write(d.join("b"), "after")?;
            fs::write(d.join("a/f"), "after too")?;
            Ok(outcome.join(" "))
        }),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn content_and_holes_are_those_of_a_bare_directory() {
    fn open(d: &Path) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.open(d.join("f"))
    }
    fn ranges(file: &File) -> String {
        let find = |from| seek(file, from).map_err(|error| error.to_string());
        let found = [0, 5000, 70_000, 1 << 20]
            .map(|at| (find(SeekFrom::Data(at)), find(SeekFrom::Hole(at))));
        format!("{found:?}")
    }
    same_as_a_bare_directory(&[
        ("write", |d| {
            let file = open(d)?;
            file.write_all_at(b"hello", 0)?;
            file.write_all_at(&vec![7; 3 << 20], 4093)?;
            file.write_all_at(b"sparse", 10 << 20)?;
            Ok(ranges(&file))
        }),
        ("append", |d| {
            for text in ["one", "two", "three"] {
                let mut file = File::options()
                    .append(true)
                    .create(true)
                    .open(d.join("f"))?;
                for _ in 0..100 {
                    io::Write::write_all(&mut file, text.as_bytes())?;
                }
            }
            Ok(String::new())
        }),
        ("truncate", |d| {
            let file = open(d)?;
            file.write_all_at(&vec![1; 20_000], 0)?;
            file.set_len(5000)?;
            file.set_len(12_000)?;
            fs::write(d.join("g"), [2; 9000])?;
            File::options()
                .write(true)
                .truncate(true)
                .open(d.join("g"))?;
            fs::write(d.join("h"), [2; 9000])?;
            let path = rustix::fs::openat(CWD, d.join("h"), OFlags::WRONLY, Mode::empty())?;
            rustix::fs::ftruncate(path, 100)?;
            let huge = file.set_len(1 << 62).is_err();
            Ok(format!("{huge} {}", ranges(&file)))
        }),
        ("larger-than-four-gibibytes", |d| {
            let file = open(d)?;
            file.write_all_at(b"far", 5 << 30)?;
            file.set_len(6 << 30)?;
            let mut found = [0; 3];
            file.read_exact_at(&mut found, 5 << 30)?;
            file.set_len(4096)?;
            Ok(format!("{found:?}"))
        }),
        ("allocate", |d| {
            let file = open(d)?;
            file.write_all_at(&vec![3; 100_000], 0)?;
            let zero = FallocateFlags::ZERO_RANGE;
            let keep = FallocateFlags::KEEP_SIZE;
            let punch = FallocateFlags::PUNCH_HOLE;
            let rows = [
                (FallocateFlags::empty(), 0, 1000),
                (FallocateFlags::empty(), 90_000, 50_000),
                (keep, 200_000, 4096),
                (punch | keep, 8192, 16_384),
                (punch | keep, 30_001, 100),
                (punch | keep, 130_000, 900_000),
                (zero | keep, 40_000, 9000),
                (zero, 150_000, 30_000),
                (punch, 0, 10),
                (keep, 0, 0),
            ];
            let mut outcome = Vec::new();
            for (flags, offset, length) in rows {
                let done = fallocate(&file, flags, offset, length);
                outcome.push(format!("{} {};", errno(done), file.metadata()?.len()));
            }
            Ok(outcome.concat())
        }),
        ("copy", |d| {
            let mut source = open(d)?;
            source.write_all_at(&vec![9; 300_000], 1000)?;
            io::Seek::seek(&mut source, io::SeekFrom::Start(0))?;
            let mut to = File::create_new(d.join("copy"))?;
            Ok(io::copy(&mut source, &mut to)?.to_string())
        }),
        ("deleted-but-open", |d| {
            let file = open(d)?;
            file.write_all_at(&[1; 5000], 0)?;
            fs::remove_file(d.join("f"))?;
            file.write_all_at(b"never seen", 0)?;
            file.set_len(2)?;
            fallocate(&file, FallocateFlags::empty(), 0, 100)?;
            setxattr(
                format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)),
                "user.x",
                b"y",
                XattrFlags::empty(),
            )?;
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            let mut found = [0; 2];
            file.read_exact_at(&mut found, 0)?;
            let linked = fs::hard_link(
                format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)),
                d.join("again"),
            );
            fs::write(d.join("f"), "another")?;
            Ok(format!(
                "{found:?} {} {}",
                file.metadata()?.nlink(),
                linked.is_err()
            ))
        }),
        ("direct", |d| {
            let path = d.join("f");
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT;
            let file = File::from(rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644))?);
            // Aligned or not: what the disk takes is not compared.
            let buffer = vec![5; 3 * 4096];
            let begin = buffer.as_ptr().align_offset(4096);
            file.write_all_at(&buffer[begin..begin + 4096], 4096)?;
            Ok(format!("{}", fs::read(path)?.len()))
        }),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn attributes_change_as_in_a_bare_directory() {
    same_as_a_bare_directory(&[
        ("chmod", |d| {
            File::create(d.join("a"))?;
            fs::create_dir(d.join("e"))?;
            for mode in [0o6755, 0o1777, 0o000, 0o640] {
                fs::set_permissions(d.join("a"), fs::Permissions::from_mode(mode))?;
                fs::set_permissions(d.join("e"), fs::Permissions::from_mode(mode | 0o700))?;
            }
            Ok(String::new())
        }),
        ("chown-takes-bits-away", |d| {
            let id = if is_root() {
                65_534
            } else {
                rustix::process::getuid().as_raw()
            };
            for (name, mode) in [("a", 0o6755), ("b", 0o6644), ("c", 0o2750)] {
                File::create(d.join(name))?;
                fs::set_permissions(d.join(name), fs::Permissions::from_mode(mode))?;
                std::os::unix::fs::chown(d.join(name), Some(id), None)?;
            }
            fs::create_dir(d.join("e"))?;
            fs::set_permissions(d.join("e"), fs::Permissions::from_mode(0o2775))?;
            std::os::unix::fs::chown(d.join("e"), Some(id), None)?;
            std::os::unix::fs::symlink("a", d.join("s"))?;
            std::os::unix::fs::lchown(d.join("s"), Some(id), None)?;
            let unchanged =
                rustix::fs::chownat(CWD, d.join("c"), None::<Uid>, None::<Gid>, AtFlags::empty());
            Ok(errno(unchanged))
        }),
        ("times", |d| {
            File::create(d.join("a"))?;
            std::os::unix::fs::symlink("a", d.join("s"))?;
            fs::create_dir(d.join("e"))?;
            let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
            let set = |name: &str, last_access, last_modification| {
                let times = Timestamps {
                    last_access,
                    last_modification,
                };
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                utimensat(CWD, d.join(name), &times, flags)
            };
            let mut outcome = Vec::new();
            for (name, seconds) in [("a", -3), ("s", 1 << 32), ("e", 0)] {
                set(
                    name,
                    time(seconds, 500_000_001),
                    time(seconds + 1, 999_999_999),
                )?;
                set(name, time(0, UTIME_OMIT), time(seconds + 7, 1))?;
                set(name, time(seconds + 9, 2), time(0, UTIME_OMIT))?;
                let found = fs::symlink_metadata(d.join(name))?;
                outcome.push((found.atime(), found.atime_nsec()));
                outcome.push((found.mtime(), found.mtime_nsec()));
            }
            set("a", time(0, UTIME_NOW), time(0, UTIME_NOW))?;
            let found = fs::metadata(d.join("a"))?;
            Ok(format!("{outcome:?} {}", found.atime() == found.mtime()))
        }),
        ("xattrs", |d| {
            fs::write(d.join("a"), "x")?;
            fs::create_dir(d.join("e"))?;
            let set = |name: &str, key: &str, value: &[u8], flags| {
                errno(setxattr(d.join(name), key, value, flags))
            };
            let (any, create, replace) =
                (XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE);
            let outcome = [
                set("a", "user.k", b"v", any),
                set("a", "user.k", b"w", create),
                set("a", "user.k", b"u", replace),
                set("a", "user.none", b"u", replace),
                set("a", "user.empty", b"", any),
                set("a", "user.large", &[1; 3000], any),
                set("a", "user.too.large", &vec![1; 70_000], any),
                set("a", "odd", b"v", any),
                set("e", "user.d", b"\0\xff", any),
                errno(rustix::fs::removexattr(d.join("a"), "user.empty")),
                errno(rustix::fs::removexattr(d.join("a"), "user.empty")),
                errno(rustix::fs::lsetxattr(d.join("e"), "trusted.t", b"1", any)),
            ];
            let small = rustix::fs::getxattr(d.join("a"), "user.large", &mut [0; 10][..]);
            Ok(format!("{} {}", outcome.join(" "), errno(small)))
        }),
        ("truncate-keeps-times-if-nothing-changes", |d| {
            fs::write(d.join("a"), "four")?;
            let before = fs::metadata(d.join("a"))?;
            let times = |m: &fs::Metadata| (m.mtime(), m.mtime_nsec());
            let output = std::process::Command::new("truncate")
                .args(["-s", "4"])
                .arg(d.join("a"))
                .output()?;
            let after = fs::metadata(d.join("a"))?;
            Ok(format!(
                "{} {}",
                output.status,
                times(&before) == times(&after)
            ))
        }),
    ]);
}
