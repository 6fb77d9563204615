#![doc = include_str!("../README.md")]

pub mod commands;
pub mod fuse;
pub mod journals;
pub mod mount;
