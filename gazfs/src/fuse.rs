//! Answers the kernel's requests: one adapter for each file system.
//!
//! One thread reads requests. It answers what does not wait, and leaves the rest to others: a second
//! reader would cost more in wake-ups than it brings.

pub mod journals;
pub mod recorded;
