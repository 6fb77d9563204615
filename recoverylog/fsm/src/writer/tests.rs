use super::*;
use crate::image::MemoryImage;
use crate::{AttributeChange, NameError, Place, SizeChange};

const LOG: &str = "test/log";
const NOW: Timestamp = Timestamp {
    seconds: 1000,
    nanos: 7,
};

fn directory() -> Inode {
    Inode {
        kind: Kind::Directory,
        mode: 0o755,
        ..Inode::default()
    }
}

fn place(parent: Fnode, name: &[u8]) -> Place<'_> {
    Place { parent, name }
}

/// A writer and all that it wrote.
struct Recorded {
    writer: OpWriter,
    out: BytesMut,
}

impl Recorded {
    fn new(mode: Mode) -> Self {
        let fsm = Fsm::of_log(LOG).unwrap();
        Self::from(mode, 1, fsm, Tree::new(mode))
    }

    fn from(mode: Mode, author: u32, fsm: Fsm, tree: Tree) -> Self {
        let author = Author::new(author).unwrap();
        let mut writer = OpWriter::new(mode, author, LOG, fsm, tree).unwrap();
        let mut out = BytesMut::new();
        writer.begin(&directory(), NOW, &mut out).unwrap();
        Self { writer, out }
    }

    fn try_write(&mut self, mutation: &Mutation<'_>) -> Result<Written, WriteError> {
        self.writer
            .write(mutation, NOW, &mut |_, bytes| bytes.len(), &mut self.out)
    }

    fn write(&mut self, mutation: &Mutation<'_>) -> Written {
        self.try_write(mutation).unwrap()
    }

    fn create(&mut self, at: Place<'_>, kind: Kind) -> Fnode {
        let inode = Inode {
            kind,
            ..Inode::default()
        };
        self.write(&Mutation::Create {
            at: Some(at),
            inode: &inode,
        })
        .fnode
        .unwrap()
    }

    fn content(&mut self, fnode: Fnode, offset: u64, data: &[u8]) -> Written {
        self.write(&Mutation::Write {
            fnode,
            offset,
            data,
            mtime: NOW,
        })
    }

    fn ops(&self) -> Vec<RecordedOp> {
        let mut reader = crate::OpReader::new(0);
        reader.feed(self.out.clone().freeze());
        let mut ops = Vec::new();
        loop {
            match reader.next_event() {
                crate::Event::NeedMore => return ops,
                crate::Event::Op(decoded) => ops.push(decoded.op),
                crate::Event::Content { .. } => {}
                event @ (crate::Event::Desync { .. } | crate::Event::Damaged { .. }) => {
                    panic!("{event:?}")
                }
            }
        }
    }

    fn image(&self) -> MemoryImage {
        let hints = FsmHints::of_log(LOG);
        let mut image = MemoryImage::new(self.writer.mode(), &hints).unwrap();
        let bytes = self.out.clone().freeze();
        image.play(&LOG.into(), &bytes, |_, _, _| {}).unwrap();
        image
    }
}

#[test]
fn a_native_log_begins_with_the_root_directory() {
    let recorded = Recorded::new(Mode::Native);
    let ops = recorded.ops();
    assert_eq!(ops.len(), 1);
    assert_eq!((ops[0].mode, ops[0].time), (Some(Mode::Native), Some(NOW)));
    assert_eq!(recorded.writer.tree().recorded(Fnode::ROOT), Some(Fnode(1)));
    assert_eq!(
        recorded.writer.tree().attributes(Fnode::ROOT).unwrap().mode,
        Some(0o755)
    );
}

