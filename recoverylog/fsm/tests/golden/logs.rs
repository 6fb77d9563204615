//! Whole logs: their ops, hints of them, and what playing them makes.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gazette_recoverylog_fsm::image::{ImageError, MemoryImage};
use gazette_recoverylog_fsm::{
    Applied, Event, Fsm, FsmHints, HintsError, Kind, Mode, OpExtent, OpReader, Unfinished,
};
use serde_json::Value;

use crate::support::{assert_state, base64, file, int, json, list, lossy, op, sha1, wide};

const LOGS: [&str; 9] = [
    "basic",
    "holes",
    "handoff",
    "lost-race",
    "skip-dead",
    "two-recorders",
    "properties",
    "multi-log",
    "rocksdb",
];

/// The log files of a golden file: journal, bytes, and ops.
fn logs(data: &Value) -> Vec<(Arc<str>, Bytes, &[Value])> {
    let log = |journal: &Value, name: &Value, ops| {
        let bytes = Bytes::from(file(name.as_str().unwrap()));
        (journal.as_str().unwrap().into(), bytes, ops)
    };
    if data.get("log_file").is_some() {
        return vec![log(&data["journal"], &data["log_file"], list(&data["ops"]))];
    }
    let logs = list(&data["logs"]).iter();
    logs.map(|each| log(&each["journal"], &each["file"], list(&each["ops"])))
        .collect()
}

#[test]
fn ops_of_all_logs_read_and_write_bit_for_bit() {
    let mut count = 0;
    for name in LOGS {
        let data = json(&format!("{name}.json"));
        for (log, bytes, ops) in logs(&data) {
            let mut fsm = Fsm::of_log(&log).unwrap();
            let mut reader = OpReader::new(0);
            let mut rest = bytes.clone();
            let mut ops = ops.iter();
            let mut content: Option<(Vec<u8>, &Value)> = None;
            loop {
                match reader.next_event() {
                    Event::NeedMore if rest.is_empty() => break,
                    // Pieces of any size.
                    Event::NeedMore => reader.feed(rest.split_to(rest.len().min(1000))),
                    Event::Op(decoded) => {
                        let Some(expected) = ops.next() else { break };
                        let context = format!("{name} at {}", decoded.begin);
                        assert_eq!(decoded.begin, int(expected, "begin"), "{context}");
                        assert_eq!(decoded.frame_end, int(expected, "frame_end"), "{context}");
                        assert_eq!(decoded.end, int(expected, "end"), "{context}");
                        assert_eq!(Some(&decoded.op), op(expected).as_ref(), "{context}");
                        let mut encoded = BytesMut::new();
                        assert_eq!(decoded.op.encode_frame(&mut encoded), decoded.next_checksum);
                        let range = decoded.begin as usize..decoded.frame_end as usize;
                        assert_eq!(encoded, bytes[range], "{context}");
                        let (begin, end) = (decoded.begin, decoded.end);
                        let extent = OpExtent {
                            log: &log,
                            begin,
                            end,
                        };
                        let applied = fsm.apply(&decoded.op, decoded.next_checksum, extent);
                        if let Some(text) = expected["apply_without_hints"].as_str() {
                            let is_applied = text == "applied";
                            assert_eq!(applied == Ok(Applied::Applied), is_applied, "{context}");
                        }
                        content = Some((Vec::new(), expected));
                        count += 1;
                    }
                    Event::Content { bytes, last, .. } => {
                        let (payload, expected) = content.as_mut().unwrap();
                        payload.extend_from_slice(&bytes);
                        if last && let Some(expected) = expected["payload_sha1"].as_str() {
                            assert_eq!(sha1(payload), expected, "{name}");
                        }
                    }
                    event @ (Event::Desync { .. } | Event::Damaged { .. }) => {
                        panic!("{name}: {event:?}")
                    }
                }
            }
            assert_eq!(ops.len(), 0, "{name}: ops that were not found");
            assert_eq!(reader.unfinished(), Unfinished::Nothing, "{name}");
        }
    }
    assert!(count >= 250, "{count}");
}

