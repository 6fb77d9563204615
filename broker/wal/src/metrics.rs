//! Names of the metrics of the log.

use std::time::Duration;

/// Entries that one sync covered.
pub const GROUP_SIZE: &str = "gazette_wal_group_size";
/// Time of one write of the log with its sync.
pub const SYNC_SECONDS: &str = "gazette_wal_sync_seconds";
/// Bytes written to the log.
pub const BYTES_TOTAL: &str = "gazette_wal_bytes_total";
/// Entries written to the log.
pub const ENTRIES_TOTAL: &str = "gazette_wal_entries_total";

/// Says what the metrics are.
pub fn describe() {
    metrics::describe_histogram!(GROUP_SIZE, "Entries of the write-ahead log under one sync");
    metrics::describe_histogram!(
        SYNC_SECONDS,
        metrics::Unit::Seconds,
        "Time of one write of the write-ahead log with its sync"
    );
    metrics::describe_counter!(
        BYTES_TOTAL,
        metrics::Unit::Bytes,
        "Bytes written to the write-ahead log"
    );
    metrics::describe_counter!(ENTRIES_TOTAL, "Entries written to the write-ahead log");
}

/// A round was written.
#[expect(
    clippy::cast_precision_loss,
    reason = "a number of entries is far below 2^52"
)]
pub(crate) fn round(entries: usize, bytes: usize, took: Duration) {
    metrics::counter!(BYTES_TOTAL).increment(bytes as u64);
    if entries > 0 {
        metrics::histogram!(GROUP_SIZE).record(entries as f64);
        metrics::histogram!(SYNC_SECONDS).record(took.as_secs_f64());
        metrics::counter!(ENTRIES_TOTAL).increment(entries as u64);
    }
}
