//! Calls of the disk that fail, and disks that are full.

use std::io;

use super::{model::World, *};
use crate::disk::{Crash, OpenMode};

const STEPS: usize = 200;

fn calls(seed: u64) -> u64 {
    let mut world = World::new(seed, options(), Planted::default());
    world.open().unwrap();
    world.run(STEPS);
    world.disk.calls()
}

#[test]
fn what_was_acknowledged_survives_the_failure_of_any_call() {
    let mut broken = 0;
    for kind in [io::ErrorKind::Other, io::ErrorKind::StorageFull] {
        for call in 0..calls(5) {
            let mut world = World::new(5, options(), Planted::default());
            world.disk.fail_at(call, kind);
            if world
                .open_or_fail()
                .unwrap_or_else(|err| panic!("call {call}: {err:.2000}"))
            {
                world.run(STEPS);
                broken += usize::from(world.is_broken());
            }
            world.crash(Crash::PowerCut { seed: call });
            world
                .open()
                .unwrap_or_else(|err| panic!("call {call}: {err:.2000}"));
            world.run(20);
            world.settle();
            assert!(world.is_settled() && !world.is_broken());
        }
    }
    assert!(broken > 50, "only {broken} failures broke the log");
}

#[test]
fn a_failed_sync_of_the_log_is_final() {
    let disk = SimDisk::new();
    let (mut manual, _) = Manual::open(&options(), &disk, Planted::default()).unwrap();
    let failed = manual.log.failed();
    assert!(failed.borrow().is_none());
    let journal = manual.log.open_journal("some/journal", 1);
    let spool = journal.create_spool(0);
    let first = append(&journal, &spool, 0, b"first");
    let second = append(&journal, &spool, 5, b"second");
    // The next calls are the write of the log and its sync.
    disk.fail_at(disk.calls() + 1, io::ErrorKind::Other);
    manual.round();
    for ack in [
        first,
        second,
        append(&journal, &spool, 11, b"third"),
        journal.forget(),
    ] {
        let err = ack.wait().unwrap_err();
        assert_eq!(
            err.to_string(),
            "write-ahead log is broken: sync /wal/0000000000000001.wal: other error; \
             next: mend the disk and restart the broker"
        );
    }
    assert_eq!(failed.borrow().as_ref().unwrap().operation, "sync");
}

#[test]
fn a_full_disk_fails_the_writer_and_nothing_else() {
    let options = Options {
        segments: 8,
        ..options()
    };
    let disk = SimDisk::new();
    let (mut manual, _) = Manual::open(&options, &disk, Planted::default()).unwrap();
    let journal = manual.log.open_journal("some/journal", 1);
    let spool = journal.create_spool(0);
    append(&journal, &spool, 0, &[1; 10])
        .wait_for(&mut manual)
        .unwrap();

    disk.set_free_bytes(Some(0));
    let err = spool.write_at(10, b"more").unwrap_err();
    assert_eq!(err.kind(), io::ErrorKind::StorageFull);
    // Registers are recorded all the same, as often as one likes: the log has its room, and no
    // other segment is made.
    for _ in 0..2000 {
        append(&journal, &spool, 10, &[])
            .wait_for(&mut manual)
            .unwrap();
    }
    assert_eq!(segment_files(&disk).len(), 3);

    disk.set_free_bytes(None);
    append(&journal, &spool, 10, b"more")
        .wait_for(&mut manual)
        .unwrap();
    let disk = disk.restart(Crash::PowerCut { seed: 1 });
    let (_, recovered) = Manual::open(&options, &disk, Planted::default()).unwrap();
    assert_eq!(recovered[0].end, 14);
}

#[test]
fn commits_wait_for_a_free_segment_and_do_not_fail() {
    let disk = SimDisk::new();
    let (mut manual, _) = Manual::open(&options(), &disk, Planted::default()).unwrap();
    let journal = manual.log.open_journal("some/journal", 1);
    let spool = journal.create_spool(0);
    let acks: Vec<Ack> = (0..60)
        .map(|number| append(&journal, &spool, number * 3000, &[1; 3000]))
        .collect();
    // No helper syncs the spool, so no segment becomes free.
    for _ in 0..100 {
        manual.round();
    }
    let mut waiting = 0;
    let mut rest = Vec::new();
    for mut ack in acks {
        if let Ok(result) = ack.0.try_recv() {
            result.unwrap();
            assert_eq!(waiting, 0, "acknowledgements are in order");
        } else {
            waiting += 1;
            rest.push(ack);
        }
    }
    assert!(waiting > 20, "only {waiting} wait");
    manual.settle();
    for ack in rest {
        ack.wait().unwrap();
    }
}

