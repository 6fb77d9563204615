//! One random sequence, recorded and replayed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gazette_recoverylog_fsm::image::MemoryImage;
use gazette_recoverylog_fsm::{
    Applied, Author, Checkpoint, Fnode, Fsm, FsmHints, Inode, Kind, Mark, Mode, Mutation, OpWriter,
    Place, Timestamp, Tree,
};

use crate::base_reader::BaseReader;
use crate::files::{Files, Views, views_of};
use crate::real::{Real, comparable};

mod mutations;

/// Random numbers of which an operation is made.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) kind: u8,
    pub(super) picks: [u8; 4],
    pub(super) offset: u32,
    pub(super) length: u32,
}

const LOG: &str = "test/log";
const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"\xff\xfe", b"a name"];

struct Run {
    mode: Mode,
    files: Files,
    /// The fnode of each file of the model.
    fnodes: Vec<Fnode>,
    writer: OpWriter,
    out: BytesMut,
    log: BytesMut,
    /// Where sealed batches begin that are not acknowledged.
    unacknowledged: Vec<usize>,
    clock: i64,
    /// What the files were after the op of each sequence number.
    expected: BTreeMap<i64, Views>,
    hints: Vec<FsmHints>,
    real: Option<Real>,
    was_taken_over: bool,
}

/// Runs the steps on a real directory too, and compares it with the model.
pub(super) fn run_really(steps: &[Step]) {
    let mut run = Run::new(Mode::Native);
    run.real = Real::new(&run.files.files[0].inode);
    for step in steps {
        run.step(step);
        if let Some(real) = &run.real {
            let (real, model) = (comparable(real.views()), comparable(run.files.views(true)));
            assert_eq!(real, model, "after {step:?}");
        }
    }
}

pub(super) fn run(mode: Mode, steps: &[Step]) {
    let mut run = Run::new(mode);
    for step in steps {
        run.step(step);
    }
    run.finish();
}

impl Run {
    fn new(mode: Mode) -> Self {
        let root = Inode {
            kind: Kind::Directory,
            mode: 0o750,
            ..Inode::default()
        };
        let author = Author::new(11).unwrap();
        let (fsm, tree) = (Fsm::of_log(LOG).unwrap(), Tree::new(mode));
        let writer = OpWriter::new(mode, author, LOG, fsm, tree).unwrap();
        let mut run = Self {
            mode,
            files: Files::new(root.clone()),
            fnodes: vec![Fnode::ROOT],
            writer,
            out: BytesMut::new(),
            log: BytesMut::new(),
            unacknowledged: Vec::new(),
            clock: 0,
            expected: BTreeMap::new(),
            hints: Vec::new(),
            was_taken_over: false,
            real: None,
        };
        let now = run.now();
        run.writer.mark(Mark::Claim, now, &mut run.out);
        run.expected.insert(1, Views::new());
        run.writer.begin(&root, now, &mut run.out).unwrap();
        run.expect();
        run
    }

    /// A clock that steps back at times.
    fn now(&mut self) -> Timestamp {
        self.clock += 1;
        let seconds = if self.clock % 7 == 0 {
            self.clock - 20
        } else {
            self.clock
        };
        Timestamp { seconds, nanos: 5 }
    }

    fn expect(&mut self) {
        let views = self.files.views(self.mode == Mode::Native);
        self.expected.insert(self.writer.next_seq_no() - 1, views);
    }

    fn step(&mut self, step: &Step) {
        let [a, b, c, d] = step.picks.map(usize::from);
        let directories = self.files.of_kind(Kind::Directory);
        let regular = self.files.of_kind(Kind::Regular);
        let living = self.files.living();
        let names = self.files.names();
        let directory = directories[a % directories.len()];
        let name = NAMES[b % NAMES.len()];
        let now = self.now();
        let free = !self.files.files[directory].entries.contains_key(name);
        match step.kind % 32 {
            0..=2 if free => self.create(Some((directory, name)), Kind::Regular, c, now),
            3..=5 if free => self.create(Some((directory, name)), Kind::Directory, c, now),
            6 if free => self.create(Some((directory, name)), Kind::Symlink, c, now),
            7 if free => {
                let kinds = [
                    Kind::Fifo,
                    Kind::Socket,
                    Kind::CharDevice,
                    Kind::BlockDevice,
                ];
                self.create(Some((directory, name)), kinds[c % 4], c, now);
            }
            8 => self.create(None, Kind::Regular, c, now),
            9..=14 if !regular.is_empty() => self.content(step, regular[c % regular.len()], d, now),
            15 | 16 if !regular.is_empty() => self.size(step, regular[c % regular.len()], d, now),
            17 if free && !regular.is_empty() => {
                let id = regular[c % regular.len()];
                let at = self.place(directory, name);
                self.mutate(
                    &Mutation::Link {
                        fnode: self.fnodes[id],
                        at,
                    },
                    id,
                    now,
                    |files| {
                        files.add(directory, name, id);
                    },
                );
            }
            18 | 19 if !names.is_empty() => self.unlink(&names[c % names.len()], now),
            20..=23 if !names.is_empty() => {
                self.rename(&names[c % names.len()], directory, name, now);
            }
            24 if names.len() > 1 => {
                self.exchange(&names[c % names.len()], &names[d % names.len()], now);
            }
            25 => self.attributes(living[c % living.len()], d, now),
            26 => self.xattrs(living[c % living.len()], name, d, now),
            27 => self.release(c, now),
            28 | 29 => self.seal(),
            30 => self.acknowledge(),
            31 if c.is_multiple_of(4) => self.take_over(d, now),
            _ => {}
        }
    }

