//! What only this file system has to get right.

use std::{
    fs::{self, File},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
};

use gazfs::recorded::memory::Owned;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, fallocate};

use crate::harness::{Mount, eventually};

/// Says whether a name was made in the log.
fn was_created(mount: &Mount, wanted: &str) -> bool {
    mount.log.mutations().iter().any(|mutation| {
        matches!(mutation, Owned::Create { at: Some((_, name)), .. } if name == wanted.as_bytes())
    })
}

const SQLITE: &str = "
import os,sqlite3,sys
c=sqlite3.connect(os.environ['D']+'/x.db',isolation_level=None)
assert c.execute('pragma journal_mode=wal').fetchone()[0]=='wal'
c.execute('create table t(a)')
for i in range(50): c.execute('insert into t values(?)',(i,))
d=sqlite3.connect(os.environ['D']+'/x.db')
assert d.execute('select count(*) from t').fetchone()[0]==50
assert os.path.exists(os.environ['D']+'/x.db-shm')
os.chmod(os.environ['D']+'/x.db-shm',0o600)
";

#[test]
fn the_shared_memory_of_sqlite_is_left_out_and_nothing_else_that_is_called_so() {
    let Some(mount) = Mount::new() else { return };
    mount.sh_ok(&format!("python3 -c \"{SQLITE}\""));
    assert!(was_created(&mount, "x.db"));
    assert!(was_created(&mount, "x.db-wal"));
    assert!(!was_created(&mount, "x.db-shm"));
    mount.check_replay();

    fs::write(mount.path("text"), "SQLite format 2\0").expect("write a file");
    for name in ["text-shm", "none-shm", "-shm", "d-shm"] {
        fs::write(mount.path(name), "kept").expect("write a file");
        assert!(was_created(&mount, name), "{name}");
    }
    mount.check_replay();
}

#[test]
fn a_file_that_was_left_out_gets_another_name_by_a_copy_only() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("x"), "SQLite format 3\0").expect("write a file");
    fs::write(mount.path("x-shm"), "index").expect("write a file");
    let crosses = Some(rustix::io::Errno::XDEV.raw_os_error());
    let renamed = fs::rename(mount.path("x-shm"), mount.path("y"));
    assert_eq!(renamed.expect_err("refused").raw_os_error(), crosses);
    let linked = fs::hard_link(mount.path("x-shm"), mount.path("y"));
    assert_eq!(linked.expect_err("refused").raw_os_error(), crosses);
    mount.sh_ok("mv \"$D/x-shm\" \"$D/y\"; test \"$(cat \"$D/y\")\" = index");
    // Over one that was left out, anything may be renamed.
    fs::write(mount.path("x-shm"), "index").expect("write a file");
    fs::rename(mount.path("y"), mount.path("x-shm")).expect("rename over it");
    mount.check_replay();
}

#[test]
fn stores_through_a_mapping_are_never_lost() {
    let Some(mount) = Mount::new() else { return };
    mount.sh_ok(
        "python3 -c \"
import mmap,os
p=os.environ['D']+'/m'
fd=os.open(p,os.O_RDWR|os.O_CREAT); os.ftruncate(fd,1<<20)
m=mmap.mmap(fd,1<<20); m[4090:4100]=b'0123456789'; m.flush()
assert os.pread(fd,10,4090)==b'0123456789'
os.pwrite(fd,b'XYZ',4092); assert m[4090:4100]==b'01XYZ56789'
os.ftruncate(fd,2<<20); n=mmap.mmap(fd,2<<20); n[(2<<20)-1]=7
m[100000]=9; os.close(fd); m.close(); n.close()
\"",
    );
    // Closed, but never synced.
    let mut byte = [0];
    let file = File::open(mount.path("m")).expect("open");
    file.read_exact_at(&mut byte, 100_000).expect("read");
    assert_eq!(byte, [9]);
    mount.check_replay();
}

