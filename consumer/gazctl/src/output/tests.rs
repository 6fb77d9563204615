use super::*;

#[test]
fn bytes_are_told_in_powers_of_1024() {
    for (count, text) in [
        (0, "0 B"),
        (100, "100 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3060, "3.0 KiB"),
        (10 << 10, "10 KiB"),
        (1_048_576, "1.0 MiB"),
        (64 << 20, "64 MiB"),
        (u64::MAX, "16 EiB"),
    ] {
        assert_eq!(bytes(count), text);
    }
}

#[test]
fn times_are_told_in_their_largest_unit() {
    for (seconds, text) in [
        (0, "now"),
        (1, "1 second ago"),
        (18, "18 seconds ago"),
        (60, "1 minute ago"),
        (150, "2 minutes ago"),
        (7200, "2 hours ago"),
        (86_400, "1 day ago"),
        (31_104_000 * 3, "3 years ago"),
    ] {
        assert_eq!(ago(seconds), text);
    }
}

#[test]
fn a_table_without_rows_is_a_header() {
    assert_eq!(
        table(&["NAME".to_owned()], &[]),
        "┌──────┐\n│ NAME │\n└──────┘\n"
    );
}
