//! Names of the metrics of this crate.

/// Gauge: stores in the registry.
pub const STORE_ACTIVE: &str = "gazette_store_active";
/// Histogram of seconds, by `store`, `operation` and `status`.
pub const STORE_OPERATION_DURATION_SECONDS: &str = "gazette_store_operation_duration_seconds";
/// Counter, by `store`, `operation` and `status`.
pub const STORE_OPERATION_TOTAL: &str = "gazette_store_operation_total";
/// Counter of bytes put, by `store` and `encoding`.
pub const STORE_PUT_BYTES_TOTAL: &str = "gazette_store_put_bytes_total";
/// Histogram of objects found by a listing, by `store`.
pub const STORE_LIST_ITEMS_COUNT: &str = "gazette_store_list_items_count";
/// Counter, by `store` and `status`.
pub const STORE_HEALTH_CHECK_TOTAL: &str = "gazette_store_health_check_total";

/// Buckets of [`STORE_OPERATION_DURATION_SECONDS`].
pub const STORE_OPERATION_DURATION_BUCKETS: [f64; 6] = [0.01, 0.04, 0.16, 0.64, 2.56, 10.24];
/// Buckets of [`STORE_LIST_ITEMS_COUNT`].
pub const STORE_LIST_ITEMS_BUCKETS: [f64; 6] = [10.0, 40.0, 160.0, 640.0, 2560.0, 10240.0];

/// Describes the metrics to the recorder that is installed.
pub fn describe() {
    ::metrics::describe_gauge!(STORE_ACTIVE, "Fragment stores in use.");
    ::metrics::describe_histogram!(
        STORE_OPERATION_DURATION_SECONDS,
        ::metrics::Unit::Seconds,
        "Time that an operation of a fragment store took."
    );
    ::metrics::describe_counter!(STORE_OPERATION_TOTAL, "Operations of fragment stores.");
    ::metrics::describe_counter!(
        STORE_PUT_BYTES_TOTAL,
        ::metrics::Unit::Bytes,
        "Bytes put into fragment stores, as stored."
    );
    ::metrics::describe_histogram!(
        STORE_LIST_ITEMS_COUNT,
        "Objects that a listing of a fragment store found."
    );
    ::metrics::describe_counter!(
        STORE_HEALTH_CHECK_TOTAL,
        "Health checks of fragment stores."
    );
}
