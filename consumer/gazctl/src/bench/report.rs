//! The result, for people and for programs.

use std::time::Duration;

use serde_json::{Value, json};

use super::load::Measurement;
use crate::output::{bytes, to_f64};

/// What was asked for.
#[derive(Debug)]
pub(super) struct Plan {
    /// Name of an operation: `append`.
    pub(super) operation: &'static str,
    pub(super) clients: u32,
    pub(super) journals: usize,
    pub(super) size: u64,
    pub(super) warmup: Duration,
}

/// Returns the result in a few lines.
pub(super) fn text(plan: &Plan, measured: &Measurement) -> String {
    let Plan {
        operation,
        clients,
        journals,
        size,
        warmup,
    } = plan;
    let seconds = measured.elapsed.as_secs_f64();
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let head = format!(
        "{operation}: {clients} client{}, {journals} journal{}, {} each, {seconds:.1} s after {:.1} s \
         of warm-up",
        plural((*clients).into()),
        plural(u64::try_from(*journals).unwrap_or(u64::MAX)),
        bytes(*size),
        warmup.as_secs_f64(),
    );
    let throughput = format!(
        "throughput  {:.0} {operation}s/s  {:.1} MiB/s",
        per_second(measured.operations, seconds),
        per_second(measured.bytes, seconds) / MIB
    );
    let at = |quantile: f64| millis(measured.latency.value_at_quantile(quantile));
    let latency = format!(
        "latency     p50 {}  p90 {}  p99 {}  p99.9 {}  max {} ms",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        millis(measured.latency.max())
    );
    let first = measured.first_error.as_ref();
    let first = first.map_or_else(String::new, |error| format!(", the first: {error}"));
    format!(
        "{head}\n{throughput}\n{latency}\nerrors      {}{first}\n",
        measured.errors
    )
}

/// Returns the result as JSON. Rates are those of the measured time, latencies are microseconds.
pub(super) fn json(plan: &Plan, measured: &Measurement) -> Value {
    let seconds = measured.elapsed.as_secs_f64();
    let at = |quantile: f64| measured.latency.value_at_quantile(quantile);
    let mut report = json!({
        "operation": plan.operation,
        "clients": plan.clients,
        "journals": plan.journals,
        "size": plan.size,
        "seconds": seconds,
        "bytes": measured.bytes,
        "bytes_per_second": per_second(measured.bytes, seconds),
        "mean_us": measured.latency.mean(),
        "p50_us": at(0.5),
        "p90_us": at(0.9),
        "p99_us": at(0.99),
        "p999_us": at(0.999),
        "max_us": measured.latency.max(),
        "errors": measured.errors,
        "first_error": measured.first_error,
    });
    // `appends` and `appends_per_second`, or those of reads.
    let operations = format!("{}s", plan.operation);
    report[format!("{operations}_per_second")] = json!(per_second(measured.operations, seconds));
    report[operations] = json!(measured.operations);
    report
}

/// Returns a rate, which is zero if nothing was measured.
pub(super) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        to_f64(count) / seconds
    } else {
        0.0
    }
}

fn millis(micros: u64) -> String {
    let millis = to_f64(micros) / 1000.0;
    match millis {
        ..10.0 => format!("{millis:.2}"),
        10.0..100.0 => format!("{millis:.1}"),
        _ => format!("{millis:.0}"),
    }
}

pub(super) const MIB: f64 = 1_048_576.0;

#[cfg(test)]
mod tests;
