//! Records into a broker in memory that fails by script, and into a real one, and plays what the log has.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod bounded;
mod embedded;
mod fence;
mod random;
mod records;
mod support;
mod weather;
