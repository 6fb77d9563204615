//! What a mount does until it ends.

use std::future::ready;

use gazette_process::ExitStatus;
use tokio_util::sync::CancellationToken;

use super::say_error;
use crate::{
    journals::JournalFs,
    mount::{Asked, Control, FlushOutcome, MountError, Mounted, Question, UmountOutcome},
};

/// How a mount ended. Whoever asked for it by `gazfs umount` waits until this is dropped.
#[derive(Debug)]
pub(super) struct Ended {
    status: ExitStatus,
    asked: Option<Asked>,
}

impl Ended {
    pub(super) fn new(status: ExitStatus, asked: Option<Asked>) -> Self {
        Self { status, asked }
    }

    /// Lets whoever asked for the end go on, and returns how it was.
    pub(super) fn release(self) -> ExitStatus {
        drop(self.asked);
        self.status
    }
}

/// Serves a mount until it is unmounted, or the process is asked to end. Then waits until all
/// appends have ended.
pub(super) async fn serve(
    fs: &JournalFs,
    mounted: Mounted,
    control: Control,
    shutdown: CancellationToken,
) -> Ended {
    let ended = serve_until_end(fs, mounted, control, shutdown).await;
    // There is nothing to follow any more.
    fs.refuse_appends();
    ended
}

async fn serve_until_end(
    fs: &JournalFs,
    mounted: Mounted,
    control: Control,
    shutdown: CancellationToken,
) -> Ended {
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
            mut asked = control.asked() => match asked.question() {
                Question::Umount => {
                    if let Some(ended) = unmount_for(asked, fs, &mounted).await {
                        return ended;
                    }
                }
                Question::Status => asked.answer(journals_status(fs, &mounted)),
                Question::Flush => flush_for(asked, fs, ready(FlushOutcome::Done)),
                // Journals are never compacted.
                Question::Compact => asked.answer("{}"),
            },
        }
    }
}

/// Unmounts for somebody who asked, unless the mount is in use.
async fn unmount_for(mut asked: Asked, fs: &JournalFs, mounted: &Mounted) -> Option<Ended> {
    if let Err(error) = mounted.unmount().await {
        if !matches!(error, MountError::Busy { .. }) {
            say_error(&format!("error: {error}"));
        }
        asked.answer(UmountOutcome::Busy);
        return None;
    }
    let failed = fs.drain().await;
    asked.answer(match failed {
        0 => UmountOutcome::Done,
        failed => UmountOutcome::Failed {
            message: failed_appends(failed),
        },
    });
    let asked = Some(asked);
    Some(Ended {
        asked,
        ..report(failed)
    })
}

/// How a mount of journals is.
pub(super) fn journals_status(fs: &JournalFs, mounted: &Mounted) -> serde_json::Value {
    serde_json::json!({
        "kind": "journals",
        "mountpoint": mounted.point().to_string_lossy(),
        "pid": std::process::id(),
        "state": "serving",
        "transport": mounted.transport().way.to_string(),
        "pending_appends": fs.pending(),
    })
}

/// Answers when all appends that were accepted have ended, and `more` has, if they did well.
pub(super) fn flush_for(
    mut asked: Asked,
    fs: &JournalFs,
    more: impl Future<Output = FlushOutcome> + Send + 'static,
) {
    let draining = fs.clone();
    let _handle = fs.spawn(async move { asked.answer(flushed(&draining, more).await) });
}

async fn flushed(fs: &JournalFs, more: impl Future<Output = FlushOutcome>) -> FlushOutcome {
    match fs.drain().await {
        0 => more.await,
        failed => FlushOutcome::Failed {
            message: failed_appends(failed),
            is_fenced: false,
        },
    }
}

/// Unmounts also if somebody uses the mount, as the process ends now.
pub(super) async fn end(mounted: &Mounted) {
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

fn report(failed: u64) -> Ended {
    Ended::new(report_appends(failed), None)
}

/// Says what was not told to any program.
pub(super) fn report_appends(failed: u64) -> ExitStatus {
    if failed == 0 {
        return ExitStatus::Done;
    }
    say_error(&format!("error: {}", failed_appends(failed)));
    ExitStatus::Failed
}

pub(super) fn failed_appends(failed: u64) -> String {
    format!(
        "{failed} appends failed that no program was told of; next: the log of the daemon says which"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use gazette_client::fake::{Call, FakeBroker, Fault};

    use super::*;
    use crate::journals::{Ack, Caller, Ino, OpenFlags, Options, Origin, Template, Write};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_flush_waits_for_queued_appends_and_for_more() {
        let broker = FakeBroker::new();
        broker.create("logs");
        let options = Options {
            timeout: Duration::from_secs(5),
            ack: Ack::Close,
            origin: Origin::Zero,
            allow_delete: false,
            uid: 0,
            gid: 0,
            mode: 0o644,
            template: Template::default(),
            space_of: None,
        };
        let fs = JournalFs::start(broker.client(), options).await;
        let fs = fs.expect("the broker answers");
        let found = fs.lookup(Caller::NOBODY, Ino::ROOT, b"logs").await;
        let flags = OpenFlags {
            may_read: false,
            may_write: true,
            is_truncating: false,
            is_exclusive: false,
        };
        let ino = found.expect("it is there").ino;
        let opened = fs.open(Caller::NOBODY, ino, flags).await;
        broker.inject(Call::Append, [Fault::Delay(Duration::from_millis(300))]);
        let write = Write {
            handle: opened.expect("it may be opened").handle,
            offset: 0,
            content: Bytes::from_static(b"queued"),
            is_append: true,
            is_sync: false,
            is_mapped: false,
        };
        assert_eq!(fs.write(Caller::NOBODY, write).await, Ok(6));
        assert_eq!(broker.content("logs"), b"", "it is not there yet");
        let fenced = FlushOutcome::Failed {
            message: "fenced".to_owned(),
            is_fenced: true,
        };
        let outcome = flushed(&fs, ready(fenced.clone())).await;
        assert_eq!(outcome, fenced, "it tells what more there was");
        assert_eq!(broker.content("logs"), b"queued");
    }
}
