//! Names of the broker's metrics, those of the reference where it has them.

/// RPCs that began, by operation.
pub(crate) const STARTED_TOTALS: &str = "gazette_journal_server_started_totals";
/// RPCs that ended, by operation and status.
pub(crate) const COMPLETED_TOTALS: &str = "gazette_journal_server_completed_totals";
/// Write head of a journal, as of its last append.
pub(crate) const WRITE_HEAD: &str = "gazette_write_head";
/// Appends that were committed to spools.
pub(crate) const SPOOL_COMMITS_TOTAL: &str = "gazette_spool_commits_total";
/// Bytes of them.
pub(crate) const SPOOL_COMMIT_BYTES_TOTAL: &str = "gazette_spool_commit_bytes_total";
/// Appends that were rolled back.
pub(crate) const SPOOL_ROLLBACKS_TOTAL: &str = "gazette_spool_rollbacks_total";
/// Spools that were closed.
pub(crate) const SPOOL_COMPLETED_TOTAL: &str = "gazette_spool_completed_total";
/// Spools that are in their store.
pub(crate) const SPOOL_PERSISTED_TOTAL: &str = "gazette_spool_persisted_total";

/// Describes the metrics to the recorder, once it is installed.
pub(crate) fn describe() {
    use ::metrics::{describe_counter, describe_gauge};
    describe_counter!(STARTED_TOTALS, "RPCs that began");
    describe_counter!(COMPLETED_TOTALS, "RPCs that ended");
    describe_gauge!(WRITE_HEAD, "write head of a journal");
    describe_counter!(SPOOL_COMMITS_TOTAL, "appends committed to spools");
    describe_counter!(SPOOL_COMMIT_BYTES_TOTAL, "bytes committed to spools");
    describe_counter!(SPOOL_ROLLBACKS_TOTAL, "appends rolled back");
    describe_counter!(SPOOL_COMPLETED_TOTAL, "spools closed");
    describe_counter!(SPOOL_PERSISTED_TOTAL, "spools stored");
}
