//! Mounts a file system that forgets what was not synced, until it is told to end.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use gazette_tests::forgetful::{self, Guard, Options};
use tokio::signal::unix::{SignalKind, signal};

/// Mounts a file system that forgets what was not synced.
///
/// SIGUSR1 cuts its power: every call fails from then on, and what survived is written to the folder of
/// `--survivors`. SIGINT and SIGTERM unmount it.
#[derive(Debug, Parser)]
#[command(name = "forgetful")]
struct Arguments {
    /// Folder on which to mount
    mount_point: PathBuf,
    /// Folder whose content is there from the start; it is not changed
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Empty folder for what survives the power cut
    #[arg(long, value_name = "DIR")]
    survivors: Option<PathBuf>,
    /// Let a part of what was not synced survive, which this number decides
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("start the runtime")?;
    runtime.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // Before the mount, so that no signal is lost once it can be seen.
    let mut cut = signal(SignalKind::user_defined1())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;

    let options = Options {
        from: arguments.from.clone(),
        write_back_seed: arguments.seed,
        sync_time: Duration::ZERO,
    };
    let mount_point = &arguments.mount_point;
    let guard = forgetful::mount_with(mount_point, &options)
        .with_context(|| format!("mount {}", mount_point.display()))?;
    say(&format!("mounted {}", mount_point.display()))?;

    let mut is_cut = false;
    loop {
        tokio::select! {
            biased;
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = cut.recv() => {
                if !is_cut {
                    cut_power(&guard, arguments)?;
                    is_cut = true;
                }
            }
        }
    }
    guard.unmount().context("unmount")
}

fn cut_power(guard: &Guard, arguments: &Arguments) -> anyhow::Result<()> {
    match arguments.seed {
        Some(seed) => guard.cut(seed)?,
        None => guard.cut_strictly()?,
    }
    if let Some(folder) = &arguments.survivors {
        guard
            .survivors(folder)
            .with_context(|| format!("write survivors to {}", folder.display()))?;
    }
    say("cut")
}

/// Prints a line for the process that waits for it.
fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .context("print")
}
