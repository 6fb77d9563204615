//! Records into a broker in memory that fails by script, and into a real one, and plays what the log has.

mod embedded;
mod fence;
mod records;
mod support;
mod weather;
