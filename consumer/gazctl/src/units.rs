//! Sizes and durations, as people write them.

use std::time::Duration;

use gazette_protocol::go_duration;

/// Parses a duration that is not negative: `10s`, `1.5s`, `1h30m`, `250ms`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let nanos = go_duration::parse(text).map_err(|error| error.to_string())?;
    let nanos = u64::try_from(nanos).map_err(|_| "expected a duration of 0 or more".to_owned())?;
    Ok(Duration::from_nanos(nanos))
}

/// Parses a number of bytes: `1024`, `64KiB`, `1.5 MiB`, `4k`. Units are powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let malformed = || format!("{text:?} is no size; write 4096, 64KiB or 1MiB");
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(malformed()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| malformed())?;
    let mut bytes = whole
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text:?} is too large"))?;
    if !fraction.is_empty() {
        let scale = u32::try_from(fraction.len())
            .ok()
            .and_then(|n| 10_u64.checked_pow(n));
        let fraction: u64 = fraction.parse().map_err(|_| malformed())?;
        let (Some(scale), Some(parts)) = (scale, fraction.checked_mul(1 << shift)) else {
            return Err(malformed());
        };
        bytes = bytes.saturating_add(parts / scale);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("1024", Some(1024)),
            ("1KiB", Some(1024)),
            ("64k", Some(65_536)),
            ("1.5 MiB", Some(1_572_864)),
            ("2GB", Some(2 << 30)),
            ("99999999999999999999", None),
            ("17179869185GiB", None),
            ("1.x", None),
            ("", None),
            ("KiB", None),
            ("1TiB", None),
            ("-1", None),
        ] {
            assert_eq!(parse_bytes(text).ok(), bytes, "{text:?}");
        }
    }

    #[test]
    fn durations_have_units_and_are_not_negative() {
        assert_eq!(parse_duration("5.0s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_duration("1m"), Ok(Duration::from_mins(1)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        for text in ["-1s", "5", "soon", ""] {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
    }
}
