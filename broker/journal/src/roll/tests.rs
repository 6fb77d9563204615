use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gazette_protocol::{CompressionCodec, LabelSet};

use super::*;

fn at(unix: u64) -> Now {
    #[expect(clippy::disallowed_methods, reason = "no result depends on it")]
    let instant = Instant::now();
    Now {
        instant,
        wall: UNIX_EPOCH + Duration::from_secs(unix),
    }
}

/// A spool of ten bytes at [100, 110), first appended to at this time.
fn spool(first_append: SystemTime) -> Spool {
    let mut spool = Spool::new("a/journal");
    let empty = Fragment {
        journal: "a/journal".into(),
        begin: 100,
        end: 100,
        compression_codec: CompressionCodec::Snappy.into(),
        ..Fragment::default()
    };
    spool.apply(&empty, &LabelSet::default(), first_append);
    spool.append(0, b"0123456789").unwrap();
    let next = spool.next();
    spool.apply(&next, &LabelSet::default(), first_append);
    spool
}

fn spec(length: i64, flush_interval: i64) -> journal_spec::Fragment {
    let mut spec = journal_spec::Fragment {
        length,
        compression_codec: CompressionCodec::Gzip.into(),
        ..journal_spec::Fragment::default()
    };
    spec.flush_interval.seconds = flush_interval;
    spec
}

/// Begin and codec of the fragment that follows, or none if the present one stays.
fn rolled(
    roll_to: Option<i64>,
    spec: &journal_spec::Fragment,
    first: u64,
    now: u64,
) -> Option<(i64, CompressionCodec)> {
    let spool = spool(UNIX_EPOCH + Duration::from_secs(first));
    let next = maybe_roll(&spool, roll_to, spec, at(now));
    if next == *spool.fragment() {
        return None;
    }
    assert_eq!((next.end, next.sum.is_zero()), (next.begin, true));
    assert_eq!(next.journal, "a/journal");
    Some((next.begin, next.compression_codec()))
}

#[test]
fn a_fragment_is_closed_when_it_is_longer_than_the_spec_says() {
    assert_eq!(rolled(None, &spec(10, 0), 0, 0), None, "it may be as long");
    assert_eq!(
        rolled(None, &spec(9, 0), 0, 0),
        Some((110, CompressionCodec::Gzip))
    );
}

#[test]
fn a_fragment_is_closed_for_another_begin() {
    let spec = spec(1024, 0);
    let gzip = CompressionCodec::Gzip;
    assert_eq!(rolled(Some(110), &spec, 0, 0), Some((110, gzip)));
    assert_eq!(rolled(Some(500), &spec, 0, 0), Some((500, gzip)));
    assert_eq!(rolled(Some(100), &spec, 0, 0), None, "there it begins");
    assert_eq!(
        rolled(Some(50), &spec, 0, 0),
        Some((110, gzip)),
        "never backwards"
    );
}

#[test]
fn flush_intervals_count_from_the_epoch() {
    let spec = spec(1024, 60);
    assert_eq!(rolled(None, &spec, 119, 119), None);
    assert!(
        rolled(None, &spec, 119, 120).is_some(),
        "one second later is another interval"
    );
    assert_eq!(rolled(None, &spec, 120, 179), None);
    assert!(
        rolled(None, &spec, 120, 60).is_some(),
        "also if the clock went back"
    );
}

#[test]
fn a_change_of_codec_alone_closes_nothing_but_an_empty_fragment() {
    assert_eq!(rolled(None, &spec(1024, 0), 0, 0), None);
    let spool = Spool::new("a/journal");
    let next = maybe_roll(&spool, None, &spec(1024, 60), at(1000));
    assert_eq!(
        (next.begin, next.compression_codec()),
        (0, CompressionCodec::Gzip)
    );
}