#[test]
fn renaming_a_directory_is_two_ops_in_native_logs() {
    let mut recorded = Recorded::new(Mode::Native);
    let dir = recorded.create(place(Fnode::ROOT, b"d"), Kind::Directory);
    for name in [b"a", b"b", b"c"] {
        recorded.create(place(dir, name), Kind::Regular);
    }
    let (from, to) = (place(Fnode::ROOT, b"d"), place(Fnode::ROOT, b"e"));
    let written = recorded.write(&Mutation::Rename {
        from,
        to,
        exchange: false,
    });
    assert_eq!(written.seq_nos.unwrap().count(), 2);
    assert_eq!(recorded.writer.tree().path(Fnode(3)).unwrap(), "/e/a");
}

#[test]
fn renaming_a_large_directory_is_refused_in_compat_logs_only() {
    for mode in [Mode::Native, Mode::Compat] {
        let mut recorded = Recorded::new(mode);
        let dir = recorded.create(place(Fnode::ROOT, b"d"), Kind::Directory);
        for number in 0..DIRECTORY_RENAME_LINKS_MAX {
            recorded.create(place(dir, number.to_string().as_bytes()), Kind::Regular);
        }
        let (from, to) = (place(Fnode::ROOT, b"d"), place(Fnode::ROOT, b"e"));
        let rename = Mutation::Rename {
            from,
            to,
            exchange: false,
        };
        let refused = recorded.writer.cost(&rename).err();
        let expected = (mode == Mode::Compat).then_some(Refusal::DirectoryTooLarge);
        assert_eq!(refused, expected);
    }
}

#[test]
fn special_files_and_reserved_names_are_refused_in_compat_logs() {
    let recorded = Recorded::new(Mode::Compat);
    let fifo = Inode {
        kind: Kind::Fifo,
        ..Inode::default()
    };
    let cost = |name, inode| {
        let at = Some(place(Fnode::ROOT, name));
        recorded.writer.cost(&Mutation::Create { at, inode })
    };
    assert_eq!(cost(b"f", &fifo), Err(Refusal::SpecialFile));
    let regular = Inode::default();
    assert_eq!(
        cost(b".gzdir", &regular),
        Err(Refusal::Name(NameError::Reserved))
    );
    assert_eq!(
        cost(b".fnodes", &regular),
        Err(Refusal::Name(NameError::Reserved))
    );
    assert_eq!(
        cost(b"..", &regular),
        Err(Refusal::Name(NameError::Escapes))
    );
    assert!(cost(b"x", &regular).is_ok());
}

#[test]
fn adjacent_writes_merge_and_others_do_not() {
    let mut recorded = Recorded::new(Mode::Native);
    let file = recorded.create(place(Fnode::ROOT, b"f"), Kind::Regular);
    let other = recorded.create(place(Fnode::ROOT, b"g"), Kind::Regular);
    let first = recorded.content(file, 0, &[1; 100]).seq_nos.unwrap();
    assert_eq!(
        recorded.content(file, 100, &[2; 100]).seq_nos,
        Some(first.clone())
    );
    assert_eq!(
        recorded.content(file, 200, &[3; 16_200]).seq_nos,
        Some(first.clone())
    );
    assert_ne!(
        recorded.content(file, 16_401, &[4; 5]).seq_nos,
        Some(first),
        "not adjacent"
    );
    recorded.content(other, 0, b"x");
    let behind_another = recorded.content(file, 16_406, b"y").seq_nos.unwrap();
    recorded.writer.mark(Mark::Idle, NOW, &mut recorded.out);
    assert_ne!(
        recorded.content(file, 16_407, b"z").seq_nos,
        Some(behind_another)
    );
    let image = recorded.image();
    let expected = [&[1; 100][..], &[2; 100], &[3; 16_200], &[0], &[4; 5], b"yz"].concat();
    assert_eq!(image.content(file).bytes(), expected);
    assert_eq!(image.fsm.next_checksum(), recorded.writer.next_checksum());
}

