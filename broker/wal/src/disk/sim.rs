//! A disk in memory.

/// A disk in memory.
#[derive(Debug)]
pub struct SimDisk;

/// How it crashes.
#[derive(Debug)]
pub struct Crash;
