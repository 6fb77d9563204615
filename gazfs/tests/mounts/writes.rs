//! Writing: what is one append, what is refused, and when it is done.

use std::{
    fs::{self, File, OpenOptions},
    io::{IoSlice, Write},
    os::unix::fs::FileExt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use gazette_client::fake::{Call, FakeBroker, Fault};
use gazette_protocol::{Status, journal_spec::Flag};
use gazfs::journals::Ack;
use rustix::{fs::OFlags, io::Errno};
use tonic::Code;

use crate::harness::{Mount, Way, appender, errno, eventually, open_raw};

const PAGE: usize = 4096;

fn appends(mount: &Mount) -> u64 {
    mount.broker.calls(Call::Append)
}

// Write with O_APPEND: one request of the kernel is one atomic append. That is one write(2) of up
// to 1 MiB less a page, also from a buffer that does not begin at a page, or 256 segments of a
// writev, each within a page.
#[test]
fn one_write_is_one_append_up_to_a_mebibyte_less_a_page() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    let mut file = appender(&mount.path("app/log"));
    let buffer: Vec<u8> = (0u32..)
        .flat_map(u32::to_le_bytes)
        .take((1 << 20) + PAGE)
        .collect();
    let mut expected = Vec::new();
    for skip in [0, 1, 7, 4095] {
        for length in [1, PAGE - 1, 100_000, (1 << 20) - PAGE] {
            let before = appends(&mount);
            let content = &buffer[skip..skip + length];
            assert_eq!(file.write(content).expect("write"), length);
            assert_eq!(appends(&mount) - before, 1, "{length} bytes from {skip}");
            expected.extend_from_slice(content);
        }
    }
    // Each within a page: one that crosses to the next counts as two.
    let in_page = buffer.as_ptr().align_offset(PAGE);
    let pieces: Vec<IoSlice<'_>> = (0..256)
        .map(|n| IoSlice::new(&buffer[in_page + (n % 200) * PAGE + n * 13 + 1..][..700]))
        .collect();
    let before = appends(&mount);
    assert_eq!(file.write_vectored(&pieces).expect("writev"), 256 * 700);
    assert_eq!(appends(&mount) - before, 1);
    for piece in &pieces {
        expected.extend_from_slice(piece);
    }
    assert_eq!(mount.broker.content("app/log"), expected);
}

// The kernel splits a larger write; its parts are appends in its order.
#[test]
fn a_larger_write_is_split_and_in_order() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    let content: Vec<u8> = (0u32..).flat_map(u32::to_le_bytes).take(5 << 20).collect();
    appender(&mount.path("app/log"))
        .write_all(&content)
        .expect("write");
    assert!(mount.broker.content("app/log") == content);
    assert!(appends(&mount) >= 5);
}

// Two mounts and any number of writers never overwrite one another; the broker chooses the place.
#[test]
fn writers_on_two_mounts_never_overwrite_one_another() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    let mounts = [Way::Inside, Way::Socket].map(|way| Mount::of(broker.clone(), way, |_| {}));
    let [Some(one), Some(two)] = mounts else {
        return;
    };
    std::thread::scope(|scope| {
        for (writer, mount) in [&one, &two, &one, &two].into_iter().enumerate() {
            scope.spawn(move || {
                for n in 0..100 {
                    // As a shell does it: open, write, close.
                    let mut file = appender(&mount.path("app/log"));
                    file.write_all(format!("{writer}:{n}\n").as_bytes())
                        .expect("write");
                }
            });
        }
    });
    let content = fs::read_to_string(two.path("app/log")).expect("read");
    assert_eq!(content.lines().count(), 400);
    for writer in 0..4 {
        let own = content
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("{writer}:")));
        let numbers: Vec<u32> = own.map(|n| n.parse().expect("a whole line")).collect();
        assert_eq!(
            numbers,
            (0..100).collect::<Vec<_>>(),
            "its own order is kept"
        );
    }
}

// Write without O_APPEND: an append with its file offset as precondition: at the end it works,
// elsewhere EPERM and nothing is written.
#[test]
fn a_write_elsewhere_than_at_the_end_is_refused() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    let file = OpenOptions::new()
        .write(true)
        .open(mount.path("app/log"))
        .expect("open");
    assert_eq!(errno(file.write_at(b"x", 1)), Errno::PERM);
    assert_eq!(file.write_at(b"abc", 0).expect("it is empty"), 3);
    assert_eq!(file.write_at(b"def", 3).expect("that is the end"), 3);
    for offset in [0, 1, 5, 7, 1 << 40] {
        assert_eq!(
            errno(file.write_at(b"x", offset)),
            Errno::PERM,
            "at {offset}"
        );
    }
    assert_eq!(mount.broker.content("app/log"), b"abcdef");
    // Somebody else is faster.
    mount.broker.append("app/log", b"!");
    assert_eq!(errno(file.write_at(b"x", 6)), Errno::PERM);
    assert_eq!(mount.broker.content("app/log"), b"abcdef!");
    mount.sh_ok("printf ghi | dd of=$J/app/log conv=notrunc seek=7 bs=1 2>$T/err");
    assert_eq!(mount.broker.content("app/log"), b"abcdef!ghi");
}

