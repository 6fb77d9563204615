//! Golden files, and ops as they write them down.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use gazette_recoverylog_fsm::{Body, Fnode, FsmHints, LinkName, RecordedOp, Segment, Write};
use serde_json::Value;
use sha1::{Digest as _, Sha1};

pub(super) fn file(name: &str) -> Vec<u8> {
    let root = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/recoverylog/"
    );
    std::fs::read(format!("{root}{name}")).unwrap()
}

pub(super) fn json(name: &str) -> Value {
    serde_json::from_slice(&file(name)).unwrap()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn base64(value: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap()
}

pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits = text
        .as_bytes()
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    digits
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

pub(super) fn sha1(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for byte in Sha1::digest(bytes) {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

pub(super) fn int(value: &Value, key: &str) -> i64 {
    value[key].as_i64().unwrap_or(0)
}

pub(super) fn uint32(value: &Value, key: &str) -> u32 {
    value[key].as_u64().unwrap_or(0).try_into().unwrap()
}

/// A text; if it is not UTF-8, its bytes are given beside the op.
fn text(value: &Value, beside: &Value, key: &str) -> Bytes {
    match beside.get(format!("{key}_base64")) {
        None => value[key]
            .as_str()
            .unwrap_or_default()
            .as_bytes()
            .to_vec()
            .into(),
        Some(encoded) => base64(encoded).into(),
    }
}

pub(super) fn segment(value: &Value) -> Segment {
    Segment {
        author: uint32(value, "author"),
        first_seq_no: int(value, "first_seq_no"),
        first_offset: int(value, "first_offset"),
        first_checksum: uint32(value, "first_checksum"),
        last_seq_no: int(value, "last_seq_no"),
        last_offset: int(value, "last_offset"),
        log: value["log"].as_str().unwrap_or_default().into(),
    }
}

/// The op that a JSON form says; `None` if it says several actions.
pub(super) fn op(beside: &Value) -> Option<RecordedOp> {
    let value = &beside["op"];
    let name = |value: &Value| LinkName {
        parent: Fnode::ROOT,
        path: text(value, beside, "path"),
    };
    let fnode = |value: &Value| Fnode(int(value, "fnode"));
    let mut bodies = Vec::new();
    if let Some(create) = value.get("create") {
        bodies.push(Body::Create {
            at: name(create),
            inode: None,
        });
    }
    if let Some(link) = value.get("link") {
        bodies.push(Body::Link {
            fnode: fnode(link),
            at: name(link),
        });
    }
    if let Some(unlink) = value.get("unlink") {
        bodies.push(Body::Unlink {
            fnode: fnode(unlink),
            at: name(unlink),
        });
    }
    if let Some(write) = value.get("write") {
        bodies.push(Body::Write(Write {
            fnode: fnode(write),
            offset: int(write, "offset"),
            length: int(write, "length"),
            ..Write::default()
        }));
    }
    if let Some(property) = value.get("property") {
        let (path, content) = (
            text(property, beside, "path"),
            text(property, beside, "content"),
        );
        bodies.push(Body::Property { path, content });
    }
    let body = match bodies.len() {
        0 => Body::NoOp { mark: None },
        1 => bodies.pop()?,
        _ => return None,
    };
    let (checksum, author) = (uint32(value, "checksum"), uint32(value, "author"));
    Some(RecordedOp::new(
        int(value, "seq_no"),
        checksum,
        author,
        body,
    ))
}

/// Compares a state with the one that the reference printed.
pub(super) fn assert_state(fsm: &gazette_recoverylog_fsm::Fsm, state: &Value, context: &str) {
    assert_eq!(
        &**fsm.last_log(),
        state["last_log"].as_str().unwrap(),
        "{context}: last log"
    );
    assert_eq!(
        fsm.next_seq_no(),
        int(state, "next_seq_no"),
        "{context}: sequence number"
    );
    assert_eq!(
        fsm.next_checksum(),
        uint32(state, "next_checksum"),
        "{context}: checksum"
    );
    // Names that are not UTF-8 are printed with replacement characters.
    let print = |path: &Bytes| lossy(path);
    let links: Vec<_> = fsm
        .links()
        .iter()
        .map(|(at, fnode)| (print(&at.path), fnode.0))
        .collect();
    let expected = state["links"].as_object().unwrap();
    let mut expected: Vec<_> = expected
        .iter()
        .map(|(path, fnode)| (path.clone(), fnode.as_i64().unwrap()))
        .collect();
    expected.sort();
    let mut sorted = links.clone();
    sorted.sort();
    assert_eq!(sorted, expected, "{context}: links");
    let nodes = list(&state["live_nodes"]);
    assert_eq!(fsm.live_nodes().len(), nodes.len(), "{context}: live nodes");
    for ((fnode, node), expected) in fsm.live_nodes().iter().zip(nodes) {
        assert_eq!(fnode.0, int(expected, "fnode"), "{context}");
        let segments: Vec<_> = list(&expected["segments"]).iter().map(segment).collect();
        let wide = over_gaps(node.segments());
        assert_eq!(wide, segments, "{context}: segments of {fnode}");
        let mut paths: Vec<_> = links
            .iter()
            .filter(|(_, of)| *of == fnode.0)
            .map(|(path, _)| path.as_str())
            .collect();
        paths.sort_unstable();
        let mut expected: Vec<_> = list(&expected["links"])
            .iter()
            .map(|path| path.as_str().unwrap())
            .collect();
        expected.sort_unstable();
        assert_eq!(paths, expected, "{context}: links of {fnode}");
        assert_eq!(
            node.links() as usize,
            paths.len(),
            "{context}: links of {fnode}"
        );
    }
    let properties: Vec<_> = fsm
        .properties()
        .iter()
        .map(|(path, content)| (print(path), print(content)))
        .collect();
    let expected = state["properties"].as_object().unwrap();
    let expected: Vec<_> = expected
        .iter()
        .map(|(path, content)| (path.clone(), content.as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(properties, expected, "{context}: properties");
    let hinted: Vec<Segment> = fsm.hinted_segments().iter().cloned().collect();
    let expected: Vec<_> = list(&state["remaining_hinted_segments"])
        .iter()
        .map(segment)
        .collect();
    assert_eq!(hinted, expected, "{context}: hinted segments");
    let hinted: Vec<i64> = fsm.hinted_fnodes().map(|fnode| fnode.0).collect();
    let expected: Vec<_> = list(&state["remaining_hinted_fnodes"])
        .iter()
        .map(|fnode| fnode.as_i64().unwrap())
        .collect();
    assert_eq!(hinted, expected, "{context}: hinted fnodes");
}

/// Each byte that is not UTF-8 becomes a replacement character, as in the reference.
pub(super) fn lossy(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

pub(super) fn log_name(value: &Value) -> Arc<str> {
    value.as_str().unwrap().into()
}

/// The reference's segments reach over ops that hints left out, which may be gone; ours do not.
fn over_gaps(segments: &[Segment]) -> Vec<Segment> {
    let mut wide: Vec<Segment> = Vec::new();
    for segment in segments {
        match wide.last_mut() {
            Some(last) if last.author == segment.author && last.log == segment.log => {
                last.last_seq_no = segment.last_seq_no;
                last.last_offset = segment.last_offset;
            }
            _ => wide.push(segment.clone()),
        }
    }
    wide
}

/// Hints as the reference makes them, whose segments reach over such ops.
pub(super) fn wide(mut hints: FsmHints) -> FsmHints {
    for node in &mut hints.live_nodes {
        node.segments = over_gaps(&node.segments);
    }
    hints
}
