//! Where hints are kept, so that a recovery reads what it needs of a log and no more.
//!
//! The hints of a log of mode `native` are records in a journal of their own beside it, which has its own
//! author register. There is no budget for their size.

mod home;
mod record;

pub use home::{
    HintsHome, HintsHomeError, HintsPoint, HintsSummary, JournalHints, list_hints, newest_hints,
    publish_verified,
};
pub use record::{HINTS_BYTES_MAX, HintsScanner, PublishedHints, RecordError, Scanned};
