//! What the kernel remembers of files, and may not go on to believe.

use super::waiting;
use crate::{
    fuse::Notifier,
    recorded::{Ino, RecordedFs, log::Log},
};

/// Keeps what the kernel remembers right. When a write takes set-user-ID bits away, the kernel does
/// not expect that. When the log takes nothing more, what was read may soon be old: it is dropped.
pub fn keep_right<L: Log>(fs: &RecordedFs<L>, notifier: Notifier) {
    let attributes = notifier.clone();
    fs.tell(move |Ino(number)| {
        // One that it forgot meanwhile is as good.
        let _gone = attributes.stale_attributes(number);
    });
    let known = fs.known();
    fs.log().on_end(Box::new(move || {
        // The kernel may ask the file system before it is done, and this may be its thread.
        waiting::spawn(move || {
            for Ino(number) in known() {
                let _gone = notifier.stale_content(number);
            }
        });
    }));
}
