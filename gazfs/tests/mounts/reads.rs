//! Reading: what programs see, while the journal grows, and after its beginning was pruned.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::fs::{FileExt, MetadataExt},
    time::{Duration, Instant},
};

use gazette_client::fake::{Call, FakeBroker};
use gazfs::journals::Origin;
use rustix::io::Errno;

use crate::harness::{Mount, Way, appender, ends_within, errno, eventually};

fn numbers(count: u32) -> Vec<u8> {
    (1..=count)
        .flat_map(|n| format!("{n}\n").into_bytes())
        .collect()
}

// read, mmap read, sendfile, cp, grep, tac, tail -n/-c: right.
#[test]
fn every_ordinary_reader_agrees() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    let content = numbers(300_000);
    mount.broker.append("app/log", &content);
    fs::write(mount.beside().join("want"), &content).expect("write");
    assert_eq!(
        fs::metadata(mount.path("app/log")).expect("look").len(),
        content.len() as u64
    );
    mount.sh_ok(
        "f=$J/app/log; cmp $f $T/want; cat $f | cmp - $T/want; cp $f $T/copy; cmp $T/copy $T/want
        test $(grep -c . $f) = 300000; test $(tail -n1 $f) = 300000; test $(tail -c7 $f) = 300000
        test $(tac $f | head -n1) = 300000; test $(wc -l <$f) = 300000; test $(head -n1 $f) = 1
        test $(dd if=$f bs=7 skip=10 count=3 2>$T/err | wc -c) = 21
        dd if=$f bs=3M status=none | cmp - $T/want; sed -n '$p' $f | grep -qx 300000
        tail -c +1000001 $f | cmp - $T/want -i 0:1000000; split -b 1M $f $T/part
        cat $T/part* | cmp - $T/want; gzip -c $f | gunzip | cmp - $T/want",
    );
    mount.sh_ok(
        "python3 - <<'E'
import mmap,os
f=os.environ['J']+'/app/log'; want=open(os.environ['T']+'/want','rb').read()
fd=os.open(f,os.O_RDONLY)
m=mmap.mmap(fd,0,prot=mmap.PROT_READ); assert m[:]==want; m.close()
m=mmap.mmap(fd,0,flags=mmap.MAP_PRIVATE,prot=mmap.PROT_READ); assert m[1000000:1100000]==want[1000000:1100000]
o=os.open(os.environ['T']+'/sent',os.O_WRONLY|os.O_CREAT|os.O_TRUNC); p=0
while True:
    k=os.sendfile(o,fd,p,1<<20)
    if not k: break
    p+=k
assert open(os.environ['T']+'/sent','rb').read()==want
E",
    );
}

// Random reads of any size and place give the bytes that are there.
#[test]
fn reads_of_any_place_and_size_are_right() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    let content: Vec<u8> = (0u32..).flat_map(u32::to_le_bytes).take(6 << 20).collect();
    mount.broker.append("app/log", &content);
    let file = File::open(mount.path("app/log")).expect("open");
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("31 bits") % below
    };
    for _ in 0..300 {
        let (begin, length) = (next(content.len() + 1000), next(300_000) + 1);
        let mut buffer = vec![0; length];
        let read = file.read_at(&mut buffer, begin as u64).expect("read");
        let begin = begin.min(content.len());
        let end = (begin + length).min(content.len());
        assert!(
            buffer[..read] == content[begin..end],
            "{length} bytes at {begin}"
        );
    }
    // Several readers of one open file do not disturb each other.
    std::thread::scope(|scope| {
        for reader in 0..4usize {
            let (file, content) = (&file, &content);
            scope.spawn(move || {
                for begin in (reader * 100_000..content.len()).step_by(400_000) {
                    let mut buffer = vec![0; 50_000];
                    let read = file.read_at(&mut buffer, begin as u64).expect("read");
                    assert!(buffer[..read] == content[begin..begin + read]);
                }
            });
        }
    });
}

// Right, also past 4 GiB.
#[test]
fn reads_past_four_gibibytes_are_right() {
    const FAR: i64 = (5 << 30) + 12_345;
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    mount.broker.truncate("app/log", FAR);
    mount.broker.append("app/log", b"far away\n");
    mount.sh_ok("echo more >> $J/app/log; tail -c14 $J/app/log | grep -qx 'far away'");
    let mut file = File::open(mount.path("app/log")).expect("open");
    file.seek(SeekFrom::Start(u64::try_from(FAR).expect("a place")))
        .expect("seek");
    let mut rest = String::new();
    file.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "far away\nmore\n");
}

// While the journal grows; a reader in the same mount sees its own writes.
#[test]
fn a_reader_sees_its_own_writes_at_once() {
    use std::io::Write;
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    let path = mount.path("app/log");
    let mut writer = appender(&path);
    let mut reader = File::open(&path).expect("open");
    for n in 0..200u32 {
        let line = format!("line {n}\n").repeat(usize::try_from(n % 7 + 1).expect("small"));
        writer.write_all(line.as_bytes()).expect("write");
        let mut read = String::new();
        reader.read_to_string(&mut read).expect("read");
        assert_eq!(read, line);
    }
}

