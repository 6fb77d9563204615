use proptest::prelude::*;

use super::*;
use crate::{CompressionCodec, duration, journal_spec::Flag};

const FULL: &str = "\
name: acme/orders/part-000
replication: 3
labels:
- name: app.gazette.dev/tag
  value: blue
- name: count
  value: '9'
fragment:
  length: 268435456
  compression_codec: GZIP
  stores:
  - s3://bucket/prefix/?region=us-east-1
  - file:///store/
  refresh_interval: 1m0.5s
  retention: 720h0m0s
  flush_interval: 10m0s
  path_postfix_template: date={{ .Spool.FirstAppendTime.Format \"2006-01-02\" }}
flags: O_RDWR
max_append_rate: 4194304
suspend:
  level: PARTIAL
  offset: 987
";

#[test]
fn a_spec_reads_and_writes_the_same_text() {
    let spec = parse_spec(FULL).unwrap();
    assert_eq!(spec.labels.value_of("count"), Some("9"));
    assert_eq!(spec.fragment.compression_codec(), CompressionCodec::Gzip);
    assert_eq!(
        duration::to_nanos(&spec.fragment.refresh_interval),
        Ok(60_500_000_000)
    );
    assert_eq!(spec.flag(), Some(Flag::ORdwr));
    assert_eq!(
        print_spec(&spec).unwrap().replace('"', "'"),
        FULL.replace('"', "'")
    );
}

#[test]
fn zero_values_are_not_written() {
    assert_eq!(print_spec(&JournalSpec::default()).unwrap(), "{}\n");
    let spec = JournalSpec {
        name: "a/b".to_owned(),
        ..JournalSpec::default()
    };
    assert_eq!(print_spec(&spec).unwrap(), "name: a/b\n");
}

#[test]
fn numbers_may_stand_for_names_and_durations() {
    let spec = parse_spec(
        "fragment: {refresh_interval: 90s, flush_interval: 600000000000}\nflags: 1\nsuspend: {level: 1}\n\
         labels: [{name: aa, value: 9}]\n",
    )
    .unwrap();
    assert_eq!(spec.fragment.refresh_interval.seconds, 90);
    assert_eq!(spec.fragment.flush_interval.seconds, 600);
    assert_eq!(spec.flag(), Some(Flag::ORdonly));
    assert_eq!(spec.suspend_level(), journal_spec::suspend::Level::Partial);
    assert_eq!(spec.labels.value_of("aa"), Some("9"));
}

#[test]
fn faults_tell_their_line() {
    for (text, line, cause) in [
        ("name: a\nbogus: 1\n", 2, "unknown field `bogus`"),
        ("name: a\nname: b\n", 2, "duplicate"),
        (
            "fragment:\n  compression_codec: LZ4\n",
            2,
            "\"LZ4\" is no compression codec",
        ),
        (
            "fragment:\n  retention: 1d\n",
            2,
            "\"1d\" is not a duration",
        ),
        ("flags: 1\nflags2: 1\n", 2, "unknown field"),
        ("suspend: {level: SOME}\n", 1, "no level of suspension"),
        ("replication: many\n", 1, "i32"),
    ] {
        let error = parse_spec(text).unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(error.to_string().contains(cause), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_spec_or_an_error(text in "(?s).{0,80}") {
        let _spec = parse_spec(&text);
    }
}