#[test]
fn nothing_merges_into_a_sealed_batch() {
    let mut recorded = Recorded::new(Mode::Native);
    let file = recorded.create(place(Fnode::ROOT, b"f"), Kind::Regular);
    let first = recorded.content(file, 0, b"abc").seq_nos.unwrap();
    recorded.writer.seal();
    recorded.out.clear();
    let second = recorded.content(file, 3, b"def").seq_nos.unwrap();
    assert_ne!(first, second);
    assert_eq!(
        recorded.ops()[0].time,
        Some(NOW),
        "each batch says the time"
    );
}

#[test]
fn content_that_is_recorded_again_changes_nothing() {
    let mut recorded = Recorded::new(Mode::Native);
    let file = recorded.create(place(Fnode::ROOT, b"f"), Kind::Regular);
    recorded.content(file, 0, b"abcdef");
    let before = recorded.image().snapshot();
    let out = &mut recorded.out;
    let again = recorded
        .writer
        .rerecord(file, 0, b"abc", NOW, out)
        .unwrap()
        .seq_nos
        .unwrap();
    assert_eq!(recorded.image().snapshot(), before);
    let is_marked = |op: &RecordedOp| matches!(&op.body, Body::Write(write) if write.rerecorded);
    assert!(is_marked(recorded.ops().last().unwrap()));
    assert_ne!(
        recorded.content(file, 3, b"xyz").seq_nos,
        Some(again),
        "it does not merge"
    );
}

#[test]
fn a_state_whose_hints_were_not_used_is_not_recorded_from() {
    let mut recorded = Recorded::new(Mode::Native);
    recorded.writer.seal();
    recorded.writer.acknowledged(0).unwrap();
    let fsm = Fsm::new(&recorded.writer.hints()).unwrap();
    let author = Author::new(2).unwrap();
    let tree = Tree::new(Mode::Native);
    let started = OpWriter::new(Mode::Native, author, LOG, fsm, tree).err();
    assert_eq!(started, Some(StartError::UnusedHints));
}

#[test]
fn time_never_steps_back() {
    let mut recorded = Recorded::new(Mode::Native);
    recorded.writer.seal();
    recorded.out.clear();
    let before = Timestamp {
        seconds: 3,
        nanos: 0,
    };
    recorded.writer.mark(Mark::Idle, before, &mut recorded.out);
    assert_eq!(recorded.ops()[0].time, Some(NOW));
}

#[test]
fn hints_are_of_what_is_acknowledged_with_exact_offsets() {
    let mut recorded = Recorded::new(Mode::Native);
    recorded.create(place(Fnode::ROOT, b"f"), Kind::Regular);
    let first_batch = i64::try_from(recorded.out.len()).unwrap();
    assert_eq!(recorded.writer.seal(), Some(1..=2));
    recorded.out.clear();
    recorded.create(place(Fnode::ROOT, b"g"), Kind::Regular);
    assert!(recorded.writer.hints().live_nodes.is_empty());
    assert_eq!(recorded.writer.acknowledged(5000), Ok(1..=2));
    let hints = recorded.writer.hints();
    assert_eq!(hints.live_nodes.len(), 2);
    let segment = &hints.live_nodes[0].segments[0];
    assert_eq!(segment.first_offset, 5000);
    assert_eq!(segment.last_offset, 5000 + first_batch);
    assert_eq!(hints.mode, Some(Mode::Native));
    assert_eq!(
        recorded.writer.acknowledged(0),
        Err(AcknowledgeError::NoBatch)
    );
}

#[test]
fn a_file_without_names_is_recorded_no_more() {
    for mode in [Mode::Native, Mode::Compat] {
        let mut recorded = Recorded::new(mode);
        let file = recorded.create(place(Fnode::ROOT, b"f"), Kind::Regular);
        recorded.write(&Mutation::Unlink {
            at: place(Fnode::ROOT, b"f"),
        });
        assert_eq!(recorded.content(file, 0, b"x"), Written::default());
        let change = AttributeChange {
            mode: Some(0),
            ..AttributeChange::default()
        };
        let attributes = Mutation::Attributes {
            fnode: file,
            change,
        };
        assert_eq!(recorded.write(&attributes), Written::default());
    }
}

