use hdrhistogram::Histogram;

use super::*;

fn measured() -> Measurement {
    let mut latency = Histogram::new_with_bounds(1, 600_000_000, 3).unwrap();
    for micros in 1..=1000 {
        latency.record(micros).unwrap();
    }
    Measurement {
        operations: 1000,
        bytes: 1000 << 10,
        errors: 1,
        first_error: Some("no luck".to_owned()),
        elapsed: Duration::from_secs(2),
        latency,
    }
}

fn plan() -> Plan {
    Plan {
        operation: "append",
        clients: 8,
        journals: 1,
        size: 1024,
        warmup: Duration::from_secs(1),
    }
}

#[test]
fn the_text_has_what_a_person_compares() {
    let expected = "\
append: 8 clients, 1 journal, 1.0 KiB each, 2.0 s after 1.0 s of warm-up
throughput  500 appends/s  0.5 MiB/s
latency     p50 0.50  p90 0.90  p99 0.99  p99.9 1.00  max 1.00 ms
errors      1, the first: no luck
";
    assert_eq!(text(&plan(), &measured()), expected);
}

#[test]
fn the_json_has_what_a_program_compares() {
    let report = json(&plan(), &measured());
    for (key, value) in [
        ("operation", json!("append")),
        ("clients", json!(8)),
        ("size", json!(1024)),
        ("appends", json!(1000)),
        ("appends_per_second", json!(500.0)),
        ("bytes_per_second", json!(512_000.0)),
        ("p50_us", json!(500)),
        ("p99_us", json!(990)),
        ("p999_us", json!(999)),
        ("errors", json!(1)),
        ("first_error", json!("no luck")),
    ] {
        assert_eq!(report[key], value, "{key}");
    }
}

#[test]
fn nothing_measured_is_a_rate_of_zero() {
    assert!(per_second(0, 0.0).abs() < f64::EPSILON);
}