// Truncate, `>` on a non-empty journal: EPERM, nothing changed. On an empty one they are fine.
#[test]
fn a_journal_cannot_be_emptied_or_cut() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    let path = mount.path("app/log");
    File::create(&path)
        .expect("it is empty")
        .write_all(b"abc")
        .expect("write");
    assert_eq!(errno(File::create(&path)), Errno::PERM);
    let file = OpenOptions::new().write(true).open(&path).expect("open");
    for size in [0, 2, 4, 1 << 40] {
        assert_eq!(errno(file.set_len(size)), Errno::PERM, "to {size}");
    }
    file.set_len(3).expect("nothing changes");
    assert!(!mount.sh("echo new > $J/app/log").status.success());
    assert!(!mount.sh("fallocate -l 100 $J/app/log").status.success());
    assert_eq!(mount.broker.content("app/log"), b"abc");
}

// `touch` works.
#[test]
fn touch_works() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    mount.sh_ok("touch $J/app/log; touch -d '2020-02-02 02:02:02 UTC' $J/app/log");
    let modified = fs::metadata(mount.path("app/log"))
        .expect("look")
        .modified()
        .expect("a time");
    let expected = SystemTime::UNIX_EPOCH + Duration::from_secs(1_580_608_922);
    assert_eq!(modified, expected);
}

// Stores through a mapping are refused: they would change bytes in place.
#[test]
fn a_journal_cannot_be_changed_through_a_mapping() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    mount.broker.append("app/log", &[b'a'; 8192]);
    let output = mount.sh("python3 -c \"import mmap,os,sys
fd=os.open(os.environ['J']+'/app/log',os.O_RDWR)
m=mmap.mmap(fd,8192); m[0:1]=b'X'
try: m.flush()
except OSError: sys.exit(7)\"");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(mount.broker.content("app/log"), [b'a'; 8192]);
}

// A journal that does not take appends is refused when it is opened, with a visible error.
#[test]
fn a_read_only_journal_is_refused_visibly() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    mount.sh_ok("echo a >> $J/app/log");
    let mut file = appender(&mount.path("app/log"));
    let mut spec = FakeBroker::spec("app/log");
    spec.flags = Flag::ORdonly as u32;
    mount.broker.upsert(spec);
    let refused = mount.sh("echo lost >> $J/app/log");
    assert!(!refused.status.success() && !refused.stderr.is_empty());
    assert_eq!(errno(file.write(b"lost")), Errno::ACCESS);
    mount.broker.create("app/log");
    mount.sh_ok("echo b >> $J/app/log");
    file.write_all(b"c\n").expect("it may be written again");
    assert_eq!(mount.broker.content("app/log"), b"a\nb\nc\n");
}

// Acknowledgement: write(2) returns when the append is acknowledged, and says what failed.
#[test]
fn a_write_that_failed_is_reported_by_write() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    let mut file = appender(&mount.path("app/log"));
    let full = Fault::Rpc(Code::ResourceExhausted, "no space");
    mount.broker.inject(Call::Append, [full]);
    assert_eq!(errno(file.write(b"x")), Errno::NOSPC);
    mount
        .broker
        .inject(Call::Append, [Fault::Status(Status::IndexHasGreaterOffset)]);
    assert_eq!(errno(file.write(b"x")), Errno::IO);
    // Brokers that move a journal are waited for.
    mount.broker.inject(
        Call::Append,
        [
            Fault::Status(Status::InsufficientJournalBrokers),
            Fault::Status(Status::NoJournalPrimaryBroker),
        ],
    );
    file.write_all(b"ok").expect("it is tried again");
    assert_eq!(mount.broker.content("app/log"), b"ok");
}

