//! What the kernel remembers of files, and may not go on to believe.

use fuser::{INodeNo, Notifier};

use super::waiting;
use crate::recorded::{Ino, RecordedFs, log::Log};

/// Keeps what the kernel remembers right. When a write takes set-user-ID bits away, the kernel does
/// not expect that. When the log takes nothing more, what was read may soon be old: it is dropped.
pub fn keep_right<L: Log>(fs: &RecordedFs<L>, notifier: Notifier) {
    let attributes = notifier.clone();
    fs.tell(move |Ino(number)| {
        // One that it forgot meanwhile is as good.
        let _gone = attributes.inval_inode(INodeNo(number), ATTRIBUTES_ONLY, 0);
    });
    let known = fs.known();
    fs.log().on_end(Box::new(move || {
        // The kernel may ask the file system before it is done, and this may be its thread.
        waiting::spawn(move || {
            for Ino(number) in known() {
                let _gone = notifier.inval_inode(INodeNo(number), 0, 0);
            }
        });
    }));
}

/// Stands for no bytes of a file.
const ATTRIBUTES_ONLY: i64 = -1;
