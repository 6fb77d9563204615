//! Numbers of bytes, as people write and read them.

/// Reads `64MiB`, `1G`, `4096`: powers of 1024.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        other => return Err(format!("unknown unit {other:?}: expected K, M, G or T")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "expected a number of bytes, as 64MiB".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "too large".to_owned())
}

/// Writes a number of bytes with three digits.
pub(super) fn format_bytes(bytes: u64) -> String {
    let mut unit = "B";
    let (mut whole, mut rest) = (bytes, 0);
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if whole < 1024 {
            break;
        }
        (whole, rest, unit) = (whole / 1024, whole % 1024, larger);
    }
    if unit == "B" || whole >= 100 {
        format!("{whole} {unit}")
    } else {
        format!("{whole}.{} {unit}", rest * 10 / 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_bytes("1g"), Ok(1 << 30));
        for bad in ["", "MiB", "1x", "99999999999T", "-1"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(format_bytes(1023), "1023 B");
        assert_eq!(format_bytes(1536), "1.5 KiB");
        assert_eq!(format_bytes(300 << 20), "300 MiB");
    }
}