// `--ack=close` pipelines: then fsync and close wait.
#[test]
fn with_ack_close_writes_go_on_and_fsync_and_close_wait() {
    let Some(mount) = Mount::with(|options| options.ack = Ack::Close) else {
        return;
    };
    mount.broker.create("app/log");
    let slow = || std::iter::repeat_n(Fault::Delay(Duration::from_millis(300)), 1);
    let mut file = appender(&mount.path("app/log"));
    mount.broker.inject(Call::Append, slow());
    for n in 0..50 {
        write!(file, "{n};").expect("write");
    }
    assert_eq!(
        mount.broker.head("app/log"),
        0,
        "nothing is acknowledged yet"
    );
    file.sync_all().expect("sync");
    let expected = (0..50).map(|n| n.to_string() + ";").collect::<String>();
    assert_eq!(mount.broker.content("app/log"), expected.as_bytes());
    assert!(appends(&mount) < 10, "they went together");
    mount.broker.inject(Call::Append, slow());
    file.write_all(b"last").expect("write");
    drop(file);
    assert!(
        mount.broker.content("app/log").ends_with(b"last"),
        "close waited"
    );
    // A reader in the same mount sees what was written, although it is not acknowledged.
    mount.broker.inject(Call::Append, slow());
    let mut file = appender(&mount.path("app/log"));
    file.write_all(b"+own").expect("write");
    assert!(
        fs::read(mount.path("app/log"))
            .expect("read")
            .ends_with(b"+own")
    );
    mount.broker.inject(Call::Append, slow());
    file.write_all(b"+size").expect("write");
    let size = fs::metadata(mount.path("app/log")).expect("look").len();
    assert_eq!(
        size,
        u64::try_from(mount.broker.head("app/log")).expect("a size")
    );
}

// A failed append is reported on the next write, fsync or close; later appends work.
#[test]
fn with_ack_close_a_failure_is_reported_by_the_next_call() {
    let Some(mount) = Mount::with(|options| options.ack = Ack::Close) else {
        return;
    };
    mount.broker.create("app/log");
    let fail = || [Fault::Rpc(Code::ResourceExhausted, "no space")];
    let mut file = appender(&mount.path("app/log"));
    mount.broker.inject(Call::Append, fail());
    file.write_all(b"lost").expect("it is only queued");
    assert_eq!(errno(file.sync_all()), Errno::NOSPC);
    file.sync_all().expect("it was reported once");

    mount.broker.inject(Call::Append, fail());
    file.write_all(b"lost").expect("it is only queued");
    eventually("the append failed", || mount.fs.pending() == 0);
    assert_eq!(errno(file.write(b"refused")), Errno::NOSPC);
    file.write_all(b"kept").expect("it was reported once");
    file.sync_all().expect("this one lands");

    mount.broker.inject(Call::Append, fail());
    let output = mount.sh("printf x | dd of=$J/app/log oflag=append conv=notrunc status=none");
    assert!(!output.status.success(), "dd learns it from close");
    assert_eq!(mount.broker.content("app/log"), b"kept");
    assert_eq!(
        mount.block_on(mount.fs.drain()),
        0,
        "all of them were reported"
    );
}

// O_SYNC and O_DSYNC always wait.
#[test]
fn with_ack_close_a_synchronous_write_waits() {
    let Some(mount) = Mount::with(|options| options.ack = Ack::Close) else {
        return;
    };
    mount.broker.create("app/log");
    for flag in [OFlags::SYNC, OFlags::DSYNC] {
        let before = mount.broker.head("app/log");
        let flags = OFlags::WRONLY | OFlags::APPEND | flag;
        let file = open_raw(&mount.path("app/log"), flags).expect("open");
        mount
            .broker
            .inject(Call::Append, [Fault::Delay(Duration::from_millis(200))]);
        assert_eq!(rustix::io::write(&file, b"sync").expect("write"), 4);
        assert_eq!(mount.broker.head("app/log"), before + 4);
    }
}

// Writers in threads of one program, with writes of any size, lose and mix nothing.
#[test]
fn threads_of_one_program_lose_nothing() {
    let Some(mount) = Mount::with(|options| options.ack = Ack::Close) else {
        return;
    };
    mount.broker.create("app/log");
    let file = Arc::new(appender(&mount.path("app/log")));
    std::thread::scope(|scope| {
        for writer in 0u8..4 {
            let file = Arc::clone(&file);
            scope.spawn(move || {
                for n in 1..100usize {
                    let line = vec![b'a' + writer; (n * 977) % 20_000 + 1];
                    let mut line = line;
                    line.push(b'\n');
                    (&*file).write_all(&line).expect("write");
                }
            });
        }
    });
    file.sync_all().expect("sync");
    let content = mount.broker.content("app/log");
    let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(lines.len(), 4 * 99);
    for line in lines {
        let first = line[0];
        assert!(
            line[..line.len() - 1].iter().all(|byte| *byte == first),
            "a line is torn"
        );
    }
}
