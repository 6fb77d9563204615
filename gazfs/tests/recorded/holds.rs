//! When the log has no room, is slow, or takes nothing more.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    process::Child,
    time::Duration,
};

use gazfs::recorded::log::Hold;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::harness::{Mount, ends_within, eventually};

/// Starts a script whose call waits for a barrier, and checks that it does.
fn waiting_for_barrier(mount: &Mount, script: &str) -> Child {
    let before = mount.log.barrier_count();
    let mut child = mount.spawn(script);
    eventually(script, || mount.log.barrier_count() > before);
    std::thread::sleep(Duration::from_millis(100));
    let ended = child.try_wait().expect("look at a child");
    assert!(ended.is_none(), "it did not wait: {script}");
    child
}

fn python(body: &str) -> String {
    format!("exec python3 -c \"\nimport mmap,os,sys\nD='$D/'\n{body}\n\"")
}

/// Calls that return when all is durable.
fn barriers() -> Vec<String> {
    let mut scripts = vec![
        "exec sync \"$D/file\"".to_owned(),
        "exec sync \"$D\"".to_owned(),
        "exec sync -d \"$D/file\"".to_owned(),
        python("os.fsync(os.open(D+'file',os.O_RDONLY))"),
    ];
    for flags in ["os.O_SYNC", "os.O_DSYNC", "os.O_DSYNC|os.O_APPEND"] {
        let write = format!("os.write(os.open(D+'file',os.O_WRONLY|{flags}),b'x'*9000)");
        scripts.push(python(&write));
    }
    scripts.push(python(
        "f=os.open(D+'file',os.O_WRONLY|os.O_DIRECT|os.O_DSYNC); os.write(f,mmap.mmap(-1,4096))",
    ));
    scripts.push(python(
        "f=os.open(D+'file',os.O_WRONLY); os.pwritev(f,[b'x'*10],3,os.RWF_DSYNC)",
    ));
    scripts.push(python(
        "f=os.open(D+'file',os.O_RDWR); m=mmap.mmap(f,4096); m[7:9]=b'ab'; m.flush()",
    ));
    scripts
}

#[test]
fn what_must_be_durable_waits_for_the_log() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), vec![1; 20_000]).expect("write a file");
    for script in barriers() {
        mount.log.hold_barriers(true);
        let mut child = waiting_for_barrier(&mount, &script);
        mount.log.hold_barriers(false);
        // A call of several parts waits for several.
        ends_within(&mut child, Duration::from_secs(5));
        let status = child.wait().expect("wait for a child");
        assert!(status.success(), "{script}");
    }
    mount.check_replay();
}

#[test]
fn what_need_not_be_durable_does_not_wait() {
    let Some(mount) = Mount::new() else { return };
    mount.log.hold_barriers(true);
    let script =
        "echo x >\"$D/a\"; cat \"$D/a\"; mv \"$D/a\" \"$D/b\"; rm \"$D/b\"; mkdir \"$D/d\"";
    let mut child = mount.spawn(script);
    ends_within(&mut child, Duration::from_secs(5));
    assert_eq!(mount.log.barrier_count(), 0);
    mount.log.hold_barriers(false);
}

#[test]
fn a_killed_program_does_not_wait_for_a_barrier() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), vec![1; 20_000]).expect("write a file");
    mount.log.hold_barriers(true);
    for script in barriers() {
        let mut child = waiting_for_barrier(&mount, &script);
        child.kill().expect("kill a child");
        ends_within(&mut child, Duration::from_millis(200));
    }
    mount.log.hold_barriers(false);
}

#[test]
fn a_change_waits_until_there_is_room_and_then_happens_once() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "old").expect("write a file");
    let scripts = [
        "exec mkdir \"$D/directory\"",
        "echo new >>\"$D/file\"",
        "exec truncate -s 2 \"$D/file\"",
        "exec chmod 600 \"$D/file\"",
        "exec ln \"$D/file\" \"$D/link\"",
        "exec mv \"$D/link\" \"$D/moved\"",
        "exec rm \"$D/moved\"",
        "exec rmdir \"$D/directory\"",
        ": >\"$D/new\"",
        "exec setfattr -n user.x -v y \"$D/file\"",
        "exec fallocate -l 9000 \"$D/file\"",
    ];
    for script in scripts {
        let before = mount.log.mutations();
        mount.log.hold(Some(Hold::Full));
        let mut child = mount.spawn(script);
        std::thread::sleep(Duration::from_millis(100));
        let ended = child.try_wait().expect("look at a child");
        assert!(ended.is_none(), "it did not wait: {script}");
        assert_eq!(before, mount.log.mutations(), "{script}");
        mount.log.hold(None);
        ends_within(&mut child, Duration::from_secs(5));
        assert!(
            child.wait().expect("wait for a child").success(),
            "{script}"
        );
        mount.check_replay();
    }
}

#[test]
fn a_killed_program_does_not_wait_for_room_and_changes_nothing() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "old").expect("write a file");
    let before = mount.log.mutations();
    mount.log.hold(Some(Hold::Full));
    for script in [
        "exec dd if=/dev/zero of=\"$D/file\" bs=4096 count=1 conv=notrunc",
        "exec mkdir \"$D/directory\"",
        "exec rm \"$D/file\"",
        "exec truncate -s 0 \"$D/file\"",
    ] {
        let mut child = mount.spawn(script);
        std::thread::sleep(Duration::from_millis(100));
        child.kill().expect("kill a child");
        ends_within(&mut child, Duration::from_millis(200));
    }
    // Reading goes on meanwhile.
    assert_eq!(fs::read(mount.path("file")).expect("read"), b"old");
    mount.log.hold(None);
    assert_eq!(before, mount.log.mutations());
    mount.check_replay();
}