    fn place<'a>(&self, parent: usize, name: &'a [u8]) -> Place<'a> {
        Place {
            parent: self.fnodes[parent],
            name,
        }
    }

    /// Does a mutation to the model, and records it. Files that it does not create are `id` at most.
    fn mutate(
        &mut self,
        mutation: &Mutation<'_>,
        id: usize,
        now: Timestamp,
        apply: impl FnOnce(&mut Files),
    ) -> bool {
        let Ok(cost) = self.writer.cost(mutation) else {
            assert_eq!(self.mode, Mode::Compat, "native logs say everything");
            return false;
        };
        if let Some(real) = &mut self.real {
            let id_of = |fnode| self.fnodes.iter().position(|of| *of == fnode).unwrap();
            real.apply(&self.files, mutation, id, id_of);
        }
        apply(&mut self.files);
        let before = self.out.len();
        let content = &self.files.files[id].content;
        let mut read = |offset: u64, bytes: &mut [u8]| {
            let rest = content.get(offset as usize..).unwrap_or_default();
            let length = bytes.len().min(rest.len()).min(5000);
            bytes[..length].copy_from_slice(&rest[..length]);
            length
        };
        let written = self
            .writer
            .write(mutation, now, &mut read, &mut self.out)
            .unwrap();
        assert!(self.out.len() - before <= cost, "{mutation:?} cost {cost}");
        if let Some(fnode) = written.fnode {
            self.fnodes.push(fnode);
        }
        if let Some((old, new)) = written.replaced {
            assert_eq!(self.fnodes[id], old);
            self.fnodes[id] = new;
        }
        self.expect();
        true
    }

    fn seal(&mut self) {
        if self.writer.seal().is_some() {
            self.unacknowledged.push(self.log.len());
            self.log.extend_from_slice(&self.out.split());
        }
    }

    fn acknowledge(&mut self) {
        if !self.unacknowledged.is_empty() {
            let begin = self.unacknowledged.remove(0);
            self.writer.acknowledged(begin as i64).unwrap();
            self.hints.push(self.writer.hints());
        }
    }

    fn played(&self, hints: &FsmHints) -> MemoryImage {
        self.played_from(hints, &self.log.clone().freeze())
    }

    fn played_from(&self, hints: &FsmHints, bytes: &Bytes) -> MemoryImage {
        let mut image = MemoryImage::new(self.mode, hints).unwrap();
        image.play(&LOG.into(), bytes, |_, _, _| {}).unwrap();
        assert!(image.fsm.hinted_segments().is_empty(), "all hints are used");
        assert_eq!(image.tree.orphans(), Vec::new());
        image
    }

    /// The log without what hints do not name, as if it was pruned: no byte of it is needed.
    fn pruned(&self, hints: &FsmHints) -> Bytes {
        let fsm = Fsm::new(hints).unwrap();
        let mut pruned = vec![0; self.log.len()];
        let mut end = 0;
        for segment in fsm.hinted_segments().iter() {
            end = segment.last_offset as usize;
            let range = segment.first_offset as usize..end;
            pruned[range.clone()].copy_from_slice(&self.log[range]);
        }
        pruned[end..].copy_from_slice(&self.log[end..]);
        pruned.into()
    }

    /// Another author recovers the log and goes on.
    fn take_over(&mut self, pick: usize, now: Timestamp) {
        self.seal();
        while !self.unacknowledged.is_empty() {
            self.acknowledge();
        }
        let fresh = FsmHints::of_log(LOG);
        let hints = match self.hints.len() {
            0 => &fresh,
            count => &self.hints[pick % count],
        };
        let image = through_checkpoint(self.played(hints));
        self.was_taken_over = true;
        let author = Author::new(self.writer.author().get() + 1).unwrap();
        self.writer = OpWriter::new(self.mode, author, LOG, image.fsm, image.tree).unwrap();
        self.writer.mark(Mark::Claim, now, &mut self.out);
        let root = self.files.files[0].inode.clone();
        self.writer.begin(&root, now, &mut self.out).unwrap();
        for file in &mut self.files.files {
            file.unnamed = false;
        }
        if let Some(real) = &mut self.real {
            real.forget_unnamed();
        }
        self.expect();
    }

    fn finish(mut self) {
        self.seal();
        while !self.unacknowledged.is_empty() {
            self.acknowledge();
        }
        let with_data = self.mode == Mode::Native;
        let bytes = self.log.clone().freeze();
        let log: Arc<str> = LOG.into();
        let mut image = MemoryImage::new(self.mode, &FsmHints::of_log(LOG)).unwrap();
        let mut times = Vec::new();
        let mut base = (self.mode == Mode::Compat).then(BaseReader::new);
        let mut rest = &bytes[..];
        image
            .play(&log, &bytes, |image, decoded, applied| {
                assert_eq!(applied, Ok(Applied::Applied));
                times.extend(decoded.op.time);
                if let Some(base) = &mut base {
                    rest = base.apply(rest);
                }
                if !decoded.op.ends_group() {
                    return;
                }
                let seq_no = decoded.op.seq_no;
                let (_, expected) = self.expected.range(..=seq_no).next_back().unwrap();
                if !expected.is_empty() {
                    let views = views_of(&image.snapshot(), with_data);
                    assert_eq!(views, *expected, "after op {seq_no}");
                }
                if let Some(base) = &base {
                    compare_base(base, expected);
                }
            })
            .unwrap();
        assert!(rest.is_empty() || base.is_none());
        assert!(times.is_sorted(), "times never decrease");
        assert_eq!(image.fsm.next_seq_no(), self.writer.next_seq_no());
        assert_eq!(image.fsm.next_checksum(), self.writer.next_checksum());
        if !self.was_taken_over {
            // A successor knows only of the segments that it read.
            assert_eq!(
                image.fsm.hints(&log),
                self.writer.fsm().hints(&log),
                "recorder's hints are exact"
            );
        }
        let last = image.snapshot_without_zeros();
        let stored = through_checkpoint(image.clone());
        assert_eq!(stored.snapshot_without_zeros(), last);
        assert_eq!(stored.fsm.links(), image.fsm.links());
        assert_eq!(stored.fsm.live_nodes(), image.fsm.live_nodes());
        for hints in &self.hints {
            let of_bytes = FsmHints::decode(&hints.encode()).unwrap();
            assert_eq!(of_bytes, *hints);
            let played = self.played_from(hints, &self.pruned(hints));
            assert_eq!(played.snapshot_without_zeros(), last);
            assert_eq!(played.fsm.next_checksum(), image.fsm.next_checksum());
        }
        // Files live as long as the model has them: none stays behind without a name.
        assert_eq!(image.tree.fnodes().count(), self.files.living().len());
        assert_eq!(
            self.writer.tree().fnodes().count(),
            self.files.living().len()
        );
    }
}