// Growth by anybody: open readers see it at once; size never shrinks.
#[test]
fn open_readers_see_growth_by_others_at_once() {
    let Some(mount) = Mount::of(FakeBroker::new(), Way::Socket, |_| {}) else {
        return;
    };
    mount.broker.create("app/log");
    let mut reader = File::open(mount.path("app/log")).expect("open");
    let mut size = 0;
    for n in 0..100 {
        let content = vec![b'a' + n % 26; usize::from(n) * 50 + 1];
        mount.broker.append("app/log", &content);
        size += content.len() as u64;
        assert_eq!(reader.metadata().expect("look").len(), size);
        let mut read = Vec::new();
        reader.read_to_end(&mut read).expect("read");
        assert!(read == content, "never zeros, never a stale end");
    }
}

// `tail -f` follows, over a lost connection too: what came meanwhile is not skipped.
#[test]
fn tail_follows_over_a_lost_connection() {
    let Some(mount) = Mount::of(FakeBroker::new(), Way::Socket, |_| {}) else {
        return;
    };
    mount.broker.create("app/log");
    let mut tail = mount.spawn("exec timeout 60 tail -n0 -s0.05 -f $J/app/log");
    let mut lines = BufReader::new(tail.stdout.take().expect("it is piped")).lines();
    std::thread::sleep(Duration::from_millis(300));
    mount.server().cut();
    mount.broker.append("app/log", b"missed\n");
    mount.server().cut();
    std::thread::sleep(Duration::from_millis(200));
    mount.broker.append("app/log", b"seen\n");
    assert_eq!(lines.next().expect("a line").expect("text"), "missed");
    assert_eq!(lines.next().expect("a line").expect("text"), "seen");
    tail.kill().expect("kill");
    ends_within(&mut tail, Duration::from_secs(5));
}

// A journal is deleted and made again: new inode, `tail -F` opens it again, and the old descriptor
// never gives a mixture.
#[test]
fn a_journal_made_again_is_another_file() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    mount.broker.append("app/log", &numbers(2000));
    let old = File::open(mount.path("app/log")).expect("open");
    let before = old.metadata().expect("look").ino();
    let mut tail = mount.spawn("exec timeout 60 tail -n1 -s0.05 -F $J/app/log");
    let mut lines = BufReader::new(tail.stdout.take().expect("it is piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "2000");
    mount.broker.delete("app/log");
    mount.broker.create("app/log");
    mount.broker.append("app/log", b"fresh\n");
    // As nobody waited for news, the old file must find out by itself.
    let mut buffer = [0; 64];
    assert_eq!(errno(old.read_at(&mut buffer, 5000)), Errno::STALE);
    assert_eq!(errno(old.metadata()), Errno::STALE);
    assert_eq!(lines.next().expect("a line").expect("text"), "fresh");
    let after = fs::metadata(mount.path("app/log")).expect("look");
    assert_ne!(after.ino(), before);
    assert_eq!(after.len(), 6);
    assert_eq!(fs::read(mount.path("app/log")).expect("read"), b"fresh\n");
    tail.kill().expect("kill");
    ends_within(&mut tail, Duration::from_secs(5));
}

// Pruned beginning: a hole: SEEK_DATA and SEEK_HOLE work, `blocks` counts what is there.
#[test]
fn a_pruned_beginning_is_a_hole() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    mount.broker.append("app/log", &vec![b'x'; 1 << 20]);
    mount.broker.truncate("app/log", 1_000_000);
    let path = mount.path("app/log");
    let metadata = fs::metadata(&path).expect("look");
    assert_eq!(metadata.len(), 1 << 20);
    assert_eq!(
        metadata.blocks(),
        (1u64 << 20).wrapping_sub(1_000_000).div_ceil(512)
    );
    let file = File::open(&path).expect("open");
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(1_000_000));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(0));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(1_000_001)), Ok(1_000_001));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(1_000_000)), Ok(1 << 20));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(1 << 20)), Err(Errno::NXIO));
    let content = fs::read(&path).expect("read");
    assert!(content[..1_000_000].iter().all(|byte| *byte == 0));
    assert!(content[1_000_000..].iter().all(|byte| *byte == b'x'));
    let reads = mount.broker.calls(Call::Read);
    mount.sh_ok("cp --sparse=auto $J/app/log $T/copy; cmp $J/app/log $T/copy");
    assert!(mount.broker.calls(Call::Read) > reads);
}

