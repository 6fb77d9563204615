//! A panic ends the process.

use std::panic;

/// Installs a hook that aborts the process after a panic in any thread or task was printed.
///
/// A task that panicked leaves its half of a protocol undone: a broker whose pipeline is gone
/// would still answer `/debug/ready`. Dying makes the failure visible and recovery start. Release
/// builds abort by profile; this does the same where panics unwind. Programs call it first thing
/// in `main`; tests do not, so that a failed assertion stays one failed test.
pub fn abort_on_panic() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        print(info);
        std::process::abort();
    }));
}
