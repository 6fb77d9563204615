//! A recorder, its log in a store, a cleaner and a pruner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gazette_recoverylog_fsm::clean::{self, CleanPolicy, Repeat};
use gazette_recoverylog_fsm::image::{MemoryImage, Snapshot, SparseContent};
use gazette_recoverylog_fsm::prune::{Keep, StoredRange, Verdict, judge};
use gazette_recoverylog_fsm::{
    Applied, Author, Body, Change, Event, Fnode, Fsm, FsmHints, Inode, Kind, Liveness, Mark, Mode,
    Mutation, OpExtent, OpReader, OpWriter, RecordedOp, SizeChange, Timestamp, Tree,
};

pub(super) const LOG: &str = "test/log";

/// Bytes of a fragment of the store.
const FRAGMENT: i64 = 16 << 10;

/// What a log may take beyond multiples of the live size: fragments that are not whole, and what was
/// written since hints were made.
const SLACK: u64 = 128 << 10;

/// A defect that is planted, to see that the tests find it: what liveness is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Ranges that read as zeros.
    Zeros,
    /// Times of writes.
    Mtime,
    /// Changes of size.
    Size,
    /// Writes of less than a page.
    Parts,
    /// Changes of attributes.
    Attributes,
    /// Later names.
    Names,
    /// That a page is needed below what was written to a part of it.
    OlderPages,
    /// The pruner does not look at what is needed by older hints.
    PruneAll,
}

#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each turns a part of the world on"
)]
pub(super) struct Settings {
    pub(super) chunk_bytes: u64,
    pub(super) cleans: bool,
    pub(super) prunes: bool,
    /// Files are recorded again that nobody asked for.
    pub(super) repeats: bool,
    /// Moments are kept.
    pub(super) keeps: bool,
    /// Successors go on from what they recovered.
    pub(super) takes_over: bool,
    pub(super) replay_every: usize,
    pub(super) within_bounds: bool,
    pub(super) fault: Option<Fault>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            chunk_bytes: 4096,
            cleans: true,
            prunes: false,
            repeats: false,
            keeps: false,
            takes_over: false,
            replay_every: 1,
            within_bounds: false,
            fault: None,
        }
    }
}

/// Hints that must stay usable, and what they lead to.
struct Kept {
    name: &'static str,
    hints: FsmHints,
    offset: usize,
    /// For those that end where they do.
    point: Option<Snapshot>,
}

pub(super) struct World {
    settings: Settings,
    pub(super) writer: OpWriter,
    out: BytesMut,
    /// The log; pruned bytes are overwritten.
    log: Vec<u8>,
    name: Arc<str>,
    contents: BTreeMap<Fnode, SparseContent>,
    fsm: Fsm,
    liveness: Liveness,
    clock: i64,
    steps: usize,
    author: u32,
    kept: Vec<Kept>,
    pruned: BTreeSet<i64>,
    most_read: f64,
    most_retained: f64,
    repeated: u64,
}

impl World {
    pub(super) fn new(settings: Settings) -> Self {
        let liveness = Liveness::with_sizes(settings.chunk_bytes, 3 * settings.chunk_bytes);
        let fsm = Fsm::of_log(LOG).unwrap();
        let writer = OpWriter::new(
            Mode::Native,
            Author::new(1).unwrap(),
            LOG,
            fsm.clone(),
            Tree::new(Mode::Native),
        );
        let mut world = Self {
            writer: writer.unwrap().with_liveness(liveness.clone()),
            settings,
            out: BytesMut::new(),
            log: Vec::new(),
            name: LOG.into(),
            contents: BTreeMap::new(),
            fsm,
            liveness,
            clock: 0,
            steps: 0,
            author: 1,
            kept: Vec::new(),
            pruned: BTreeSet::new(),
            most_read: 0.0,
            most_retained: 0.0,
            repeated: 0,
        };
        world.begin();
        world.append();
        world
    }

    fn begin(&mut self) {
        let now = self.now();
        self.writer.mark(Mark::Claim, now, &mut self.out);
        let root = Inode {
            kind: Kind::Directory,
            mode: 0o755,
            ..Inode::default()
        };
        self.writer.begin(&root, now, &mut self.out).unwrap();
    }

    pub(super) fn now(&mut self) -> Timestamp {
        self.clock += 1;
        Timestamp {
            seconds: self.clock,
            nanos: 1,
        }
    }

