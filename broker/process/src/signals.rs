//! SIGTERM and SIGINT ask the process to end; the second one ends it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::tasks;

/// Installs the handlers and returns the token that the first signal cancels.
///
/// From the second signal on the process does not wait for anything: it ends at once, with the
/// code that a shell gives a process ended by that signal.
///
/// # Errors
///
/// If a handler cannot be installed.
pub fn shutdown_token() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancel = token.clone();
    let watch = async move {
        let first = next(&mut terminate, &mut interrupt).await;
        tracing::info!(signal = first, "asked to end");
        cancel.cancel();
        let second = next(&mut terminate, &mut interrupt).await;
        tracing::warn!(
            signal = second,
            "asked to end again; not waiting any longer"
        );
        end(second);
    };
    tasks::spawn_for_life(watch);
    Ok(token)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> i32 {
    tokio::select! {
        biased;
        _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
        _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
    }
}

#[expect(
    clippy::exit,
    reason = "the user asked twice; what is left is recovered at the next start"
)]
fn end(signal: i32) -> ! {
    std::process::exit(128 + signal)
}