#[test]
fn hints_of_all_logs_read_and_write_bit_for_bit() {
    for name in LOGS.into_iter().chain(["sqlite"]) {
        let data = json(&format!("{name}.json"));
        let plays = list(&data["plays"]).iter().map(|play| &play["hints_after"]);
        for each in list(&data["hints"]).iter().chain(plays) {
            let (Some(text), false) = (each["json"].as_str(), each["pb_base64"].is_null()) else {
                continue;
            };
            let bytes = base64(&each["pb_base64"]);
            let hints = FsmHints::decode(&bytes).unwrap();
            assert_eq!(hints.encode(), bytes, "{name}");
            assert_eq!(hints.to_json(), text, "{name}");
            let of_json = FsmHints::decode(text.as_bytes()).unwrap();
            // JSON does not carry what is not UTF-8.
            if !text.contains("\\ufffd") {
                assert_eq!(of_json.to_json(), text, "{name}");
                assert_eq!(of_json, hints, "{name}");
            }
        }
    }
    assert_eq!(FsmHints::decode(b""), Err(HintsError::Empty));
}

fn hints_of(data: &Value, play: &Value) -> FsmHints {
    let name = &play["hints"];
    match list(&data["hints"])
        .iter()
        .find(|hints| hints["name"] == *name)
    {
        Some(hints) => FsmHints::decode(&base64(&hints["pb_base64"])).unwrap(),
        None => FsmHints::of_log(data["journal"].as_str().unwrap()),
    }
}

/// Plays the logs that hints name, up to where the play that was recorded did.
fn played(data: &Value, play: &Value) -> MemoryImage {
    let hints = hints_of(data, play);
    let mut image = MemoryImage::new(Mode::Compat, &hints).unwrap();
    let inject = list(&play["trace"])
        .iter()
        .rfind(|event| event["event"] == "inject");
    for (log, bytes, _) in logs(data) {
        let named = image
            .fsm
            .hinted_segments()
            .iter()
            .any(|segment| segment.log == log);
        if !named && log != hints.log {
            continue;
        }
        let end = match inject {
            _ if log != hints.log => bytes.len(),
            Some(inject) => int(inject, "commit_begin") as usize,
            None => play["head_before"]
                .as_i64()
                .map_or(bytes.len(), |head| head as usize),
        };
        image.play(&log, &bytes.slice(..end), |_, _, _| {}).unwrap();
        if let Some(inject) = inject
            && log == hints.log
        {
            let (begin, end) = (int(inject, "commit_begin"), int(inject, "commit_end"));
            let author = int(play, "handoff_author").try_into().unwrap();
            let author = gazette_recoverylog_fsm::Author::new(author).unwrap();
            let op = image.fsm.handoff(author);
            let mut frame = BytesMut::new();
            let next_checksum = op.encode_frame(&mut frame);
            assert_eq!(
                frame,
                bytes[begin as usize..end as usize],
                "the op of a hand-off"
            );
            let extent = OpExtent {
                log: &log,
                begin,
                end,
            };
            image.fsm.apply(&op, next_checksum, extent).unwrap();
        }
    }
    image
}

fn assert_tree(image: &MemoryImage, tree: &Value, context: &str) {
    let files: Vec<_> = image
        .snapshot()
        .into_iter()
        .filter(|(_, entry)| entry.attributes.kind == Kind::Regular)
        .collect();
    let expected = tree.as_object().unwrap();
    assert_eq!(
        files.len(),
        expected.len(),
        "{context}: {:?}",
        expected.keys()
    );
    for (path, entry) in &files {
        let key = lossy(path);
        let expected = expected.get(&key).unwrap_or_else(|| {
            use base64::Engine as _;
            let encoded = base64::prelude::BASE64_STANDARD.encode(path);
            expected
                .get(&format!("base64:{encoded}"))
                .unwrap_or_else(|| panic!("{context}: {key}"))
        });
        assert_eq!(
            entry.content.size() as i64,
            int(expected, "size"),
            "{context}: {key}"
        );
        assert_eq!(
            entry.attributes.size,
            entry.content.size(),
            "{context}: {key}"
        );
        if let Some(sum) = expected["sha1"].as_str()
            && entry.content.size() < 1 << 28
        {
            assert_eq!(sha1(&entry.content.bytes()), sum, "{context}: {key}");
        }
        let same: Vec<_> = files
            .iter()
            .filter(|(_, other)| other.same_as == entry.same_as)
            .collect();
        assert_eq!(
            same.len(),
            list(&expected["same_file_as"]).len().max(1),
            "{context}: {key}"
        );
    }
}

