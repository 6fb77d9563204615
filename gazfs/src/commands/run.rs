//! `gazfs run`

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Args;
use gazette_process::ExitStatus;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    notify,
    progress::Meter,
    record::{Opened, open, report, show_start},
    recording_args::{BrokerArgs, RecordingArgs, access},
    say_error,
    transport::TransportArgs,
};
use crate::{
    mount::{Control, Mounted},
    recording::Recording,
    supervise::{Program, Signals, namespace},
};

#[derive(Debug, Args)]
#[command(after_help = "\
The program starts when the directory is mounted, is given the signals that this one gets, and its
exit code is ours. When it has ended, all that it did is flushed to the log first. Without privilege
the mount is in a new user and mount namespace, where the program sees it and nobody else does; the
user stays who he is. Where that is not allowed, fusermount3 mounts.

Exit codes: that of the program; 1 something failed, or not all reached the log; 4 refused or fenced:
somebody else records, and the program was ended; 75 try later; 126 and 127 the program could not be started.

Examples:
  gazfs run --log recovery/app data -- sqlite3 data/app.db 'select 1'
  gazfs run --log recovery/pg pg -- sh -c 'initdb -D pg/db && postgres -D pg/db'")]
pub(super) struct RunArgs {
    /// Empty directory that becomes the recorded one
    mountpoint: PathBuf,

    #[command(flatten)]
    broker: BrokerArgs,

    #[command(flatten)]
    recording: RecordingArgs,

    #[command(flatten)]
    transport: TransportArgs,

    /// The program and its arguments, after `--`
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Moves into a namespace where we may mount, unless we may do so already. Must be called while
/// this process has one thread.
pub(super) fn enter_namespace() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    if let Err(error) = namespace::enter() {
        tracing::info!(err = %error, "no user namespace; mounting by fusermount3");
    }
}

pub(super) async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::take().context("watch for signals")?;
    let options = args.recording.options(&args.mountpoint)?;
    let client = args.broker.connect()?;
    let stop = CancellationToken::new();
    let meter = Meter::new();
    let show = meter.clone();
    let start = Recording::start(&client, options, &stop, move |progress| {
        show_start(&show, progress);
    });
    let started = tokio::select! {
        biased;
        started = start => started,
        _ = signals.next_end() => {
            say_error("error: run: asked to end before the directory was there");
            return Ok(ExitStatus::TryLater.into());
        }
    };
    meter.clear();
    let opened = match open(started, args.transport.options(access())).await? {
        Opened::Yes(opened) => opened,
        Opened::Not(status) => return Ok(status.into()),
    };
    let (recording, mounted, control) = *opened;
    tracing::info!(transport = %mounted.transport(), "mounted");
    for note in recording.notes() {
        say_error(&format!("note: {note}"));
    }
    supervise(recording, mounted, &control, &args.command, signals, |_| {}).await
}

/// Runs a program in a recorded directory until it ends, the log is not ours any more, or is handed over.
pub(super) async fn supervise(
    recording: Recording,
    mounted: Mounted,
    control: &Control,
    command: &[OsString],
    mut signals: Signals,
    started: impl FnOnce(&Recording),
) -> anyhow::Result<ExitCode> {
    let stop = CancellationToken::new();
    let lost = recording.lost();
    let (drain, mut drains) = mpsc::channel::<oneshot::Sender<Result<(), String>>>(1);
    let first = match Program::start(command) {
        Ok(program) => {
            notify::ready("recording");
            started(&recording);
            Ok(program)
        }
        Err(error) => Err(error),
    };
    let program = async {
        let mut program = match first {
            Ok(program) => program,
            Err(error) => {
                let name = command.first().map(|name| name.to_string_lossy());
                say_error(&format!(
                    "error: start {}: {error}; next: check its name and PATH",
                    name.unwrap_or_default()
                ));
                stop.cancel();
                return Ok(not_started(&error));
            }
        };
        tokio::pin!(lost);
        let ended = loop {
            tokio::select! {
                biased;
                ended = program.wait(&mut signals) => break ended,
                () = &mut lost => {
                    say_error("the log is not ours any more: ending the program");
                    break program.end().await;
                }
                Some(answer) = drains.recv() => {
                    let Some(ended) = program.end_within(DRAIN_WITHIN).await else {
                        let within = DRAIN_WITHIN.as_secs();
                        let cause = format!("the program did not end within {within} s of a TERM signal");
                        // Whoever asked may be gone.
                        drop(answer.send(Err(cause)));
                        continue;
                    };
                    drop(answer.send(Ok(())));
                    // The log is released before the mount goes away.
                    lost.await;
                    break ended;
                }
            }
        };
        notify::stopping();
        stop.cancel();
        ended
    };
    // Questions are answered while the program runs.
    let (code, ended) = tokio::join!(
        program,
        recording.serve(mounted, control, &stop, Some(&drain))
    );
    let code = code.context("wait for the program")?;
    let status = report(&ended);
    let is_bad = status == ExitStatus::Failed && code == 0;
    Ok(if status == ExitStatus::Fenced || is_bad {
        status.into()
    } else {
        code.into()
    })
}

/// How long a program may take to end before a hand-off is called off.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// The codes of shells.
fn not_started(error: &std::io::Error) -> u8 {
    if error.kind() == std::io::ErrorKind::NotFound {
        127
    } else {
        126
    }
}
