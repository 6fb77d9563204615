//! The verbs of `printf` that texts and numbers have.

use std::fmt::Write as _;

use super::{Result, TemplateErrorCause as Cause, fail, functions, value::Value};

/// Widest field: longer than the longest postfix.
const MAX_WIDTH: usize = 512;

#[derive(Debug, Default, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the directive"
)]
struct Spec {
    left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

pub(super) fn format(at: usize, format: &str, values: &[Value<'_>]) -> Result<String> {
    let mut printed = String::new();
    let mut values = values.iter();
    let mut rest = format;
    while let Some(percent) = rest.find('%') {
        printed.push_str(&rest[..percent]);
        let (spec, verb, tail) = directive(at, &rest[percent + 1..])?;
        rest = tail;
        if verb == '%' {
            printed.push('%');
            continue;
        }
        let Some(value) = values.next() else {
            let (function, expected) = ("printf".to_owned(), "a value for each verb");
            return fail(at, Cause::Arguments { function, expected });
        };
        printed.push_str(&pad(&value_of(at, spec, verb, value)?, spec));
    }
    printed.push_str(rest);
    if values.next().is_some() {
        let (function, expected) = ("printf".to_owned(), "no more values than verbs");
        return fail(at, Cause::Arguments { function, expected });
    }
    Ok(printed)
}

/// Splits flags, width, precision and verb from the rest of a format.
fn directive(at: usize, text: &str) -> Result<(Spec, char, &str)> {
    let mut spec = Spec::default();
    let mut rest = text;
    loop {
        match rest.chars().next() {
            Some('-') => spec.left = true,
            Some('+') => spec.plus = true,
            Some(' ') => spec.space = true,
            Some('0') => spec.zero = true,
            Some('#') => spec.alternate = true,
            _ => break,
        }
        rest = &rest[1..];
    }
    let width;
    (width, rest) = number(at, rest)?;
    spec.width = width.unwrap_or_default();
    if let Some(after) = rest.strip_prefix('.') {
        let precision;
        (precision, rest) = number(at, after)?;
        spec.precision = Some(precision.unwrap_or_default());
    }
    let Some(verb) = rest.chars().next() else {
        return fail(
            at,
            Cause::Unclosed {
                what: "a verb of printf",
            },
        );
    };
    Ok((spec, verb, &rest[verb.len_utf8()..]))
}

fn number(at: usize, text: &str) -> Result<(Option<usize>, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Ok((None, rest));
    }
    match digits.parse::<usize>() {
        Ok(number) if number <= MAX_WIDTH => Ok((Some(number), rest)),
        _ => fail(
            at,
            Cause::TooLarge {
                what: "columns in a field",
                limit: MAX_WIDTH,
            },
        ),
    }
}

/// The digits or text of a value, and its sign or prefix.
struct Field {
    prefix: String,
    body: String,
    is_number: bool,
}

fn value_of(at: usize, spec: Spec, verb: char, value: &Value<'_>) -> Result<Field> {
    let integer = value.as_integer();
    // The name of a number is its text, but most verbs are about the number.
    let number = match (verb, integer) {
        ('d', Some(number)) => Some((number.unsigned_abs().to_string(), "", number)),
        ('x', Some(number)) => Some((format!("{:x}", number.unsigned_abs()), "0x", number)),
        ('X', Some(number)) => Some((format!("{:X}", number.unsigned_abs()), "0X", number)),
        ('o', Some(number)) => Some((format!("{:o}", number.unsigned_abs()), "0", number)),
        ('b', Some(number)) => Some((format!("{:b}", number.unsigned_abs()), "0b", number)),
        ('v', Some(number)) if matches!(value, Value::Integer(_)) => {
            Some((number.unsigned_abs().to_string(), "", number))
        }
        _ => None,
    };
    if let Some((mut digits, prefix, number)) = number {
        if let Some(precision) = spec.precision {
            digits = format!("{digits:0>precision$}");
        }
        let sign = match (number < 0, spec.plus, spec.space) {
            (true, _, _) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        };
        let prefix = format!("{sign}{}", if spec.alternate { prefix } else { "" });
        return Ok(Field {
            prefix,
            body: digits,
            is_number: spec.precision.is_none(),
        });
    }
    let plain = |body: String| Field {
        prefix: String::new(),
        body,
        is_number: false,
    };
    let shorten = |text: String| match spec.precision {
        Some(precision) => text.chars().take(precision).collect(),
        None => text,
    };
    match (verb, value) {
        (
            's',
            Value::Text(_)
            | Value::Enum { .. }
            | Value::Time(_)
            | Value::Duration(_)
            | Value::List(_),
        ) => Ok(plain(shorten(functions::print(at, value)?))),
        ('v', _) => Ok(plain(functions::print(at, value)?)),
        ('t', Value::Bool(value)) => Ok(plain(value.to_string())),
        ('q', Value::Text(text)) => Ok(plain(format!("{:?}", shorten(text.clone())))),
        ('x', Value::Text(text)) => Ok(plain(hex(text))),
        ('X', Value::Text(text)) => Ok(plain(hex(text).to_ascii_uppercase())),
        ('c', Value::Integer(number)) => {
            let c = u32::try_from(*number).ok().and_then(char::from_u32);
            Ok(plain(c.unwrap_or(char::REPLACEMENT_CHARACTER).to_string()))
        }
        ('f', Value::Float(number)) => {
            let precision = spec.precision.unwrap_or(6);
            Ok(plain(format!("{number:.precision$}")))
        }
        _ => {
            let what = format!("verb %{verb} of {}", value.kind());
            fail(at, Cause::Unsupported { what })
        }
    }
}

/// The bytes of a text, in hexadecimal.
fn hex(text: &str) -> String {
    let mut digits = String::new();
    for byte in text.bytes() {
        write!(digits, "{byte:02x}").expect("a string can be written to");
    }
    digits
}

fn pad(field: &Field, spec: Spec) -> String {
    let Field {
        prefix,
        body,
        is_number,
    } = field;
    let length = prefix.chars().count() + body.chars().count();
    let missing = spec.width.saturating_sub(length);
    if spec.left {
        format!("{prefix}{body}{}", " ".repeat(missing))
    } else if spec.zero && (*is_number || spec.precision.is_none()) {
        format!("{prefix}{}{body}", "0".repeat(missing))
    } else {
        format!("{}{prefix}{body}", " ".repeat(missing))
    }
}
