//! Durations as Go prints them: `720h0m0s`, `1.5s`, `-2ms`.

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GoDurationError {
    /// A number or a unit is missing or unknown.
    #[error("{text:?} is not a duration such as `1h30m`, `60s`, or `500ms`")]
    Malformed {
        /// The whole text.
        text: String,
    },
    /// It is more than 292 years.
    #[error("{text:?} is longer than the longest duration, 292 years")]
    TooLong {
        /// The whole text.
        text: String,
    },
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];

/// Prints this many nanoseconds.
pub fn format(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    let text = match total {
        0 => "0s".to_owned(),
        1..1_000 => format!("{total}ns"),
        1_000..1_000_000 => format!("{}\u{b5}s", decimal(total, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(total, 1_000_000)),
        _ => {
            let minutes = total / 60_000_000_000;
            let seconds = decimal(total % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

/// `value / unit` as a decimal number without trailing zeros. `unit` is a power of ten.
fn decimal(value: u64, unit: u64) -> String {
    let width = usize::try_from(unit.ilog10()).unwrap_or_default();
    let fraction = format!("{:0width$}", value % unit);
    match fraction.trim_end_matches('0') {
        "" => (value / unit).to_string(),
        fraction => format!("{}.{fraction}", value / unit),
    }
}

/// Parses a duration, into nanoseconds.
pub fn parse(text: &str) -> Result<i64, GoDurationError> {
    let malformed = || GoDurationError::Malformed {
        text: text.to_owned(),
    };
    let too_long = || GoDurationError::TooLong {
        text: text.to_owned(),
    };
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return Err(malformed());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        if rest == "0" && total == 0 {
            break;
        }
        let number_end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(malformed)?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(malformed());
        }
        let (_, scale) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(malformed)?;
        let whole = match whole {
            "" => 0,
            digits => digits.parse::<u64>().map_err(|_| too_long())?,
        };
        let nanos = whole.checked_mul(*scale).ok_or_else(too_long)?;
        let nanos = nanos
            .checked_add(fraction_of(fraction, *scale))
            .ok_or_else(too_long)?;
        total = total.checked_add(nanos).ok_or_else(too_long)?;
        rest = tail;
    }
    let signed = if negative {
        -i128::from(total)
    } else {
        i128::from(total)
    };
    i64::try_from(signed).map_err(|_| too_long())
}

/// `0.digits * scale`, rounded down.
fn fraction_of(digits: &str, scale: u64) -> u64 {
    let mut part = u128::from(scale) * 1_000_000_000;
    let mut total: u128 = 0;
    for digit in digits.bytes() {
        part /= 10;
        total += part * u128::from(digit - b'0');
    }
    u64::try_from(total / 1_000_000_000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_print_as_go_prints_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (999_999_999, "999.999999ms"),
            (3_300_000_000, "3.3s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (86_400_000_000_001, "24h0m0.000000001s"),
            (2_592_000_000_000_000, "720h0m0s"),
            (-1_500_000_000, "-1.5s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(format(nanos), text);
            assert_eq!(parse(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn other_spellings_parse_too() {
        for (text, nanos) in [
            ("0", 0),
            ("+5s", 5_000_000_000),
            ("-0", 0),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("90m", 5_400_000_000_000),
            ("1us", 1_000),
            ("1\u{3bc}s", 1_000),
            ("1h1h", 7_200_000_000_000),
            ("0.9ns", 0),
            ("1.0000000000000000000001s", 1_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(nanos), "{text}");
        }
        for text in [
            "", "-", "1", "s", ".s", "1d", "1h 1m", "1.2.3s", "1s2", "\u{e9}", "3000000h",
        ] {
            parse(text).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn printed_durations_parse_to_the_same(nanos: i64) {
            prop_assert_eq!(parse(&format(nanos)), Ok(nanos));
        }

        #[test]
        fn any_text_parses_or_is_refused(text in "[-+0-9.hmsnu\u{b5}]{0,40}|.*") {
            let _parsed = parse(&text);
        }
    }
}