#[test]
fn a_log_grows_where_its_state_needs_it() {
    let disk = SimDisk::new();
    let (mut manual, _) = Manual::open(&options(), &disk, Planted::default()).unwrap();
    let mut journals = Vec::new();
    for number in 0..1000 {
        let journal = manual
            .log
            .open_journal(&format!("some/journal/{number}"), 1);
        let spool = journal.create_spool(0);
        append(&journal, &spool, 0, b"content")
            .wait_for(&mut manual)
            .unwrap();
        journals.push((journal, spool));
    }
    let files = segment_files(&disk).len();
    assert!(
        (5..30).contains(&files),
        "{files} segments for about 150 KiB of states"
    );
    let disk = disk.restart(Crash::PowerCut { seed: 7 });
    let (mut manual, recovered) = Manual::open(&options(), &disk, Planted::default()).unwrap();
    assert_eq!(recovered.len(), 1000);
    // And shrinks when they are gone.
    for found in recovered {
        found.journal.forget().wait_for(&mut manual).unwrap();
    }
    let disk = disk.restart(Crash::Kill);
    let (manual, recovered) = Manual::open(&options(), &disk, Planted::default()).unwrap();
    assert_eq!(recovered.len(), 0);
    drop(manual);
    let disk = disk.restart(Crash::Kill);
    drop(Manual::open(&options(), &disk, Planted::default()).unwrap());
    assert!(
        segment_files(&disk).len() <= 4,
        "{}",
        segment_files(&disk).len()
    );
}

#[test]
fn too_many_registers_are_refused() {
    let disk = SimDisk::new();
    let (mut manual, _) = Manual::open(&options(), &disk, Planted::default()).unwrap();
    let journal = manual.log.open_journal("some/journal", 1);
    let spool = journal.create_spool(0);
    let label = gazette_protocol::Label {
        name: "name".to_owned(),
        value: "x".repeat(crate::RECORD_MAX_BYTES),
        ..gazette_protocol::Label::default()
    };
    let commit = Commit {
        spool: spool.clone(),
        fragment: Fragment::default(),
        append_begin: 0,
        registers: Arc::new(LabelSet {
            labels: vec![label],
        }),
        first_append: None,
        content: Content::Inline(Vec::new()),
    };
    let err = journal.commit(commit).wait().unwrap_err();
    assert!(matches!(err, LogError::TooLarge { .. }), "{err}");
    append(&journal, &spool, 0, b"content")
        .wait_for(&mut manual)
        .unwrap();
}

