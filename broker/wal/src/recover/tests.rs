//! What recovery makes of damaged logs. Logs are written by a real writer on a simulated disk.

use proptest::prelude::*;

use super::*;
use crate::{
    disk::{Crash, Disk, SimDisk},
    log::tests::{Manual, append, options, wait_all},
    options::Options,
    planted::Planted,
};

const JOURNALS: usize = 3;
const ROUNDS: usize = 12;

/// A log after some rounds of appends, and for each journal the end after each round. Each round
/// is one batch, and appends 500 bytes to each journal.
fn images(rounds: usize) -> Vec<Image> {
    let disk = SimDisk::new();
    // So many that none is used again for a while.
    let options = Options {
        segments: 6,
        ..options()
    };
    let (mut manual, _) = Manual::open(&options, &disk, Planted::default()).unwrap();
    let mut spools = Vec::new();
    for number in 0..JOURNALS {
        let journal = manual.log.open_journal(&format!("journal/{number}"), 1);
        spools.push((journal.create_spool(0), journal));
    }
    for round in 0..rounds {
        let mut acks = Vec::new();
        for (spool, journal) in &spools {
            acks.push(append(journal, spool, round * 500, &[7; 500]));
        }
        manual.settle();
        wait_all(acks);
    }
    let disk = disk.restart(Crash::Kill);
    let names = disk.list(std::path::Path::new("/wal")).unwrap();
    let image = |name: String| {
        let path = PathBuf::from("/wal").join(name);
        Image {
            bytes: disk.read(&path).unwrap().into(),
            path,
        }
    };
    names.into_iter().map(image).collect()
}

/// The write heads of all journals.
fn ends(recovery: &Recovery) -> Vec<i64> {
    recovery
        .ledger
        .journals()
        .values()
        .map(|journal| journal.end)
        .collect()
}

/// The segment of a generation.
fn segment(images: &mut [Image], generation: u64) -> &mut Image {
    let is = |image: &&mut Image| {
        matches!(SegmentHeader::decode(&image.bytes),
            HeaderState::Valid(header) if header.generation == generation)
    };
    images.iter_mut().find(is).unwrap()
}

fn change(image: &mut Image, at: usize, with: impl FnOnce(&mut Vec<u8>, usize)) {
    let mut bytes = image.bytes.to_vec();
    with(&mut bytes, at);
    image.bytes = bytes.into();
}

/// Where the records of a segment begin, and where they end.
fn records(image: &Image) -> (Vec<usize>, usize) {
    let HeaderState::Valid(header) = SegmentHeader::decode(&image.bytes) else {
        panic!()
    };
    let (records, end) = read_segment(&Segment { header, image }, Checks::ALL);
    (records.iter().map(|record| record.offset).collect(), end)
}

#[test]
fn a_whole_log_is_recovered() {
    let recovery = recover(&images(ROUNDS), Checks::ALL).unwrap();
    assert_eq!(ends(&recovery), [6000; JOURNALS]);
    assert_eq!(recovery.torn_at, None);
    assert!(recovery.established && recovery.synced);
    let spool = recovery
        .ledger
        .journals()
        .values()
        .next()
        .unwrap()
        .spools
        .values()
        .next();
    assert_eq!(spool.unwrap().extra.writes.len(), ROUNDS);
}

#[test]
fn no_segments_are_an_empty_log() {
    let recovery = recover(&[], Checks::ALL).unwrap();
    assert!(!recovery.established);
    assert_eq!((recovery.next_generation, recovery.next_id), (1, 1));
}

#[test]
fn a_torn_last_batch_goes_as_a_whole_suffix() {
    let mut images = images(ROUNDS);
    let last = segment(&mut images, 1);
    let (offsets, _) = records(last);
    // The first of the three records of the last batch.
    let torn = offsets[offsets.len() - JOURNALS];
    change(last, torn + 60, |bytes, at| bytes[at] ^= 1);
    let recovery = recover(&images, Checks::ALL).unwrap();
    assert_eq!(ends(&recovery), [5500; JOURNALS]);
    assert_eq!(recovery.torn_at.as_ref().unwrap().1, torn as u64);
}

#[test]
fn a_damaged_record_that_was_synced_is_named() {
    let mut images = images(ROUNDS);
    let last = segment(&mut images, 1);
    let (offsets, _) = records(last);
    let damaged = offsets[offsets.len() - 2 * JOURNALS];
    change(last, damaged + 60, |bytes, at| bytes[at] ^= 1);
    let err = recover(&images, Checks::ALL).unwrap_err();
    assert_eq!(err.offset, damaged as u64);
    assert!(matches!(err.cause, CorruptionCause::DamagedRecord { .. }));
    let text = err.to_string();
    assert!(
        text.starts_with("recover /wal/0000000000000001.wal at byte "),
        "{text}"
    );
    assert!(
        text.contains("the record fails its check, but the log goes on at"),
        "{text}"
    );
    assert!(
        text.contains("; next: restore the data folder from a copy"),
        "{text}"
    );
}

#[test]
fn a_damaged_record_of_a_segment_that_another_follows_is_named() {
    let mut images = images(40);
    let oldest = segment(&mut images, 2);
    let (offsets, _) = records(oldest);
    let last = *offsets.last().unwrap();
    change(oldest, last, |bytes, at| bytes[at..].fill(0));
    let err = recover(&images, Checks::ALL).unwrap_err();
    assert_eq!(err.offset, last as u64);
    assert!(matches!(err.cause, CorruptionCause::DamagedRecord { .. }));
}

