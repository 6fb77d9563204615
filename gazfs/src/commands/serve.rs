//! What a mount does until it ends.

use gazette_process::ExitStatus;
use tokio_util::sync::CancellationToken;

use super::say_error;
use crate::{
    journals::JournalFs,
    mount::{Control, MountError, Mounted, UmountOutcome},
};

/// Serves a mount until it is unmounted, or the process is asked to end. Then waits until all
/// appends have ended.
pub(super) async fn serve(
    fs: &JournalFs,
    mounted: Mounted,
    control: Control,
    shutdown: CancellationToken,
) -> ExitStatus {
    loop {
        tokio::select! {
            biased;
            () = mounted.ended() => {
                // Whoever unmounted could not wait for what is still under way.
                let pending = fs.pending();
                if pending > 0 {
                    say_error(&format!("unmounted; {pending} appends are still under way"));
                }
                let failed = fs.drain().await;
                if pending > 0 && failed == 0 {
                    say_error("all appends are acknowledged");
                }
                return report(failed);
            }
            () = shutdown.cancelled() => {
                fs.refuse_appends();
                let failed = fs.drain().await;
                end(&mounted).await;
                return report(failed);
            }
            asked = control.asked() => match mounted.unmount().await {
                Ok(()) => {
                    let failed = fs.drain().await;
                    let outcome = match failed {
                        0 => UmountOutcome::Done,
                        appends => UmountOutcome::Failed { appends },
                    };
                    asked.answer(outcome).await;
                    return report(failed);
                }
                Err(error) => {
                    if !matches!(error, MountError::Busy { .. }) {
                        say_error(&format!("error: {error}"));
                    }
                    asked.answer(UmountOutcome::Busy).await;
                }
            },
        }
    }
}

/// Unmounts also if somebody uses the mount, as the process ends now.
async fn end(mounted: &Mounted) {
    match mounted.unmount().await {
        Ok(()) => {}
        Err(MountError::Busy { .. }) => {
            let point = mounted.point().display();
            say_error(&format!(
                "{point} is in use; open files there do not work any more"
            ));
            if let Err(error) = mounted.detach().await {
                say_error(&format!("error: {error}"));
            }
        }
        Err(error) => say_error(&format!("error: {error}")),
    }
}

fn report(failed: u64) -> ExitStatus {
    if failed == 0 {
        return ExitStatus::Done;
    }
    say_error(&format!(
        "error: {failed} appends failed that no program was told of; next: the log above says which"
    ));
    ExitStatus::Failed
}
