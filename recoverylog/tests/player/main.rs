//! Plays logs from a broker and from a store to directories, and compares these in full.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod faults;
mod golden;
mod histories;
mod history;
mod look;
mod parts;
mod support;
mod targets;
mod world;