#[test]
fn sparse_files_stay_as_sparse_as_they_are() {
    let Some(mount) = Mount::new() else { return };
    let file = File::create_new(mount.path("f")).expect("make a file");
    for at in [0, 100_000, 5 << 30, 3 << 20] {
        file.write_all_at(&[1; 5000], at).expect("write");
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    file.write_all_at(&vec![2; 100_000], 1 << 20)
        .expect("write");
    fallocate(&file, punch, (1 << 20) + 1000, 50_000).expect("punch");
    file.set_len((5 << 30) + 10).expect("cut");
    file.set_len(6 << 30).expect("grow");
    mount.check_replay_and_holes();
}

#[test]
fn tables_that_are_written_once_read_right_in_every_way() {
    // While somebody reads them through pages of the mount, all others do too. Otherwise it is up to whether the
    // kernel has told that the writer closed it.
    for is_cached in [false, true] {
        reads_right(is_cached);
    }
}

fn reads_right(is_cached: bool) {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("1.sst");
    fs::write(&path, vec![1; 100_000]).expect("write a file");
    let held = is_cached.then(|| {
        let options = File::options().read(true).write(true).open(&path);
        options.expect("open")
    });
    let read = |file: &File| {
        let mut found = vec![0; 100_000];
        file.read_exact_at(&mut found, 0).expect("read");
        found
    };
    let first = File::open(&path).expect("open");
    assert_eq!(read(&first), vec![1; 100_000]);
    // While it is open, somebody writes it after all.
    let writer = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("open");
    writer.write_all_at(&vec![2; 50_000], 0).expect("write");
    let second = File::open(&path).expect("open");
    for file in [&first, &second, &writer] {
        assert_eq!(read(file)[49_999..50_001], [2, 1]);
    }
    let stores = "exec python3 -c \"
import mmap,os,sys
f=os.open(os.environ['D']+'/1.sst',os.O_RDWR); m=mmap.mmap(f,8192)
m[5000]=7
if len(sys.argv)>1:
    os.fsync(f); m[5001]=8; os.pwrite(f,b'9',60000); m[5002]=8
\"";
    mount.sh_ok(stores);
    let stored = |file: &File| read(file)[5000..5003].to_vec();
    assert_eq!(stored(&first), [7, 2, 2]);
    drop(writer);
    eventually("stores are recorded", || is_recorded(&mount, 5000, 7));
    mount.check_replay();
    mount.sh_ok(&format!("{stores} more"));
    assert_eq!(stored(&first), [7, 8, 8]);
    eventually("stores are recorded", || is_recorded(&mount, 5002, 8));
    mount.check_replay();
    drop((first, second, held));
    // Nothing old is left.
    let again = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("open");
    assert_eq!(read(&again)[49_999..50_001], [2, 1]);
    again.write_all_at(&[3], 0).expect("write");
    let cached = File::open(&path).expect("open");
    assert_eq!(read(&cached)[..2], [3, 2]);
    mount.check_replay();
}

/// Says whether the log was told that a file has this byte there.
fn is_recorded(mount: &Mount, at: u64, byte: u8) -> bool {
    mount.log.mutations().iter().any(|mutation| {
        let Owned::Write { offset, data, .. } = mutation else {
            return false;
        };
        let at = at
            .checked_sub(*offset)
            .and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| data.get(at)) == Some(&byte)
    })
}

#[test]
fn a_large_directory_is_listed_whole_and_removed_while_it_is_read() {
    let Some(mount) = Mount::new() else { return };
    let count = 3000;
    fs::create_dir(mount.path("d")).expect("make a directory");
    for number in 0..count {
        let name = format!("d/a-rather-long-name-of-a-file-{number}");
        File::create(mount.path(&name)).expect("make a file");
    }
    for _ in 0..2 {
        let listed = fs::read_dir(mount.path("d")).expect("list").count();
        assert_eq!(listed, count);
        let long = mount.sh_ok("ls -la \"$D/d\" | wc -l");
        assert_eq!(long.trim(), (count + 3).to_string());
    }
    mount.sh_ok("rm -r \"$D/d\"");
    mount.check_replay();
}

#[test]
fn a_tree_deeper_than_any_path_works() {
    let Some(mount) = Mount::new() else { return };
    mount.sh_ok(
        "cd \"$D\"; python3 -c \"
import os
for i in range(1500):
    os.mkdir('dddd'); os.chdir('dddd')
open('f','w').write('deep'); assert open('f').read()=='deep'
\"; rm -r dddd; test ! -e dddd",
    );
    mount.check_replay();
}

#[test]
fn numbers_of_inodes_stay_and_the_root_is_one() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("a"), "x").expect("write a file");
    let ino = || fs::metadata(mount.path("a")).expect("look").ino();
    let before = ino();
    mount.sh_ok("echo 2 >/proc/sys/vm/drop_caches || true");
    assert_eq!(before, ino());
    assert_eq!(fs::metadata(mount.path("")).expect("look").ino(), 1);
}

