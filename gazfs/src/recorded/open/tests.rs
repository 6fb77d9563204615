use super::*;
use crate::recorded::{
    Patience,
    memory::{MemoryLog, Owned},
};

const CALL: Call<'static> = Call {
    uid: 0,
    gid: 0,
    umask: 0,
    patience: Patience::None,
};
const READS: OpenFlags = OpenFlags {
    may_read: true,
    may_write: false,
    is_truncating: false,
    is_exclusive: false,
};

// Handles are closed by threads that know nothing of each other, in any order.
#[test]
fn the_last_handle_of_a_file_without_a_name_is_whichever_is_closed_last() {
    let dir = tempfile::tempdir().expect("make a folder");
    let log = Arc::new(MemoryLog::default());
    let fs = RecordedFs::start(Arc::clone(&log), dir.path()).expect("start");
    let releases = || {
        let mutations = log.mutations();
        let releases = mutations.iter();
        let is_release = |mutation: &&Owned| matches!(mutation, Owned::Release { .. });
        releases.filter(is_release).count()
    };
    let made = fs.create_unnamed(&CALL, Ino::ROOT, 0o600, READS);
    let made = made.expect("make a file");
    let node = made.attributes.ino;
    let again = fs.open(&CALL, node, READS).expect("open again");

    assert!(fs.close(made.opened.handle).is_none(), "one is left");
    let abandoned = fs.close(again.handle).expect("none is left");
    // The kernel may still know it, and open it before the log was told.
    let late = fs.open(&CALL, node, READS).expect("open once more");
    fs.forget_unnamed(&CALL, &abandoned).expect("there is room");
    assert_eq!(releases(), 0, "it is open");
    let abandoned = fs.close(late.handle).expect("none is left");
    fs.forget_unnamed(&CALL, &abandoned).expect("there is room");
    assert_eq!(releases(), 1);
}