    /// Records a mutation if it fits the tree.
    pub(super) fn mutate(&mut self, mutation: &Mutation<'_>) -> Option<Fnode> {
        let now = self.now();
        let mut no_content = |_: u64, _: &mut [u8]| 0;
        let written = self
            .writer
            .write(mutation, now, &mut no_content, &mut self.out);
        let written = written.ok()?;
        written.seq_nos?;
        match *mutation {
            Mutation::Write {
                fnode,
                offset,
                data,
                ..
            } => self.contents.entry(fnode).or_default().write(offset, data),
            Mutation::Size { fnode, change, .. } => {
                self.contents.entry(fnode).or_default().change(change);
            }
            _ => {}
        }
        written.fnode
    }

    pub(super) fn size(&self, fnode: Fnode) -> u64 {
        self.contents.get(&fnode).map_or(0, SparseContent::size)
    }

    /// Appends the open batch, and takes what it holds as a player would.
    fn append(&mut self) {
        if self.writer.seal().is_none() {
            return;
        }
        let begin = self.log.len();
        let batch = self.out.split().freeze();
        self.log.extend_from_slice(&batch);
        self.writer.acknowledged(begin as i64).unwrap();
        let mut reader = OpReader::new(begin as i64);
        reader.feed(batch);
        loop {
            match reader.next_event() {
                Event::NeedMore => break,
                Event::Op(decoded) => {
                    let extent = OpExtent {
                        log: &self.name,
                        begin: decoded.begin,
                        end: decoded.end,
                    };
                    let applied = self.fsm.apply(&decoded.op, decoded.next_checksum, extent);
                    let applied = applied.unwrap();
                    let told = self.as_told(&decoded.op);
                    self.liveness.apply(&told, applied, extent);
                }
                Event::Content { .. } => {}
                event => panic!("{event:?}"),
            }
        }
        if self.settings.fault.is_none() {
            assert!(self.writer.liveness() == Some(&self.liveness));
        }
        self.contents
            .retain(|fnode, _| self.writer.tree().recorded(*fnode).is_some());
    }

    /// An op as liveness is told it, with the planted fault.
    fn as_told(&self, op: &RecordedOp) -> RecordedOp {
        let mut told = op.clone();
        let nothing = Body::NoOp { mark: None };
        match (self.settings.fault, &mut told.body) {
            (Some(Fault::Mtime), Body::Write(write)) => write.mtime = None,
            (Some(Fault::Parts), Body::Write(write)) if write.length < 4096 => write.length = 0,
            (Some(Fault::OlderPages), Body::Write(write)) => {
                let end = (write.offset + write.length + 4095) / 4096 * 4096;
                write.offset = write.offset / 4096 * 4096;
                write.length = end - write.offset;
            }
            // The pages are gone, but nobody knows by which op.
            (
                Some(Fault::Zeros),
                Body::Change {
                    change:
                        Change::Size(
                            SizeChange::Punch { .. }
                            | SizeChange::Zero {
                                keep_size: true, ..
                            },
                        ),
                    ..
                },
            )
            | (
                Some(Fault::Size),
                Body::Change {
                    change: Change::Size(_),
                    ..
                },
            )
            | (
                Some(Fault::Attributes),
                Body::Change {
                    change: Change::Attributes(_),
                    ..
                },
            )
            | (Some(Fault::Names), Body::Link { .. }) => told.body = nothing,
            _ => {}
        }
        told
    }

    /// Ends a step: what was recorded is appended, cleaned, pruned, and replayed.
    pub(super) fn end_step(&mut self) {
        self.steps += 1;
        self.append();
        if self.settings.repeats && self.steps.is_multiple_of(3) {
            self.repeat_some_file();
        }
        if self.settings.cleans {
            self.clean();
        }
        if self.settings.prunes && self.steps.is_multiple_of(5) {
            self.publish();
            self.prune();
        }
        if self.steps.is_multiple_of(self.settings.replay_every) {
            self.replay();
        }
        if self.settings.within_bounds {
            self.check_bounds();
        }
    }

    pub(super) fn expected(&self) -> Snapshot {
        let tree = self.writer.tree().clone();
        MemoryImage::of(self.fsm.clone(), tree, self.contents.clone()).snapshot_without_zeros()
    }

    fn policy(&self) -> CleanPolicy {
        CleanPolicy {
            floor_bytes: 4 * self.settings.chunk_bytes,
            ..CleanPolicy::default()
        }
    }

