//! Names of the metrics that the client keeps.

/// Counts bytes appended, with label [`JOURNAL`].
pub const APPEND_BYTES: &str = "gazette_append_bytes_total";
/// Counts bytes read, with label [`JOURNAL`].
pub const READ_BYTES: &str = "gazette_read_bytes_total";
/// Counts fragments opened in a store, with labels [`JOURNAL`] and [`CODEC`].
pub const FRAGMENT_OPEN: &str = "gazette_fragment_open_total";
/// Counts bytes of opened fragments as stored, where the store says, with labels [`JOURNAL`] and
/// [`CODEC`].
pub const FRAGMENT_OPEN_BYTES: &str = "gazette_fragment_open_bytes_total";
/// Counts bytes of content of opened fragments, with labels [`JOURNAL`] and [`CODEC`].
pub const FRAGMENT_OPEN_CONTENT_LENGTH: &str = "gazette_fragment_open_content_length_total";
/// Counts bytes read from stores, with labels [`JOURNAL`] and [`CODEC`].
pub const READ_FRAGMENT_BYTES: &str = "gazette_read_fragment_bytes_total";
/// Counts bytes read from stores and discarded to reach an offset, with labels [`JOURNAL`] and
/// [`CODEC`].
pub const DISCARD_FRAGMENT_BYTES: &str = "gazette_discard_fragment_bytes_total";

/// Label that holds the name of a journal.
pub const JOURNAL: &str = "journal";
/// Label that holds the name of a compression codec.
pub const CODEC: &str = "codec";

/// Gives the recorder the meaning of each metric.
pub fn describe() {
    use ::metrics::{Unit, describe_counter};
    describe_counter!(
        APPEND_BYTES,
        Unit::Bytes,
        "Bytes of journals appended by this client."
    );
    describe_counter!(
        READ_BYTES,
        Unit::Bytes,
        "Bytes of journals read by this client."
    );
    describe_counter!(FRAGMENT_OPEN, "Fragments opened directly in a store.");
    describe_counter!(
        FRAGMENT_OPEN_BYTES,
        Unit::Bytes,
        "Stored bytes of opened fragments."
    );
    describe_counter!(
        FRAGMENT_OPEN_CONTENT_LENGTH,
        Unit::Bytes,
        "Content of opened fragments, uncompressed."
    );
    describe_counter!(
        READ_FRAGMENT_BYTES,
        Unit::Bytes,
        "Content read from opened fragments."
    );
    describe_counter!(
        DISCARD_FRAGMENT_BYTES,
        Unit::Bytes,
        "Content of opened fragments skipped to reach the wanted offset."
    );
}
