//! `gazfs umount`

use std::path::PathBuf;

use clap::Args;
use gazette_process::ExitStatus;

use super::{say, say_error};
use crate::mount::{MountError, UmountOutcome, ask_to_umount};

#[derive(Debug, Args)]
#[command(after_help = "\
Waits until the daemon has ended, which waits until all is acknowledged.

Exit codes: 0 done, 1 unmounted, but something did not reach its journal, 4 the same, as
somebody else had taken the log over, 75 in use: nothing was done.")]
pub(super) struct UmountArgs {
    /// Where journals or a recorded directory are mounted
    mountpoint: PathBuf,
}

pub(super) fn run(args: &UmountArgs) -> anyhow::Result<ExitStatus> {
    let point = &args.mountpoint;
    match ask_to_umount(point)? {
        UmountOutcome::Done => Ok(ExitStatus::Done),
        UmountOutcome::Busy => {
            let point = point.clone();
            say_error(&format!("error: {}", MountError::Busy { point }));
            Ok(ExitStatus::TryLater)
        }
        UmountOutcome::Failed { message } => {
            let point = point.display();
            say_error(&format!(
                "error: unmount {point}: it is unmounted, but {message}"
            ));
            Ok(ExitStatus::Failed)
        }
        UmountOutcome::Fenced { message } => {
            let point = point.display();
            say_error(&format!(
                "error: unmount {point}: it is unmounted, but {message}"
            ));
            Ok(ExitStatus::Fenced)
        }
        UmountOutcome::WasDead => {
            say(&format!(
                "{}: its daemon was dead; unmounted\n",
                point.display()
            ));
            Ok(ExitStatus::Done)
        }
    }
}
