#![doc = include_str!("../README.md")]

mod generated;

pub use generated::*;
