//! Records into a broker in memory that fails by script, and plays what the log has.

mod fence;
mod records;
mod support;
mod weather;
