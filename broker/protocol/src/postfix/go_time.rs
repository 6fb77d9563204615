//! Times in the layouts of Go, which spell the date 2006-01-02 15:04:05. All times are UTC.

use std::fmt::Write as _;

use time::{OffsetDateTime, Weekday};

use super::value::Value;

/// The layout in which a time is printed.
pub(super) const STRING: &str = "2006-01-02 15:04:05.999999999 -0700 MST";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

fn weekday(time: OffsetDateTime) -> &'static str {
    match time.weekday() {
        Weekday::Monday => "Monday",
        Weekday::Tuesday => "Tuesday",
        Weekday::Wednesday => "Wednesday",
        Weekday::Thursday => "Thursday",
        Weekday::Friday => "Friday",
        Weekday::Saturday => "Saturday",
        Weekday::Sunday => "Sunday",
    }
}

fn month(time: OffsetDateTime) -> &'static str {
    MONTHS[usize::from(u8::from(time.month())) - 1]
}

/// A method of a time that takes no arguments.
pub(super) fn field(time: OffsetDateTime, name: &str) -> Option<Value<'static>> {
    let nanos = time.unix_timestamp_nanos();
    Some(match name {
        "Unix" => Value::Integer(time.unix_timestamp().into()),
        "UnixMilli" => Value::Integer(nanos.div_euclid(1_000_000)),
        "UnixMicro" => Value::Integer(nanos.div_euclid(1_000)),
        "UnixNano" => Value::Integer(nanos),
        "Year" => Value::Integer(time.year().into()),
        "Month" => Value::Enum {
            name: month(time).to_owned(),
            number: u8::from(time.month()).into(),
        },
        "Day" => Value::Integer(time.day().into()),
        "YearDay" => Value::Integer(time.ordinal().into()),
        "Weekday" => Value::Enum {
            name: weekday(time).to_owned(),
            number: time.weekday().number_days_from_sunday().into(),
        },
        "Hour" => Value::Integer(time.hour().into()),
        "Minute" => Value::Integer(time.minute().into()),
        "Second" => Value::Integer(time.second().into()),
        "Nanosecond" => Value::Integer(time.nanosecond().into()),
        "IsZero" => Value::Bool(time == super::zero_time()),
        "UTC" => Value::Time(time),
        "String" => Value::Text(format(time, STRING)),
        _ => return None,
    })
}

/// Prints `time` in `layout`.
pub(super) fn format(time: OffsetDateTime, layout: &str) -> String {
    let mut text = String::new();
    let mut rest = layout;
    while let Some(c) = rest.chars().next() {
        let length = element(time, rest, &mut text).unwrap_or_else(|| {
            text.push(c);
            c.len_utf8()
        });
        rest = &rest[length..];
    }
    text
}

/// Prints the element that `layout` begins with, if it is one, and tells its length.
fn element(time: OffsetDateTime, layout: &str, text: &mut String) -> Option<usize> {
    let hour12 = match time.hour() % 12 {
        0 => 12,
        hour => hour,
    };
    let lower_follows =
        |length: usize| layout[length..].starts_with(|c: char| c.is_ascii_lowercase());
    let starts = |element: &&&str| layout.starts_with(**element);
    // Longer elements stand before those that they begin with.
    let elements = [
        "January",
        "Jan",
        "Monday",
        "Mon",
        "MST",
        "002",
        "01",
        "02",
        "03",
        "04",
        "05",
        "06",
        "15",
        "1",
        "2006",
        "2",
        "_2006",
        "_2",
        "__2",
        "3",
        "4",
        "5",
        "PM",
        "pm",
        "-070000",
        "-07:00:00",
        "-0700",
        "-07:00",
        "-07",
        "Z070000",
        "Z07:00:00",
        "Z0700",
        "Z07:00",
        "Z07",
    ];
    let Some(element) = elements.iter().find(starts) else {
        return fraction(time, layout, text);
    };
    let printed = match *element {
        "January" => month(time).to_owned(),
        "Jan" if !lower_follows(3) => month(time)[..3].to_owned(),
        "Monday" => weekday(time).to_owned(),
        "Mon" if !lower_follows(3) => weekday(time)[..3].to_owned(),
        "MST" => "UTC".to_owned(),
        "002" => format!("{:03}", time.ordinal()),
        "01" => format!("{:02}", u8::from(time.month())),
        "02" => format!("{:02}", time.day()),
        "03" => format!("{hour12:02}"),
        "04" => format!("{:02}", time.minute()),
        "05" => format!("{:02}", time.second()),
        "06" => format!("{:02}", time.year().rem_euclid(100)),
        "15" => format!("{:02}", time.hour()),
        "1" => u8::from(time.month()).to_string(),
        "2006" => format!("{:04}", time.year()),
        "2" => time.day().to_string(),
        "_2006" => format!("_{:04}", time.year()),
        "_2" => format!("{:2}", time.day()),
        "__2" => format!("{:3}", time.ordinal()),
        "3" => hour12.to_string(),
        "4" => time.minute().to_string(),
        "5" => time.second().to_string(),
        "PM" => (if time.hour() >= 12 { "PM" } else { "AM" }).to_owned(),
        "pm" => (if time.hour() >= 12 { "pm" } else { "am" }).to_owned(),
        "-070000" => "+000000".to_owned(),
        "-07:00:00" => "+00:00:00".to_owned(),
        "-0700" => "+0000".to_owned(),
        "-07:00" => "+00:00".to_owned(),
        "-07" => "+00".to_owned(),
        zone if zone.starts_with('Z') => "Z".to_owned(),
        _ => return None,
    };
    text.push_str(&printed);
    Some(element.len())
}

/// Prints `.000` or `.999`, with any count of digits up to nine.
fn fraction(time: OffsetDateTime, layout: &str, text: &mut String) -> Option<usize> {
    let separator = layout.chars().next().filter(|c| ['.', ','].contains(c))?;
    let digit = layout[1..]
        .chars()
        .next()
        .filter(|c| ['0', '9'].contains(c))?;
    let count = layout[1..].chars().take_while(|c| *c == digit).count();
    if layout[1 + count..].starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let nanos = format!("{:09}", time.nanosecond());
    let digits = &nanos[..count.min(9)];
    let digits = if digit == '9' {
        digits.trim_end_matches('0')
    } else {
        digits
    };
    if !digits.is_empty() {
        write!(text, "{separator}{digits}").expect("a string can be written to");
    }
    Some(1 + count)
}
