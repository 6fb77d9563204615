//! Benchmarks.

use gazette_client::fake::{Call, Fault};
use gazette_protocol::Status;
use serde_json::{Value, json};

use crate::House;

#[test]
fn a_benchmark_of_appends_measures_and_cleans_up() {
    let house = House::new(&["app/log"]);
    let short = "--duration 1s --warmup 100ms --clients 2 -o json";
    let bench = format!("bench append --journals 2 --size 100 {short}");
    let ended = house.run(&bench);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("appends/s"), "{ended:?}");
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (&result["clients"], &result["journals"]),
        (&json!(2), &json!(2))
    );
    let appends = result["appends"].as_u64().unwrap();
    assert!(appends > 0);
    assert_eq!(result["bytes"], appends * 100);
    assert_eq!(result["errors"], 0);
    assert!(result["p50_us"].as_u64().unwrap() <= result["p999_us"].as_u64().unwrap());
    let left = house.run("journals list -l prefix=bench/ -o yaml").done();
    assert_eq!(left, "{}\n");

    let existing = format!("bench append -l name=app/log {short}");
    assert_eq!(house.run(&existing).code, Some(0));
    assert!(house.broker.head("app/log") > 0);
    let none = format!("bench append -l name=app/none {short}");
    house
        .run(&none)
        .failed(1, &["no journals match", "; next: "]);
    house
        .broker
        .inject_every(Call::Append, 1, Fault::Status(Status::NotAllowed));
    house
        .run(&existing)
        .failed(1, &["every request failed", "NOT_ALLOWED"]);
}

#[test]
fn a_benchmark_of_reads_checks_what_it_reads() {
    let house = House::new(&[]);
    let ended = house
        .run("bench read --fill 1MiB --size 10000 --duration 1s --warmup 0s --clients 2 -o json");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    assert!(result["reads"].as_u64().unwrap() > 0);
    assert_eq!(result["errors"], 0, "{result}");
}