#[test]
fn damage_to_a_spool_is_named_and_costs_nothing_else() {
    let disk = SimDisk::new();
    let (mut manual, _) = Manual::open(&options(), &disk, Planted::default()).unwrap();
    let hurt = manual.log.open_journal("hurt/journal", 1);
    let spool = hurt.create_spool(0);
    append(&hurt, &spool, 0, &vec![1; 100_000])
        .wait_for(&mut manual)
        .unwrap();
    append(&hurt, &spool, 100_000, b"end")
        .wait_for(&mut manual)
        .unwrap();
    let path = spool.path().to_path_buf();
    let rest = path.with_extension("spool.rest");
    let well = manual.log.open_journal("well/journal", 2);
    let other = well.create_spool(0);
    append(&well, &other, 0, b"well")
        .wait_for(&mut manual)
        .unwrap();

    // The first time the log has the end yet; later it does not, and has to be kept elsewhere.
    let mut disk = disk.restart(Crash::Kill);
    disk.damage(&path, vec![1; 99_999]).unwrap();
    for _ in 0..3 {
        disk = disk.restart(Crash::Kill);
        let (mut manual, journals) = Manual::open(&options(), &disk, Planted::default()).unwrap();
        let [hurt, well] = <[_; 2]>::try_from(journals).unwrap();
        assert_eq!(
            hurt.spools[0].damage.as_ref().unwrap().to_string(),
            "recover /spools/0000000000000002.spool at byte 99999 (journal hurt/journal): the \
             spool is 99999 bytes long, 100003 were acknowledged; next: restore the data folder \
             from a copy, or move it away to start empty; content that is in a fragment store is \
             safe there"
        );
        assert_eq!(disk.read(&path).unwrap().len(), 99_999);
        assert!(disk.read(&rest).unwrap().ends_with(b"end"));
        assert_eq!(well.spools[0].damage, None);
        let spool = &well.spools[0].file;
        let at = usize::try_from(well.end).unwrap();
        for more in 0..100 {
            append(&well.journal, spool, at + more * 1000, &[2; 1000])
                .wait_for(&mut manual)
                .unwrap();
        }
    }

    disk = disk.restart(Crash::PowerCut { seed: 1 });
    disk.unlink(&path).unwrap();
    let (_, journals) = Manual::open(&options(), &disk, Planted::default()).unwrap();
    let damage = journals[0].spools[0].damage.as_ref().unwrap();
    assert!(
        damage
            .to_string()
            .contains(": the spool is missing, 100003 bytes of it were"),
        "{damage}"
    );

    // A copy of before the last append is enough.
    disk = disk.restart(Crash::Kill);
    let file = disk.open(&path, OpenMode::Create).unwrap();
    file.write_at(0, &[io::IoSlice::new(&vec![1; 100_000])])
        .unwrap();
    file.sync_data().unwrap();
    let (_, journals) = Manual::open(&options(), &disk, Planted::default()).unwrap();
    assert_eq!(journals[0].spools[0].damage, None);
    let mended = disk.restart(Crash::PowerCut { seed: 2 });
    assert_eq!(
        mended.read(&path).unwrap(),
        [&vec![1; 100_000][..], b"end"].concat()
    );
    assert!(mended.read(&rest).is_err());
}

#[test]
fn spools_that_are_all_gone_are_no_damage_of_one() {
    let disk = SimDisk::new();
    let (mut manual, _) = Manual::open(&options(), &disk, Planted::default()).unwrap();
    let journal = manual.log.open_journal("some/journal", 1);
    let spool = journal.create_spool(0);
    append(&journal, &spool, 0, &vec![1; 100_000])
        .wait_for(&mut manual)
        .unwrap();
    let disk = disk.restart(Crash::Kill);
    disk.unlink(spool.path()).unwrap();
    let err = Manual::open(&options(), &disk, Planted::default())
        .err()
        .unwrap();
    assert!(
        err.to_string()
            .contains(": the spool is missing, 100000 bytes of it were"),
        "{err}"
    );
}

#[test]
fn spools_without_a_log_are_not_removed() {
    let disk = SimDisk::new();
    let (mut manual, _) = Manual::open(&options(), &disk, Planted::default()).unwrap();
    let journal = manual.log.open_journal("some/journal", 1);
    let spool = journal.create_spool(0);
    append(&journal, &spool, 0, b"content")
        .wait_for(&mut manual)
        .unwrap();
    let disk = disk.restart(Crash::Kill);
    for (path, _) in segment_files(&disk) {
        disk.unlink(&path).unwrap();
    }
    let err = Manual::open(&options(), &disk, Planted::default())
        .err()
        .unwrap();
    assert_eq!(
        err.to_string(),
        "recover /wal at byte 0: there is no log, but there are 1 spools that it should know; \
         next: put the folder of the log back, or move the spools away to start without them"
    );
    assert!(disk.read(spool.path()).is_ok());
}

#[test]
fn an_unsynced_log_survives_a_kill() {
    let mut options = options();
    options.durability = crate::Durability::Replicated;
    for seed in 0..30 {
        let mut world = World::new(seed, options.clone(), Planted::default());
        world.disk.crash_at(seed * 11);
        world.open().unwrap();
        world.run(STEPS);
        world.crash(Crash::Kill);
        world.open().unwrap();
    }
}

#[test]
fn an_unsynced_log_opens_or_tells_after_a_power_cut() {
    let mut options = options();
    options.durability = crate::Durability::Replicated;
    let mut opened = 0;
    for seed in 0..60 {
        let mut world = World::new(seed, options.clone(), Planted::default());
        world.open().unwrap();
        world.run(STEPS);
        world.crash(Crash::PowerCut { seed });
        match Manual::open(&options, &world.disk, Planted::default()) {
            Ok(_) => opened += 1,
            Err(err) => assert!(matches!(err, OpenError::Corrupt(_)), "{err}"),
        }
    }
    assert!(opened > 0);
}
