//! The JSON form of hints, as the reference keeps them in etcd.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{FnodeSegments, FsmHints, HintsError, Property, Segment};
use crate::op::{mode_number, mode_of};
use crate::{Fnode, Timestamp};

/// Members that old readers skip. A time is its seconds and nanoseconds.
const MODE: &str = "gazfs_mode";
const TIME: &str = "gazfs_time";
const BIRTH: &str = "gazfs_birth";

pub(super) fn encode(hints: &FsmHints) -> String {
    let mut out = String::from("{");
    if !hints.log.is_empty() {
        out.push_str("\"log\":");
        text(&mut out, hints.log.as_bytes());
        out.push(',');
    }
    out.push_str("\"live_nodes\":");
    list(&mut out, &hints.live_nodes, |out, node| {
        out.push('{');
        if node.fnode.0 != 0 {
            let _ok = write!(out, "\"fnode\":{},", node.fnode);
        }
        out.push_str("\"segments\":");
        list(out, &node.segments, segment);
        if let Some(birth) = node.birth {
            let _ok = write!(out, ",\"{BIRTH}\":{birth}");
        }
        out.push('}');
    });
    out.push_str(",\"properties\":");
    list(&mut out, &hints.properties, |out, property| {
        let mut members = Members::new(out);
        members.text("path", &property.path);
        members.text("content", &property.content);
        members.end();
    });
    if let Some(mode) = hints.mode {
        let _ok = write!(out, ",\"{MODE}\":{}", mode_number(mode));
    }
    if let Some(Timestamp { seconds, nanos }) = hints.time {
        let _ok = write!(out, ",\"{TIME}\":[{seconds},{nanos}]");
    }
    out.push('}');
    out
}

fn list<T>(out: &mut String, items: &[T], mut item: impl FnMut(&mut String, &T)) {
    if items.is_empty() {
        out.push_str("null");
        return;
    }
    for (index, value) in items.iter().enumerate() {
        out.push(if index == 0 { '[' } else { ',' });
        item(out, value);
    }
    out.push(']');
}

fn segment(out: &mut String, segment: &Segment) {
    let mut members = Members::new(out);
    members.number("author", segment.author.into());
    members.number("first_seq_no", segment.first_seq_no);
    members.number("first_offset", segment.first_offset);
    members.number("first_checksum", segment.first_checksum.into());
    members.number("last_seq_no", segment.last_seq_no);
    members.number("last_offset", segment.last_offset);
    members.text("log", segment.log.as_bytes());
    members.end();
}

/// Members of an object of which zero values are left out.
struct Members<'a> {
    out: &'a mut String,
    separator: char,
}

impl<'a> Members<'a> {
    fn new(out: &'a mut String) -> Self {
        Self {
            out,
            separator: '{',
        }
    }

    fn key(&mut self, key: &str) {
        let _ok = write!(self.out, "{}\"{key}\":", self.separator);
        self.separator = ',';
    }

    fn number(&mut self, key: &str, value: i64) {
        if value != 0 {
            self.key(key);
            let _ok = write!(self.out, "{value}");
        }
    }

    fn text(&mut self, key: &str, value: &[u8]) {
        if !value.is_empty() {
            self.key(key);
            text(self.out, value);
        }
    }

    fn end(self) {
        if self.separator == '{' {
            self.out.push('{');
        }
        self.out.push('}');
    }
}

