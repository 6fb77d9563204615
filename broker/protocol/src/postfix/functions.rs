//! Functions that templates can call.

use std::cmp::Ordering;

use super::{MAX_TEXT, Result, TemplateErrorCause as Cause, fail, printf, value::Value};

const KNOWN: [&str; 16] = [
    "and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "index", "slice", "len", "print",
    "printf", "println", "urlquery",
];

pub(super) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name)
}

fn arguments<T>(at: usize, function: &str, expected: &'static str) -> Result<T> {
    fail(
        at,
        Cause::Arguments {
            function: function.to_owned(),
            expected,
        },
    )
}

/// Calls a function. `and` and `or` are not here, as they may leave out arguments.
pub(super) fn call<'a>(at: usize, name: &str, given: &[Value<'a>]) -> Result<Value<'a>> {
    match name {
        "not" => match given {
            [value] => Ok(Value::Bool(!value.is_true())),
            _ => arguments(at, name, "one value"),
        },
        "eq" => match given {
            [first, others @ ..] if !others.is_empty() => {
                for other in others {
                    if is_equal(at, first, other)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            _ => arguments(at, name, "at least two values"),
        },
        "ne" | "lt" | "le" | "gt" | "ge" => match given {
            [left, right] => comparison(at, name, left, right).map(Value::Bool),
            _ => arguments(at, name, "two values"),
        },
        "len" => match given {
            [value] => length(value)
                .map(|length| Value::Integer(i128::try_from(length).unwrap_or_default()))
                .map_or_else(|| arguments(at, name, "a text or a list"), Ok),
            _ => arguments(at, name, "one value"),
        },
        "index" => match given {
            [value, indexes @ ..] => {
                let mut value = value.clone();
                for at_index in indexes {
                    value = index(at, &value, at_index)?;
                }
                Ok(value)
            }
            [] => arguments(at, name, "a list and indexes"),
        },
        "slice" => slice(at, given),
        "print" => text(at, sprint(at, given, Spaces::BetweenNonTexts)?),
        "println" => text(at, sprint(at, given, Spaces::Always)? + "\n"),
        "urlquery" => text(
            at,
            query_escape(&sprint(at, given, Spaces::BetweenNonTexts)?),
        ),
        "printf" => match given {
            [Value::Text(format), values @ ..] => text(at, printf::format(at, format, values)?),
            _ => arguments(at, name, "a format and values"),
        },
        _ => arguments(at, name, "at least one value"),
    }
}

/// Prints a value, as an action does.
pub(super) fn print(at: usize, value: &Value<'_>) -> Result<String> {
    value.print().map_or_else(
        || {
            fail(
                at,
                Cause::Unsupported {
                    what: format!("printing {}", value.kind()),
                },
            )
        },
        Ok,
    )
}

fn text<'a>(at: usize, text: String) -> Result<Value<'a>> {
    if text.len() > MAX_TEXT {
        return fail(
            at,
            Cause::TooLarge {
                what: "bytes of text",
                limit: MAX_TEXT,
            },
        );
    }
    Ok(Value::Text(text))
}

#[derive(Clone, Copy, PartialEq)]
enum Spaces {
    Always,
    BetweenNonTexts,
}

fn sprint(at: usize, values: &[Value<'_>], spaces: Spaces) -> Result<String> {
    let mut printed = String::new();
    let mut previous_is_text = true;
    for (index, value) in values.iter().enumerate() {
        let is_text = matches!(value, Value::Text(_));
        let between_others = !is_text && !previous_is_text;
        if index > 0 && (spaces == Spaces::Always || between_others) {
            printed.push(' ');
        }
        printed.push_str(&print(at, value)?);
        previous_is_text = is_text;
    }
    Ok(printed)
}

fn query_escape(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b' ' => "+".to_owned(),
        _ if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

fn is_equal(at: usize, left: &Value<'_>, right: &Value<'_>) -> Result<bool> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Ok(left == right),
        (Value::Nil, Value::Nil) => Ok(true),
        _ => order(at, left, right).map(|order| order == Some(Ordering::Equal)),
    }
}

fn comparison(at: usize, name: &str, left: &Value<'_>, right: &Value<'_>) -> Result<bool> {
    if name == "ne" {
        return is_equal(at, left, right).map(|equal| !equal);
    }
    let order = order(at, left, right)?;
    Ok(match name {
        "lt" => order == Some(Ordering::Less),
        "le" => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        "gt" => order == Some(Ordering::Greater),
        _ => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    })
}

fn order(at: usize, left: &Value<'_>, right: &Value<'_>) -> Result<Option<Ordering>> {
    if let (Some(left), Some(right)) = (left.as_integer(), right.as_integer()) {
        return Ok(Some(left.cmp(&right)));
    }
    match (left, right) {
        (Value::Text(left), Value::Text(right)) => Ok(Some(left.cmp(right))),
        (Value::Float(left), Value::Float(right)) => Ok(left.partial_cmp(right)),
        _ => fail(
            at,
            Cause::Incomparable {
                left: left.kind(),
                right: right.kind(),
            },
        ),
    }
}

fn length(value: &Value<'_>) -> Option<usize> {
    if let Value::Text(text) = value {
        Some(text.len())
    } else {
        Some(value.items()?.len())
    }
}

fn position(at: usize, index: &Value<'_>, length: usize) -> Result<usize> {
    let Some(number) = index.as_integer() else {
        let found = index.kind().to_owned();
        return fail(
            at,
            Cause::Unexpected {
                expected: "an index",
                found,
            },
        );
    };
    match usize::try_from(number) {
        Ok(position) if position <= length => Ok(position),
        _ => {
            let index = i64::try_from(number).unwrap_or(i64::MAX);
            fail(at, Cause::IndexOutOfRange { index, length })
        }
    }
}

fn index<'a>(at: usize, value: &Value<'a>, index: &Value<'a>) -> Result<Value<'a>> {
    let Some(length) = length(value) else {
        return arguments(at, "index", "a list and indexes");
    };
    let position = position(at, index, length)?;
    let item = if let Value::Text(text) = value {
        text.as_bytes()
            .get(position)
            .map(|byte| Value::Integer((*byte).into()))
    } else {
        value.items().and_then(|items| items.get(position)).cloned()
    };
    item.map_or_else(|| out_of_range(at, position, length), Ok)
}

fn out_of_range<T>(at: usize, position: usize, length: usize) -> Result<T> {
    let index = i64::try_from(position).unwrap_or(i64::MAX);
    fail(at, Cause::IndexOutOfRange { index, length })
}

fn slice<'a>(at: usize, given: &[Value<'a>]) -> Result<Value<'a>> {
    let [value, bounds @ ..] = given else {
        return arguments(at, "slice", "a text or list and bounds");
    };
    let Some(length) = length(value).filter(|_| bounds.len() <= 2) else {
        return arguments(at, "slice", "a text or list and at most two bounds");
    };
    let begin = bounds
        .first()
        .map_or(Ok(0), |bound| position(at, bound, length))?;
    let end = bounds
        .get(1)
        .map_or(Ok(length), |bound| position(at, bound, length))?;
    let part = if let Value::Text(text) = value {
        text.get(begin..end)
            .map(|part| Value::Text(part.to_owned()))
    } else {
        let items = value.items().and_then(|items| items.get(begin..end));
        items.map(|items| Value::List(items.to_vec()))
    };
    part.map_or_else(|| out_of_range(at, begin, end), Ok)
}