#[test]
fn a_missing_segment_is_named() {
    let mut images = images(40);
    let path = segment(&mut images, 2).path.clone();
    images.retain(|image| image.path != path);
    let err = recover(&images, Checks::ALL).unwrap_err();
    assert_eq!(err.cause, CorruptionCause::MissingSegment { generation: 2 });
}

#[test]
fn a_segment_with_a_damaged_header_is_named() {
    for generation in [2, 3] {
        let mut images = images(40);
        let image = segment(&mut images, generation);
        change(image, 20, |bytes, at| bytes[at] ^= 1);
        let path = image.path.clone();
        let err = recover(&images, Checks::ALL).unwrap_err();
        assert!(
            matches!(err.cause, CorruptionCause::DamagedHeader { .. }),
            "{err}"
        );
        assert_eq!(err.path, path);
    }
}

#[test]
fn a_log_of_damaged_headers_is_not_an_empty_one() {
    let mut images = images(ROUNDS);
    for image in &mut images {
        change(image, 0, |bytes, at| bytes[at] ^= 1);
    }
    let err = recover(&images, Checks::ALL).unwrap_err();
    assert_eq!(err.cause, CorruptionCause::NoHeader);
}

#[test]
fn a_cut_segment_is_named() {
    let mut images = images(ROUNDS);
    let image = segment(&mut images, 1);
    image.bytes.truncate(4096);
    let err = recover(&images, Checks::ALL).unwrap_err();
    assert_eq!(
        err.cause,
        CorruptionCause::ShortSegment {
            actual: 4096,
            expected: 32768
        }
    );
}

#[test]
fn a_later_format_is_named() {
    let mut images = images(1);
    let image = segment(&mut images, 1);
    change(image, 8, |bytes, at| {
        bytes[at] = 2;
        bytes[12..16].fill(0);
        let crc = crc32c::crc32c(&bytes[..SEGMENT_HEADER_BYTES]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    });
    let err = recover(&images, Checks::ALL).unwrap_err();
    assert_eq!(err.cause, CorruptionCause::UnknownVersion { found: 2 });
    assert!(
        err.to_string()
            .ends_with("; next: start the version of the broker that wrote it")
    );
}

/// Each journal must have the end after some round, in this order: an earlier journal is in a
/// batch before a later one. Returns the number of whole rounds.
fn whole_rounds(recovery: &Recovery) -> usize {
    let ends = ends(recovery);
    assert!(ends.is_sorted_by(|a, b| a >= b), "{ends:?}");
    assert!(ends.iter().all(|end| end % 500 == 0), "{ends:?}");
    for journal in recovery.ledger.journals().values() {
        for spool in journal.spools.values() {
            for (offset, content) in &spool.extra.writes {
                assert!(content.iter().all(|byte| *byte == 7) && content.len() == 500);
                assert!(offset % 500 == 0 && *offset + 500 <= spool.fragment.end.unsigned_abs());
            }
        }
    }
    let last = if ends.len() < JOURNALS {
        0
    } else {
        ends[JOURNALS - 1]
    };
    usize::try_from(last / 500).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // What an unfinished write may leave: the log up to any byte, and anything in the sectors
    // after it up to the end of the last batch.
    #[test]
    fn a_log_that_ends_anywhere_in_its_last_batch_has_all_before(
        cut in any::<proptest::sample::Index>(),
        sectors in proptest::collection::vec(any::<bool>(), 8),
    ) {
        let mut images = images(ROUNDS);
        let last = segment(&mut images, 1);
        let (offsets, end) = records(last);
        let begin = offsets[offsets.len() - JOURNALS];
        let cut = begin + cut.index(end - begin);
        change(last, cut, |bytes, at| {
            for (sector, kept) in sectors.iter().enumerate() {
                let from = at.max((begin / 512 + sector) * 512);
                let to = ((begin / 512 + sector + 1) * 512).min(bytes.len());
                if !kept && from < to {
                    bytes[from..to].fill(0);
                }
            }
        });
        let recovery = recover(&images, Checks::ALL).unwrap();
        prop_assert!(whole_rounds(&recovery) >= ROUNDS - 1);
    }

    // Damage anywhere: it is found, or it hit nothing that was acknowledged but the last batch.
    #[test]
    fn a_damaged_log_loses_nothing_silently(
        rounds in 1usize..60,
        file in any::<proptest::sample::Index>(),
        at in any::<proptest::sample::Index>(),
        bytes in proptest::collection::vec(any::<u8>(), 1..64),
    ) {
        let mut images = images(rounds);
        let count = images.len();
        let image = &mut images[file.index(count)];
        let at = at.index(image.bytes.len());
        change(image, at, |whole, at| {
            let end = (at + bytes.len()).min(whole.len());
            whole[at..end].copy_from_slice(&bytes[..end - at]);
        });
        if let Ok(recovery) = recover(&images, Checks::ALL) {
            prop_assert!(whole_rounds(&recovery) >= rounds - 1);
        }
    }

    #[test]
    fn any_files_are_read_without_a_panic(
        files in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..4),
        keep in 0usize..200,
    ) {
        let mut images = images(2);
        for (image, file) in images.iter_mut().zip(files) {
            let mut bytes = image.bytes[..keep].to_vec();
            bytes.extend(file);
            bytes.resize(32768, 0);
            image.bytes = bytes.into();
        }
        drop(recover(&images, Checks::ALL));
        drop(recover(&images, Checks { records: false }));
    }
}
