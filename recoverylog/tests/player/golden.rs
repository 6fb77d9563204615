//! Logs that the reference wrote play to the trees that it played them to, or to an error where it hangs,
//! crashes, or goes on without what is missing.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use gazette_client::fake::FakeBroker;
use gazette_protocol::{CompressionCodec, Fragment};
use gazette_recoverylog::{
    Source,
    fsm::{FsmHints, Mode},
    player::{HintsChoice, RecoverError, Recovered},
};
use serde_json::Value;
use sha1::{Digest, Sha1};

use crate::support::{add_log, files, place, play};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden/recoverylog")
        .join(name)
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&fs::read(golden(name)).unwrap()).unwrap()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} is a text in {value}"))
}

fn decode(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap()
}

fn hints(value: &Value) -> HintsChoice {
    let bytes = decode(text(value, "pb_base64"));
    HintsChoice::These(Arc::new(FsmHints::decode_proto(bytes.into()).unwrap()))
}

fn sha1(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha1::digest(bytes) {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Path of a file, and its SHA-1, size and other names.
type Tree = BTreeMap<Vec<u8>, (String, u64, Vec<Vec<u8>>)>;

fn path_of(name: &str) -> Vec<u8> {
    match name.strip_prefix("base64:") {
        Some(name) => decode(name),
        None => name.as_bytes().to_vec(),
    }
}

fn expected(play: &Value) -> Tree {
    let Some(tree) = play["tree"].as_object() else {
        return Tree::new();
    };
    tree.iter()
        .map(|(name, file)| {
            let same = list(&file["same_file_as"]);
            let mut names: Vec<_> = same
                .iter()
                .map(|name| path_of(name.as_str().unwrap()))
                .collect();
            if names.is_empty() {
                names.push(path_of(name));
            }
            names.sort();
            let size = file["size"].as_u64().unwrap_or(0);
            // Of a file of 4 GiB only the size is known.
            let sum = file["sha1"].as_str().unwrap_or("").to_owned();
            (path_of(name), (sum, size, names))
        })
        .collect()
}

fn found(root: &std::path::Path) -> Tree {
    let files = files(root);
    let names_of = |inode: u64| {
        let same = files.iter().filter(|(_, (.., other))| *other == inode);
        same.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    files
        .iter()
        .map(|(name, (content, size, inode))| {
            let sum = content
                .as_ref()
                .map_or(String::new(), |content| sha1(content));
            let entry = (sum, *size, names_of(*inode));
            (name.clone(), entry)
        })
        .collect()
}

async fn played(
    broker: &FakeBroker,
    log: &str,
    hints: HintsChoice,
) -> Result<(Tree, Recovered), RecoverError> {
    let place = place();
    let source = Source::Broker(broker.client());
    let play = play(&source, log, &place.to, hints);
    let result = tokio::time::timeout(Duration::from_secs(20), play)
        .await
        .expect("it ends");
    assert_eq!(
        place.leftovers(),
        Vec::<PathBuf>::new(),
        "nothing is left behind"
    );
    match result {
        Ok(recovered) => {
            assert_eq!(recovered.path, fs::canonicalize(&place.to).unwrap());
            Ok((found(&place.to), recovered))
        }
        Err(error) => {
            assert!(!place.to.exists(), "nothing appeared");
            assert!(error.to_string().contains("next: "), "{error}");
            Err(error)
        }
    }
}

/// Content of a log before a play: for a hand-off, before the no-op that succeeded.
fn head_of(play: &Value) -> usize {
    let injected = list(&play["trace"])
        .iter()
        .rev()
        .find(|event| event["event"] == "inject")
        .and_then(|event| event["commit_begin"].as_u64());
    let head = injected.or_else(|| play["head_before"].as_u64());
    usize::try_from(head.unwrap()).unwrap()
}

fn check_resolved(recovered: &Recovered, play: &Value, name: &str) {
    // A hand-off's state has its no-op, which is not in what is played here.
    if let Some(inject) = list(&play["trace"])
        .iter()
        .rev()
        .find(|event| event["event"] == "inject")
    {
        let next = (recovered.fsm.next_seq_no(), recovered.fsm.next_checksum());
        let seq_no = inject["seq_no"].as_i64().unwrap_or(0);
        let checksum = inject["checksum"].as_u64().unwrap_or(0);
        assert_eq!((next.0, u64::from(next.1)), (seq_no, checksum), "{name}");
        return;
    }
    let resolved = &play["resolved"];
    if resolved.is_null() {
        return;
    }
    assert_eq!(
        resolved["next_seq_no"].as_i64(),
        Some(recovered.fsm.next_seq_no()),
        "{name}"
    );
    let checksum = resolved["next_checksum"].as_u64().unwrap_or(0);
    assert_eq!(checksum, u64::from(recovered.fsm.next_checksum()), "{name}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn golden_logs_play_to_the_golden_trees_with_each_set_of_hints() {
    // A log that begins with a later op plays to nothing there, silently. Here it is an error.
    let silent = ["multi-log/none-new"];
    for name in [
        "basic",
        "holes",
        "handoff",
        "lost-race",
        "skip-dead",
        "two-recorders",
        "properties",
        "multi-log",
    ] {
        let scenario = json(&format!("{name}.json"));
        for case in list(&scenario["plays"]) {
            let named = list(&scenario["hints"])
                .iter()
                .find(|hints| hints["name"] == case["hints"]);
            let named = named.unwrap_or_else(|| panic!("{name} has hints {}", case["hints"]));
            let title = format!("{name}/{}", text(case, "hints"));
            let broker = FakeBroker::new();
            let choice = hints(named);
            let HintsChoice::These(decoded) = &choice else {
                unreachable!()
            };
            let log = decoded.log.to_string();
            for file in list(&scenario["logs"]) {
                let journal = text(file, "journal");
                let content = fs::read(golden(text(file, "file"))).unwrap();
                let head = if journal == log {
                    head_of(case)
                } else {
                    content.len()
                };
                add_log(&broker, journal, Mode::Compat, &content[..head]);
            }
            let result = played(&broker, &log, choice).await;
            if silent.contains(&title.as_str()) {
                assert!(result.is_err(), "{title}");
                continue;
            }
            let (tree, recovered) = result.unwrap_or_else(|error| panic!("{title}: {error}"));
            assert_eq!(tree, expected(case), "{title}");
            check_resolved(&recovered, case, &title);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_real_databases_play_to_the_same_tree_with_all_hints() {
    for name in ["rocksdb", "sqlite"] {
        let scenario = json(&format!("{name}.json"));
        let log = text(&scenario, "journal");
        let broker = FakeBroker::new();
        let content = fs::read(golden(text(&scenario, "log_file"))).unwrap();
        add_log(&broker, log, Mode::Compat, &content);
        let play = &scenario["plays"][0];
        let choices = list(&scenario["hints"]).iter().map(hints);
        for (index, choice) in choices.chain([HintsChoice::Never]).enumerate() {
            let (tree, recovered) = played(&broker, log, choice)
                .await
                .unwrap_or_else(|error| panic!("{name}, hints {index}: {error}"));
            assert_eq!(tree, expected(play), "{name}, hints {index}");
            let next = (recovered.fsm.next_seq_no(), recovered.fsm.next_checksum());
            assert_eq!(play["next_seq_no"].as_i64(), Some(next.0));
            assert_eq!(play["next_checksum"].as_u64(), Some(u64::from(next.1)));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_bytes_are_skipped_wherever_they_are_and_reported() {
    for case in list(&json("garbage.json")["cases"]) {
        let Some(file) = case["file"].as_str() else {
            continue;
        };
        let content = fs::read(golden(file)).unwrap();
        let place = text(case, "where");
        for plays in ["play_with_hints", "play_without_hints"] {
            let title = format!("{place} {} {plays}", text(case, "case"));
            let HintsChoice::These(decoded) = hints(&case["hints"]) else {
                unreachable!()
            };
            let log = decoded.log.to_string();
            let choice = if plays == "play_with_hints" {
                HintsChoice::These(decoded)
            } else {
                HintsChoice::Never
            };
            let broker = FakeBroker::new();
            add_log(&broker, &log, Mode::Compat, &content);
            let result = played(&broker, &log, choice).await;
            if place == "tail" && text(case, "case") == "junk-false-magic-short" {
                // A whole frame without an op, and nothing behind it shows that none was lost.
                let error = result.map(|(tree, _)| tree).unwrap_err();
                assert!(
                    error.to_string().contains("damaged at offset 140"),
                    "{error}"
                );
                continue;
            }
            let is_op = text(case, "case") == "junk-false-magic-write";
            if is_op && (place == "tail" || plays == "play_without_hints") {
                // An op that follows upon something that is not in the log. The reference takes it for dead.
                let error = result.map(|(tree, _)| tree).unwrap_err();
                assert!(
                    matches!(error, RecoverError::Damaged(_)),
                    "{title}: {error}"
                );
                continue;
            }
            // The reference gives up where junk looks like a frame, and waits for ever at junk at the end.
            let (tree, recovered) = result.unwrap_or_else(|error| panic!("{title}: {error}"));
            let good = list(&json("garbage.json")["cases"])[0]["play_with_hints"].clone();
            assert_eq!(tree, expected(&good), "{title}");
            let junk = (
                case["junk_begin"].as_i64().unwrap(),
                case["junk_len"].as_i64().unwrap(),
            );
            let is_frame =
                ["junk-false-magic-empty", "junk-false-magic-write"].contains(&text(case, "case"));
            let is_passed_over = place == "lead" && plays == "play_with_hints";
            if is_frame || is_passed_over {
                assert_eq!(recovered.report.torn_tail(), None, "{title}");
            } else if place == "tail" {
                let torn = recovered
                    .report
                    .torn_tail()
                    .unwrap_or_else(|| panic!("{title}"));
                assert_eq!((torn.begin, torn.end), (junk.0, junk.0 + junk.1), "{title}");
            } else {
                assert!(!recovered.report.skipped.is_empty(), "{title}");
                assert_eq!(recovered.report.torn_tail(), None, "{title}");
            }
        }
    }
}

/// What becomes of a row of errors.json here, where it is not what the reference does.
enum Ours {
    /// An error with this text in it.
    Error(&'static str),
    /// A tree that is good up to a torn tail.
    Torn,
    /// The tree that is given.
    Tree(&'static [&'static str]),
}

fn ours(name: &str) -> Option<Ours> {
    Some(match name {
        "first_offset beyond the head in a segment which is merged into an earlier one: not noticed" =>
        {
            return None;
        }
        "property in hints collides with a create beyond the hints" => {
            Ours::Error("property exists")
        }
        "bit flip in a checksum field: that op and all later ones do not apply"
        | "bit flip in a path: applies, but the next op does not chain" => {
            Ours::Error("damaged at offset")
        }
        "path with .. leaves the directory when linked" => {
            Ours::Error("leads out of the directory")
        }
        "live file named /.fnodes" => Ours::Tree(&["/.fnodes"]),
        "write with negative length"
        | "write at negative offset"
        | "payload which is not a protobuf message in a good frame" => {
            Ours::Error("damaged at offset 21")
        }
        "write payload short at the end of the log"
        | "frame cut at the end of the log"
        | "frame header cut at the end of the log"
        | "frame cut at the end of the log; hand-off" => Ours::Torn,
        "empty hints on a log whose first op is seq 5 (pruned head): silently empty" => {
            Ours::Error("begins with op 5")
        }
        _ => return None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn golden_errors_are_errors_and_hangs_end() {
    let scenario = json("errors.json");
    let content = fs::read(golden("errors.log")).unwrap();
    let head = usize::try_from(scenario["head_before_handoffs"].as_u64().unwrap()).unwrap();
    for row in list(&scenario["rows"]) {
        let name = text(row, "name");
        let case = &row["play"];
        let choice = hints(&row["hints"]);
        let HintsChoice::These(decoded) = &choice else {
            unreachable!()
        };
        let log = decoded.log.to_string();
        let broker = FakeBroker::new();
        let own = row["log_base64"].as_str().map(decode);
        match &own {
            Some(own) => add_log(&broker, &log, Mode::Compat, own),
            None => add_log(&broker, "recovery/errors", Mode::Compat, &content[..head]),
        }
        let log = if log.is_empty() {
            "recovery/errors"
        } else {
            &log
        };
        let result = played(&broker, log, choice).await;
        match (ours(name), result) {
            (Some(Ours::Error(part)), Err(error)) => {
                assert!(error.to_string().contains(part), "{name}: {error}");
            }
            (Some(Ours::Torn), Ok((_, recovered))) => {
                assert!(recovered.report.torn_tail().is_some(), "{name}");
            }
            (Some(Ours::Tree(names)), Ok((tree, _))) => {
                let names: Vec<_> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
                assert_eq!(tree.into_keys().collect::<Vec<_>>(), names, "{name}");
            }
            (None, Err(error)) => {
                assert!(case["error"].is_string(), "{name}: {error}");
            }
            (None, Ok((tree, _))) => {
                assert!(case["error"].is_null(), "{name}: {}", case["error"]);
                assert_eq!(tree, expected(case), "{name}");
            }
            (_, Ok((tree, recovered))) => panic!("{name}: {tree:?} {:?}", recovered.report),
            (_, Err(error)) => panic!("{name}: {error}"),
        }
    }
}

/// A broker whose journal has some ranges of a log only.
fn pruned(log: &str, content: &[u8], ranges: &[Value]) -> FakeBroker {
    let broker = FakeBroker::new();
    add_log(&broker, log, Mode::Compat, &[]);
    for range in ranges {
        let begin = usize::try_from(range["offset"].as_u64().unwrap()).unwrap();
        let end = begin + usize::try_from(range["len"].as_u64().unwrap()).unwrap();
        broker.append(log, &content[begin..end]);
        let (fragment, _) = broker.compress(log, CompressionCodec::None).unwrap();
        let fragment = Fragment {
            begin: i64::try_from(begin).unwrap(),
            end: i64::try_from(end).unwrap(),
            ..fragment
        };
        broker.store_at(log, fragment, String::new());
    }
    broker
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_pruned_is_missed_only_where_it_is_needed() {
    let scenario = json("pruned.json");
    let content = fs::read(golden("skip-dead.log")).unwrap();
    for row in list(&scenario["cases"]) {
        let name = text(row, "name");
        let case = &row["play"];
        let choice = hints(&row["hints"]);
        let HintsChoice::These(decoded) = &choice else {
            unreachable!()
        };
        let log = decoded.log.to_string();
        let broker = pruned(&log, &content, list(&row["kept_ranges"]));
        let result = played(&broker, &log, choice).await;
        let is_pruned = row["kept_ranges"].as_array().unwrap().len() > 1
            || row["kept_ranges"][0]["offset"].as_i64() != Some(0);
        if row["hints_of_skip_dead"] == "none" && is_pruned {
            // There, what is missing is missing silently.
            let error = result.map(|(tree, _)| tree).unwrap_err();
            assert!(matches!(error, RecoverError::Missing(_)), "{name}: {error}");
            continue;
        }
        match result {
            Ok((tree, _)) => {
                assert!(case["error"].is_null(), "{name}: {}", case["error"]);
                assert_eq!(tree, expected(case), "{name}");
            }
            Err(error) => assert!(case["error"].is_string(), "{name}: {error}"),
        }
    }
}
