//! How a daemon is followed that was killed.

use std::{
    fs,
    io::Write,
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::process::Signal;

use crate::harness::{House, Recorder, assert_same, eventually};

const KEPT: &str = "files are those of before";
const REBUILT: &str = "files were rebuilt";

/// Records, with a checkpoint of what was there at the start.
fn record(house: &House) -> Recorder {
    let checkpoint = house.path("dir.work/checkpoint");
    let written = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let before = written(&checkpoint);
    let recorder = house.record("dir", &[]);
    eventually("there is a checkpoint", || {
        written(&checkpoint).is_some_and(|at| Some(at) != before)
    });
    recorder
}

/// Makes some of everything.
fn change(recorder: &Recorder, nth: u32) {
    let at = |name: &str| recorder.file(&format!("{name}-{nth}"));
    fs::create_dir(at("folder")).expect("make");
    fs::write(at("file"), vec![b'x'; 10_000]).expect("write");
    fs::hard_link(at("file"), at("folder").join("link")).expect("link");
    symlink("file", at("symbolic")).expect("link");
    fs::rename(at("folder"), at("renamed")).expect("rename");
    fs::write(recorder.file("always"), format!("content {nth}")).expect("write");
}

#[test]
fn files_are_taken_as_they_are_if_the_log_has_all_of_them() {
    let Some(house) = House::new() else { return };
    let mut recorder = record(&house);
    for nth in 0..3 {
        change(&recorder, nth);
        house.gazfs_ok("flush", &["--wait", "dir"]);
        recorder.kill();
        // Also twice, without a checkpoint between.
        recorder = house.record("dir", &[]);
        assert!(recorder.said.contains(KEPT), "{}", recorder.said);
        recorder.write("after", &format!("a start {nth}"));
        recorder.kill();
        recorder = record(&house);
        assert!(recorder.said.contains(KEPT), "{}", recorder.said);
        assert_same(&recorder.point, &house.recover(&format!("copy-{nth}"), &[]));
    }
    assert_eq!(recorder.end().0, Some(0));
}

#[test]
fn in_doubt_the_log_is_read() {
    let Some(house) = House::new() else { return };
    let recorder = record(&house);
    recorder.write("file", "recorded");
    recorder.kill();
    let state = house.path("dir.work/state.json");
    let text = fs::read_to_string(&state).expect("read");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("read");
    fs::write(&state, text.replace(boot.trim(), "another")).expect("write");
    let recorder = record(&house);
    assert!(recorder.said.contains(REBUILT), "{}", recorder.said);

    // Somebody else recorded meanwhile.
    let other = house.record("other", &[]);
    other.write("file", "by another");
    assert_eq!(other.end().0, Some(0));
    recorder.kill();
    let recorder = record(&house);
    assert!(recorder.said.contains(REBUILT), "{}", recorder.said);
    assert_eq!(recorder.read("file"), "by another");

    recorder.kill();
    let mut checkpoint = fs::read(house.path("dir.work/checkpoint")).expect("read");
    let middle = checkpoint.len() / 2;
    checkpoint[middle] ^= 1;
    fs::write(house.path("dir.work/checkpoint"), checkpoint).expect("write");
    let recorder = house.record("dir", &[]);
    assert!(recorder.said.contains(REBUILT), "{}", recorder.said);
    assert!(!recorder.said.contains("note:"), "{}", recorder.said);
}

/// Leaves a file that the log never got, and the pulse of a daemon that is gone.
fn kill_with_broker_away(house: &House) -> PathBuf {
    let recorder = record(house);
    recorder.write("file", "recorded");
    house.signal_broker(Signal::STOP);
    fs::write(recorder.file("late"), "never recorded").expect("write");
    recorder.kill();
    house.signal_broker(Signal::CONT);
    house.path("dir.work/pulse")
}

#[test]
fn it_is_the_pulse_that_tells_of_what_the_log_never_got() {
    let Some(house) = House::new() else { return };
    kill_with_broker_away(&house);
    let recorder = record(&house);
    assert!(recorder.said.contains("unrecorded-"), "{}", recorder.said);
    assert!(!recorder.file("late").exists());
    assert_eq!(recorder.end().0, Some(0));

    // One that forgot to tell: what was never recorded is there, and in no log.
    let pulse = kill_with_broker_away(&house);
    let recorded_at = 3 * 8;
    let file = fs::OpenOptions::new().write(true).open(pulse);
    let file = file.expect("open the pulse");
    file.write_all_at(&[0; 8], recorded_at).expect("forget");
    let recorder = house.record("dir", &[]);
    assert!(recorder.said.contains(KEPT), "{}", recorder.said);
    assert!(house.path("dir.work/tree/late").exists());
    assert!(!house.recover("copy", &[]).join("late").exists());
}

#[test]
fn after_a_kill_at_any_moment_the_files_are_what_the_log_says() {
    let Some(house) = House::new() else { return };
    let mut kept = 0;
    let mut recorder = record(&house);
    for nth in 0..6_u64 {
        let ends = AtomicBool::new(false);
        let point = recorder.point.clone();
        std::thread::scope(|scope| {
            for writer in 0..2_u64 {
                let (point, ends) = (&point, &ends);
                scope.spawn(move || write_until(point, writer, ends));
            }
            std::thread::sleep(Duration::from_millis(200 + nth * 37));
            recorder.kill();
            ends.store(true, Ordering::Relaxed);
        });
        recorder = record(&house);
        kept += u32::from(recorder.said.contains(KEPT));
        assert_same(&recorder.point, &house.recover(&format!("copy-{nth}"), &[]));
    }
    eprintln!("the files were taken as they were {kept} times of 6");
    assert_eq!(recorder.end().0, Some(0));
}

/// Changes files until the mount is dead.
fn write_until(point: &Path, writer: u64, ends: &AtomicBool) {
    let mut nth = 0_u64;
    while !ends.load(Ordering::Relaxed) {
        nth += 1;
        let path = point.join(format!("{writer}-{}", nth % 7));
        let done = fs::File::create(&path).and_then(|mut file| {
            file.write_all(&nth.to_le_bytes())?;
            if nth.is_multiple_of(5) {
                file.sync_all()?;
            }
            file.write_all(&[b'y'; 5000])
        });
        let other = point.join(format!("{writer}-moved"));
        if done.and_then(|()| fs::rename(&path, &other)).is_err() {
            return;
        }
    }
}
