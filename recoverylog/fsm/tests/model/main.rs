//! Random sequences of file operations, recorded, and compared with a naive model at every prefix.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking, and its numbers are small"
)]

mod base_reader;
mod files;
mod real;
mod run;

use gazette_recoverylog_fsm::Mode;
use proptest::prelude::*;
use run::{Step, run, run_really};

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (any::<u8>(), any::<[u8; 4]>(), 0..50_000u32, 1..9_000u32);
    let step = step.prop_map(|(kind, picks, offset, length)| Step {
        kind,
        picks,
        offset,
        length,
    });
    proptest::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn native_logs_say_what_happened_at_every_prefix(steps in steps()) {
        run(Mode::Native, &steps);
    }

    #[test]
    fn compat_logs_say_what_happened_at_every_prefix(steps in steps()) {
        run(Mode::Compat, &steps);
    }

    #[test]
    fn the_model_is_as_a_real_directory(steps in steps()) {
        run_really(&steps);
    }
}
