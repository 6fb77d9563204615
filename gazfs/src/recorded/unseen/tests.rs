use std::{sync::Arc, thread};

use super::*;
use crate::recorded::{
    Created, Ino, OpenFlags,
    memory::{MemoryLog, Owned},
};

const CALL: Call<'static> = Call {
    uid: 0,
    gid: 0,
    umask: 0,
    patience: Patience::Until(&|| false),
};
const WRITES: OpenFlags = OpenFlags {
    may_read: true,
    may_write: true,
    is_truncating: false,
    is_exclusive: true,
};

struct House {
    dir: tempfile::TempDir,
    log: Arc<MemoryLog>,
    fs: RecordedFs<Arc<MemoryLog>>,
    created: Created,
}

impl House {
    /// A file into which something was stored that the log does not have.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("make a folder");
        let log = Arc::new(MemoryLog::default());
        let fs = RecordedFs::start(Arc::clone(&log), dir.path()).expect("start");
        let created = fs
            .create(&CALL, Ino::ROOT, b"file", 0o644, WRITES)
            .expect("create");
        std::fs::write(dir.path().join("file"), "stored").expect("write");
        let house = Self {
            dir,
            log,
            fs,
            created,
        };
        house.node().lock().is_behind = true;
        house
    }

    fn node(&self) -> Arc<Node> {
        self.fs
            .node(self.created.attributes.ino)
            .expect("it is known")
    }

    fn handle(&self) -> HandleId {
        self.created.opened.handle
    }

    /// What the log has of the file.
    fn recorded(&self) -> Vec<Vec<u8>> {
        let mut recorded = Vec::new();
        for mutation in self.log.mutations() {
            if let Owned::Write { data, .. } = mutation {
                recorded.push(data);
            }
        }
        recorded
    }
}

#[test]
fn whoever_syncs_while_another_call_records_what_was_stored_waits_for_it() {
    let house = House::new();
    house.log.hold(Some(Hold::Full));
    thread::scope(|scope| {
        let first = scope.spawn(|| house.fs.catch_up(&CALL, house.handle()));
        while house.node().lock().is_behind {
            thread::yield_now();
        }
        let second = scope.spawn(|| house.fs.catch_up(&CALL, house.handle()));
        // It ends at once if it does not wait.
        thread::sleep(Duration::from_millis(200));
        assert!(!second.is_finished(), "the log has {:?}", house.recorded());
        house.log.hold(None);
        for call in [first, second] {
            call.join()
                .expect("it does not panic")
                .expect("it is recorded");
        }
    });
    assert_eq!(house.recorded(), [b"stored"]);
}

#[test]
fn a_call_that_gives_up_leaves_it_to_the_next_one_through_any_handle() {
    let house = House::new();
    house.log.hold(Some(Hold::Full));
    let gives_up = Call {
        patience: Patience::Until(&|| true),
        ..CALL
    };
    assert!(house.fs.catch_up(&gives_up, house.handle()).is_err());
    assert!(house.fs.may_be_behind(house.handle()));
    house.log.hold(None);
    house
        .fs
        .catch_up(&CALL, house.handle())
        .expect("there is room");
    assert!(!house.fs.may_be_behind(house.handle()));
    assert_eq!(house.recorded(), [b"stored"]);
    drop(house.dir);
}
