//! Messages as protobuf text, as `gogo/protobuf` prints it.

use std::fmt::Write as _;

use prost_reflect::{DynamicMessage, FieldDescriptor, Value};

use crate::{json::WireMessage, reflect};

/// The text of a message over several lines.
pub fn format<M: WireMessage>(message: &M) -> String {
    let mut printer = Printer {
        text: String::new(),
        depth: 0,
        compact: false,
    };
    printer.message(&reflect::to_tree(message));
    printer.text
}

/// The text of a message on one line, with a space after each field.
pub fn format_compact<M: WireMessage>(message: &M) -> String {
    let mut printer = Printer {
        text: String::new(),
        depth: 0,
        compact: true,
    };
    printer.message(&reflect::to_tree(message));
    printer.text
}

struct Printer {
    text: String,
    depth: usize,
    compact: bool,
}

impl Printer {
    fn message(&mut self, message: &DynamicMessage) {
        for (field, present) in reflect::fields(message) {
            let Some(value) = present else { continue };
            if let Value::List(values) = value.as_ref() {
                for value in values {
                    self.field(&field, value);
                }
            } else if !is_zero_duration(&field, &value) {
                self.field(&field, &value);
            }
        }
    }

    fn field(&mut self, field: &FieldDescriptor, value: &Value) {
        self.indent();
        self.text.push_str(field.name());
        self.text.push_str(if self.compact { ":" } else { ": " });
        if let Value::Message(message) = value {
            self.text.push('<');
            if !self.compact {
                self.text.push('\n');
            }
            self.depth += 1;
            self.message(message);
            self.depth -= 1;
            self.indent();
            self.text.push('>');
        } else {
            self.scalar(field, value);
        }
        self.text.push(if self.compact { ' ' } else { '\n' });
    }

    fn indent(&mut self) {
        if !self.compact {
            self.text.extend(std::iter::repeat_n("  ", self.depth));
        }
    }

    fn scalar(&mut self, field: &FieldDescriptor, value: &Value) {
        let number: &dyn std::fmt::Display = match value {
            Value::Bool(value) => value,
            Value::I32(value) => value,
            Value::I64(value) => value,
            Value::U32(value) => value,
            Value::U64(value) => value,
            Value::F32(value) => value,
            Value::F64(value) => value,
            Value::String(value) => return self.quoted(value.as_bytes()),
            Value::Bytes(value) => return self.quoted(value),
            Value::EnumNumber(number) => {
                let kind = field.kind();
                let named = kind.as_enum().and_then(|kind| kind.get_value(*number));
                if let Some(named) = named {
                    return self.text.push_str(named.name());
                }
                number
            }
            // Messages and lists are not scalars, and no message has a map.
            Value::Message(_) | Value::List(_) | Value::Map(_) => return,
        };
        self.text.push_str(&number.to_string());
    }

    fn quoted(&mut self, bytes: &[u8]) {
        self.text.push('"');
        for &byte in bytes {
            match byte {
                b'\n' => self.text.push_str("\\n"),
                b'\r' => self.text.push_str("\\r"),
                b'\t' => self.text.push_str("\\t"),
                b'"' => self.text.push_str("\\\""),
                b'\\' => self.text.push_str("\\\\"),
                b' '..=b'~' => self.text.push(char::from(byte)),
                _ => write!(self.text, "\\{byte:03o}").expect("a string can be written to"),
            }
        }
        self.text.push('"');
    }
}

/// A duration that is always written is a plain number in Go, and is left out if it is zero.
fn is_zero_duration(field: &FieldDescriptor, value: &Value) -> bool {
    let Value::Message(message) = value else {
        return false;
    };
    reflect::is_always_written(field)
        && reflect::as_duration(message).is_some_and(|d| d.seconds == 0 && d.nanos == 0)
}
