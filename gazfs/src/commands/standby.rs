//! `gazfs standby`

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Args;
use gazette_process::ExitStatus;
use tokio_util::sync::CancellationToken;

use super::{
    notify,
    progress::Meter,
    record::{report, show_start},
    recording_args::{BrokerArgs, RecordingArgs, access},
    run::supervise,
    say, say_error,
    transport::TransportArgs,
};
use crate::{
    mount::Control,
    recording::{Outcome, RecordingError, StandbyOptions, Waiting},
    supervise::Signals,
};

#[derive(Debug, Args)]
#[command(after_help = "\
It has all that the owner recorded, milliseconds later, and verifies it. When it takes over, the log is
its own from one append on: every later change of the old owner fails with EIO. Then the directory is
mounted, and the program started. Any number of standbys may wait; one of them wins.

It takes over when `gazfs handoff` asks for it, and by itself with --takeover-after. That time runs
only while this standby reads the end of the log and nothing comes: one that is cut off does not take
over. An owner who is idle marks the log each second while a standby watches.

Exit codes: 0 ended while it waited; after it took over, those of `gazfs run` and `gazfs record`: 4
fenced or handed over; 75 try later.

Examples:
  gazfs standby --log recovery/app /srv/app
  gazfs standby --log recovery/app /srv/app --takeover-after 10s -- myserver --data /srv/app
  gazfs standby --log recovery/app /srv/app --read-only-mount")]
pub(super) struct StandbyArgs {
    /// Empty directory that becomes the recorded one
    mountpoint: PathBuf,

    /// Show the copy at the mount point while it waits, to be read
    #[arg(long)]
    read_only_mount: bool,

    /// Take over by itself when the owner was silent for so long while the broker answered
    #[arg(long, value_name = "DURATION", value_parser = parse_takeover_after)]
    takeover_after: Option<Duration>,

    #[command(flatten)]
    broker: BrokerArgs,

    #[command(flatten)]
    recording: RecordingArgs,

    #[command(flatten)]
    transport: TransportArgs,

    /// The program that is started after it took over, and its arguments, after `--`
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(super) async fn run(args: StandbyArgs) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::take().context("watch for signals")?;
    let options = args.recording.options(&args.mountpoint)?;
    let client = args.broker.connect()?;
    let mount = args.transport.options(access());
    let how = StandbyOptions {
        takeover_after: args.takeover_after,
        shows_copy: args.read_only_mount.then_some(mount),
    };
    let control = Control::listen().context("listen for gazfs umount")?;
    let mut is_told = false;
    let (recording, handoff) = loop {
        let stop = CancellationToken::new();
        let waited = async {
            let meter = Meter::new();
            let show = meter.clone();
            let started = Waiting::start(&client, options.clone(), how, &stop, move |progress| {
                show_start(&show, progress);
            });
            let started = started.await;
            meter.clear();
            let waiting = started?;
            if !std::mem::replace(&mut is_told, true) {
                say(&waiting.announcement(&args.broker.broker));
                if args.command.is_empty() {
                    say(&format!(
                        "end it with: gazfs umount {}\n",
                        args.mountpoint.display()
                    ));
                }
            }
            // It does what it is for: it need not own the log.
            notify::ready("standing by");
            waiting.wait(&control, &stop).await
        };
        tokio::pin!(waited);
        let outcome = tokio::select! {
            biased;
            outcome = &mut waited => outcome,
            _ = signals.next_end() => {
                stop.cancel();
                waited.await
            }
        };
        match outcome {
            Ok(Outcome::Promoted {
                recording,
                handoff,
                why,
            }) => {
                say_error(&format!("took the log over: {why}"));
                break (*recording, handoff);
            }
            Ok(Outcome::Ended(asked)) => {
                notify::stopping();
                drop(asked);
                return Ok(ExitStatus::Done.into());
            }
            Ok(Outcome::Anew(cause)) => {
                say_error(&format!("the copy is made anew: {cause}"));
            }
            Err(_) if stop.is_cancelled() => return Ok(ExitStatus::Done.into()),
            Err(error) if may_be_mended(&error) => say_error(&format!("error: {error}")),
            Err(error) => return Err(error.into()),
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
            _ = signals.next_end() => return Ok(ExitStatus::Done.into()),
        }
    };
    let mounted = match recording.mount(mount) {
        Ok(mounted) => mounted,
        Err(error) => {
            recording.end().await;
            return Err(error.into());
        }
    };
    for note in recording.notes() {
        say_error(&format!("note: {note}"));
    }
    if !args.command.is_empty() {
        let started = |recording: &crate::recording::Recording| recording.tell_serving(handoff);
        return supervise(
            recording,
            mounted,
            &control,
            &args.command,
            signals,
            started,
        )
        .await;
    }
    recording.tell_serving(handoff);
    say(&recording.announcement(&args.broker.broker));
    notify::ready("recording");
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let ends = tokio::spawn(async move {
        signals.next_end().await;
        stopping.cancel();
    });
    let ended = recording.serve(mounted, &control, &stop, None).await;
    ends.abort();
    notify::stopping();
    Ok(report(&ended).into())
}

/// Whether a new copy may be better: the log may be being taken over, or its brokers be away.
fn may_be_mended(error: &RecordingError) -> bool {
    error.is_temporary() || matches!(error, RecordingError::Recover(_))
}

fn parse_takeover_after(text: &str) -> Result<Duration, String> {
    let after = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if after < TAKEOVER_AFTER_MIN {
        return Err("expected 2s or more: an idle owner marks the log each second".to_owned());
    }
    Ok(after)
}

/// Two marks of an idle owner.
const TAKEOVER_AFTER_MIN: Duration = Duration::from_secs(2);
/// Before a new copy is made.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
