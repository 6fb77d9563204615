//! Durations of the wire, of the standard library, and as nanoseconds.

use std::time::Duration;

const NANOS_PER_SECOND: i128 = 1_000_000_000;
const MAX_SECONDS: i64 = 315_576_000_000;

/// A duration that is negative, malformed, or longer than 292 years, and so has no
/// equivalent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{seconds} seconds and {nanos} nanoseconds are not a duration that can be used")]
pub struct DurationError {
    /// Seconds of the duration.
    pub seconds: i64,
    /// Nanoseconds of the duration.
    pub nanos: i32,
}

/// The duration of the wire that is as long as `duration`, at most 292 years.
pub fn from_std(duration: Duration) -> prost_types::Duration {
    from_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

/// The duration of the standard library that is as long as `duration`.
pub fn to_std(duration: &prost_types::Duration) -> Result<Duration, DurationError> {
    let nanos = to_nanos(duration)?;
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| error(duration))
}

/// The duration of the wire with this many nanoseconds.
pub fn from_nanos(nanos: i64) -> prost_types::Duration {
    prost_types::Duration {
        seconds: nanos / 1_000_000_000,
        nanos: i32::try_from(nanos % 1_000_000_000).unwrap_or_default(),
    }
}

/// The duration of the wire with this many seconds.
pub fn from_seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

/// Nanoseconds of the duration. Gazette refuses a message whose durations have none.
pub fn to_nanos(duration: &prost_types::Duration) -> Result<i64, DurationError> {
    let prost_types::Duration { seconds, nanos } = *duration;
    let signs_differ = (seconds > 0 && nanos < 0) || (seconds < 0 && nanos > 0);
    let in_range = (-MAX_SECONDS..=MAX_SECONDS).contains(&seconds)
        && (-999_999_999..=999_999_999).contains(&nanos);
    let total = i128::from(seconds) * NANOS_PER_SECOND + i128::from(nanos);
    match i64::try_from(total) {
        Ok(total) if in_range && !signs_differ => Ok(total),
        _ => Err(error(duration)),
    }
}

fn error(duration: &prost_types::Duration) -> DurationError {
    DurationError {
        seconds: duration.seconds,
        nanos: duration.nanos,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn malformed_durations_have_no_length() {
        for (seconds, nanos) in [
            (1, -1),
            (-1, 1),
            (0, 1_000_000_000),
            (i64::MAX, 0),
            (MAX_SECONDS, 0),
        ] {
            to_nanos(&prost_types::Duration { seconds, nanos }).unwrap_err();
        }
        to_std(&prost_types::Duration {
            seconds: 0,
            nanos: -1,
        })
        .unwrap_err();
        assert_eq!(to_nanos(&from_std(Duration::MAX)), Ok(i64::MAX));
    }

    proptest! {
        #[test]
        fn nanoseconds_survive(nanos: i64) {
            prop_assert_eq!(to_nanos(&from_nanos(nanos)), Ok(nanos));
        }

        #[test]
        fn any_duration_has_a_length_or_not(seconds: i64, nanos: i32) {
            let _length = to_nanos(&prost_types::Duration { seconds, nanos });
        }
    }
}
