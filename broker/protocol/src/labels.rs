//! Well-known names and values of labels.

/// How the content of a journal is framed.
pub const CONTENT_TYPE: &str = "content-type";
/// Type of the messages of a journal.
pub const MESSAGE_TYPE: &str = "app.gazette.dev/message-type";
/// Refines [`MESSAGE_TYPE`].
pub const MESSAGE_SUBTYPE: &str = "app.gazette.dev/message-subtype";
/// Free; the only well-known label that may have several values.
pub const TAG: &str = "app.gazette.dev/tag";
/// Who maintains the spec.
pub const MANAGED_BY: &str = "app.gazette.dev/managed-by";
/// Instance of whatever [`MANAGED_BY`] names.
pub const INSTANCE: &str = "app.gazette.dev/instance";
/// Region of the content.
pub const REGION: &str = "app.gazette.dev/region";

/// Derived label of a journal: its name. Selectors may use it; specs may not set it.
pub const META_NAME: &str = "name";
/// Derived label of a list request: a folder of names, which ends in `/`.
pub const META_PREFIX: &str = "prefix";
/// Derived label of a shard: its id.
pub const META_ID: &str = "id";

/// Content type of rows of comma-separated values.
pub const CONTENT_TYPE_CSV: &str = "text/csv";
/// Content type of JSON documents, one a line.
pub const CONTENT_TYPE_JSON_LINES: &str = "application/x-ndjson";
/// Content type of messages with a fixed-size header.
pub const CONTENT_TYPE_PROTO_FIXED: &str = "application/x-protobuf-fixed";
/// Content type of recovery logs.
pub const CONTENT_TYPE_RECOVERY_LOG: &str = "application/x-gazette-recoverylog";

/// Labels that may have one value only.
pub const SINGLE_VALUED: [&str; 6] = [
    CONTENT_TYPE,
    INSTANCE,
    MANAGED_BY,
    MESSAGE_SUBTYPE,
    MESSAGE_TYPE,
    REGION,
];
