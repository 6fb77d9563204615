use std::sync::Arc;

use super::*;
use crate::recorded::{Call, Created, OpenFlags, OpenMode, Patience, Write, memory::MemoryLog};

const CALL: Call<'static> = Call {
    uid: 0,
    gid: 0,
    umask: 0,
    patience: Patience::None,
};
const WRITES: OpenFlags = OpenFlags {
    may_read: true,
    may_write: true,
    is_truncating: false,
    is_exclusive: true,
};

struct House {
    _dir: tempfile::TempDir,
    fs: RecordedFs<Arc<MemoryLog>>,
}

impl House {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("make a folder");
        let fs = RecordedFs::start(Arc::new(MemoryLog::default()), dir.path()).expect("start");
        Self { _dir: dir, fs }
    }

    fn create(&self, name: &[u8], content: &[u8]) -> (Created, Fnode) {
        let created = self
            .fs
            .create(&CALL, Ino::ROOT, name, 0o644, WRITES)
            .expect("create");
        let write = Write {
            handle: created.opened.handle,
            offset: 0,
            data: content,
            drops_privileges: false,
        };
        self.fs.write(&CALL, &write).expect("write");
        let fnode = self
            .fs
            .node(created.attributes.ino)
            .expect("it is known")
            .fnode();
        (created, fnode)
    }

    /// What would be recorded again.
    fn repeated(&self, name: &[u8], fnode: Fnode, offset: u64, length: usize) -> Option<Vec<u8>> {
        let mut seen = None;
        let mut buffer = vec![0; length];
        let record = |data: &[u8]| seen = Some(data.to_vec());
        let path = [name.to_vec()];
        let done = self
            .fs
            .repeat_content(&path, fnode, offset, &mut buffer, record);
        assert_eq!(done.expect("it is read"), seen.is_some());
        seen
    }
}

#[test]
fn what_is_recorded_again_is_what_the_file_holds_as_far_as_it_goes() {
    let house = House::new();
    let (created, fnode) = house.create(b"file", b"0123456789");
    house.fs.close(created.opened.handle);
    assert_eq!(
        house.repeated(b"file", fnode, 2, 5),
        Some(b"23456".to_vec())
    );
    assert_eq!(house.repeated(b"file", fnode, 8, 5), Some(b"89".to_vec()));
    assert_eq!(house.repeated(b"file", fnode, 20, 5), Some(Vec::new()));
    // The kernel still knows it, once.
    let known = house.fs.known();
    assert!(known().contains(&created.attributes.ino));
    house.fs.forget(created.attributes.ino, 1);
    assert!(!known().contains(&created.attributes.ino));
    assert_eq!(house.repeated(b"file", fnode, 0, 1), Some(b"0".to_vec()));
    assert!(!known().contains(&created.attributes.ino));
}

#[test]
fn a_path_that_leads_elsewhere_by_now_is_left_alone() {
    let house = House::new();
    let (_, fnode) = house.create(b"file", b"content");
    let (_, other) = house.create(b"other", b"another");
    assert_eq!(house.repeated(b"other", fnode, 0, 7), None);
    assert_eq!(house.repeated(b"gone", fnode, 0, 7), None);
    assert_eq!(
        house.repeated(b"other", other, 0, 7),
        Some(b"another".to_vec())
    );
}

#[test]
fn a_file_that_a_mapping_may_have_brought_ahead_of_the_log_is_left_alone() {
    let house = House::new();
    house.fs.allow_passthrough(true);
    let (created, fnode) = house.create(b"000001.sst", b"table");
    house.fs.close(created.opened.handle);
    let ino = created.attributes.ino;
    let reads = OpenFlags {
        may_write: false,
        is_exclusive: false,
        ..WRITES
    };
    let open = |flags| house.fs.open(&CALL, ino, flags).expect("open");
    let passing = open(reads);
    assert_eq!(passing.mode, OpenMode::Passthrough);
    assert_eq!(
        house.repeated(b"000001.sst", fnode, 0, 5),
        Some(b"table".to_vec())
    );
    let direct = open(OpenFlags {
        may_write: true,
        ..reads
    });
    assert_eq!(direct.mode, OpenMode::Direct);
    assert_eq!(house.repeated(b"000001.sst", fnode, 0, 5), None);
    house.fs.close(direct.handle);
    assert_eq!(
        house.repeated(b"000001.sst", fnode, 0, 5),
        Some(b"table".to_vec())
    );
}
