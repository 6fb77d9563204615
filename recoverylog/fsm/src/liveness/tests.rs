use super::*;
use crate::op::LinkName;

/// Ops of a log, as if each was appended for itself.
struct Ops {
    liveness: Liveness,
    log: Arc<str>,
    seq_no: i64,
    offset: i64,
}

impl Ops {
    fn new(log: &str) -> Self {
        Self {
            liveness: Liveness::new(),
            log: log.into(),
            seq_no: 1,
            offset: 0,
        }
    }

    fn op(&mut self, body: Body) {
        let op = RecordedOp::new(self.seq_no, 0, 9, body);
        let begin = self.offset;
        self.offset += 80 + op.content_length();
        let extent = OpExtent {
            log: &self.log,
            begin,
            end: self.offset,
        };
        self.liveness.apply(&op, Applied::Applied, extent);
        self.seq_no += 1;
    }

    fn create(&mut self) -> Fnode {
        let fnode = Fnode(self.seq_no);
        let at = LinkName {
            parent: Fnode::ROOT,
            path: self.seq_no.to_string().into(),
        };
        self.op(Body::Create { at, inode: None });
        fnode
    }

    fn write(&mut self, fnode: Fnode, page: u64) {
        self.op(Body::Write(Write {
            fnode,
            offset: i64::try_from(page * PAGE_BYTES).unwrap(),
            length: 4096,
            mtime: Some(crate::Timestamp::default()),
            ..Write::default()
        }));
    }
}

#[test]
fn a_file_that_is_rewritten_at_random_takes_a_few_bytes_of_memory_for_each_page() {
    const PAGES: u64 = 1 << 15;
    let mut ops = Ops::new("a/log");
    let file = ops.create();
    let mut page = 1;
    for _ in 0..4 * PAGES {
        page = (page * 1_103_515_245 + 12_345) % PAGES;
        ops.write(file, page);
    }
    let estimate = ops.liveness.estimate();
    assert!(estimate.live_bytes <= PAGES * PAGE_BYTES + 1024);
    let memory = ops.liveness.memory() as u64;
    assert!(memory < PAGES * 8, "{memory} bytes for {PAGES} pages");
}

#[test]
fn what_is_written_again_leaves_nothing_behind_but_the_chunk_of_its_create() {
    let mut ops = Ops::new("a/log");
    let file = ops.create();
    for round in 0..20 * 1024 {
        ops.write(file, round % 1024);
    }
    let estimate = ops.liveness.estimate();
    assert_eq!(estimate.live_bytes, 4 * 1024 * 1024 + 2 * 512);
    assert!(estimate.read_bytes < 7 << 20, "{estimate:?}");
    assert!(estimate.span_bytes > 80 << 20, "{estimate:?}");
}

#[test]
fn a_file_with_holes_punched_all_over_takes_no_memory_for_each() {
    const HOLES: u64 = 20_000;
    let mut ops = Ops::new("a/log");
    let file = ops.create();
    ops.write(file, 2 * HOLES);
    for hole in 0..HOLES {
        let change = SizeChange::Punch {
            offset: 2 * hole * PAGE_BYTES,
            length: PAGE_BYTES,
        };
        ops.op(Body::Change {
            fnode: file,
            change: Change::Size(change),
            mtime: None,
        });
    }
    let memory = ops.liveness.memory() as u64;
    assert!(memory < HOLES, "{memory} bytes for {HOLES} holes");
}