/// Makes a file without a name in a directory.
fn unnamed(mount: &Mount, directory: &str, flags: OFlags) -> File {
    let flags = OFlags::TMPFILE | OFlags::RDWR | flags;
    let mode = Mode::from_raw_mode(0o640);
    File::from(rustix::fs::open(mount.path(directory), flags, mode).expect("make a file"))
}

fn was_released(mount: &Mount) -> bool {
    let mutations = mount.log.mutations();
    matches!(mutations.last(), Some(Owned::Release { .. }))
}

#[test]
fn a_file_without_a_name_is_gone_with_its_last_handle() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("d")).expect("make a directory");
    let before = fs::metadata(mount.path("d")).expect("look").modified();
    let file = unnamed(&mount, "d", OFlags::EXCL);
    file.write_all_at(b"nobody sees it", 3).expect("write");
    let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("open again");
    let metadata = again.metadata().expect("look");
    assert_eq!((metadata.len(), metadata.nlink()), (17, 0));
    assert_eq!(metadata.mode(), 0o100_640);
    assert_eq!(fs::read_dir(mount.path("d")).expect("list").count(), 0);
    let after = fs::metadata(mount.path("d")).expect("look").modified();
    assert_eq!(after.expect("a time"), before.expect("a time"));
    drop(file);
    assert!(!was_released(&mount));
    drop(again);
    eventually("the log knows that it is gone", || was_released(&mount));
    mount.check_replay();
}

#[test]
fn a_file_without_a_name_gets_one_with_all_that_it_has() {
    let Some(mount) = Mount::new() else { return };
    let file = unnamed(&mount, "", OFlags::empty());
    file.write_all_at(b"whole", 0).expect("write");
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let (at, follow) = (rustix::fs::CWD, AtFlags::SYMLINK_FOLLOW);
    rustix::fs::linkat(at, own.as_str(), at, mount.path("named"), follow).expect("link");
    file.write_all_at(b" and more", 5).expect("write");
    drop(file);
    let read = fs::read_to_string(mount.path("named")).expect("read");
    assert_eq!(read, "whole and more");
    mount.check_replay();
    fs::rename(mount.path("named"), mount.path("other")).expect("rename");
    fs::remove_file(mount.path("other")).expect("remove");
    mount.check_replay();
    assert!(!was_released(&mount));
}

#[test]
fn statx_tells_when_a_file_was_made() {
    let Some(mount) = Mount::new() else { return };
    let is_known = fs::metadata(mount.tree(""))
        .expect("look")
        .created()
        .is_ok();
    if !is_known {
        eprintln!("SKIPPED, NOT TESTED: the file system of the tests does not know it");
        return;
    }
    fs::write(mount.path("a"), "").expect("write a file");
    fs::create_dir(mount.path("d")).expect("make a directory");
    for name in ["a", "d"] {
        let born = |path| fs::metadata(path).expect("look").created().expect("a time");
        assert_eq!(born(mount.path(name)), born(mount.tree(name)), "{name}");
    }
}

#[test]
fn a_second_start_finds_all_again() {
    let Some(mount) = Mount::new() else { return };
    mount.sh_ok("cd \"$D\"; mkdir d; echo one >d/a; ln d/a b; ln -s b c; mkdir -m 700 e");
    mount.restart();
    mount.sh_ok(
        "cd \"$D\"; test \"$(cat b)\" = one; echo two >>b; rm d/a; mv e d/; cat c; ls -la d",
    );
    mount.check_replay();
}

#[test]
fn a_file_that_the_log_does_not_know_is_refused() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.tree("stranger"), "x").expect("write a file");
    let looked = fs::metadata(mount.path("stranger"));
    let failed = Some(rustix::io::Errno::IO.raw_os_error());
    assert_eq!(looked.expect_err("it fails").raw_os_error(), failed);
}

#[test]
fn reading_a_link_leaves_the_time_of_access_that_a_program_set() {
    let Some(mount) = Mount::new() else { return };
    let link = mount.path("link");
    std::os::unix::fs::symlink("target", &link).expect("make a link");
    mount.sh_ok("touch -h -d '1970-01-03 21:37:46.123' \"$D/link\"");
    let read = || fs::read_link(&link).expect("read a link");
    for _ in 0..2 {
        assert_eq!(read().as_os_str(), "target");
        // The kernel may keep what it read and what it was told; the backing file has it.
        let backing = fs::symlink_metadata(mount.tree("link")).expect("look");
        assert_eq!(backing.atime(), 250_666);
    }
    mount.check_replay();
}
