//! The HTTP gateway, case by case against `http/gateway.json` and `http/suspended.json`.

use std::{fmt::Write as _, time::Duration};

use gazette_protocol::{
    AppendRequest, CompressionCodec, JournalSpec, append_request::Suspend, journal_spec::Flag,
};
use serde_json::Value;

use crate::{
    house::{self, House},
    raw_http::{self, Answer},
};

/// Headers whose values depend on nothing but the journal.
const SAME_VALUES: [&str; 10] = [
    "content-range",
    "content-type",
    "trailer",
    "x-commit-begin",
    "x-commit-end",
    "x-commit-sha1-sum",
    "x-content-type-options",
    "x-fragment-name",
    "x-write-head",
    "transfer-encoding",
];

/// Headers that only one side has, or whose presence is not a matter of the gateway.
const NOT_COMPARED: [&str; 3] = ["connection", "date", "content-length"];

/// Headers that are there once a fragment is in its store, which is a matter of time.
const IF_STORED: [&str; 2] = ["x-fragment-last-modified", "x-fragment-location"];

fn journal(name: &str, codec: CompressionCodec) -> JournalSpec {
    let mut spec = house::spec(name);
    spec.fragment.compression_codec = codec.into();
    spec
}

/// Sends the request of a golden case, and says how the answer differs from what it should be.
async fn differences(house: &House, case: &Value) -> String {
    let name = case["name"].as_str().unwrap();
    let request = &case["request"];
    let strings = |value: &Value| -> Vec<String> {
        let items = value.as_array().unwrap().iter();
        items
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    let mut head = strings(&request["head"]);
    // Trailers go to those only who say that they take them.
    head.push("TE: trailers".to_owned());
    let body = house::golden_content(&request["body"]);
    let expected = &case["response"];
    let patience = match expected["still_open_after_s"].as_u64() {
        Some(_) => Duration::from_millis(700),
        None => Duration::from_secs(10),
    };
    let answer = raw_http::send(house.address(), &head, &body, patience).await;
    let mut told = String::new();
    let stays_open = !expected["still_open_after_s"].is_null();
    if answer.is_open != stays_open {
        writeln!(told, "{name}: open {} for {stays_open}", answer.is_open).unwrap();
    }
    let status = expected_status(&head[0], expected);
    if answer.status != status {
        writeln!(told, "{name}: status {} for {status}", answer.status).unwrap();
    }
    compare_headers(&mut told, name, &answer, expected);
    let body = &expected["body"];
    let (length, text) = (
        body["length"].as_u64().unwrap(),
        body["text"].as_str().unwrap_or_default(),
    );
    let is_status_name = text
        .trim_end()
        .bytes()
        .all(|b| b.is_ascii_uppercase() || b == b'_');
    if (200..300).contains(&status) || is_status_name {
        let same = match body["sha1"].as_str() {
            Some(sum) => house::sha1_hex(&answer.body) == sum,
            None => answer.body == text.as_bytes(),
        };
        if answer.body.len() as u64 != length || !same {
            let ours = String::from_utf8_lossy(&answer.body[..answer.body.len().min(100)]);
            writeln!(
                told,
                "{name}: body {} {ours:?} for {length}",
                answer.body.len()
            )
            .unwrap();
        }
    } else if head[0].starts_with("HEAD") != answer.body.is_empty() {
        writeln!(told, "{name}: an error has a body, but not for HEAD").unwrap();
    }
    let trailers: Vec<_> = strings(&expected["trailers"]);
    let ours: Vec<_> = answer
        .trailers
        .iter()
        .map(|(n, v)| format!("{n}: {v}"))
        .collect();
    let lower = |all: &[String]| all.join("\n").to_ascii_lowercase();
    if lower(&trailers) != lower(&ours) {
        writeln!(told, "{name}: trailers {ours:?} for {trailers:?}").unwrap();
    }
    told
}

/// The recorded status, but for what `docs/COMPATIBILITY.md` tells.
fn expected_status(request: &str, expected: &Value) -> u16 {
    let line = expected["status_line"].as_str().unwrap_or_default();
    let recorded = line
        .split(' ')
        .nth(1)
        .map_or(0, |code| code.parse().unwrap());
    // A HEAD has no body to tell why.
    let is_head = request.starts_with("HEAD");
    match (
        recorded,
        expected["body"]["text"]
            .as_str()
            .unwrap_or_default()
            .trim_end(),
    ) {
        (500, "JOURNAL_NOT_FOUND") => 404,
        (500, "NOT_ALLOWED") => 403,
        (500, "SUSPENDED") => 503,
        (500, "") if is_head && request.contains("wronly") => 403,
        (500, "") if is_head => 503,
        _ => recorded,
    }
}

fn compare_headers(told: &mut String, name: &str, answer: &Answer, expected: &Value) {
    let recorded: Vec<(String, String)> = (expected["headers"].as_array().unwrap().iter())
        .map(|pair| {
            let text = |at: usize| pair[at].as_str().unwrap();
            (text(0).to_ascii_lowercase(), text(1).to_owned())
        })
        .collect();
    let is_redirect = answer.status == 307;
    for (header, value) in &recorded {
        if NOT_COMPARED.contains(&header.as_str()) {
            continue;
        }
        let Some(ours) = answer.header(header) else {
            writeln!(told, "{name}: no header {header}: {value}").unwrap();
            continue;
        };
        let path = |url: &str| match url.split_once("://") {
            Some((_, rest)) => rest[rest.find('/').unwrap_or(rest.len())..].to_owned(),
            None => url.to_owned(),
        };
        let same = match header.as_str() {
            "location" => path(ours) == path(value),
            "x-route-token" => ours.starts_with(
                "members:<zone:\"local\" suffix:\"embedded\" > endpoints:\"http://127.0.0.1:",
            ),
            "content-type" if is_redirect => true,
            known if SAME_VALUES.contains(&known) => ours == value,
            _ => true,
        };
        if !same {
            writeln!(told, "{name}: header {header}: {ours} for {value}").unwrap();
        }
    }
    for (header, value) in &answer.headers {
        let header = header.to_ascii_lowercase();
        let is_extra = !recorded.iter().any(|(recorded, _)| *recorded == header);
        let is_compared = ![&NOT_COMPARED[..], &IF_STORED]
            .concat()
            .contains(&header.as_str());
        if is_extra && is_compared && !(is_redirect && header == "x-content-type-options") {
            writeln!(told, "{name}: extra header {header}: {value}").unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_answers_as_the_reference_but_for_what_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::serve(folder.path()).await;
    let client = house.client();
    let flagged = |spec: JournalSpec, flag: Flag| JournalSpec {
        flags: flag as u32,
        ..spec
    };
    for spec in [
        journal("acme/orders/part-001", CompressionCodec::Gzip),
        flagged(
            journal("acme/rdonly", CompressionCodec::Gzip),
            Flag::ORdonly,
        ),
        flagged(
            journal("acme/wronly", CompressionCodec::Gzip),
            Flag::OWronly,
        ),
        journal("acme/two", CompressionCodec::Snappy),
        JournalSpec {
            fragment: gazette_protocol::journal_spec::Fragment {
                stores: Vec::new(),
                ..house::spec("x").fragment
            },
            ..house::spec("scratch/none")
        },
    ] {
        house::create(&client, spec).await;
    }
    let golden = house::golden_json("http/gateway.json");
    let mut told = String::new();
    for case in golden["cases"].as_array().unwrap() {
        match case["name"].as_str().unwrap() {
            // Its connection is dropped there; ours answers.
            "patch" => {
                let head = ["PATCH /acme/two HTTP/1.1", "Host: x", "Connection: close"];
                let head = head.map(str::to_owned);
                let answer =
                    raw_http::send(house.address(), &head, b"", Duration::from_secs(5)).await;
                assert_eq!(answer.status, 400);
            }
            // The program adds it, the broker alone has no diagnostics.
            "debug_ready" => {}
            _ => told += &differences(&house, case).await,
        }
    }
    house.stop().await;
    assert!(told.is_empty(), "\n{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_journals_are_readable_in_part_and_wake_by_a_put() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("fragments/store")).unwrap();
    let house = House::serve(folder.path()).await;
    let client = house.client();
    for name in ["susp/data", "susp/empty"] {
        let mut spec = journal(name, CompressionCodec::Gzip);
        spec.fragment.stores = vec!["file:///store/".to_owned()];
        house::create(&client, spec).await;
    }
    house::append(&client, "susp/data", house::golden_text(500, "s0")).await;
    house::append(&client, "susp/data", house::golden_text(600, "s1")).await;
    for journal in ["susp/data", "susp/empty"] {
        let request = AppendRequest {
            journal: journal.to_owned(),
            suspend: Suspend::Now.into(),
            ..AppendRequest::default()
        };
        let answer = client.append(request, bytes::Bytes::new()).await;
        drop(answer.unwrap_err());
    }
    house::stored(&client, "susp/data").await;
    let golden = house::golden_json("http/suspended.json");
    let mut told = String::new();
    for case in golden["cases"].as_array().unwrap() {
        match case["name"].as_str().unwrap() {
            name if name.starts_with("rest") => {}
            // One broker can wake it at once, which theirs could not.
            "put_partial_resumes" | "put_full_resumes" => {
                let head: Vec<String> = case["request"]["head"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|line| line.as_str().unwrap().to_owned())
                    .collect();
                let body = house::golden_content(&case["request"]["body"]);
                let answer =
                    raw_http::send(house.address(), &head, &body, Duration::from_secs(10)).await;
                assert_eq!(answer.status, 204, "{answer:?}");
            }
            _ => told += &differences(&house, case).await,
        }
    }
    let data = house::read(&client, "susp/data").await;
    assert_eq!(data.len(), 1130);
    assert_eq!(
        house::read(&client, "susp/empty").await,
        house::golden_text(30, "resume")
    );
    house.stop().await;
    assert!(told.is_empty(), "\n{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_in_chunks_is_appended_whole_and_a_broken_one_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::serve(folder.path()).await;
    let client = house.client();
    house::create(&client, house::spec("acme/chunks")).await;
    let head = [
        "PUT /acme/chunks HTTP/1.1",
        "Host: x",
        "Connection: close",
        "Transfer-Encoding: chunked",
    ];
    let head = head.map(str::to_owned);
    let patience = Duration::from_secs(4);
    let body = b"3\r\none\r\n4\r\ntwo \r\n0\r\n\r\n";
    let answer = raw_http::send(house.address(), &head, body, patience).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(answer.header("x-commit-end"), Some("7"));
    for broken in [
        "3\r\nbad\r\nzz\r\n",
        "3\r\nbadly",
        "5\r\nbad\r\n0\r\n\r\n",
        "3\r\nbad\r\n",
    ] {
        let answer = raw_http::send(house.address(), &head, broken.as_bytes(), patience).await;
        assert_ne!(answer.status, 204, "{broken:?}: {answer:?}");
    }
    assert_eq!(
        house::append(&client, "acme/chunks", "three").await,
        (7, 12)
    );
    assert_eq!(house::read(&client, "acme/chunks").await, b"onetwo three");
    house.stop().await;
}