#[test]
fn a_file_created_without_a_name_gets_one_or_goes() {
    for mode in [Mode::Native, Mode::Compat] {
        let mut recorded = Recorded::new(mode);
        let inode = Inode::default();
        let named = recorded
            .write(&Mutation::Create {
                at: None,
                inode: &inode,
            })
            .fnode
            .unwrap();
        let gone = recorded
            .write(&Mutation::Create {
                at: None,
                inode: &inode,
            })
            .fnode
            .unwrap();
        let left = recorded
            .write(&Mutation::Create {
                at: None,
                inode: &inode,
            })
            .fnode
            .unwrap();
        recorded.content(named, 0, b"kept");
        assert_eq!(recorded.image().snapshot().len(), 1, "out of sight");
        recorded.write(&Mutation::Link {
            fnode: named,
            at: place(Fnode::ROOT, b"f"),
        });
        recorded.write(&Mutation::Release { fnode: gone });
        assert_eq!(
            recorded.write(&Mutation::Release { fnode: named }),
            Written::default()
        );
        let image = recorded.image();
        assert_eq!(image.snapshot().len(), 2);
        assert_eq!(image.tree.unnamed().collect::<Vec<_>>(), [left]);
        let next = Recorded::from(mode, 2, image.fsm, image.tree);
        assert_eq!(
            next.writer.tree().unnamed().count(),
            0,
            "its process is gone"
        );
    }
}

#[test]
fn a_cut_file_is_another_file_in_compat_logs() {
    let mut recorded = Recorded::new(Mode::Compat);
    let file = recorded.create(place(Fnode::ROOT, b"f"), Kind::Regular);
    recorded.write(&Mutation::Link {
        fnode: file,
        at: place(Fnode::ROOT, b"g"),
    });
    recorded.content(file, 0, &[9; 10_000]);
    let change = SizeChange::Truncate { size: 6000 };
    let cut = Mutation::Size {
        fnode: file,
        change,
        mtime: NOW,
    };
    // The backing file has a hole in front.
    let backing = [&[0; 5000][..], &[9; 1000]].concat();
    let mut read = |offset: u64, bytes: &mut [u8]| {
        let rest = &backing[usize::try_from(offset).unwrap()..];
        let length = rest.len().min(bytes.len());
        bytes[..length].copy_from_slice(&rest[..length]);
        length
    };
    let written = recorded
        .writer
        .write(&cut, NOW, &mut read, &mut recorded.out)
        .unwrap();
    let (old, new) = written.replaced.unwrap();
    assert_eq!(old, file);
    let image = recorded.image();
    assert_eq!(image.tree.lookup(Fnode::ROOT, b"f"), Some(new));
    assert_eq!(image.tree.lookup(Fnode::ROOT, b"g"), Some(new));
    assert_eq!(image.content(new).bytes(), backing);
    assert_eq!(image.content(new).data_blocks(), [1], "the hole stays one");
    let refused = Mutation::Size {
        fnode: new,
        change: SizeChange::Zero {
            offset: 0,
            length: 1 << 40,
            keep_size: false,
        },
        mtime: NOW,
    };
    assert!(
        recorded.writer.cost(&refused).is_ok(),
        "only what lies in the file is written"
    );
}