// What is appended after somebody looked at an empty journal is not taken for a hole.
#[test]
fn what_is_appended_to_an_empty_journal_is_data() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    assert_eq!(fs::metadata(mount.path("app/log")).expect("look").len(), 0);
    let content = numbers(50_000);
    mount.broker.append("app/log", &content);
    mount.sh_ok("cp $J/app/log $T/copy; cp --sparse=always $J/app/log $T/sparse");
    assert!(fs::read(mount.beside().join("copy")).expect("read") == content);
    assert!(fs::read(mount.beside().join("sparse")).expect("read") == content);
    let blocks = fs::metadata(mount.path("app/log")).expect("look").blocks();
    assert_eq!(blocks, (content.len() as u64).div_ceil(512));
}

// `--origin=available` maps file offset 0 to the first byte there at first open.
#[test]
fn the_origin_can_be_the_first_byte_that_is_there() {
    let Some(mount) = Mount::with(|options| options.origin = Origin::Available) else {
        return;
    };
    mount.broker.create("app/log");
    mount.broker.append("app/log", b"pruned\nkept\n");
    mount.broker.truncate("app/log", 7);
    assert_eq!(fs::metadata(mount.path("app/log")).expect("look").len(), 5);
    assert_eq!(fs::read(mount.path("app/log")).expect("read"), b"kept\n");
    mount.sh_ok("echo more >> $J/app/log; printf at-end | dd of=$J/app/log conv=notrunc bs=1 seek=10 2>$T/err");
    // What is pruned later does not move the file.
    mount.broker.truncate("app/log", 12);
    assert_eq!(
        fs::read(mount.path("app/log")).expect("read"),
        b"\0\0\0\0\0more\nat-end"
    );
}

// A sequential reader costs few calls of the broker, whatever the size of its reads.
#[test]
fn reading_on_is_read_ahead() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    mount.broker.append("app/log", &vec![7; 16 << 20]);
    let before = mount.broker.calls(Call::Read);
    let mut file = File::open(mount.path("app/log")).expect("open");
    let (mut buffer, mut total) = (vec![0; 4096], 0);
    let started = Instant::now();
    loop {
        let read = file.read(&mut buffer).expect("read");
        if read == 0 {
            break;
        }
        total += read;
    }
    eprintln!("16 MiB in reads of 4 KiB: {:?}", started.elapsed());
    assert_eq!(total, 16 << 20);
    assert!(mount.broker.calls(Call::Read) - before < 10);
}

// So is one that reads backwards, as tac(1) does.
#[test]
fn reading_backwards_is_read_ahead() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    let content = numbers(1_000_000);
    mount.broker.append("app/log", &content);
    let before = mount.broker.calls(Call::Read);
    let file = File::open(mount.path("app/log")).expect("open");
    let mut end = content.len();
    while end > 0 {
        let begin = (end - 1) / 8192 * 8192;
        let mut buffer = vec![0; end - begin];
        file.read_exact_at(&mut buffer, begin as u64).expect("read");
        assert!(buffer == content[begin..end], "{begin}..{end}");
        end = begin;
    }
    assert!(mount.broker.calls(Call::Read) - before < 20);
}

// After a descriptor is closed nothing is fetched for it any more.
#[test]
fn a_closed_reader_costs_nothing() {
    let Some(mount) = Mount::new() else { return };
    mount.broker.create("app/log");
    mount.broker.append("app/log", &vec![7; 16 << 20]);
    mount.sh_ok("head -c 10 $J/app/log >/dev/null");
    eventually("only the watch is left", || mount.fs.tasks() <= 1);
}

// Pages of a journal at rest are kept. When it grows, by a program here or by others, no reader may
// see the zeros after its old end, whenever it was opened.
#[test]
fn kept_pages_never_hide_growth() {
    use std::io::Write;
    let Some(mount) = Mount::of(FakeBroker::new(), Way::Socket, |_| {}) else {
        return;
    };
    mount.broker.create("app/log");
    let mut content = numbers(1_500);
    mount.broker.append("app/log", &content);
    let path = mount.path("app/log");
    // It is at rest as far as the mount knows, so these have its pages kept.
    let readers: Vec<File> = (0..3).map(|_| File::open(&path).expect("open")).collect();
    assert!(fs::read(&path).expect("read") == content);
    let mut writer = appender(&path);
    for n in 0..300_usize {
        let piece = vec![b'A' + u8::try_from(n % 26).expect("small"); n * 13 % 4999 + 1];
        if n % 3 == 0 {
            mount.broker.append("app/log", &piece);
        } else {
            writer.write_all(&piece).expect("write");
        }
        content.extend_from_slice(&piece);
        let reader = &readers[n % 3];
        let size = usize::try_from(reader.metadata().expect("look").len()).expect("small");
        assert_eq!(size, content.len());
        // From somewhere in the old content to the end.
        let from = content.len().saturating_sub(piece.len() + 6_000);
        let mut tail = vec![0; content.len() - from];
        reader.read_exact_at(&mut tail, from as u64).expect("read");
        assert!(
            tail == content[from..],
            "append {n} is read as it was written"
        );
    }
    for mut reader in readers {
        let mut read = Vec::new();
        reader.read_to_end(&mut read).expect("read");
        assert!(read == content);
    }
}
