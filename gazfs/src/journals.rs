//! Journals as files. Nothing here knows FUSE, so another transport can be put under it.

mod attributes;
mod caller;
mod coverage;
mod create;
mod directory;
mod error;
mod fs;
mod handle;
mod head;
mod inode;
mod names;
mod open;
mod patience;
mod pending;
mod read;
mod stream;
mod tree;
mod window;
mod write;
mod xattr;

pub use attributes::{Attributes, Change, Seek, Space};
pub use caller::{Caller, Ending};
pub use coverage::Coverage;
pub use create::{Template, TemplateError};
pub use error::{Cause, FsError};
pub use fs::{Ack, JournalFs, Options, Origin, StartError};
pub use handle::HandleId;
pub use names::{COMPONENT_BYTES_MAX, JOURNAL_SUFFIX};
pub use open::{OpenFlags, Opened};
pub use read::Read;
pub use tree::{Changes, Entry, Ino, Kind, Listed, Tree, TreeError};
pub use window::Window;
pub use write::Write;