    fn clean(&mut self) {
        let policy = self.policy();
        for _ in 0..3 {
            let chosen = clean::choose(&self.liveness, &policy, 8 << 10);
            if chosen.is_empty() {
                return;
            }
            let before = self.log.len();
            let looks = self.settings.replay_every == 1;
            let view = looks.then(|| self.expected());
            for repeat in chosen {
                self.repeat(repeat);
            }
            self.append();
            self.repeated += (self.log.len() - before) as u64;
            let is_same = view.is_none_or(|view| view == self.expected());
            assert!(is_same, "the cleaner changed a file");
        }
    }

    fn repeat_some_file(&mut self) {
        let of = self.steps % self.contents.len().max(1);
        let Some((&fnode, content)) = self.contents.iter().nth(of) else {
            return;
        };
        for block in content.data_blocks() {
            self.repeat(Repeat::Content {
                fnode,
                offset: block * 4096,
                length: 4096,
            });
        }
        self.append();
    }

    fn repeat(&mut self, repeat: Repeat) {
        let now = self.now();
        let done = match repeat {
            Repeat::Content {
                fnode,
                offset,
                length,
            } => {
                let bytes = self.contents.get(&fnode).map(SparseContent::bytes);
                let bytes = bytes.unwrap_or_default();
                let end = bytes.len().min((offset + length) as usize);
                let data = bytes.get(offset as usize..end).unwrap_or_default();
                self.writer
                    .rerecord(fnode, offset, data, now, &mut self.out)
            }
            Repeat::Size { fnode } => self.writer.repeat_size(fnode, now, &mut self.out),
            Repeat::Inode { fnode } => self.writer.restate(fnode, now, &mut self.out),
        };
        done.unwrap();
    }

    pub(super) fn hints(&self) -> FsmHints {
        let hints = self.liveness.hints(&self.fsm, &self.name);
        FsmHints::decode(&hints.encode()).unwrap()
    }

    /// Publishes hints: the newest and the ones before stay usable, and some moments for longer.
    fn publish(&mut self) {
        // Of those that were published the newest becomes the older one, which stays too.
        self.kept
            .retain(|kept| kept.point.is_some() || kept.name == "newest");
        for kept in &mut self.kept {
            if kept.name == "newest" {
                kept.name = "older";
            }
        }
        let keeps = self.settings.keeps && self.steps.is_multiple_of(25);
        let newest = Kept {
            name: "newest",
            hints: self.hints(),
            offset: 0,
            point: None,
        };
        if keeps {
            self.kept.push(Kept {
                name: "kept moment",
                hints: self.hints(),
                offset: self.log.len(),
                point: Some(self.expected()),
            });
            if self.kept.iter().filter(|kept| kept.point.is_some()).count() > 3 {
                let first = self.kept.iter().position(|kept| kept.point.is_some());
                self.kept.remove(first.unwrap());
            }
        }
        self.kept.push(newest);
    }

    fn prune(&mut self) {
        let keeps: Vec<Keep<&str>> = self
            .kept
            .iter()
            .filter(|kept| self.settings.fault != Some(Fault::PruneAll) || kept.name == "newest")
            .map(|kept| match kept.point {
                Some(_) => {
                    let at = kept.offset as i64;
                    Keep::point(kept.name, LOG, &kept.hints, (at, at))
                }
                None => Keep::hints(kept.name, LOG, &kept.hints),
            })
            .collect();
        let fragments: Vec<StoredRange> = (0..self.log.len() as i64 / FRAGMENT)
            .map(|number| number * FRAGMENT)
            .filter(|begin| !self.pruned.contains(begin))
            .map(|begin| StoredRange {
                begin,
                end: begin + FRAGMENT,
                is_persisted: true,
            })
            .collect();
        for (fragment, verdict) in fragments.iter().zip(judge(&fragments, &keeps)) {
            if verdict == Verdict::Goes {
                self.pruned.insert(fragment.begin);
                self.log[fragment.begin as usize..fragment.end as usize].fill(0x66);
            }
        }
    }

