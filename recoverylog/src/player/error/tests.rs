use super::*;

const fn at(seconds: i64, nanos: u32) -> Timestamp {
    Timestamp { seconds, nanos }
}

#[test]
fn times_are_shown_as_dates() {
    for (time, shown) in [
        (at(0, 0), "1970-01-01T00:00:00.000Z"),
        (at(951_782_400, 0), "2000-02-29T00:00:00.000Z"),
        (at(951_868_799, 999_999_999), "2000-02-29T23:59:59.999Z"),
        (at(951_868_800, 0), "2000-03-01T00:00:00.000Z"),
        (at(1_767_225_599, 1_000_000), "2025-12-31T23:59:59.001Z"),
        (at(-1, 0), "1969-12-31T23:59:59.000Z"),
        (at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z"),
    ] {
        assert_eq!(show(time), shown);
    }
}

#[test]
fn damage_says_where_what_and_what_to_do() {
    let damage = Damage {
        log: "a/log".to_owned(),
        offset: 70,
        time: Some(at(0, 0)),
        cause: DamageCause::Cut,
        files: vec![b"/a".to_vec(), b"/b".to_vec()],
        good: 50,
    };
    assert_eq!(
        RecoverError::Damaged(Box::new(damage)).to_string(),
        "recover a/log: damaged at offset 70 (after 1970-01-01T00:00:00.000Z): a record is cut short, and the log \
         goes on behind it; affected: /a, /b; next: restore the log's fragment, or recover as of offset 50 \
         (--at 50), which is before it"
    );
}