#[test]
fn plays_of_all_logs_end_in_the_reference_state_and_tree() {
    let mut count = 0;
    for name in LOGS.into_iter().chain(["sqlite"]) {
        let data = json(&format!("{name}.json"));
        for (index, play) in list(&data["plays"]).iter().enumerate() {
            if play.get("error").is_some_and(|error| !error.is_null()) {
                continue;
            }
            let context = format!("{name}, play {index} with hints {}", play["hints"]);
            let image = played(&data, play);
            assert!(image.tree.orphans().is_empty(), "{context}");
            if play["resolved"].is_object() {
                assert_state(&image.fsm, &play["resolved"], &context);
            }
            if let Some(after) = play["hints_after"]["pb_base64"].as_str() {
                let hints = image.fsm.hints(&hints_of(&data, play).log);
                let after = base64(&Value::from(after));
                assert_eq!(hints.encode(), after, "{context}");
            }
            if play["tree"].is_object() {
                assert_tree(&image, &play["tree"], &context);
            }
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}

/// What stands in for the player's checks: heads of logs, hints that were not used, and names that
/// cannot be on a disk.
fn fails(image: &MemoryImage, played: &Result<(), ImageError>) -> bool {
    let unused = !image.fsm.hinted_segments().is_empty();
    played.is_err() || unused || !image.tree.orphans().is_empty()
}

#[test]
fn damaged_logs_and_wrong_hints_end_as_in_the_reference_or_with_an_error() {
    let data = json("errors.json");
    let log_file = Bytes::from(file("errors.log"));
    let before_handoffs = int(&data, "head_before_handoffs") as usize;
    // Where ours says what is wrong, and the reference does not.
    let stricter = ["path with .. leaves the directory when linked"];
    let mut count = 0;
    for row in list(&data["rows"]) {
        let name = row["name"].as_str().unwrap();
        let play = &row["play"];
        let hints = base64(&row["hints"]["pb_base64"]).into();
        let hints = FsmHints::decode_proto(hints).unwrap();
        let error = play["error"].as_str().unwrap_or_default();
        if error.starts_with("determining head") || error.starts_with("max write-head") {
            // The player's business, which knows the heads.
            continue;
        }
        let Ok(mut image) = MemoryImage::new(Mode::Compat, &hints) else {
            assert!(!error.is_empty(), "{name}");
            continue;
        };
        let bytes = match row["log_base64"].as_str() {
            Some(_) => Bytes::from(base64(&row["log_base64"])),
            None => log_file.clone(),
        };
        let head = play["head_before"].as_i64().filter(|head| *head >= 0);
        let head = head
            .map_or(before_handoffs, |head| head as usize)
            .min(bytes.len());
        let log = Arc::clone(&hints.log);
        let played = image.play(&log, &bytes.slice(..head), |_, _, _| {});
        if !error.is_empty() || stricter.contains(&name) {
            let property_below_a_file = name.starts_with("property ") && name.contains("below");
            let staging = name.contains(".fnodes");
            if !property_below_a_file && !staging {
                assert!(fails(&image, &played), "{name}: {error}");
            }
        } else if head == bytes.len() || row["log_base64"].is_null() && head == 199 {
            played.unwrap_or_else(|error| panic!("{name}: {error}"));
            // Some were played behind a hand-off that the file does not hold.
            let is_whole = int(play, "head_before") as usize <= bytes.len();
            if is_whole && play["resolved"].is_object() && play.get("handoff_author").is_none() {
                assert_state(&image.fsm, &play["resolved"], name);
                let after = base64(&play["hints_after"]["pb_base64"]);
                assert_eq!(wide(image.fsm.hints(&log)).encode(), after, "{name}");
            }
            if play["tree"].is_object() && play.get("handoff_author").is_none() {
                assert_tree(&image, &play["tree"], name);
            }
        }
        count += 1;
    }
    assert!(count > 30, "{count}");
}

#[test]
fn junk_before_between_and_behind_ops_is_found() {
    let data = json("garbage.json");
    let cases = data.as_object().unwrap().values().flat_map(list);
    let mut count = 0;
    for case in cases.filter(|case| case.get("file").is_some()) {
        let name = case["file"].as_str().unwrap();
        let bytes = Bytes::from(file(name));
        for piece in [1, 7, bytes.len()] {
            let mut reader = OpReader::new(0);
            let mut rest = bytes.clone();
            let mut fsm = Fsm::of_log("recovery/garbage").unwrap();
            let mut expected = list(&case["ops"])
                .iter()
                .filter(|event| event["desync"] != true);
            let mut junk = Vec::new();
            loop {
                match reader.next_event() {
                    Event::NeedMore if rest.is_empty() => break,
                    Event::NeedMore => reader.feed(rest.split_to(rest.len().min(piece))),
                    Event::Op(decoded) => {
                        let Some(expected) = expected.next() else {
                            continue;
                        };
                        if expected.get("error").is_some() {
                            break;
                        }
                        assert_eq!(decoded.begin, int(expected, "begin"), "{name}");
                        assert_eq!(decoded.end, int(expected, "end"), "{name}");
                        let log: Arc<str> = "recovery/garbage".into();
                        let extent = OpExtent {
                            log: &log,
                            begin: decoded.begin,
                            end: decoded.end,
                        };
                        let applied = fsm.apply(&decoded.op, decoded.next_checksum, extent);
                        let is_applied = expected["apply_without_hints"] == "applied";
                        assert_eq!(applied == Ok(Applied::Applied), is_applied, "{name}");
                    }
                    Event::Content { .. } => {}
                    Event::Desync { begin, end } => junk.push((begin, end)),
                    Event::Damaged { begin, .. } => {
                        let expected = expected.next();
                        if let Some(expected) = expected {
                            assert_eq!(begin, int(expected, "begin"), "{name}");
                            assert!(expected.get("error").is_some(), "{name}: {expected}");
                        }
                        break;
                    }
                }
            }
            let mut skipped = list(&case["ops"])
                .iter()
                .filter(|event| event["desync"] == true);
            if let (Some(first), Some((begin, end))) = (skipped.next(), junk.first()) {
                let last = skipped.next_back().unwrap_or(first);
                assert_eq!(
                    (*begin, *end),
                    (int(first, "begin"), int(last, "end")),
                    "{name}"
                );
            }
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}

#[test]
fn hints_with_gaps_skip_what_lies_between() {
    let data = json("pruned.json");
    let source = Bytes::from(file(data["source_log"].as_str().unwrap()));
    let mut count = 0;
    for case in list(&data["cases"]) {
        let Some(hints) = case["hints"]["pb_base64"].as_str() else {
            continue;
        };
        let hints = FsmHints::decode(&base64(&Value::from(hints))).unwrap();
        let mut kept = vec![0; source.len()];
        for range in list(&case["kept_ranges"]) {
            let begin = int(range, "offset") as usize;
            let range = begin..begin + int(range, "len") as usize;
            kept[range.clone()].copy_from_slice(&source[range]);
        }
        let play = &case["play"];
        let log = Arc::clone(&hints.log);
        let mut image = MemoryImage::new(Mode::Compat, &hints).unwrap();
        let played = image.play(&log, &kept.into(), |_, _, _| {});
        let name = case["name"].as_str().unwrap_or_default();
        if name == "fragments younger than 6 hours, no hints" {
            // The broker's business, which does not let a reader over the gap.
            continue;
        }
        if play["error"].is_null() && play["hang"].is_null() && play["tree"].is_object() {
            if played.is_ok() {
                assert_tree(&image, &play["tree"], name);
            }
        } else {
            assert!(fails(&image, &played), "{name}");
        }
        count += 1;
    }
    assert!(count > 0 || list(&data["cases"]).is_empty(), "{count}");
}