    /// Replays what hints name and nothing else, twice: the second time by hints of what was replayed.
    fn replay(&mut self) {
        let expected = self.expected();
        let hints = self.hints();
        let (image, liveness) = self.play(&hints, &masked(&self.log, &hints));
        assert!(
            image.snapshot_without_zeros() == expected,
            "replayed by the newest hints"
        );
        assert_eq!(image.fsm.next_seq_no(), self.fsm.next_seq_no());
        assert_eq!(image.fsm.next_checksum(), self.fsm.next_checksum());
        assert_eq!(image.tree.orphans(), []);
        assert_eq!(image.fsm.links(), self.fsm.links());
        if self.settings.fault.is_none() {
            assert_eq!(liveness.live_bytes(), self.liveness.live_bytes());
        }
        let mut stored = self.liveness.encode().to_vec();
        let back = Liveness::decode(&stored).unwrap();
        assert_eq!(back.estimate(), self.liveness.estimate());
        assert_eq!(back.encode(), stored);
        assert_eq!(back.hints(&self.fsm, &self.name), hints);
        let at = self.steps * 31 % stored.len();
        stored[at] ^= 4;
        assert!(Liveness::decode(&stored).is_err());
        let again = liveness.hints(&image.fsm, &self.name);
        let (twice, _) = self.play(&again, &masked(&self.log, &again));
        assert!(
            twice.snapshot_without_zeros() == expected,
            "replayed by hints of what was replayed"
        );
        let wide = image.fsm.hints(&self.name);
        let (wide, _) = self.play(&wide, &masked(&self.log, &hints));
        assert!(
            wide.snapshot_without_zeros() == expected,
            "replayed by plain hints of what was replayed"
        );
        for kept in &self.kept {
            let log = match kept.point {
                Some(_) => &self.log[..kept.offset],
                None => &self.log[..],
            };
            let (image, _) = self.play(&kept.hints, &log.to_vec().into());
            let expected = kept.point.as_ref().unwrap_or(&expected);
            assert!(
                image.snapshot_without_zeros() == *expected,
                "replayed by hints: {}",
                kept.name
            );
        }
        if self.settings.takes_over && self.steps.is_multiple_of(30) {
            self.take_over(image, liveness);
        }
    }

    fn play(&self, hints: &FsmHints, log: &Bytes) -> (MemoryImage, Liveness) {
        let mut image = MemoryImage::new(Mode::Native, hints).unwrap();
        let mut liveness =
            Liveness::with_sizes(self.settings.chunk_bytes, 3 * self.settings.chunk_bytes);
        let name = Arc::clone(&self.name);
        image
            .play(&name, log, |_, decoded, applied| {
                let extent = OpExtent {
                    log: &name,
                    begin: decoded.begin,
                    end: decoded.end,
                };
                let applied: Applied = applied.unwrap();
                liveness.apply(&decoded.op, applied, extent);
            })
            .unwrap();
        assert!(image.fsm.hinted_segments().is_empty());
        assert_eq!(image.fsm.hinted_fnodes().next(), None);
        (image, liveness)
    }

    fn take_over(&mut self, image: MemoryImage, liveness: Liveness) {
        self.author += 1;
        self.fsm = image.fsm.clone();
        self.liveness = liveness.clone();
        let author = Author::new(self.author).unwrap();
        let writer = OpWriter::new(Mode::Native, author, LOG, image.fsm, image.tree);
        self.writer = writer.unwrap().with_liveness(liveness);
        self.begin();
        self.append();
    }

    fn check_bounds(&mut self) {
        let estimate = self.liveness.estimate();
        let live = estimate.live_bytes;
        assert!(
            estimate.read_bytes < 3 * live + SLACK,
            "a recovery reads {} of {live}",
            estimate.read_bytes
        );
        let retained = self.log.len() as u64 - self.pruned.len() as u64 * FRAGMENT as u64;
        assert!(
            retained < 4 * live + SLACK,
            "{retained} are retained of {live}"
        );
        let over = |bytes: u64| bytes as f64 / live as f64;
        if live < SLACK {
            return;
        }
        self.most_read = self.most_read.max(over(estimate.read_bytes));
        self.most_retained = self.most_retained.max(over(retained));
    }

    pub(super) fn report(&self) -> String {
        format!(
            "{} bytes recorded, {} of them again; live {}, read at most {:.2} times that, \
             retained {:.2}; memory {}",
            self.log.len(),
            self.repeated,
            self.liveness.live_bytes(),
            self.most_read,
            self.most_retained,
            self.liveness.memory(),
        )
    }
}

/// The log without what hints do not name.
fn masked(log: &[u8], hints: &FsmHints) -> Bytes {
    let mut masked = vec![0x66; log.len()];
    let mut last = 0;
    for segment in hints.live_nodes.iter().flat_map(|node| &node.segments) {
        let (begin, end) = (segment.first_offset as usize, segment.last_offset as usize);
        masked[begin..end].copy_from_slice(&log[begin..end]);
        last = last.max(end);
    }
    masked[last..].copy_from_slice(&log[last..]);
    masked.into()
}
