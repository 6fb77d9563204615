use proptest::prelude::*;

use super::*;

fn published(offset: i64, log: &str) -> PublishedHints {
    PublishedHints {
        author: Author::new(7).unwrap(),
        offset,
        seq_no: 3,
        checksum: 0xdead_beef,
        time: Timestamp {
            seconds: 1_700_000_000,
            nanos: 5,
        },
        hints: FsmHints::of_log(log),
    }
}

fn scan(scanner: &mut HintsScanner) -> Vec<Scanned> {
    std::iter::from_fn(|| scanner.next_record()).collect()
}

#[test]
fn a_record_reads_back() {
    let hints = published(42, "app/log");
    let record = hints.encode().unwrap();
    assert_eq!(&record[..4], b"gzh1");
    assert_eq!(PublishedHints::decode(record), Ok(hints));
}

#[test]
fn a_changed_byte_is_noticed_and_later_records_are_found() {
    let first = published(42, "app/log").encode().unwrap();
    let second = published(43, "app/log");
    for at in 0..first.len() {
        let mut bytes = first.to_vec();
        bytes[at] ^= 0x40;
        bytes.extend_from_slice(&second.encode().unwrap());
        let mut scanner = HintsScanner::new(100);
        scanner.feed(100, &bytes);
        let mut found = scan(&mut scanner);
        while scanner.unfinished().is_some() {
            scanner.skip_unfinished();
            found.extend(scan(&mut scanner));
        }
        let records: Vec<_> = found
            .iter()
            .filter(|scanned| matches!(scanned, Scanned::Record { .. }))
            .collect();
        let begin = 100 + i64::try_from(first.len()).unwrap();
        let second = Scanned::Record {
            begin,
            end: 100 + i64::try_from(bytes.len()).unwrap(),
            hints: second.clone(),
        };
        assert_eq!(records, [&second], "byte {at}");
    }
}

#[test]
fn a_cut_record_is_unfinished() {
    let record = published(42, "app/log").encode().unwrap();
    for length in 1..record.len() {
        let mut scanner = HintsScanner::new(0);
        scanner.feed(0, &record[..length]);
        assert_eq!(scanner.next_record(), None);
        let is_certain = length >= 4;
        assert_eq!(scanner.unfinished().is_some(), is_certain, "{length} bytes");
    }
}

#[test]
fn absurd_lengths_are_refused() {
    let mut record = published(42, "app/log").encode().unwrap().to_vec();
    record[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut scanner = HintsScanner::new(0);
    scanner.feed(0, &record);
    let found = scanner.next_record();
    let error = RecordError::TooLong(u32::MAX);
    assert_eq!(found, Some(Scanned::Damaged { offset: 0, error }));
}

proptest! {
    #[test]
    fn records_are_found_between_junk_in_pieces_of_any_size(
        junk in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 4),
        sizes in proptest::collection::vec(1..30_usize, 1..10),
    ) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for (number, junk) in (1_i64..).zip(&junk) {
            bytes.extend_from_slice(junk);
            let hints = published(number, "a/log");
            bytes.extend_from_slice(&hints.encode().unwrap());
            expected.push(hints);
        }
        let mut scanner = HintsScanner::new(10);
        let mut found = Vec::new();
        let mut sizes = sizes.iter().cycle();
        let mut at = 0;
        while at < bytes.len() {
            let end = (at + sizes.next().unwrap()).min(bytes.len());
            scanner.feed(10 + i64::try_from(at).unwrap(), &bytes[at..end]);
            while let Some(scanned) = scanner.next_record() {
                if let Scanned::Record { hints: record, .. } = scanned {
                    found.push(record);
                }
            }
            at = end;
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut record = b"gzh1".to_vec();
        record.extend_from_slice(&bytes);
        drop(PublishedHints::decode(record.clone().into()));
        let mut scanner = HintsScanner::new(0);
        scanner.feed(0, &record);
        scan(&mut scanner);
    }
}
