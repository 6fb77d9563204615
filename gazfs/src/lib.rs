#![doc = include_str!("../README.md")]

pub mod fuse;
pub mod journals;
