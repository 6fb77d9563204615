//! Presence of messages that proto3 cannot express. The build script uses this table too.

/// Singular messages that a peer writes even when they are empty, by message and field.
/// They become plain fields instead of `Option`s.
pub(crate) const ALWAYS_WRITTEN: &[(&str, &[&str])] = &[
    ("LabelSelector", &["include", "exclude"]),
    ("JournalSpec", &["labels", "fragment"]),
    (
        "JournalSpec.Fragment",
        &["refresh_interval", "retention", "flush_interval"],
    ),
    ("ProcessSpec", &["id"]),
    ("BrokerSpec", &["process_spec"]),
    ("Fragment", &["sum"]),
    ("Header", &["process_id", "route", "etcd"]),
    ("AppendResponse", &["header"]),
    ("ListRequest", &["selector"]),
    ("ListResponse", &["header"]),
    ("ListResponse.Journal", &["spec", "route"]),
    ("ApplyResponse", &["header"]),
    ("FragmentsResponse", &["header"]),
    ("FragmentsResponse._Fragment", &["spec"]),
    ("FragmentStoreHealthResponse", &["header"]),
];