#[test]
fn many_calls_wait_at_once() {
    let Some(mount) = Mount::new() else { return };
    mount.log.hold(Some(Hold::Full));
    let script = "for i in $(seq 40); do mkdir \"$D/$i\" & done; wait";
    let mut child = mount.spawn(script);
    std::thread::sleep(Duration::from_millis(200));
    mount.log.hold(None);
    ends_within(&mut child, Duration::from_secs(5));
    let made = fs::read_dir(mount.path("")).expect("list").count();
    assert_eq!(made, 40);
    mount.check_replay();
}

/// Has this thread run on the first processor only.
fn stay_on_the_first() {
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first).expect("the first processor is there");
}

/// Lets barriers through, whatever happens.
struct Released<'a>(&'a Mount);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.log.hold_barriers(false);
    }
}

// A transport has room for so many requests of a processor, and must make more.
#[test]
fn calls_that_wait_hold_up_no_others_however_many_they_are() {
    const COUNT: usize = 320;
    let Some(mount) = Mount::new() else { return };
    let files: Vec<File> = (0..COUNT)
        .map(|number| File::create_new(mount.path(&number.to_string())).expect("make a file"))
        .collect();
    mount.log.hold_barriers(true);
    let before = mount.log.barrier_count();
    std::thread::scope(|scope| {
        let released = Released(&mount);
        let mut waiting = Vec::new();
        // By and by, as programs do.
        for files in files.chunks(40) {
            for file in files {
                waiting.push(scope.spawn(move || {
                    stay_on_the_first();
                    file.sync_all()
                }));
            }
            let expected = before + u64::try_from(waiting.len()).expect("few");
            eventually("all of them wait", || mount.log.barrier_count() == expected);
        }
        let others = scope.spawn(|| {
            stay_on_the_first();
            fs::write(mount.path("other"), "other").expect("write a file");
            fs::remove_file(mount.path("other")).expect("remove a file");
        });
        eventually("others do not wait", || others.is_finished());
        others.join().expect("they do what they did before");
        drop(released);
        for waiting in waiting {
            let synced = waiting.join().expect("it does not panic");
            synced.expect("it is durable");
        }
    });
    mount.check_replay();
}

fn number<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_full_log_refuses_a_change_as_a_full_disk_does() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "old").expect("write a file");
    mount.log.hold(Some(Hold::NoSpace));
    let no_space = Some(rustix::io::Errno::NOSPC.raw_os_error());
    let file = File::options()
        .write(true)
        .open(mount.path("file"))
        .expect("open");
    assert_eq!(number(file.write_all_at(b"new", 0)), no_space);
    assert_eq!(number(fs::create_dir(mount.path("d"))), no_space);
    mount.log.hold(None);
    file.write_all_at(b"new", 0).expect("there is room again");
    mount.check_replay();
}

#[test]
fn a_full_disk_refuses_what_it_cannot_take_and_a_short_write_is_recorded_short() {
    let Some(mount) = Mount::on_small_disk(256) else {
        return;
    };
    let no_space = Some(rustix::io::Errno::NOSPC.raw_os_error());
    let file = File::create_new(mount.path("file")).expect("make a file");
    let data = vec![7; 400 << 10];
    let written = file.write_at(&data, 0).expect("a part of it is written");
    assert!(written < data.len());
    assert_eq!(file.metadata().expect("look").len(), written as u64);
    assert_eq!(number(file.write_all_at(&data, 0)), no_space);
    assert_eq!(number(fs::write(mount.path("other"), &data)), no_space);
    mount.check_replay();
    file.set_len(1000).expect("cut");
    fs::write(mount.path("other"), "fits").expect("there is room again");
    mount.check_replay();
}

#[test]
fn statfs_shows_the_smaller_side() {
    let Some(mount) = Mount::new() else { return };
    let free = || {
        let space = rustix::fs::statvfs(mount.path("")).expect("ask for space");
        space.f_bavail * space.f_frsize
    };
    let disk = rustix::fs::statvfs(mount.bare("")).expect("ask for space");
    assert_eq!(
        rustix::fs::statvfs(mount.path("")).expect("ask").f_blocks,
        disk.f_blocks
    );
    mount.log.set_room(Some(1 << 20));
    assert_eq!(free(), 1 << 20);
}

#[test]
fn a_log_that_was_taken_over_fails_each_change_open_and_fsync() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "old").expect("write a file");
    let file = File::options()
        .read(true)
        .write(true)
        .open(mount.path("file"))
        .expect("open");
    let read = || {
        let mut found = [0; 3];
        file.read_exact_at(&mut found, 0).expect("read");
        found
    };
    assert_eq!(read(), *b"old");
    mount.log.hold(Some(Hold::Ended));
    // What the kernel kept is dropped: it asks for it again.
    fs::write(mount.tree("file"), "NEW").expect("write behind its back");
    eventually("old pages are dropped", || read() == *b"NEW");
    let failed = Some(rustix::io::Errno::IO.raw_os_error());
    assert_eq!(number(file.write_all_at(b"new", 0)), failed);
    assert_eq!(number(file.sync_all()), failed);
    assert_eq!(number(file.set_len(0)), failed);
    assert_eq!(number(File::open(mount.path("file"))), failed);
    assert_eq!(number(File::create_new(mount.path("new"))), failed);
    assert_eq!(number(fs::remove_file(mount.path("file"))), failed);
    assert_eq!(
        number(fs::rename(mount.path("file"), mount.path("x"))),
        failed
    );
    assert_eq!(number(fs::read_dir(mount.path(""))), failed);
}
