//! Crashes at any moment.

use super::{model::World, *};
use crate::{
    disk::Crash,
    format::{HeaderState, SegmentHeader},
};

/// One history with crashes: at a call of the first process, and at others of the later ones.
fn history(seed: u64, crash_at: u64, planted: Planted) -> Result<World, String> {
    let mut world = World::new(seed, options(), planted);
    world.disk.crash_at(crash_at);
    world.open()?;
    world.run(STEPS);
    for round in 0..4 {
        let seed = seed
            .wrapping_mul(31)
            .wrapping_add(crash_at)
            .wrapping_mul(31)
            + round;
        let crash = if seed.is_multiple_of(3) {
            Crash::Kill
        } else {
            Crash::PowerCut { seed }
        };
        world.crash(crash);
        // Some of these crash while the log is opened.
        world
            .disk
            .crash_at(if round == 3 { u64::MAX } else { seed % 97 });
        world.open()?;
        world.run(STEPS / 4);
    }
    Ok(world)
}

const STEPS: usize = 400;

/// Calls of the disk in the first process of a history.
fn calls(seed: u64) -> u64 {
    let mut world = World::new(seed, options(), Planted::default());
    world.open().unwrap();
    world.run(STEPS);
    world.disk.calls()
}

#[test]
fn what_was_acknowledged_survives_a_crash_at_every_call() {
    let (seed, mut acknowledged) = (0, 0);
    for crash_at in 0..calls(seed) {
        match history(seed, crash_at, Planted::default()) {
            Ok(world) => acknowledged += world.acknowledged,
            Err(err) => panic!("seed {seed}, crash at {crash_at}: {err:.2000}"),
        }
    }
    assert!(acknowledged > 1000, "only {acknowledged} were acknowledged");
}

#[test]
fn segments_are_used_again_and_again() {
    let mut world = World::new(1, options(), Planted::default());
    world.open().unwrap();
    world.run(4 * STEPS);
    let files = segment_files(&world.disk);
    let generations = files.iter().filter_map(|(_, bytes)| {
        let HeaderState::Valid(header) = SegmentHeader::decode(bytes) else {
            return None;
        };
        Some(header.generation)
    });
    assert!(
        generations.max() > Some(8),
        "the histories of these tests are long enough"
    );
    assert!(files.len() <= 4, "the log does not grow: {}", files.len());
}

#[test]
fn what_was_acknowledged_survives_random_crashes() {
    for seed in 1000..1100 {
        if let Err(err) = history(seed, seed * 7 % 500, Planted::default()) {
            panic!("seed {seed}: {err:.2000}");
        }
    }
}

#[test]
#[ignore = "takes as long as one likes: SEEDS=from..to"]
fn what_was_acknowledged_survives_more_random_crashes() {
    let range = std::env::var("SEEDS").unwrap_or_default();
    let (from, to) = range.split_once("..").unwrap_or(("2000", "4000"));
    for seed in from.parse::<u64>().unwrap()..to.parse().unwrap() {
        if let Err(err) = history(seed, seed * 7919 % 800, Planted::default()) {
            panic!("seed {seed}: {err:.2000}");
        }
    }
}

/// The number of histories of sixty in which a planted fault shows.
fn noticed(planted: Planted) -> usize {
    (0..60)
        .filter(|seed| history(*seed, 20 + seed * 7, planted).is_err())
        .count()
}

#[test]
fn nothing_is_noticed_without_a_fault() {
    assert_eq!(noticed(Planted::default()), 0);
}

#[test]
fn a_missing_sync_of_the_log_is_noticed() {
    assert!(
        noticed(Planted {
            no_log_sync: true,
            ..Planted::default()
        }) > 0
    );
}

#[test]
fn a_missing_sync_of_a_spool_is_noticed() {
    assert!(
        noticed(Planted {
            no_spool_sync: true,
            ..Planted::default()
        }) > 0
    );
}

#[test]
fn a_missing_sync_of_a_folder_is_noticed() {
    assert!(
        noticed(Planted {
            no_dir_sync: true,
            ..Planted::default()
        }) > 0
    );
}

#[test]
fn a_missing_check_of_records_is_noticed() {
    assert!(
        noticed(Planted {
            no_record_check: true,
            ..Planted::default()
        }) > 0
    );
}

#[test]
fn all_is_there_after_the_log_was_idle() {
    for seed in 0..20 {
        let mut world = World::new(seed, options(), Planted::default());
        world.open().unwrap();
        world.run(STEPS);
        world.settle();
        assert!(world.is_settled());
        world.idle();
        world.crash(Crash::PowerCut { seed });
        world.open().unwrap();
    }
}
