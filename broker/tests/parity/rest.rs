//! The REST gateway, case by case against `http/rest.json`.

use std::{fmt::Write as _, time::Duration};

use gazette_protocol::{CompressionCodec, JournalSpec, journal_spec::Flag};
use serde_json::Value;

use crate::{
    house::{self, House},
    raw_http,
};

/// Needs other brokers.
const NEEDS_PEERS: [&str; 1] = ["read_do_not_proxy_nonmember"];
/// Recorded journals with labels, rates and roles that one broker has not.
const BY_KEYS_ONLY: [&str; 2] = ["list_empty_body", "list_empty_obj"];

/// The keys of a JSON value and of all within, in order, and the kind of each value.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), shape(value)))
            .collect(),
        Value::Array(items) => items.first().map_or(Value::Array(Vec::new()), |first| {
            Value::Array(vec![shape(first)])
        }),
        Value::String(text) if text.parse::<f64>().is_ok() => "number in text".into(),
        Value::String(_) => "text".into(),
        Value::Number(_) => "number".into(),
        Value::Null | Value::Bool(_) => value.clone(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_gateway_answers_as_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::serve(folder.path()).await;
    let client = house.client();
    let wronly = JournalSpec {
        flags: Flag::OWronly as u32,
        ..house::spec("acme/wronly")
    };
    let mut orders = house::spec("acme/orders/part-001");
    orders.fragment.compression_codec = CompressionCodec::Gzip.into();
    for spec in [
        house::spec("acme/orders/part-000"),
        orders,
        house::spec("acme/two"),
        wronly,
    ] {
        house::create(&client, spec).await;
    }
    for (length, tag) in [(100, "h0"), (3000, "h1"), (50, "h2"), (10, "mm")] {
        house::append(
            &client,
            "acme/orders/part-001",
            house::golden_text(length, tag),
        )
        .await;
    }
    house::append(&client, "acme/two", house::golden_text(70_000, "big")).await;
    let golden = house::golden_json("http/rest.json");
    let mut told = String::new();
    for case in golden["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        if NEEDS_PEERS.contains(&name) {
            continue;
        }
        let head: Vec<String> = (case["request"]["head"].as_array().unwrap().iter())
            .map(|line| line.as_str().unwrap().to_owned())
            .collect();
        let body = house::golden_content(&case["request"]["body"]);
        let expected = &case["response"];
        let stays_open = !expected["still_open_after_s"].is_null();
        let patience = Duration::from_millis(if stays_open { 700 } else { 10_000 });
        let answer = raw_http::send(house.address(), &head, &body, patience).await;
        if answer.is_open != stays_open {
            writeln!(told, "{name}: open {} for {stays_open}", answer.is_open).unwrap();
        }
        let line = expected["status_line"].as_str().unwrap();
        if !line.contains(&answer.status.to_string()) {
            writeln!(told, "{name}: status {} for {line}", answer.status).unwrap();
        }
        for pair in expected["headers"].as_array().unwrap() {
            let (header, value) = (pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
            let ours = answer.header(header);
            let is_free = ["Date", "Connection", "Content-Length"].contains(&header);
            if !is_free && ours != Some(value) {
                writeln!(told, "{name}: header {header}: {ours:?} for {value}").unwrap();
            }
        }
        let ours = String::from_utf8(answer.body.clone()).unwrap();
        compare_lines(&mut told, name, &ours, expected["body"]["text"].as_str());
    }
    house.stop().await;
    assert!(told.is_empty(), "\n{told}");
}

fn compare_lines(told: &mut String, name: &str, ours: &str, recorded: Option<&str>) {
    let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let is_error = |text: &str| text.starts_with("{\"error\"") || text.starts_with("{\"code\"");
    let Some(recorded) = recorded.filter(|text| !text.is_empty()) else {
        return;
    };
    if is_error(recorded) {
        let (mut ours, mut recorded) = (parse(ours), parse(recorded));
        for value in [&mut ours, &mut recorded] {
            // The wording is our own.
            if let Some(error) = value.get_mut("error") {
                error["message"] = "".into();
            }
            if value.get("message").is_some() {
                value["message"] = "".into();
            }
        }
        if ours != recorded {
            writeln!(told, "{name}: {ours} for {recorded}").unwrap();
        }
        return;
    }
    if ours.ends_with('\n') != recorded.ends_with('\n') {
        writeln!(told, "{name}: lines end otherwise").unwrap();
    }
    if BY_KEYS_ONLY.contains(&name) {
        return;
    }
    let whole = |text: &str| -> Vec<Value> { text.lines().map(parse).collect() };
    let (ours, recorded) = (whole(ours), whole(recorded));
    for (ours, recorded) in ours.iter().zip(&recorded) {
        let status = |value: &Value| value["result"]["status"].clone();
        if status(ours) != status(recorded) {
            writeln!(told, "{name}: {} for {}", status(ours), status(recorded)).unwrap();
        }
        let keys = |value: &Value| -> Vec<String> {
            let fields = value["result"].as_object().unwrap();
            fields.keys().cloned().collect()
        };
        if keys(ours) != keys(recorded) {
            writeln!(
                told,
                "{name}: keys {:?} for {:?}",
                keys(ours),
                keys(recorded)
            )
            .unwrap();
        }
        let etcd = |value: &Value| shape(&value["result"]["header"]["etcd"]);
        if etcd(ours) != etcd(recorded) {
            writeln!(told, "{name}: etcd {} for {}", etcd(ours), etcd(recorded)).unwrap();
        }
    }
    let offsets = |all: &[Value]| -> Vec<Value> {
        let results = all.iter().map(|line| &line["result"]);
        results.map(|result| result["offset"].clone()).collect()
    };
    // How often a fragment rolled is another matter: only where a read begins and ends.
    let (ours, recorded) = (offsets(&ours), offsets(&recorded));
    if (ours.first(), ours.last()) != (recorded.first(), recorded.last()) {
        writeln!(told, "{name}: offsets {ours:?} for {recorded:?}").unwrap();
    }
}
