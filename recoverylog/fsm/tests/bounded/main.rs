//! Random workloads with a cleaner and a pruner: what hints leave out and what was pruned is never
//! needed, and the log stays within its bounds.

#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking, and its numbers are small"
)]

mod workload;
mod world;

use proptest::prelude::*;
use workload::{Kind, run};
use world::{Fault, Settings, World};

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_that_hints_name_is_all_that_is_needed(seed in any::<u64>(), chunk in 9..15u32, clean in any::<bool>()) {
        let settings = Settings { chunk_bytes: 1 << chunk, cleans: clean, repeats: !clean, ..Settings::default() };
        run(&mut World::new(settings), Kind::Everything, seed, 120);
    }

    #[test]
    fn what_was_pruned_is_not_needed(seed in any::<u64>(), keeps in any::<bool>()) {
        let settings = Settings { prunes: true, keeps, ..Settings::default() };
        run(&mut World::new(settings), Kind::Everything, seed, 160);
    }

    #[test]
    fn successors_know_what_is_live(seed in any::<u64>(), prunes in any::<bool>()) {
        let settings = Settings { prunes, takes_over: true, ..Settings::default() };
        run(&mut World::new(settings), Kind::Everything, seed, 160);
    }
}

/// What random runs came upon once.
#[test]
fn runs_that_failed_before_do_not_fail_again() {
    let pruned = Settings {
        prunes: true,
        ..Settings::default()
    };
    // Whether a block of zeros is a hole depends on what was left out.
    run(
        &mut World::new(pruned.clone()),
        Kind::Everything,
        9_733_512_629_498_249_344,
        160,
    );
    // A range that is zeroed made a file longer only where an op before it was left out.
    let settings = Settings {
        takes_over: true,
        repeats: true,
        chunk_bytes: 512,
        ..pruned
    };
    run(
        &mut World::new(settings),
        Kind::Everything,
        9_579_031_209_657_441_574,
        160,
    );
}

#[test]
fn the_log_stays_within_its_bounds_under_every_workload() {
    for (kind, steps) in [
        (Kind::RewriteInPlace, 2000),
        (Kind::RewriteHotPart, 1500),
        (Kind::RewriteLittle, 1500),
        (Kind::AppendSmall, 2000),
        (Kind::Truncate, 1000),
        (Kind::SmallFiles, 1500),
        (Kind::RenameForEver, 1500),
        (Kind::Everything, 1200),
    ] {
        let settings = Settings {
            prunes: true,
            replay_every: 101,
            within_bounds: true,
            ..Settings::default()
        };
        let mut world = World::new(settings);
        run(&mut world, kind, 7, steps);
        println!("{kind:?}: {}", world.report());
    }
}

#[test]
fn planted_faults_are_found() {
    for fault in [
        Fault::Zeros,
        Fault::Mtime,
        Fault::Size,
        Fault::Parts,
        Fault::Attributes,
        Fault::Names,
        Fault::OlderPages,
        Fault::PruneAll,
    ] {
        let fails = |kind, seed, steps| {
            let settings = Settings {
                fault: Some(fault),
                prunes: true,
                chunk_bytes: 2048,
                repeats: true,
                replay_every: 7,
                ..Settings::default()
            };
            let run = || run(&mut World::new(settings), kind, seed, steps);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
        };
        let mut found = fails(Kind::RewriteLittle, 3, 300);
        for seed in 0..20 {
            found = found || fails(Kind::Everything, seed, 200);
        }
        assert!(found, "{fault:?} was not found");
    }
}
