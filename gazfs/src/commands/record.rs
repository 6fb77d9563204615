//! `gazfs record`

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use gazette_process::{ExitStatus, signals};

use super::{
    notify,
    progress::Meter,
    recording_args::{BrokerArgs, RecordingArgs, access},
    say, say_error,
    transport::{TransportArgs, announcement},
};
use crate::{
    mount::{Control, MountOptions, Mounted},
    recording::{Ended, Progress, Recording, RecordingError},
};

#[derive(Debug, Args)]
#[command(after_help = "\
Promised: an fsync(2) that returned is in the log, and is as safe as its brokers make it; a recovery
is one moment of the whole directory, and holds all that was synced before. One writer: while its owner
is at work a second one is refused; who takes the log over (--take-over, gazfs handoff, a standby of an
owner who is silent) is the owner, and from then on every change here fails with EIO.

The mount point must be an empty directory. While nothing is mounted it stays empty, and nobody but
root can write to it.

Exit codes: 0 ended, and the log has all; 1 failed; 2 usage; 3 the same as 0, but owners or devices
could not be restored at the start; 4 fenced, or refused: somebody else records; 75 try later.

Examples:
  gazfs record /srv/app --log recovery/app --broker http://broker:8080
  gazfs record /srv/app --log recovery/app --seed /srv/app.old     takes files over
  gazfs umount /srv/app                                            ends it")]
pub(super) struct RecordArgs {
    /// Empty directory that becomes the recorded one
    mountpoint: PathBuf,

    #[command(flatten)]
    broker: BrokerArgs,

    #[command(flatten)]
    recording: RecordingArgs,

    #[command(flatten)]
    transport: TransportArgs,
}

pub(super) async fn run(args: RecordArgs) -> anyhow::Result<ExitStatus> {
    let shutdown = signals::shutdown_token().context("watch for signals")?;
    let options = args.recording.options(&args.mountpoint)?;
    let client = args.broker.connect()?;
    let meter = Meter::new();
    let show = meter.clone();
    let started = Recording::start(&client, options, &shutdown, move |progress| {
        show_start(&show, progress);
    })
    .await;
    meter.clear();
    let opened = match open(started, args.transport.options(access())).await? {
        Opened::Yes(opened) => opened,
        Opened::Not(status) => return Ok(status),
    };
    let (recording, mounted, control) = *opened;
    say(&announcement(mounted.transport()));
    say(&recording.announcement(&args.broker.broker));
    notify::ready("recording");
    let ended = recording.serve(mounted, &control, &shutdown, None).await;
    notify::stopping();
    Ok(report(&ended))
}

/// What was opened.
pub(super) enum Opened {
    /// A recorded directory that is mounted.
    Yes(Box<(Recording, Mounted, Control)>),
    /// Nothing, for a reason that was told: it may succeed later, or somebody else owns the log.
    Not(ExitStatus),
}

/// Mounts what was started, and listens for those who ask.
pub(super) async fn open(
    started: Result<Recording, RecordingError>,
    how: MountOptions,
) -> anyhow::Result<Opened> {
    let recording = match started {
        Err(error) if error.is_temporary() => {
            say_error(&format!("error: {error}"));
            return Ok(Opened::Not(ExitStatus::TryLater));
        }
        Err(error @ RecordingError::Owned { .. }) => {
            say_error(&format!("error: {error}"));
            return Ok(Opened::Not(ExitStatus::Fenced));
        }
        started => started?,
    };
    // Only now, as nobody is answered before the mount is served.
    let control = Control::listen().context("listen for gazfs umount");
    let opened = control.and_then(|control| Ok((recording.mount(how)?, control)));
    match opened {
        Ok((mounted, control)) => Ok(Opened::Yes(Box::new((recording, mounted, control)))),
        Err(error) => {
            recording.end().await;
            Err(error)
        }
    }
}

/// Shows how far the start is.
pub(super) fn show_start(meter: &Meter, progress: Progress) {
    match progress {
        Progress::Recovering { done, total } => meter.show("recovering", done, Some(total)),
        Progress::Seeding { done } => meter.show("taking over", done, None),
    }
}

/// Says how a recording ended.
pub(super) fn report(ended: &Ended) -> ExitStatus {
    if let Some(error) = &ended.error {
        say_error(&format!("error: {error}"));
    }
    if ended.status == ExitStatus::Done && ended.is_restored_in_part {
        ExitStatus::Degraded
    } else {
        ended.status
    }
}