/// Writes a text with the reference's escapes. Each byte that is not UTF-8 becomes U+FFFD.
fn text(out: &mut String, bytes: &[u8]) {
    out.push('"');
    let mut rest = bytes;
    while !rest.is_empty() {
        let (good, bad) = match std::str::from_utf8(rest) {
            Ok(text) => (text, false),
            Err(error) => {
                let (good, _) = rest.split_at(error.valid_up_to());
                (std::str::from_utf8(good).unwrap_or_default(), true)
            }
        };
        for char in good.chars() {
            escaped(out, char);
        }
        rest = &rest[good.len()..];
        if bad {
            out.push_str("\\ufffd");
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    out.push('"');
}

fn escaped(out: &mut String, char: char) {
    match char {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
            let _ok = write!(out, "\\u{:04x}", u32::from(char));
        }
        other => out.push(other),
    }
}

pub(super) fn decode(bytes: &[u8]) -> Result<FsmHints, HintsError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| HintsError::Json {
        line: error.line(),
        column: error.column(),
    })?;
    let members = value.as_object().ok_or(HintsError::Member("(whole)"))?;
    let mut hints = FsmHints {
        log: log(members)?,
        ..FsmHints::default()
    };
    for node in items(members, "live_nodes")? {
        let node = node.as_object().ok_or(HintsError::Member("live_nodes"))?;
        let segments = items(node, "segments")?.iter().map(decode_segment);
        hints.live_nodes.push(FnodeSegments {
            fnode: Fnode(number(node, "fnode")?),
            segments: segments.collect::<Result<_, _>>()?,
            birth: Some(number(node, BIRTH)?).filter(|birth| *birth != 0),
        });
    }
    for property in items(members, "properties")? {
        let property = property
            .as_object()
            .ok_or(HintsError::Member("properties"))?;
        hints.properties.push(Property {
            path: string(property, "path")?.as_bytes().to_vec().into(),
            content: string(property, "content")?.as_bytes().to_vec().into(),
        });
    }
    if let Some(mode) = member(members, MODE) {
        let number = mode.as_u64().ok_or(HintsError::Member(MODE))?;
        hints.mode = Some(mode_of(number).ok_or(HintsError::Mode(number))?);
    }
    if let [seconds, nanos] = items(members, TIME)? {
        let nanos = nanos.as_u64().and_then(|nanos| u32::try_from(nanos).ok());
        let nanos = nanos.filter(|nanos| *nanos < 1_000_000_000);
        let (Some(seconds), Some(nanos)) = (seconds.as_i64(), nanos) else {
            return Err(HintsError::Member(TIME));
        };
        hints.time = Some(Timestamp { seconds, nanos });
    }
    Ok(hints)
}

fn decode_segment(value: &Value) -> Result<Segment, HintsError> {
    let members = value.as_object().ok_or(HintsError::Member("segments"))?;
    Ok(Segment {
        author: number(members, "author")?,
        first_seq_no: number(members, "first_seq_no")?,
        first_offset: number(members, "first_offset")?,
        first_checksum: number(members, "first_checksum")?,
        last_seq_no: number(members, "last_seq_no")?,
        last_offset: number(members, "last_offset")?,
        log: log(members)?,
    })
}

/// Finds a member by name, without regard to case as the reference does. `null` is as if absent.
fn member<'a>(members: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let exact = members.get(key);
    let found = exact.or_else(|| {
        members
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(key))
            .map(|(_, value)| value)
    });
    found.filter(|value| !value.is_null())
}

fn items<'a>(
    members: &'a Map<String, Value>,
    key: &'static str,
) -> Result<&'a [Value], HintsError> {
    match member(members, key) {
        None => Ok(&[]),
        Some(value) => value
            .as_array()
            .map(Vec::as_slice)
            .ok_or(HintsError::Member(key)),
    }
}

fn string<'a>(members: &'a Map<String, Value>, key: &'static str) -> Result<&'a str, HintsError> {
    match member(members, key) {
        None => Ok(""),
        Some(value) => value.as_str().ok_or(HintsError::Member(key)),
    }
}

fn log(members: &Map<String, Value>) -> Result<Arc<str>, HintsError> {
    string(members, "log").map(Into::into)
}

fn number<T: TryFrom<i64> + Default>(
    members: &Map<String, Value>,
    key: &'static str,
) -> Result<T, HintsError> {
    match member(members, key) {
        None => Ok(T::default()),
        Some(value) => value
            .as_i64()
            .and_then(|value| T::try_from(value).ok())
            .ok_or(HintsError::Member(key)),
    }
}
