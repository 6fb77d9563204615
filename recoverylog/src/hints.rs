//! Where hints are kept, so that a recovery reads what it needs of a log and no more.
//!
//! The hints of a log of mode `native` are records in a journal of their own beside it, which has its own
//! author register. There is no budget for their size.

mod home;
mod keeping;
mod note;
mod record;

pub use home::{
    HintsHome, HintsHomeError, HintsPoint, HintsSummary, JournalHints, list_hints, newest_hints,
};
pub(crate) use keeping::needed;
pub use keeping::{Keeping, PinError, PruneNote, append_note, keeping, pin};
pub use note::{Note, NoteBody, Pin};
pub use record::{HINTS_BYTES_MAX, HintsScanner, PublishedHints, RecordError, Scanned};