fn compare_base(base: &BaseReader, expected: &Views) {
    let files = expected
        .iter()
        .filter(|(_, view)| view.attributes.kind != Kind::Directory);
    let files: BTreeMap<_, _> = files
        .map(|(path, view)| (path.clone(), view.content.clone()))
        .collect();
    assert_eq!(base.files(), files);
    for (path, view) in expected {
        if view.attributes.kind == Kind::Directory {
            let path = if path == b"/" { &[][..] } else { &path[..] };
            assert!(base.links.contains_key(&[path, b"/.gzdir"].concat()));
        }
    }
}

/// The state as somebody has it who kept it as bytes.
fn through_checkpoint(mut image: MemoryImage) -> MemoryImage {
    let checkpoint = Checkpoint {
        offset: 4711,
        fsm: image.fsm.clone(),
        tree: image.tree.clone(),
        liveness: None,
    };
    let Ok(bytes) = checkpoint.encode() else {
        assert_eq!(image.tree.mode(), Mode::Compat, "native states can be said");
        return image;
    };
    let cut = bytes.slice(..bytes.len() - 1);
    assert!(Checkpoint::decode(&cut).is_err(), "a cut one is none");
    let again = Checkpoint::decode(&bytes).unwrap();
    assert_eq!(again.offset, 4711);
    (image.fsm, image.tree) = (again.fsm, again.tree);
    image
}
