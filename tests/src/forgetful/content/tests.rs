use proptest::prelude::*;

use super::super::luck::{Everything, Seeded, Strict};
use super::*;

#[derive(Debug, Clone)]
enum Step {
    Write(u64, Vec<u8>),
    Truncate(u64),
    Zero(u64, u64),
    Sync,
    SyncRange(u64, u64),
    WriteBack(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let offset = 0..6 * PAGE;
    let length = 1_usize..2 * PAGE_BYTES;
    prop_oneof![
        4 => (offset.clone(), length, 1_u8..).prop_map(|(at, length, byte)| Step::Write(at, vec![byte; length])),
        1 => offset.clone().prop_map(Step::Truncate),
        1 => (offset.clone(), offset.clone()).prop_map(|(a, b)| Step::Zero(a.min(b), a.max(b))),
        1 => Just(Step::Sync),
        1 => (offset.clone(), offset).prop_map(|(a, b)| Step::SyncRange(a.min(b), a.max(b))),
        1 => any::<usize>().prop_map(Step::WriteBack),
    ]
}

/// The same by the simplest means: all bytes, now and at the last whole sync.
#[derive(Debug, Default)]
struct Naive {
    current: Vec<u8>,
    /// For each page the versions that may be found after a loss, from the last that was synced for sure.
    versions: BTreeMap<usize, Vec<Vec<u8>>>,
    synced_size: usize,
}

impl Naive {
    fn page(&self, page: usize) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_BYTES];
        let begin = (page * PAGE_BYTES).min(self.current.len());
        let end = (begin + PAGE_BYTES).min(self.current.len());
        bytes[..end - begin].copy_from_slice(&self.current[begin..end]);
        bytes
    }

    /// Notes what the pages hold now, as one more version that may be found.
    fn note(&mut self) {
        for page in 0..10 {
            let now = self.page(page);
            let versions = self
                .versions
                .entry(page)
                .or_insert_with(|| vec![vec![0; PAGE_BYTES]]);
            if versions.last() != Some(&now) {
                versions.push(now);
            }
        }
    }

    fn sync(&mut self) {
        for page in 0..10 {
            self.versions.insert(page, vec![self.page(page)]);
        }
        self.synced_size = self.current.len();
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Write(at, bytes) => {
                let at = usize::try_from(*at).unwrap();
                let end = at + bytes.len();
                self.current.resize(self.current.len().max(end), 0);
                self.current[at..end].copy_from_slice(bytes);
            }
            Step::Truncate(size) => self.current.resize(usize::try_from(*size).unwrap(), 0),
            Step::Zero(begin, end) => {
                let end = usize::try_from(*end).unwrap().min(self.current.len());
                let begin = usize::try_from(*begin).unwrap().min(end);
                self.current[begin..end].fill(0);
            }
            Step::Sync => self.sync(),
            // At least these; what else lasts is a matter of luck.
            Step::SyncRange(..) | Step::WriteBack(_) => {}
        }
        self.note();
    }
}

fn apply(file: &mut FileBytes, step: &Step) {
    match step {
        Step::Write(at, bytes) => file.write(*at, bytes),
        Step::Truncate(size) => file.truncate(*size),
        Step::Zero(begin, end) => file.zero(*begin, *end),
        Step::Sync => file.sync(),
        Step::SyncRange(begin, end) => file.sync_range(*begin, *end),
        Step::WriteBack(nth) => file.write_back(*nth),
    }
}

fn all(content: &Content) -> Vec<u8> {
    content.read(0, usize::try_from(content.size()).unwrap())
}

proptest! {
    #[test]
    fn programs_see_what_they_wrote(steps in prop::collection::vec(any_step(), 0..40)) {
        let mut file = FileBytes::default();
        let mut naive = Naive::default();
        for step in &steps {
            apply(&mut file, step);
            naive.step(step);
            prop_assert!(all(file.current()) == naive.current, "{step:?}");
        }
        prop_assert!(all(&file.survivor(&mut Everything)) == naive.current);
        file.sync();
        prop_assert!(all(&file.survivor(&mut Strict)) == naive.current);
    }

    #[test]
    fn only_a_whole_sync_changes_what_surely_survives(
        steps in prop::collection::vec(any_step(), 0..40),
    ) {
        let mut file = FileBytes::default();
        let mut synced = Vec::new();
        for step in steps.iter().filter(|s| !matches!(s, Step::SyncRange(..) | Step::WriteBack(_))) {
            apply(&mut file, step);
            if let Step::Sync = step {
                synced = all(file.current());
            }
            prop_assert!(all(&file.survivor(&mut Strict)) == synced, "{step:?}");
        }
    }

    #[test]
    fn a_page_survives_in_a_version_that_it_once_had(
        steps in prop::collection::vec(any_step(), 0..40),
        seed: u64,
    ) {
        let mut file = FileBytes::default();
        let mut naive = Naive::default();
        naive.note();
        for step in &steps {
            apply(&mut file, step);
            naive.step(step);
        }
        let left = all(&file.survivor(&mut Seeded::new(seed)));
        for (page, bytes) in left.chunks(PAGE_BYTES).enumerate() {
            let is_version = naive.versions[&page].iter().any(|version| {
                // The end of the file may cut it, and what is behind an end is zero.
                let kept = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
                version[..kept] == bytes[..kept]
            });
            prop_assert!(is_version, "page {page}");
        }
    }

    #[test]
    fn a_synced_range_survives(
        steps in prop::collection::vec(any_step(), 0..20),
        at in 0..6 * PAGE,
        length in 1..2 * PAGE,
        seed: u64,
    ) {
        let mut file = FileBytes::default();
        for step in &steps {
            apply(&mut file, step);
        }
        let bytes = vec![0xee; usize::try_from(length).unwrap()];
        file.write(at, &bytes);
        file.sync_range(at, at + length);
        let size = file.current().size();
        let left = file.survivor(&mut Strict);
        prop_assert!(left.read(at, bytes.len()) == bytes);
        // With luck, the file is not shorter than what was synced, unless it was cut later.
        let lucky = file.survivor(&mut Seeded::new(seed));
        prop_assert!(lucky.size() >= left.size().min(size));
        prop_assert!(lucky.read(at, bytes.len()) == bytes);
    }
}
