#![doc = include_str!("../README.md")]

pub mod forgetful;
pub mod late_disk;
pub mod workload;
