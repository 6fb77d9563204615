//! Fragments: spools that grow, the index of what can be read, and what is persisted when.

pub mod cover_set;
pub mod index;
pub mod list;
pub mod persist;
pub mod spool;

pub use cover_set::CoverSet;
pub use index::Index;
pub use persist::PersistSchedule;
pub use spool::Spool;
