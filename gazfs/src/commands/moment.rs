//! A point of a log as people give it: an offset, or a time.

use std::{str::FromStr, time::Duration};

use gazette_recoverylog::fsm::Timestamp;
use time::{
    Date, OffsetDateTime, PrimitiveDateTime, UtcOffset, format_description::well_known::Rfc3339,
    macros::format_description,
};

/// A point of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    /// A place in it.
    Offset(i64),
    /// A time.
    Moment(Moment),
}

/// A time, fixed or before now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// As it is.
    At(OffsetDateTime),
    /// So long ago.
    Ago(Duration),
}

impl Moment {
    /// The time that it is, if it is `now` now.
    pub(super) fn at(self, now: OffsetDateTime) -> OffsetDateTime {
        match self {
            Self::At(time) => time,
            Self::Ago(duration) => now
                .checked_sub(duration.try_into().unwrap_or(time::Duration::MAX))
                .unwrap_or(OffsetDateTime::UNIX_EPOCH),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "now" {
            return Ok(Self::Ago(Duration::ZERO));
        }
        let ago = text
            .strip_prefix('-')
            .or_else(|| text.strip_suffix("ago"))
            .or_else(|| text.strip_suffix(" ago"));
        if let Some(duration) = ago {
            let duration = humantime::parse_duration(duration.trim());
            return duration.map(Self::Ago).map_err(|error| error.to_string());
        }
        fixed(text).map(Self::At).ok_or_else(|| EXPECTED.to_owned())
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<i64>() {
            Ok(offset) if offset >= 0 && !text.starts_with('-') => Ok(Self::Offset(offset)),
            _ => text.parse().map(Self::Moment),
        }
    }
}

/// A time as logs have it.
pub(super) fn timestamp(time: OffsetDateTime) -> Timestamp {
    Timestamp {
        seconds: time.unix_timestamp(),
        nanos: time.nanosecond(),
    }
}

/// Reads a time with its zone; without one it is UTC.
fn fixed(text: &str) -> Option<OffsetDateTime> {
    let text = text.replacen(' ', "T", 1);
    if let Ok(time) = OffsetDateTime::parse(&text, &Rfc3339) {
        return Some(time);
    }
    let second = format_description!(
        "[year]-[month]-[day]T[hour]:[minute]:[second][optional [.[subsecond]]]"
    );
    let minute = format_description!("[year]-[month]-[day]T[hour]:[minute]");
    let day = format_description!("[year]-[month]-[day]");
    let parsed = PrimitiveDateTime::parse(&text, second)
        .or_else(|_| PrimitiveDateTime::parse(&text, minute))
        .or_else(|_| Date::parse(&text, day).map(Date::midnight));
    Some(parsed.ok()?.assume_offset(UtcOffset::UTC))
}

const EXPECTED: &str = "expected a time: 2026-11-30T12:00:00Z (UTC if no zone is given), -90s, or \
                        \"5m ago\"";

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn moment(text: &str) -> OffsetDateTime {
        let now = datetime!(2026-11-30 12:00:00 UTC);
        text.parse::<Moment>().expect("a time").at(now)
    }

    #[test]
    fn times_are_given_with_a_zone_or_in_utc_or_from_now() {
        let noon = datetime!(2026-11-30 12:00:00 UTC);
        for text in [
            "2026-11-30T12:00:00Z",
            "2026-11-30T13:00:00+01:00",
            "2026-11-30T12:00:00",
            "2026-11-30 12:00:00.0",
            "2026-11-30 12:00",
            "now",
            "-0s",
        ] {
            assert_eq!(moment(text), noon, "{text}");
        }
        assert_eq!(moment("2026-11-30"), datetime!(2026-11-30 0:00 UTC));
        let before = datetime!(2026-11-30 11:58:30 UTC);
        for text in ["-90s", "90s ago", "1m 30s ago", "-1m30s"] {
            assert_eq!(moment(text), before, "{text}");
        }
        assert_eq!(moment("-100000years"), OffsetDateTime::UNIX_EPOCH);
    }

    #[test]
    fn offsets_and_times_are_told_apart() {
        assert_eq!("0".parse(), Ok(Point::Offset(0)));
        assert_eq!("4711".parse(), Ok(Point::Offset(4711)));
        assert!(matches!("-5s".parse(), Ok(Point::Moment(Moment::Ago(_)))));
        for bad in ["", "-5", "yesterday", "2026-13-01", "5m"] {
            assert!(bad.parse::<Point>().is_err(), "{bad}");
        }
    }
}
