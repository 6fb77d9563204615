//! `gazfs mount`

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use gazette_process::{ExitStatus, signals};

use super::{
    options::JournalArgs,
    recording_args::BrokerArgs,
    say, say_error,
    serve::serve,
    transport::{TransportArgs, announcement},
};
use crate::{
    journals::{JournalFs, StartError},
    mount::{Control, mount},
};

#[derive(Debug, Args)]
pub(super) struct MountArgs {
    /// Empty directory that becomes the top of the journals
    mountpoint: PathBuf,

    #[command(flatten)]
    broker: BrokerArgs,

    #[command(flatten)]
    journals: JournalArgs,

    #[command(flatten)]
    transport: TransportArgs,
}

pub(super) async fn run(args: MountArgs) -> anyhow::Result<ExitStatus> {
    let options = args.journals.options(None)?;
    let shutdown = signals::shutdown_token().context("watch for signals")?;
    let client = args.broker.connect_with(args.journals.client_options())?;
    let started = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(ExitStatus::TryLater),
        started = JournalFs::start(client, options) => started,
    };
    let fs = match started {
        Ok(fs) => fs,
        Err(error @ StartError::NoAnswer { .. }) => {
            say_error(&format!("error: {error}"));
            return Ok(ExitStatus::TryLater);
        }
    };
    let control = Control::listen().context("listen for gazfs umount")?;
    let how = args.transport.options(args.journals.access());
    let mounted = mount(&fs, &args.mountpoint, None, how)?;
    let point = mounted.point().display();
    say(&format!(
        "journals of {} at {point}\n\
         durability: {} was acknowledged by the brokers, and is as safe as they make it\n\
         {}end it with: gazfs umount {point}\n",
        args.broker.broker,
        args.journals.promise(),
        announcement(mounted.transport()),
    ));
    Ok(serve(&fs, mounted, control, shutdown).await.release())
}
