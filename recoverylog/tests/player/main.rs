//! Plays logs from a broker and from a store to directories, and compares these in full.

mod faults;
mod golden;
mod histories;
mod history;
mod parts;
mod support;
mod targets;
mod world;