#[test]
fn logs_of_the_reference_are_taken_over() {
    let mut log = BytesMut::new();
    let mut checksum = 0;
    let name = |path: &'static str| crate::LinkName {
        parent: Fnode::ROOT,
        path: path.into(),
    };
    for (seq_no, body) in (1..).zip([
        Body::Create {
            at: name("/db/sub/f"),
            inode: None,
        },
        Body::Property {
            path: "/IDENTITY".into(),
            content: "old".into(),
        },
        Body::Create {
            at: name("/tmp-identity"),
            inode: None,
        },
    ]) {
        checksum = RecordedOp::new(seq_no, checksum, 5, body).encode_frame(&mut log);
    }
    let mut image = MemoryImage::new(Mode::Compat, &FsmHints::of_log(LOG)).unwrap();
    image
        .play(&LOG.into(), &log.clone().freeze(), |_, _, _| {})
        .unwrap();
    let mut recorded = Recorded::from(Mode::Compat, 2, image.fsm, image.tree);
    let tree = recorded.writer.tree();
    let db = tree.lookup(Fnode::ROOT, b"db").unwrap();
    assert!(db.0 > 3, "directories have fnodes now");
    assert_eq!(tree.implicit_directories().count(), 0);
    assert_eq!(tree.path(Fnode(1)).unwrap(), "/db/sub/f");
    // A property can only be replaced.
    let identity = place(Fnode::ROOT, b"IDENTITY");
    assert_eq!(
        recorded.writer.cost(&Mutation::Unlink { at: identity }),
        Err(Refusal::Property)
    );
    let create = Mutation::Create {
        at: Some(identity),
        inode: &directory(),
    };
    assert_eq!(recorded.writer.cost(&create), Err(Refusal::Property));
    let source = recorded
        .writer
        .tree()
        .lookup(Fnode::ROOT, b"tmp-identity")
        .unwrap();
    recorded.content(source, 0, b"new");
    let from = place(Fnode::ROOT, b"tmp-identity");
    let rename = Mutation::Rename {
        from,
        to: identity,
        exchange: false,
    };
    let mut read = |_: u64, bytes: &mut [u8]| {
        bytes.copy_from_slice(b"new");
        bytes.len()
    };
    recorded
        .writer
        .write(&rename, NOW, &mut read, &mut recorded.out)
        .unwrap();
    log.extend_from_slice(&recorded.out);
    let mut image = MemoryImage::new(Mode::Compat, &FsmHints::of_log(LOG)).unwrap();
    image
        .play(&LOG.into(), &log.freeze(), |_, _, _| {})
        .unwrap();
    let snapshot = image.snapshot();
    assert_eq!(snapshot[&b"/IDENTITY"[..]].content.bytes(), b"new");
    assert!(!snapshot.contains_key(&b"/tmp-identity"[..]));
}

#[test]
fn what_contradicts_the_tree_is_not_written() {
    let mut recorded = Recorded::new(Mode::Native);
    let dir = recorded.create(place(Fnode::ROOT, b"d"), Kind::Directory);
    let file = recorded.create(place(dir, b"f"), Kind::Regular);
    let before = recorded.out.len();
    let at = |parent, name| place(parent, name);
    let rename = |from, to| Mutation::Rename {
        from,
        to,
        exchange: false,
    };
    for (mutation, mismatch) in [
        (
            Mutation::Unlink {
                at: at(Fnode::ROOT, b"x"),
            },
            Mismatch::NoEntry,
        ),
        (
            Mutation::Unlink {
                at: at(Fnode::ROOT, b"d"),
            },
            Mismatch::NotEmpty,
        ),
        (
            Mutation::Link {
                fnode: file,
                at: at(dir, b"f"),
            },
            Mismatch::Exists,
        ),
        (
            Mutation::Link {
                fnode: file,
                at: at(file, b"f"),
            },
            Mismatch::NoDirectory,
        ),
        (
            Mutation::Link {
                fnode: dir,
                at: at(dir, b"e"),
            },
            Mismatch::Directory,
        ),
        (
            rename(at(Fnode::ROOT, b"d"), at(dir, b"d")),
            Mismatch::Directory,
        ),
    ] {
        assert!(
            recorded.writer.cost(&mutation).is_ok(),
            "the backing directory refuses it"
        );
        assert_eq!(
            recorded.try_write(&mutation),
            Err(WriteError::Mismatch(mismatch))
        );
    }
    assert_eq!(recorded.out.len(), before);
}
