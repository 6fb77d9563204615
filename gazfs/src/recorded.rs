//! A directory whose every mutation goes into a log. Nothing here knows FUSE, so another transport
//! can be put under it.
//!
//! The files themselves lie in a backing tree, which nobody but this daemon changes. An operation
//! reserves room in the log, changes the backing tree, and records what succeeded, the last two
//! under one lock: so the log has mutations in the order in which they happened, and after a change
//! nothing can fail any more.

mod attributes;
mod backing;
mod call;
mod change;
mod content;
mod create;
mod directory;
mod error;
mod fs;
mod handle;
pub mod log;
#[cfg(any(test, feature = "test-util"))]
pub mod memory;
mod names;
mod node;
mod open;
mod open_mode;
mod remove;
mod repeat;
mod sqlite;
mod unseen;
mod xattr;

pub use attributes::{Attributes, Ino, Kind, Space};
pub use call::{Call, Patience};
pub use change::{Change, TimeChange};
pub use content::{Allocation, Seek, Write};
pub use create::Created;
pub use directory::Line;
pub use error::FsError;
pub use fs::{RecordedFs, StartError};
pub use handle::HandleId;
pub use open::{Abandoned, OpenFlags, Opened};
pub use open_mode::OpenMode;
pub use xattr::SetMode;
