//! Between spools and fragment stores: listing what stores hold, uploading, and opening fragments.

mod compressed;
mod listing;
mod open;
mod upload;

pub(crate) use listing::{list, unix_seconds};
pub(crate) use open::{Opened, open};
pub(crate) use upload::{UploadError, upload};
