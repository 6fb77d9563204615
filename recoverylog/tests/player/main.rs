//! Plays logs from a broker and from a store to directories, and compares these in full.

mod golden;
mod histories;
mod support;
mod world;
